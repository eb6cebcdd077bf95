"""Scores of a store: every metric of every cell, recomputed from the predictions kept."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtri

from shiftbed.analysis.intervals import check_level
from shiftbed.display import Result, Table, between, number, percent, records, schema
from shiftbed.errors import unknown
from shiftbed.results.cell_metrics import (
    METRICS,
    NEEDS,
    Cells,
    values_of,
    whole_cells,
    with_intervals,
)
from shiftbed.results.chance import flagged
from shiftbed.store import PredictionStore, StoredTestSet, blocks, read_answers
from shiftbed.store.derived import Facts
from shiftbed.store.probes import PROBE_METRICS, probe_records, read_probe
from shiftbed.store.sealing import Damaged
from shiftbed.testbed.labels import natural
from shiftbed.testbed.stored import called_in

FRACTIONS = ("top1", "top5", "worst_class", "worst_group")
_SCHEMA = schema(
    "model setting metric: str; value low high: float; n unreadable: int; label_policy note: str"
)
_CODE = ("results/scores.py", "results/cell_metrics.py", "analysis/metrics.py")
"""Files of the package that compute metrics."""
AT_ONCE = 1 << 23
"""Predictions held in memory when many cells are read together."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Scored(Result):
    """Metrics of the cells of a store, and which cells failed."""

    name: str
    failed: tuple[Mapping[str, Any], ...] = ()
    """Records of cells that have no predictions."""
    level: float = 0.95

    def to_dict(self) -> dict[str, Any]:
        keys = ("model", "setting", "error")
        return {
            "settings": records(self.frame),
            "failed": [{key: one.get(key) for key in keys} for one in self.failed],
        }

    def tables(self) -> Iterable[Table]:
        never = [one for one in self.failed if one.get("not_applicable")]
        notes = [
            f"failed: {one['model']} on {one['setting']}: {one.get('error')}"
            for one in self.failed
            if one not in never
        ]
        notes += self.notes
        if never:
            models, settings = ({one[key] for one in never} for key in ("model", "setting"))
            notes.append(
                f"not applicable: {len(settings)} settings to {len(models)} models, such as "
                f"{never[0]['model']} on {never[0]['setting']}; --json has the reasons"
            )
        yield score_table(self.name, self.frame, self.level, notes)


def score_table(title: str, frame: pl.DataFrame, level: float, notes: Iterable[str] = ()) -> Table:
    """Scores for people: accuracies in percent, the interval in one column."""

    def form(row: Mapping[str, Any]) -> Callable[[Any], str]:
        return percent if row["metric"] in FRACTIONS else number

    def size(row: Mapping[str, Any]) -> str:
        return f"{row['n']:,}" + (f", {row['unreadable']} unreadable" if row["unreadable"] else "")

    columns: dict[str, Any] = {name: name for name in ("model", "setting", "metric")}
    columns |= {
        "value": lambda row: form(row)(row["value"]),
        f"{100 * level:g} % interval": lambda row: between(row["low"], row["high"], form(row)),
        "n": size,
        "policy": lambda row: "; ".join(t for t in (row["label_policy"], row["note"]) if t),
    }
    return Table.of(title, frame, columns, left=3, notes=notes)


def score(
    store: str | Path | PredictionStore,
    *,
    metrics: Iterable[str] = ("top1",),
    models: Iterable[str] | None = None,
    settings: Iterable[str] | None = None,
    level: float = 0.95,
) -> Scored:
    """Score a store: any metric of any cell, from the predictions kept.

    The frame is ``scores``' table.
    """
    opened = PredictionStore.existing(store)
    given = {"model": models, "setting": settings}
    only = {key: None if names is None else list(names) for key, names in given.items()}
    some = {f"{key}s": names for key, names in only.items()}
    frame = scores(opened, metrics=metrics, **some, level=level)
    failed = tuple(
        one
        for one in opened.cells()
        if one.get("status") == "failed"
        and all(names is None or one[key] in names for key, names in only.items())
    )
    notes, names = tuple(opened.damage.values()), called_in(opened)
    if names and len(frame):  # runs in the order of what people call them, not of their hashes
        known = sorted(frame["model"].unique(), key=lambda one: natural(names.get(one, one)))
        place = pl.col("model").replace_strict(known, range(len(known)))
        frame = frame.sort("setting", place, maintain_order=True)
    return Scored(
        frame=frame,
        notes=notes,
        called=names,
        name=opened.files.root,
        failed=failed,
        level=level,
    )


def scores(
    store: PredictionStore,
    *,
    metrics: Iterable[str] = ("top1",),
    models: Iterable[str] | None = None,
    settings: Iterable[str] | None = None,
    level: float = 0.95,
) -> pl.DataFrame:
    """Long table: model, setting, metric, value, low, high, n, unreadable, label_policy, note.

    Accuracies have Clopper–Pearson intervals; means over examples (NLL, Brier) Gaussian ones;
    others none, and the note says so; also of an accuracy at chance level. A metric whose columns a
    cell lacks is a row with a reason. Probes are rows too, of what ``shiftbed probe`` has measured.
    Few cells are in memory at a time, so memory does not grow with the store.
    """
    check_level(level)
    asked = list(metrics)
    for name in asked:
        if name not in NEEDS and name not in PROBE_METRICS:
            raise unknown("metric", name, [*METRICS, *PROBE_METRICS])
    probes = [name for name in asked if name in PROBE_METRICS]
    wanted = [name for name in asked if name in NEEDS]
    rows: list[dict[str, Any]] = []
    if probes:
        models = None if models is None else list(models)
        settings = None if settings is None else list(settings)
        rows += probe_rows(store, probes, models=models, settings=settings, level=level)
    if not wanted:
        return pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    found = [
        row
        for test_set, names in _cells(store, models, settings)
        for row in _scored(store, names, test_set, wanted)
    ]
    rows += with_intervals(found, level)
    return pl.DataFrame(flagged(store, rows), schema=_SCHEMA, orient="row")


def _scored(
    store: PredictionStore, models: list[str], test_set: StoredTestSet, metrics: list[str]
) -> Iterator[dict[str, Any]]:
    """Rows without intervals: of what is known, and of what is then."""
    facts = Facts(store, test_set, *_CODE)
    known = facts.of(models, metrics)
    left = [model for model in models if known.get(model, {}).keys() != set(metrics)]
    many = _accuracies(store, left, test_set) if metrics == ["top1"] else {}
    fresh: dict[str, dict[str, dict[str, Any]]] = {one: {"top1": row} for one, row in many.items()}
    damaged: dict[str, str] = {}
    needed = sorted({column for metric in metrics for column in NEEDS[metric]})
    for some, whole in blocks(store, [m for m in left if m not in many], test_set, needed):
        for model, metric, row in _score_block(store, some, test_set, metrics, whole, damaged):
            fresh.setdefault(model, {})[metric] = row
    facts.add(fresh)
    for model in models:
        said = {"unreadable": 0, "n": 0, "label_policy": "", "note": damaged.get(model)}
        own = fresh.get(model) or known.get(model, {})
        for metric in metrics:
            yield {"model": model, "setting": test_set.setting, "metric": metric} | (
                said if model in damaged else own[metric]
            )


def _accuracies(
    store: PredictionStore, models: list[str], test_set: StoredTestSet
) -> dict[str, dict[str, Any]]:
    """Top-1 accuracies of many models of one setting, read together where that is possible."""
    if test_set.label_sets is not None or (test_set.labels < 0).any() or not len(test_set):
        return {}
    found: dict[str, dict[str, Any]] = {}
    step = max(1, AT_ONCE // len(test_set))
    for i in range(0, len(models), step):
        some = models[i : i + step]
        try:
            best = store.best_classes(some, test_set.setting)
        except Damaged:  # said of the cell, which is read alone
            continue
        if best is None or best.shape[1] != len(test_set):
            continue
        labels = test_set.labels
        if int(labels.max()) <= np.iinfo(best.dtype).max:
            labels = labels.astype(best.dtype)  # narrow numbers are compared much faster
        common = {"n": len(test_set), "unreadable": 0, "label_policy": test_set.label_policy}
        for model, value in zip(some, (best == labels).mean(axis=1).tolist(), strict=True):
            found[model] = {"value": value, "counted": True, "note": ""} | common
    return found


def _cells(
    store: PredictionStore, models: Iterable[str] | None, settings: Iterable[str] | None
) -> Iterator[tuple[StoredTestSet, list[str]]]:
    """Settings with the models that are complete there."""
    complete = [r for r in store.cells() if r.get("status") == "complete"]
    cells = [(record["model"], record["setting"]) for record in complete]
    kept = _only(cells, models, settings, "in the store")
    for setting in sorted({setting for _, setting in kept}):
        yield store.test_set(setting), [model for model, other in kept if other == setting]


def _only(
    cells: list[tuple[str, str]],
    models: Iterable[str] | None,
    settings: Iterable[str] | None,
    where: str,
) -> list[tuple[str, str]]:
    """The cells of these models and settings, which must be among them."""
    for at, (what, names) in enumerate((("model", models), ("setting", settings))):
        if names is None:
            continue
        chosen, there = list(names), {cell[at] for cell in cells}
        for name in chosen:
            if name not in there:
                raise unknown(f"{what} {where}", name, sorted(there))
        cells = [cell for cell in cells if cell[at] in chosen]
    return cells


def _score_block(
    store: PredictionStore,
    models: list[str],
    test_set: StoredTestSet,
    metrics: list[str],
    whole: pl.DataFrame | None,
    damaged: dict[str, str],
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """All at once where every example of every cell counts, else cell by cell."""
    cells = None if whole is None else whole_cells(whole, test_set)
    if cells is not None:
        yield from _values(cells, models, metrics, test_set.label_policy)
        return
    n, needed = len(test_set), sorted({c for metric in metrics for c in NEEDS[metric]})
    for i, model in enumerate(models):
        frame = None if whole is None else whole.slice(i * n, n)
        try:
            one = read_answers(store, model, test_set, needed, frame)
        except Damaged as error:
            damaged[model] = str(error)
            continue
        alone = Cells(right=one.right[None], labels=one.labels, groups=one.groups, frame=one.frame)
        for _, metric, row in _values(alone, [model], metrics, one.label_policy):
            yield model, metric, row | {"unreadable": one.unreadable}


def _values(
    cells: Cells, models: list[str], metrics: list[str], policy: str
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    common = {"unreadable": 0, "label_policy": policy, "n": cells.n}
    for metric in metrics:
        for model, found in zip(models, values_of(metric, cells), strict=True):
            yield model, metric, common | found


# --- probes: means over paths with Gaussian intervals (fridovich2022, Section 3) ---


def probe_mean(metric: str, values: NDArray[np.float64], level: float = 0.95) -> dict[str, Any]:
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
    """Rows of ``scores`` for metrics of probes; ``unreadable`` counts paths.

    Models and settings are those that were probed at all; what of them was not measured is a row
    with a reason.
    """
    wanted = list(metrics)
    records = {(r["model"], r["setting"], r["probe"]): r for r in probe_records(store)}
    probed = list(dict.fromkeys((model, setting) for model, setting, _ in records))
    cells = _only(probed, models, settings, "with probes in the store")
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
                rows.append(base | _probe_row(store, cell, record, metric, column, level))
    return rows


def _probe_row(
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
    shown = ", ".join(
        f"{k} {v}" if isinstance(v, str) else f"{k} {v:g}"
        for k, v in sorted(record.get("parameters", {}).items())
    )
    found["note"] = f"{found['note']}; {shown}" if shown else found["note"]
    return found | {"unreadable": int(np.isnan(values).sum())}
