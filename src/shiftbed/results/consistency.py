"""pm-k of a store: consistency of every model on a setting whose examples are video frames."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.consistency import Consistency, pm_k
from shiftbed.errors import InputError, unknown
from shiftbed.labels import LabelPolicy
from shiftbed.results.frames import FrameFiles, frame_key
from shiftbed.store import UNDECIDED, PredictionStore, StoredTestSet, twin_answers

_SCHEMA = {
    "model": pl.String,
    "setting": pl.String,
    "k": pl.Int64,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "left_out": pl.Int64,
    "missing": pl.Int64,
    "undecided": pl.Int64,
    "rule": pl.String,
    "label_policy": pl.String,
    "note": pl.String,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class ConsistencyTable:
    """pm-k per model and k, and the frames that some model lacks."""

    table: pl.DataFrame
    rule: str
    anchors: int
    frames: int
    missing: dict[str, tuple[str, ...]]
    """Model → frames without a prediction, within reach of the largest k."""
    unlabelled: tuple[str, ...]
    """Anchors without labels in the metadata."""
    reviewed: bool


def consistency_table(
    store: PredictionStore,
    files: FrameFiles,
    *,
    setting: str | None = None,
    models: Iterable[str] | None = None,
    k: Sequence[int] = (0, 10),
    rule: str | None = None,
    policy: LabelPolicy | None = None,
    level: float = 0.95,
) -> ConsistencyTable:
    """pm-k of every model that is complete on a setting of frames.

    ``policy`` merges the setting's classes into superclasses, if they are not superclasses yet;
    frames that the stored best classes do not decide count as missing, and are counted apart.
    """
    name = setting or _only(store, files)
    test_set = store.test_set(name)
    keys = [frame_key(example) for example in test_set.examples]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InputError(f"setting {name!r}: two examples are the frame {twice!r}")
    sets = files.sets(rule, keys)
    place = {key: row for row, key in enumerate(keys)}
    at = np.array([place.get(frame, -1) for frame in sets.frames])
    if (at < 0).all():
        raise InputError(
            f"setting {name!r} has none of the frames of the metadata, such as {sets.frames[0]!r}; "
            f"its examples are such as {test_set.examples[0]!r}"
        )
    found: list[dict[str, Any]] = []
    missing = {}
    for model in _models(store, name, models):
        answers = _answers(store, model, test_set, policy)
        guess = np.where(at >= 0, answers[np.maximum(at, 0)], -3)
        result = pm_k(sets, guess, k, level=level)
        undecided = int((guess == UNDECIDED).sum()) if policy is not None else 0
        missing[model] = result.missing
        about = {
            "model": model,
            "setting": name,
            "rule": sets.rule,
            "undecided": undecided,
            "label_policy": policy.describe() if policy is not None else test_set.label_policy,
        }
        found += [about | row for row in _rows(result)]
    return ConsistencyTable(
        table=pl.DataFrame(found, schema=_SCHEMA, orient="row"),
        rule=sets.rule,
        anchors=len(sets.anchors),
        frames=len(sets.frames),
        missing=missing,
        unlabelled=files.unlabelled,
        reviewed=files.reviewed,
    )


def _rows(result: Consistency) -> Iterable[dict[str, Any]]:
    note = ""
    if not result.n:
        note = "not computable: every anchor lacks a frame"
    elif result.left_out:
        note = f"{result.left_out} anchors left out, they lack a frame"
    for i, k in enumerate(result.k):
        ends = {"value": result.value[i], "low": result.low[i], "high": result.high[i]}
        row = {key: float(one) if result.n else None for key, one in ends.items()}
        counts = {"n": result.n, "left_out": result.left_out, "missing": len(result.missing)}
        yield {"k": k, **row, **counts, "note": note}


def _only(store: PredictionStore, files: FrameFiles) -> str:
    """The one setting of the store that has these frames."""
    anchors = set(files.frames)
    fits = [
        name
        for name in store.settings()
        if not anchors.isdisjoint(map(frame_key, store.test_set(name).examples))
    ]
    if len(fits) != 1:
        seen = f"settings {', '.join(fits)} do" if fits else "none of its settings does"
        raise InputError(
            f"store {store.files.root}: one setting must have the metadata's frames, {seen}; name "
            "it with --setting"
        )
    return fits[0]


def _models(store: PredictionStore, setting: str, models: Iterable[str] | None) -> list[str]:
    complete = [
        r["model"]
        for r in store.cells()
        if r["setting"] == setting and r.get("status") == "complete"
    ]
    if not complete:
        raise InputError(f"no model is complete on {setting!r}")
    wanted = complete if models is None else list(models)
    for model in wanted:
        if model not in complete:
            raise unknown(f"model on {setting!r} in the store", model, complete)
    return wanted


def _answers(
    store: PredictionStore, model: str, test_set: StoredTestSet, policy: LabelPolicy | None
) -> NDArray[np.int64]:
    """(examples,): predicted classes, negative where there is none."""
    if policy is not None:
        return twin_answers(store, model, test_set.setting, policy).predicted
    best = store.read(model, test_set.setting, ["class_1"])["class_1"]
    answers: NDArray[np.int64] = best.cast(pl.Int64).fill_null(-2).to_numpy()
    if len(answers) != len(test_set):
        raise InputError(
            f"{model!r} on {test_set.setting!r} has {len(answers)} of {len(test_set)} predictions"
        )
    return answers
