"""What the page knows: a testbed, its lines and what follows from them, as plain JSON values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import polars as pl

from shiftbed import __version__
from shiftbed.figures.charts import Chart
from shiftbed.page.findings import Findings
from shiftbed.records import Shift
from shiftbed.results.plot import Missing, View
from shiftbed.testbed.record import Testbed

HIDDEN = ("model", "in_fit_set", "parent")
"""Columns of models that the page has elsewhere."""


def payload(
    testbed: Testbed,
    found: Findings,
    views: Sequence[View],
    missing: Sequence[Missing],
    sources: Sequence[Testbed],
) -> dict[str, Any]:
    """The JSON value that ``web/core.js`` reads: columns per setting, shifts with their lines."""
    whole: dict[str, Any] = plain(
        {
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
            "provenance": f"Made by shiftbed {__version__}.",
        }
    )
    return whole


def plain(value: Any) -> Any:
    """Values JSON has: NaN and infinities become null, arrays lists, numbers Python's."""
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def chart_json(chart: Chart) -> dict[str, Any]:
    """A finished chart with its kind as ``type``; an infinite slope is null.

    >>> from shiftbed.figures.charts import Bars
    >>> chart = Bars(title="t", categories=("a",), series=("s",), values=np.array([[1.0]]))
    >>> chart_json(chart)["type"], chart_json(chart)["values"]
    ('bars', [[1.0]])
    """

    def value(one: Any) -> Any:
        if isinstance(one, Chart):
            return chart_json(one)
        if is_dataclass(one):
            return {f.name: value(getattr(one, f.name)) for f in fields(one)}
        if isinstance(one, tuple):
            return [value(part) for part in one]
        return plain(one)

    named = {field.name: value(getattr(chart, field.name)) for field in fields(chart)}
    return {"type": type(chart).__name__.lower(), **named}


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
