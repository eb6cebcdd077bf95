"""``shiftbed plot``, ``report``, ``serve`` and ``card``: pictures, the page, a model card."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import shiftbed as sb
from shiftbed.cli import options as opt
from shiftbed.cli.output import call
from shiftbed.errors import InputError

Sources = Annotated[
    list[str] | None,
    Argument(
        metavar="[TESTBED|STORE]...",
        help="Published testbeds' names, testbed files, stores. Given several, the first one's "
        "lines judge the models of the others.",
        show_default=opt.TESTBED,
    ),
]


def plot(
    output: Path = Option(
        ..., "--output", "-o", help="A .png, .svg, .pdf or (interactive) .html file."
    ),
    source: opt.TestbedName = opt.TESTBED,
    chart: str = Option(
        "scatter",
        help="scatter, relative, synthetic, grid, multiples, trajectories, severities, "
        "similarity, predictiveness, factors, patterns, reliability or probes.",
    ),
    shift: opt.ShiftName = None,
    id: opt.Ids = None,
    ood: opt.Ood = None,
    scale: opt.ScaleName = "logit",
    fit_on: opt.FitOn = None,
    threshold: opt.Threshold = None,
    full_id: opt.FullId = False,
    knee: opt.Knee = "published",
    on_boundary: opt.Boundary = "raise",
    by: str | None = Option(None, help="One line per value of this column."),
    colour: str | None = Option(None, help="Column that colours the models."),
    highlight: list[str] | None = Option(None, help="Models to mark and name."),
    label: int = Option(6, help="How many of the models out of line (q ≤ 0.05) to name."),
    level: float = Option(0.995, help="Level of the models' error bars."),
    only: list[str] | None = Option(None, help="Draw only these models: COLUMN=PATTERN."),
    models: list[str] | None = Option(None, "--models", help="Draw only this model; repeatable."),
    run: list[str] | None = Option(None, help="Draw only this run's trajectory; repeatable."),
    against: str | None = Option(
        None, help="The shift on the x axis of a synthetic chart (default: the best correlated)."
    ),
    all: bool = Option(
        False, "--all", help="The whole grid: every model in every setting, all severities."
    ),
    xlim: str | None = Option(None, help="LOW,HIGH of the x axis, accuracies such as 0.5,0.9."),
    ylim: str | None = Option(None, help="LOW,HIGH of the y axis, likewise."),
    others: opt.Others = None,
    style: str | None = Option(
        None,
        help="paper (default), column or columns (as wide as one or two columns of a paper, "
        "without title), or slides (larger type and lines).",
    ),
    dpi: int | None = Option(None, help="Resolution of a .png (default 300).", min=30, max=1200),
) -> None:
    """Draw a shift: models with error bars, the line with its band, y = x, outliers named.

    With --chart, any other chart of the report, of a testbed or a store.
    """
    given = locals()
    path = call(sb.plot, given, xlim=_ends(xlim, "--xlim"), ylim=_ends(ylim, "--ylim"))
    print(f"wrote {path}")


def _ends(text: str | None, option: str) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option}: expected LOW,HIGH such as 0.5,0.9, got {text!r}") from None
    return low, high


def report(
    sources: Sources = None,
    output: Path = Option(Path("report.html"), "--output", "-o", help="The .html file to write."),
    shifts: opt.Shifts = None,
    fdr: opt.Fdr = 0.05,
    on_boundary: opt.Boundary = "raise",
    opening: Path | None = Option(
        None, help="A text file whose paragraphs open the page, before what was found."
    ),
) -> None:
    """Write one offline page: what was found in words, then interactive views of it all."""
    call(sb.report, locals()).print()


def serve(
    sources: Sources = None,
    host: str = Option("127.0.0.1", help="Address to listen on."),
    port: int = Option(8000, help="Port; 0 takes a free one.", min=0, max=65535),
    allow_remote: bool = Option(
        False, "--allow-remote", help="Let others connect; the address then has a token."
    ),
    shifts: opt.Shifts = None,
    fdr: opt.Fdr = 0.05,
    on_boundary: opt.Boundary = "raise",
) -> None:
    """Serve the page, read-only, and rebuild it while a run writes to the store."""
    site = call(sb.serve, locals())
    print(f"serving {', '.join(site.sources)} at {site.address} (Ctrl-C ends)", flush=True)
    site.run()
    print("ended")


def card(
    model: str = Argument(help="A model of the testbed."),
    testbed: opt.TestbedName = opt.TESTBED,
    output: Path | None = Option(
        None, "--output", "-o", help="A .md or .html file (default: Markdown, printed)."
    ),
    shifts: opt.Shifts = None,
    others: opt.Others = None,
    on_boundary: opt.Boundary = "raise",
    fdr: opt.Fdr = 0.05,
    level: opt.Level = 0.95,
    json: opt.AsJson = False,
) -> None:
    """A section for a model card: accuracies, ρ with intervals, label policies, caveats."""
    made = call(sb.card, locals())
    if json:
        print(made.to_json())
        return
    print(f"wrote {output}" if output else made.to_markdown().rstrip("\n"))
