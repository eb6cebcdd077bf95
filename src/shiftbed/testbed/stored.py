"""A prediction store as a testbed: accuracies, who was right on which image, and probes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.records import Bits, ImageResults, Setting, Shift
from shiftbed.store import PredictionStore
from shiftbed.store.derived import right_answers
from shiftbed.store.probes import PROBE_METRICS, probe_records, read_probe
from shiftbed.store.sealing import Damaged
from shiftbed.store.test_sets import StoredTestSet
from shiftbed.testbed.averages import with_averages
from shiftbed.testbed.labels import called
from shiftbed.testbed.record import Testbed


def testbed_from_store(store: PredictionStore) -> Testbed:
    """Top-1 accuracies of all complete cells, with per-image results for paired intervals.

    Probes of these models are settings too, SETTING:METRIC, and listed in ``Testbed.metrics``; so
    are means over severities, corruptions and attacks (``averages.py``).
    Models are baseline models unless the testbed says otherwise (``in_fit_set``).
    """
    records = [r for r in store.cells() if r.get("status") == "complete"]
    if not records:
        raise InputError(f"store {store.files.root} has no complete cell yet")
    about = store.about()
    names = list(dict.fromkeys([*about.get("models", {}), *(r["model"] for r in records)]))
    complete = {r["model"] for r in records}
    names = [n for n in names if n in complete]
    rows = {name: i for i, name in enumerate(names)}
    settings = sorted({r["setting"] for r in records})
    value = np.full((len(names), len(settings)), np.nan)
    n = np.zeros(value.shape, dtype=np.int64)
    results = {}
    for column, setting in enumerate(settings):
        test_set = store.test_set(setting)
        right = Bits.nothing(len(names), len(test_set))
        known = np.zeros(len(names), dtype=bool)
        mine = [record["model"] for record in records if record["setting"] == setting]
        for model, answers in _right(store, mine, test_set):
            row = rows[model]
            if not len(answers):
                continue
            value[row, column], n[row, column] = answers.mean(), len(answers)
            if len(answers) == len(test_set):
                right.put(row, answers)
                known[row] = True
        whole = str((test_set.details or {}).get("twin_of"))
        results[setting] = ImageResults(
            images=_images(test_set),
            bits=right,
            known=known,
            pool=_images(store.test_set(whole) if whole in settings else test_set),
            ids=np.array(test_set.examples),
        )
    info = known_models(records, about)
    kept = {id: one for id, one in store.records().items() if id in settings}
    probes = _probes(store, names)
    if probes:
        value = np.column_stack([value, *(one[0] for one in probes.values())])
        n = np.column_stack([n, *(one[1] for one in probes.values())])
    bed = Testbed(
        name=str(about.get("name", "store")),
        title=f"{about.get('name', 'A prediction store')}: {len(names)} models",
        models=_models(names, info),
        settings=(*settings, *probes),
        value=value,
        n=n,
        shifts=(*_shifts(about, settings), *_consistency(kept)),
        records=kept,
        metrics={name: name.rpartition(":")[2] for name in probes},
        results=results,
        notes=tuple(f"left out: {text}" for text in store.damage.values()),
    )
    return with_averages(bed)


def _right(
    store: PredictionStore, models: list[str], test_set: StoredTestSet
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Which answers of each model are right, of the examples that count; damaged cells are said."""
    labelled = test_set.labelled
    for model, found in right_answers(store, models, test_set):
        if isinstance(found, Damaged):
            store.damage[f"{model} on {test_set.setting}"] = str(found)
            continue
        right, read = found
        counted = labelled if read is None else labelled & read
        yield model, right if counted.all() else right[counted]


def called_in(store: PredictionStore) -> dict[str, str]:
    """What people call the store's models whose names are hashes, as ``Testbed.called`` does."""
    return called_by(known_models(store.cells(), store.about()))


def called_by(info: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The same of models by what is known of each."""
    return called(_models(list(info), info))


def known_models(records: Iterable[Mapping[str, Any]], about: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of each model: what its cells say, and above that what the testbed says."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        found.setdefault(record["model"], {}).update(record.get("info", {}))
    for model, own in about.get("models", {}).items():
        found.setdefault(model, {}).update(own)
    return found


def _images(test_set: StoredTestSet) -> str:
    """Which images these are: perturbed ones are those that they were made from."""
    return str((test_set.details or {}).get("images") or test_set.fingerprint)


def _probes(
    store: PredictionStore, names: list[str]
) -> dict[str, tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """By SETTING:METRIC, values and numbers of paths of the models, where a probe is complete."""
    found: dict[str, tuple[NDArray[np.float64], NDArray[np.int64]]] = {}
    records = [r for r in probe_records(store) if r.get("status") == "complete"]
    for record in records:
        model, setting, probe = record["model"], record["setting"], record["probe"]
        metrics = {m: c for m, (p, c) in PROBE_METRICS.items() if p == probe and _main(m)}
        if model not in names or not metrics:
            continue
        frame = read_probe(store, model, setting, probe, list(metrics.values())).drop_nulls()
        for metric, column in metrics.items():
            if not len(frame):
                continue
            value, n = found.setdefault(
                f"{setting}:{metric}",
                (np.full(len(names), np.nan), np.zeros(len(names), dtype=np.int64)),
            )
            mean = float(frame[column].cast(pl.Float64).to_numpy().mean())
            at = names.index(model)
            value[at] = np.sqrt(mean) if metric == "jacobian_norm" else mean
            n[at] = len(frame)
    return dict(sorted(found.items()))


def _main(metric: str) -> bool:
    """The released code's variant is no column of its own: it says nearly the same."""
    return not metric.endswith("_released")


def _models(names: list[str], info: Mapping[str, Mapping[str, Any]]) -> pl.DataFrame:
    columns = ["kind", "in_fit_set", "parent"]
    columns += sorted({key for one in info.values() for key in one} - {*columns, "model"})
    table: dict[str, Any] = {"model": names}
    for column in columns:
        values = [info.get(name, {}).get(column) for name in names]
        if column == "in_fit_set":
            table[column] = [True if v is None else bool(v) for v in values]
        elif column in ("kind", "parent"):
            default = "standard" if column == "kind" else None
            texts = [default if v is None else str(v) for v in values]
            table[column] = pl.Series(texts, dtype=pl.String)
        elif all(v is None or isinstance(v, int | float) for v in values):
            kind = pl.Float64 if any(isinstance(v, float) for v in values) else None
            table[column] = pl.Series(values, dtype=kind, strict=kind is None)
        else:
            table[column] = [None if v is None else str(v) for v in values]
    return pl.DataFrame(table)


def _shifts(about: dict[str, Any], settings: list[str]) -> tuple[Shift, ...]:
    """The shifts whose settings are all there."""
    found = []
    for one in about.get("shifts", []):
        shift = Shift.from_json(one)
        if {*shift.source, shift.target} <= set(settings):
            found.append(shift)
    return tuple(found)


def _consistency(records: Mapping[str, Setting]) -> list[Shift]:
    """From pm-0 to every pm-k that is there: both are kept by ``consistency``."""
    return [
        Shift(name=id, kind=one.kind, source=(one.clean.id,), target=id)
        for id, one in records.items()
        if one.kind == "consistency" and one.clean is not None and one.clean.id in records
    ]
