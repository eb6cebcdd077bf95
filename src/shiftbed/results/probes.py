"""Scores of probes in a store: means over paths with Gaussian intervals (fridovich2022, Sec. 3)."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtri

from shiftbed.analysis.intervals import check_level
from shiftbed.errors import unknown
from shiftbed.store import PredictionStore
from shiftbed.store.probes import PROBE_METRICS, probe_records, read_probe

Floats = NDArray[np.float64]


def probe_mean(metric: str, values: Floats, level: float = 0.95) -> dict[str, Any]:
    """value, low, high, n and note of a probe from its values per path (per image: Jacobian).

    The mean ± z·s/√n; the Jacobian norm is √ of the mean of ‖J‖²_F, and so are its ends. NaN
    stands for a path with an unreadable image.

    >>> found = probe_mean("amplitude_cd", np.array([99.0, 100.0, 101.0]))
    >>> found["value"], round(found["low"], 2), found["n"]
    (100.0, 98.87, 3)
    """
    values = values[np.isfinite(values)]
    n = len(values)
    if not n:
        return {"n": 0, "note": "no path could be read"}
    mean = float(values.mean())
    jacobian = metric == "jacobian_norm"
    found: dict[str, Any] = {"value": float(np.sqrt(mean)) if jacobian else mean, "n": n}
    if n < 2:
        return found | {"note": f"no interval from one {'image' if jacobian else 'path'}"}
    z = float(ndtri(0.5 + check_level(level) / 2))
    half = z * float(values.std(ddof=1) / np.sqrt(n))
    ends = [mean - half, mean + half]
    if jacobian:
        ends = [float(np.sqrt(max(0.0, end))) for end in ends]
    what = "of the mean square, by images" if jacobian else "by paths"
    return found | {"low": ends[0], "high": ends[1], "note": f"Gaussian interval {what}"}


def probe_rows(
    store: PredictionStore,
    metrics: Iterable[str],
    *,
    models: Iterable[str] | None = None,
    settings: Iterable[str] | None = None,
    level: float = 0.95,
) -> list[dict[str, Any]]:
    """Rows of ``tables/scores.py`` for metrics of probes; ``unreadable`` counts paths.

    Models and settings are those that were probed at all; what of them was not measured is a row
    with a reason.
    """
    wanted = list(metrics)
    records = {(r["model"], r["setting"], r["probe"]): r for r in probe_records(store)}
    cells = list(dict.fromkeys(key[:2] for key in records))
    for at, (what, names) in enumerate((("model", models), ("setting", settings))):
        if names is None:
            continue
        chosen = list(names)
        there = {cell[at] for cell in cells}
        for name in chosen:
            if name not in there:
                raise unknown(f"{what} with probes in the store", name, sorted(there))
        cells = [cell for cell in cells if cell[at] in chosen]
    rows = []
    for cell in cells:
        for metric in wanted:
            probe, column = PROBE_METRICS[metric]
            base = {"model": cell[0], "setting": cell[1], "metric": metric, "label_policy": ""}
            record = records.get((*cell, probe))
            if record is None:
                note = f"not measured: shiftbed probe … --probe {probe}"
                rows.append(base | {"n": 0, "unreadable": 0, "note": note})
            else:
                rows.append(base | _row(store, cell, record, metric, column, level))
    return rows


def _row(
    store: PredictionStore,
    cell: tuple[str, str],
    record: dict[str, Any],
    metric: str,
    column: str,
    level: float,
) -> dict[str, Any]:
    if record.get("status") != "complete":
        note = f"not complete: {record['probe']} was interrupted; run it again to continue"
        return {"n": 0, "unreadable": 0, "note": note}
    frame = read_probe(store, *cell, record["probe"], [column])
    values = frame[column].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    found = probe_mean(metric, values, level)
    shown = ", ".join(f"{k} {v:g}" for k, v in sorted(record.get("parameters", {}).items()))
    found["note"] = f"{found['note']}; {shown}" if shown else found["note"]
    return found | {"unreadable": int(np.isnan(values).sum())}
