"""One offline page about testbeds: what was found in words and numbers, then the views."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shiftbed.analysis.baseline import OnBoundary
from shiftbed.atomic import write_atomically
from shiftbed.display import Result, Table, counted, readable
from shiftbed.errors import InputError
from shiftbed.page.document import chart_json, page
from shiftbed.page.findings import Finding, Findings, findings
from shiftbed.page.placing import placing
from shiftbed.places import shown_place
from shiftbed.reading.files import read_text
from shiftbed.records import Shift
from shiftbed.results.caveats import doubts
from shiftbed.results.charts.scatter import FEWEST
from shiftbed.results.plot import NotDrawn, Source, View, gallery, open_source
from shiftbed.store import PredictionStore
from shiftbed.testbed import PUBLISHED
from shiftbed.testbed.combine import combine
from shiftbed.testbed.labels import labels
from shiftbed.testbed.record import Testbed

One = str | Path | Testbed | PredictionStore
Sources = One | Sequence[One]
HIDDEN = ("model", "called", "in_fit_set", "parent")
"""Columns of models that the page has elsewhere."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Report(Result):
    """A page about testbeds; ``frame`` has a row per line: shift, id, ood, n, r2, mae, reason …"""

    page: str
    """The page itself, one HTML file."""
    output: Path | None
    """Where it was written."""
    findings: Findings
    views: tuple[str, ...]
    """Titles of the charts in it, besides those that are drawn from its data."""
    missing: tuple[NotDrawn, ...]
    """Charts that the sources cannot give, and why."""

    @property
    def size(self) -> int:
        """Bytes of the page."""
        return len(self.page.encode())

    def tables(self) -> Iterable[Table]:
        where = f"wrote {shown_place(self.output)}" if self.output else "a page, not written"
        said = f"{where} ({self.size / 1e6:.1f} MB, {counted(len(self.frame), 'shift')})"
        left = [f"Not in it: {one.title} ({one.reason})." for one in self.missing]
        return [Table(notes=(said, *left, *self.notes))]

    def to_dict(self) -> dict[str, Any]:
        return {
            "output": None if self.output is None else shown_place(self.output),
            "bytes": self.size,
            "lines": self.frame.to_dicts(),
            "findings": [{"level": how, "text": text} for how, text in self.findings.sentences],
            "views": list(self.views),
            "missing": [{"title": one.title, "reason": one.reason} for one in self.missing],
            "notes": list(self.notes),
        }


def report(
    sources: Sources = "imagenet-testbed-2020",
    output: str | Path | None = None,
    *,
    shifts: Sequence[str] | None = None,
    fdr: float = 0.05,
    on_boundary: OnBoundary = "raise",
    opening: str | Path | Sequence[str] = (),
    refresh: bool = False,
) -> Report:
    """One offline page: what was found in words, then interactive views of it all.

    ``sources`` are testbeds or stores, or their names or paths; given several, the first one's
    lines judge the models of the others. Charts that need predictions per image come from the
    stores among them. ``opening`` are paragraphs of the author's own, before everything else, or
    a text file of them, where lines of | cell | cell | are a table; ``on_boundary`` says what
    becomes of baseline models at exactly 0 or 1, as for ``fit``; ``refresh`` lets a served page
    look for newer data.
    """
    alone = isinstance(sources, str | Path | Testbed | PredictionStore)
    given: Sequence[Any] = [sources] if alone else list(sources)  # type: ignore[arg-type]
    opened = [open_source(one) for one in given]
    source = opened[0] if len(opened) == 1 else _together(opened)
    try:
        found = findings(source, shifts, fdr=fdr, on_boundary=on_boundary)
    except InputError as error:
        if len(opened[0].testbed.models) >= FEWEST:
            raise
        advice = f"a testbed before it lends its lines: imagenet-testbed-2020 {opened[0].name}"
        raise InputError(f"{error}; {advice}") from None
    own = tuple(Finding(level="opening", text=text) for text in _paragraphs(opening))
    found = replace(found, told=(*own, *found.told))
    views, missing = gallery(source)
    for one in opened if len(opened) > 1 else []:
        there = {view.id for view in views}
        mine = [v for v in gallery(one)[0] if v.id not in there and one.store is not None]
        views += [replace(view, title=f"{view.title}: {one.name}") for view in mine]
    missing = [one for one in missing if one.id not in {view.id for view in views}]
    data = payload(source, found, views, missing, [one.testbed for one in opened])
    made = Report(
        frame=found.lines,
        notes=source.testbed.notes,
        citation=source.testbed.citation,
        page=page(data, refresh=refresh),
        output=None if output is None else Path(output),
        findings=found,
        views=tuple(view.title for view in views),
        missing=tuple(missing),
    )
    if output is not None:
        with write_atomically(output) as file:
            file.write(made.page.encode())
    return made


def _together(opened: Sequence[Source]) -> Source:
    whole = combine([one.testbed for one in opened])
    return Source(name=whole.name, testbed=whole)


def _paragraphs(opening: str | Path | Sequence[str]) -> list[str]:
    """The paragraphs themselves, or those of a file: texts between blank lines."""
    if not isinstance(opening, str | Path):
        return list(opening)
    text = read_text(opening)
    return [_paragraph(part) for part in text.split("\n\n") if part.strip()]


def _paragraph(text: str) -> str:
    """Its words on one line; the rows of a table, which begin with |, on their own."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return ("\n" if all(line.startswith("|") for line in lines) else " ").join(
        " ".join(line.split()) for line in lines
    )


def _table(text: str) -> list[list[str]] | None:
    """Cells of a table in an opening: lines of | a | b |, the second of dashes."""
    if not text.startswith("|") or "\n" not in text:
        return None
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n")]
    return [row for row in rows if not all(set(cell) <= set("-: ") for cell in row)]


def payload(
    source: Source,
    found: Findings,
    views: Sequence[View],
    missing: Sequence[NotDrawn],
    sources: Sequence[Testbed],
) -> dict[str, Any]:
    """The JSON value that ``web/core.js`` reads: columns per setting, shifts with their lines."""
    testbed = source.testbed
    patterns = _patterns(source)
    return {
        "title": testbed.title or testbed.name,
        "findings": [
            {
                **asdict(one),
                "text": readable(one.text, testbed.called),
                "table": _table(one.text) if one.level == "opening" else None,
            }
            for one in found.told
        ],
        "models": _models(testbed),
        "settings": list(testbed.settings),
        "titles": [testbed.title_of(s) for s in testbed.settings],
        "metrics": {k: v for k, v in testbed.metrics.items() if k in testbed.settings},
        "value": [_column(testbed.value[:, s]) for s in range(len(testbed.settings))],
        "n": [_sizes(testbed.n[:, s]) for s in range(len(testbed.settings))],
        "shifts": [
            {**_shift(testbed, found, shift), "pattern": patterns.get((shift.source, shift.target))}
            for shift in testbed.shifts
        ],
        "placing": placing(testbed, found),
        "out_of_line": _out_of_line(found),
        "charts": [
            {"id": v.id, "title": v.title, "intro": v.intro, "chart": chart_json(v.chart)}
            for v in views
        ],
        "missing": [{"title": one.title, "reason": one.reason} for one in missing],
        "sources": [_source(one) for one in sources],
    }


def _patterns(source: Source) -> dict[tuple[tuple[str, ...], str], str]:
    """What each scatter looks like, by (ID settings, OOD setting); nothing without any pair."""
    try:
        return {((r["id"],), r["ood"]): r["pattern"] for r in source.patterns.frame.to_dicts()}
    except InputError:
        return {}


def _column(values: np.ndarray[Any, Any]) -> list[float | None]:
    """Accuracies with twelve digits: far below any noise, and short."""
    return [float(f"{v:.12g}") if math.isfinite(v) else None for v in values.tolist()]


def _sizes(n: np.ndarray[Any, Any]) -> int | list[int]:
    """One number where all models that were evaluated have the same size."""
    there = np.unique(n[n > 0])
    return int(there[0]) if len(there) == 1 else [int(v) for v in n] if len(there) else 0


def _models(testbed: Testbed) -> dict[str, Any]:
    frame = testbed.models
    rows = {name: i for i, name in enumerate(testbed.model_names)}
    parents = [rows.get(p, -1) if p is not None else -1 for p in frame["parent"].to_list()]
    columns = {
        name: frame[name].to_list()
        for name in frame.columns
        if (name not in HIDDEN and frame[name].n_unique() > 1) or name == "kind"
    }
    shown = labels(frame)
    return {
        "name": testbed.model_names,
        "label": None if shown == testbed.model_names else shown,
        "columns": columns,
        "in_fit_set": frame["in_fit_set"].to_list(),
        "parent": parents,
        "own": [kind == "own" for kind in frame["kind"].to_list()],
    }


def _shift(testbed: Testbed, found: Findings, shift: Shift) -> dict[str, Any]:
    at = testbed.settings.index
    record: dict[str, Any] = {
        "name": shift.name,
        "kind": shift.kind,
        "task": shift.task,
        "source": [at(s) for s in shift.source],
        "target": at(shift.target),
        "full_source": None if shift.full_source is None else at(shift.full_source),
        "knee": shift.knee,
        "title": shift.title,
        "fit_set": testbed.fit_set(shift).tolist() if shift.fit_on else None,
    }
    line = found.lines.filter(shift=shift.name).to_dicts()
    if line:
        one = line[0]
        record["line"] = {k: one[k] for k in ("n", "slopes", "intercepts", "r2", "mae")}
        record["reason"] = one["reason"] and readable(one["reason"], testbed.called)
        record |= _robustness(testbed, found, shift.name)
    return record


def _robustness(testbed: Testbed, found: Findings, shift: str) -> dict[str, Any]:
    """ρ with its verdict in the order of the models; caveats by their number among ``caveats``."""
    rows = {r["model"]: r for r in found.robustness.filter(shift=shift).to_dicts()}
    mine = [rows.get(model) for model in testbed.model_names]
    texts = list(dict.fromkeys(text for row in rows.values() for text in row["caveats"]))
    at = {text: i for i, text in enumerate(texts)}
    texts = [readable(text, testbed.called) for text in texts]
    numbers, words = (
        ("effective", "low", "high", "q_value"),
        ("verdict", "extrapolated", "interval", "artefact"),
    )
    columns: dict[str, Any] = {k: [_short(r[k]) if r else None for r in mine] for k in numbers}
    columns |= {k: [r[k] if r else None for r in mine] for k in words}
    columns["caveats"] = [[at[text] for text in r["caveats"]] if r else None for r in mine]
    return {"robustness": columns, "caveats": texts}


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.7g}")


def _out_of_line(found: Findings) -> list[list[Any]]:
    keys = ["model", "kind", "shift", "source", "target", "effective", "low", "high", "q_value"]
    rows = found.out_of_line.to_dicts()
    return [[*(row[key] for key in keys), ", ".join(doubts(row))] for row in rows]


def _source(bed: Testbed) -> dict[str, Any]:
    return {
        "name": bed.name,
        "published": bed.name in PUBLISHED,
        "title": bed.title,
        "source": bed.source,
        "licence": bed.licence,
        "citation": bed.citation,
        "models": len(bed.models),
        "settings": len(bed.settings) - len(bed.derived),
        "means": len(bed.derived),
    }
