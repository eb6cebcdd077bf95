"""A prediction store as pair tables."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.pairs import PairTable, metric_name
from shiftbed.errors import InputError
from shiftbed.records import Setting, Shift
from shiftbed.results.cell_metrics import METRICS
from shiftbed.results.pairs.added import held_out
from shiftbed.results.pairs.bed import chosen_shifts, make_pair
from shiftbed.results.scores import scores
from shiftbed.store import PredictionStore
from shiftbed.testbed.stored import known_models

Floats = NDArray[np.float64]
_ERRORS = {
    "top1": "error",
    "top5": "top5_error",
    "worst_class": "worst_class_error",
    "worst_group": "worst_group_error",
}


def pairs_from_store(
    store: PredictionStore, *, kinds: Sequence[str] | None = None, checkpoint: str = "last"
) -> tuple[PairTable, ...]:
    """A pair per shift of the store's testbed.json, with every metric the predictions allow.

    Accuracies become errors (top1 → ``error``, top5 → ``top5_error``, …). Corruptions of the ID
    setting are averaged over severities, then over corruptions, into ``corrupted:…``; those on
    disk stay apart (``corrupted:error@disk``). The mean error under attacks is ``adversarial``,
    each one's where there are several ``adversarial@apgd-l2:0.02``; where only a share of a setting
    was attacked, it is the error on that share. The error on a shift's validation data is
    ``id:validation_error``. The task is the shift's ``task``, or the testbed's name.
    """
    about = store.about()
    given = about.get("shifts", [])
    complete = [r for r in store.cells() if r.get("status") == "complete"]
    there = {r["setting"] for r in complete}
    shifts = [Shift(**one | {"source": tuple(one["source"])}) for one in given]
    shifts = [s for s in shifts if {*s.source, s.target} <= there]
    name = str(about.get("name", "store"))
    if not shifts:
        raise InputError(f"store {store.files.root} has no shift whose settings are complete")
    chosen = chosen_shifts(f"store {store.files.root}", shifts, kinds)
    perturbed = _perturbations(store.records(), there)
    ends = {end for shift in chosen for end in (shift.source[0], shift.target)}
    checked = {shift.validation for shift in chosen} & there
    settings = ends | {one.id for end in ends for one in perturbed.get(end, [])}
    scored = scores(store, metrics=METRICS, settings=sorted(settings | checked))
    values = _by_setting(scored)
    sets = {one: store.test_set(one) for one in values}
    for one, test_set in sets.items():
        if len(set(test_set.groups or ())) < 2:  # the worst of one group is the error again
            values[one].pop("worst_group_error", None)
    models = tuple(dict.fromkeys(r["model"] for r in complete))
    info = _info(models, known_models(complete, about))
    frame = pl.DataFrame({"model": models, **info}, strict=False)
    pairs = []
    for shift in chosen:
        columns: dict[str, Floats] = {}
        for place, setting in (("id", shift.source[0]), ("ood", shift.target)):
            columns |= _measured(values, setting, perturbed.get(setting, []), place, models)
        if "error" in values.get(shift.validation, {}):
            measured = values[shift.validation]["error"]
            columns["id:validation_error"] = np.array([measured.get(m, np.nan) for m in models])
        if "id:error" in columns and "ood:error" in columns:
            made = make_pair(shift.task or name, shift, frame, columns, info, checkpoint)
            pairs.append(replace(made, classes=sets[shift.target].classes))
    if not pairs:
        raise InputError(f"store {store.files.root}: no shift has an accuracy on both sides")
    return held_out(pairs)


def _perturbations(
    records: Mapping[str, Setting], there: Collection[str]
) -> dict[str, list[Setting]]:
    """Clean setting → its perturbed ones; one on a share of the images belongs to the whole, too.

    >>> from shiftbed.records import older_setting
    >>> found = _perturbations({"val+fog:3": older_setting("val+fog:3")}, ["val+fog:3"])
    >>> [one.perturbation.name for one in found["val"]]
    ['fog']
    """
    found: dict[str, list[Setting]] = {}
    for id, one in sorted(records.items()):
        if id not in there or one.perturbation is None or one.clean is None:
            continue
        found.setdefault(one.clean.id, []).append(one)
        if one.kind == "adversarial" and one.clean.whole.id != one.clean.id:
            found.setdefault(one.clean.whole.id, []).append(one)
    return found


Values = dict[str, dict[str, dict[str, float]]]


def _by_setting(scored: pl.DataFrame) -> Values:
    """setting → metric → model → value, accuracies as errors."""
    found: Values = {}
    for row in scored.iter_rows(named=True):
        value = row["value"]
        metric = _ERRORS.get(row["metric"], row["metric"])
        if value is not None and np.isfinite(value):
            value = 1.0 - value if metric != row["metric"] else value
            found.setdefault(row["setting"], {}).setdefault(metric, {})[row["model"]] = value
    return found


def _measured(
    values: Values,
    setting: str,
    perturbed: Sequence[Setting],
    place: str,
    models: tuple[str, ...],
) -> dict[str, Floats]:
    """A setting's columns: its metrics, its error under attacks, and, for ID, its corruptions."""

    def column(of: str, metric: str) -> Floats:
        return np.array([values[of][metric].get(m, np.nan) for m in models])

    def mean(settings: Iterable[str], metric: str) -> Floats:
        return np.asarray(np.mean([column(s, metric) for s in settings], axis=0))

    found = {metric_name(place, m): column(setting, m) for m in values.get(setting, {})}
    there = [one for one in perturbed if "error" in values.get(one.id, {})]
    attacks = [one for one in there if one.kind == "adversarial"]
    own = [one for one in attacks if one.clean is not None and one.clean.id == setting]
    if attacks:
        found[metric_name(place, "adversarial")] = mean([o.id for o in own or attacks], "error")
    sizes: dict[str, list[str]] = {}
    for one in own or attacks:
        if one.perturbation is not None:
            sizes.setdefault(one.perturbation.label, []).append(one.id)
    for label, ids in sizes.items() if len(sizes) > 1 else ():
        found[metric_name(place, f"adversarial@{label}")] = mean(ids, "error")
    for disk in ("", "@disk") if place == "id" else ():
        types: dict[str, list[str]] = {}
        for one in there:
            what = one.perturbation
            if what is not None and what.kind == "corruption" and what.on_disk == bool(disk):
                types.setdefault(what.name, []).append(one.id)
        every = [one for severities in types.values() for one in severities]
        shared = [m for m in values.get(setting, {}) if all(m in values[s] for s in every)]
        for metric in shared if every else ():
            means = [mean(severities, metric) for severities in types.values()]
            found[metric_name("corrupted", metric + disk)] = np.asarray(np.mean(means, axis=0))
    return found


def _info(
    models: tuple[str, ...], known: Mapping[str, Mapping[str, Any]]
) -> dict[str, Sequence[str | float | None]]:
    names = dict.fromkeys(key for one in known.values() for key in one)
    found: dict[str, Sequence[str | float | None]] = {}
    for name in names:
        values = [known.get(model, {}).get(name) for model in models]
        numbers = all(
            v is None or (isinstance(v, int | float) and not isinstance(v, bool)) for v in values
        )
        key = "model_kind" if name == "kind" else name
        found[key] = [None if v is None else float(v) if numbers else str(v) for v in values]
    return found
