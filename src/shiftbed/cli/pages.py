"""``shiftbed report``, ``serve`` and ``card``: the page, the page over HTTP, a model card."""

from pathlib import Path
from typing import Annotated

import typer

from shiftbed.cli.output import Level, TestbedName

Sources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TESTBED|STORE]...",
        help="Published testbeds' names, testbed files, stores. Given several, the first one's "
        "lines judge the models of the others.",
        show_default="imagenet-testbed-2020",
    ),
]
Shifts = Annotated[list[str] | None, typer.Option("--shift", "-s", help="Only these shifts.")]
Fdr = Annotated[float, typer.Option(help="False discovery rate of 'out of line'.")]


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
    from shiftbed.atomic import write_atomically
    from shiftbed.page import report_page

    first = _paragraphs(opening) if opening else []
    text, found = report_page(_names(testbeds), shifts=shift or None, fdr=fdr, opening=first)
    with write_atomically(output) as file:
        file.write(text.encode())
    print(f"wrote {output} ({len(text.encode()) / 1e6:.1f} MB, {len(found.lines)} shifts)")


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
    """Serve the page, read-only, and make it anew while a run writes to the store."""
    from shiftbed.page import report_page
    from shiftbed.page.serve import Served, make_server, stamp_of

    names = _names(testbeds)

    def make() -> str:
        return report_page(names, shifts=shift or None, fdr=fdr, refresh=True)[0]

    served = Served(make, lambda: stamp_of(names))
    server, address = make_server(served, host=host, port=port, allow_remote=allow_remote)
    print(f"serving {', '.join(names)} at {address} (Ctrl-C ends)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("ended")
    finally:
        server.server_close()


def card(
    model: Annotated[str, typer.Argument(help="A model of the testbed.")],
    testbed: TestbedName = "imagenet-testbed-2020",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .md or .html file (default: Markdown, printed)."),
    ] = None,
    shift: Shifts = None,
    fdr: Fdr = 0.05,
    level: Level = 0.95,
) -> None:
    """A section for a model card: accuracies, ρ with intervals, label policies, caveats."""
    from shiftbed.atomic import write_atomically
    from shiftbed.errors import InputError
    from shiftbed.page.card import card as make
    from shiftbed.page.card import to_html, to_markdown
    from shiftbed.results.plot import open_source

    writers = {".md": to_markdown, ".html": to_html}
    if output is not None and output.suffix.lower() not in writers:
        raise InputError(f"{output}: a card is written to .md or .html, not {output.suffix!r}")
    source = open_source(testbed)
    made = make(
        source.testbed,
        model,
        shifts=shift or None,
        policies=source.policies,
        level=level,
        fdr=fdr,
    )
    if output is None:
        print(to_markdown(made), end="")
        return
    with write_atomically(output) as file:
        file.write(writers[output.suffix.lower()](made).encode())
    print(f"wrote {output}")


def _paragraphs(path: Path) -> list[str]:
    """Texts between blank lines."""
    from shiftbed.errors import InputError

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--opening {path}: {error}") from None
    found = [" ".join(part.split()) for part in text.split("\n\n")]
    return [part for part in found if part]


def _names(given: list[str] | None) -> list[str]:
    return given or ["imagenet-testbed-2020"]
