"""``shiftbed report``, ``serve`` and ``card``: the page, the page over HTTP, a model card."""

from pathlib import Path
from typing import Annotated

import typer

from shiftbed.cli.lines import TESTBED, Fdr, Shifts
from shiftbed.cli.output import Level, TestbedName

Sources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TESTBED|STORE]...",
        help="Published testbeds' names, testbed files, stores. Given several, the first one's "
        "lines judge the models of the others.",
        show_default=TESTBED,
    ),
]


def report(
    testbeds: Sources = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .html file to write.")] = (
        Path("report.html")
    ),
    shift: Shifts = None,
    fdr: Fdr = 0.05,
    opening: Annotated[
        Path | None,
        typer.Option(help="A text file whose paragraphs open the page, before what was found."),
    ] = None,
) -> None:
    """Write one offline page: what was found in words, then interactive views of it all."""
    from shiftbed.page.report import report

    report(testbeds or TESTBED, output, shifts=shift, fdr=fdr, opening=opening or ()).print()


def serve(
    testbeds: Sources = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8000,
    allow_remote: Annotated[
        bool,
        typer.Option("--allow-remote", help="Let others connect; the address then has a token."),
    ] = False,
    shift: Shifts = None,
    fdr: Fdr = 0.05,
) -> None:
    """Serve the page, read-only, and rebuild it while a run writes to the store."""
    from shiftbed.page.serve import serve

    site = serve(
        testbeds or TESTBED,
        host=host,
        port=port,
        allow_remote=allow_remote,
        shifts=shift,
        fdr=fdr,
    )
    print(f"serving {', '.join(site.sources)} at {site.address} (Ctrl-C ends)", flush=True)
    site.run()
    print("ended")


def card(
    model: Annotated[str, typer.Argument(help="A model of the testbed.")],
    testbed: TestbedName = TESTBED,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .md or .html file (default: Markdown, printed)."),
    ] = None,
    shift: Shifts = None,
    fdr: Fdr = 0.05,
    level: Level = 0.95,
) -> None:
    """A section for a model card: accuracies, ρ with intervals, label policies, caveats."""
    from shiftbed.page.card import card

    made = card(model, testbed, output=output, shifts=shift, level=level, fdr=fdr)
    print(f"wrote {output}" if output else made.to_markdown().rstrip("\n"))
