"""One offline page about testbeds: what was found in words and numbers, then the views."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shiftbed import figures
from shiftbed.atomic import write_atomically
from shiftbed.errors import InputError
from shiftbed.page.findings import Findings, findings
from shiftbed.page.page import page
from shiftbed.page.payload import payload
from shiftbed.results.plot import Source, gallery, open_source, patterns_of
from shiftbed.testbed.combine import combine
from shiftbed.testbed.record import Testbed

__all__ = ["SUFFIXES", "Findings", "findings", "report_page", "save", "write_report"]

SUFFIXES = (*figures.SUFFIXES, ".html")
"""Kinds of files a chart is written to."""

Sources = str | Testbed | Sequence[str | Testbed]


def write_report(
    sources: Sources,
    path: str | Path,
    *,
    shifts: Sequence[str] | None = None,
    fdr: float = 0.05,
    opening: Sequence[str] = (),
) -> Findings:
    """Write the page, atomically, and return what it says."""
    text, found = report_page(sources, shifts=shifts, fdr=fdr, opening=opening)
    with write_atomically(path) as file:
        file.write(text.encode())
    return found


def report_page(
    sources: Sources,
    *,
    shifts: Sequence[str] | None = None,
    fdr: float = 0.05,
    refresh: bool = False,
    opening: Sequence[str] = (),
) -> tuple[str, Findings]:
    """The page as text, and what it says; several testbeds are shown together.

    ``opening`` are paragraphs of the author's own, before everything else.

    Sources are testbeds, or names that ``open_source`` knows. Charts that need predictions per
    image come from the stores among them.
    """
    given = [sources] if isinstance(sources, str | Testbed) else list(sources)
    opened = [_open(one) for one in given]
    whole = combine([one.testbed for one in opened])
    store = next((one.store for one in opened if one.store is not None), None)
    source = Source(name=whole.name, testbed=whole, store=store if len(opened) == 1 else None)
    found = findings(whole, shifts, fdr=fdr, patterns=patterns_of(source))
    own = tuple(("finding", text) for text in opening)
    found = replace(found, sentences=(*own, *found.sentences))
    views, missing = gallery(source)
    for one in opened if len(opened) > 1 else []:
        there = {view.id for view in views}
        mine = [v for v in gallery(one)[0] if v.id not in there and one.store is not None]
        views += [replace(view, title=f"{view.title}: {one.name}") for view in mine]
    missing = [one for one in missing if one.id not in {view.id for view in views}]
    data = payload(whole, found, views, missing, [one.testbed for one in opened])
    return page(data, refresh=refresh), found


def _open(source: str | Testbed) -> Source:
    if isinstance(source, Testbed):
        return Source(name=source.name, testbed=source)
    return open_source(source)


def save(chart: figures.Chart, path: str | Path, *, dpi: int = 300, style: str = "paper") -> None:
    """Write a chart to a file of the kind its name ends in; ``dpi`` is for .png.

    ``style`` is ``paper`` or ``slides``, for everything but .html.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: a figure is written to {', '.join(SUFFIXES)}, not {suffix!r}")
    if suffix == ".html":
        from shiftbed.figures.interactive import save_html

        save_html(chart, path)
    else:
        figures.save_static(chart, path, dpi=dpi, style=style)
