"""``shiftbed plot``, ``report``, ``serve`` and ``card``: pictures, the page, a model card."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from shiftbed.cli import options as opt
from shiftbed.cli.commands import Command, Default, Read, Silent
from shiftbed.cli.output import call
from shiftbed.errors import InputError
from shiftbed.places import shown_place

Sources = Argument(
    metavar="[TESTBED|STORE]...",
    help="Published testbeds' names, testbed files, stores. Given several, the first one's lines "
    "judge the models of the others.",
    show_default=opt.TESTBED,
)


def _ends(text: str, option: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option}: expected LOW,HIGH such as 0.5,0.9, got {text!r}") from None
    return low, high


plot = Silent(
    """Draw a shift: models with error bars, the line with its band, y = x, outliers named.

    With --chart, any other chart of the report, of a testbed or a store.
    """,
    lambda function, given: print(f"wrote {shown_place(str(call(function, given)))}"),
    source=opt.SHARED["testbed"],
    chart="scatter, relative, synthetic, grid, multiples, trajectories, severities, similarity, "
    "predictiveness, factors, patterns, effects, reliability or probes.",
    output=Default(
        Annotated[
            Path,
            Option("--output", "-o", help="A .png, .svg, .pdf or (interactive) .html file."),
        ],
        ...,
    ),
    ax=None,
    by="One line per value of this column; of predictiveness, what makes the rows: task, kind, "
    "shift-type or a column.",
    colour="Column that colours the models.",
    highlight="Models to mark and name.",
    label=Option(help="How many of the models out of line (q ≤ 0.05) to name.", min=0),
    level="Level of the models' error bars.",
    only="Draw only these models: COLUMN=PATTERN.",
    models=Option("--models", help="Draw only this model; repeatable."),
    run="Draw only this run's trajectory; repeatable.",
    against="The shift on the x axis of a synthetic chart (default: the best correlated); of "
    "effects, the value of --column to compare with.",
    all="The whole grid: every model in every setting, all severities.",
    draw="Which drawing: of a scatter scaled or linear (axes), of a plane space or projections, of "
    "trajectories rho, share or largest, of similarity dominance or triplets, of predictiveness "
    "matrix, scores or transfer, of patterns counts or scatters, of effects architectures, "
    "difficulty, differences or head; the first is the default.",
    column="Recipe column that effects compare, such as augmentation.",
    of="Its values on one side of effects; --against is the other.",
    over="Column to draw the largest ρ of trajectories over.",
    xlim=Read("LOW,HIGH of the x axis, accuracies such as 0.5,0.9.", _ends),
    ylim=Read("LOW,HIGH of the y axis, likewise.", _ends),
    style="paper (default), column or columns (as wide as one or two columns of a paper, without "
    "title), or slides (larger type and lines).",
    dpi=Option(help="Resolution of a .png (default 300).", min=30, max=1200),
)
report = Silent(
    "Write one offline page: what was found in words, then interactive views of it all.",
    lambda function, given: call(function, given).print(),
    sources=Sources,
    output=Default(
        Annotated[Path, Option("--output", "-o", help="The .html file to write.")],
        Path("report.html"),
    ),
    opening=Annotated[
        Path,
        Option(help="A text file whose paragraphs open the page, before what was found."),
    ],
    refresh=None,
)


def _serve(function: Callable[..., Any], given: dict[str, Any]) -> None:
    site = call(function, given)
    print(f"serving {', '.join(site.sources)} at {site.address} (Ctrl-C ends)", flush=True)
    site.run()
    print("ended")


serve = Silent(
    "Serve the page, read-only, and rebuild it while a run writes to the store.",
    _serve,
    sources=Sources,
    host="Address to listen on.",
    port=Option(help="Port; 0 takes a free one.", min=0, max=65535),
    allow_remote="Let others connect; the address then has a token.",
)


def _card(function: Callable[..., Any], given: dict[str, Any]) -> None:
    made = call(function, given)
    if given["json"]:
        print(made.to_json())
    elif given["output"]:
        made.print_answer()
        print(f"wrote {shown_place(given['output'])}")
    else:
        print(made.to_markdown().rstrip("\n"))


card = Command(
    "A section for a model card: accuracies, ρ with intervals, label policies, caveats.",
    _card,
    model=Argument(help="A model of the testbed."),
    output=Option("--output", "-o", help="A .md or .html file (default: Markdown, printed)."),
)
