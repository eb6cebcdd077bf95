"""One offline page about testbeds: what was found in words and numbers, then the views."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shiftbed.atomic import write_atomically
from shiftbed.page.document import chart_json, page
from shiftbed.page.findings import Findings, findings
from shiftbed.records import Shift
from shiftbed.results.plot import Missing, Source, View, gallery, open_source, patterns_of
from shiftbed.testbed.combine import combine
from shiftbed.testbed.record import Testbed

Sources = str | Testbed | Sequence[str | Testbed]
HIDDEN = ("model", "in_fit_set", "parent")
"""Columns of models that the page has elsewhere."""


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


def payload(
    testbed: Testbed,
    found: Findings,
    views: Sequence[View],
    missing: Sequence[Missing],
    sources: Sequence[Testbed],
) -> dict[str, Any]:
    """The JSON value that ``web/core.js`` reads: columns per setting, shifts with their lines."""
    return {
        "title": testbed.title or testbed.name,
        "findings": [{"level": level, "text": text} for level, text in found.sentences],
        "models": _models(testbed),
        "settings": list(testbed.settings),
        "metrics": {k: v for k, v in testbed.metrics.items() if k in testbed.settings},
        "value": [_column(testbed.value[:, s]) for s in range(len(testbed.settings))],
        "n": [_sizes(testbed.n[:, s]) for s in range(len(testbed.settings))],
        "shifts": [_shift(testbed, found, shift) for shift in testbed.shifts],
        "out_of_line": _out_of_line(found),
        "charts": [
            {"id": v.id, "title": v.title, "intro": v.intro, "chart": chart_json(v.chart)}
            for v in views
        ],
        "missing": [{"title": one.title, "reason": one.reason} for one in missing],
        "sources": [_source(one) for one in sources],
    }


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
    return {
        "name": testbed.model_names,
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
        "pattern": found.patterns.get((shift.source, shift.target)),
    }
    line = found.lines.filter(shift=shift.name).to_dicts()
    if line:
        one = line[0]
        record["line"] = {k: one[k] for k in ("n", "slopes", "intercepts", "r2", "mae")}
        record["reason"] = one["reason"]
        record["robustness"] = _robustness(testbed, found, shift.name)
    return record


def _robustness(testbed: Testbed, found: Findings, shift: str) -> dict[str, list[float | None]]:
    """ρ, its interval and its q-value, in the order of the models."""
    rows = {r["model"]: r for r in found.robustness.filter(shift=shift).to_dicts()}
    wanted = ("effective", "low", "high", "q_value")
    return {
        key: [_short(rows[m][key]) if m in rows else None for m in testbed.model_names]
        for key in wanted
    }


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.7g}")


def _out_of_line(found: Findings) -> list[list[Any]]:
    keys = ["model", "kind", "shift", "source", "target", "effective", "low", "high", "q_value"]
    out: pl.DataFrame = found.out_of_line.select(keys)
    return [list(row) for row in out.iter_rows()]


def _source(bed: Testbed) -> dict[str, Any]:
    return {
        "name": bed.name,
        "title": bed.title,
        "source": bed.source,
        "licence": bed.licence,
        "citation": bed.citation,
        "models": len(bed.models),
        "settings": len(bed.settings),
    }
