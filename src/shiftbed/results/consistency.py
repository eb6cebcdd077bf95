"""pm-k of models on video frames (taori2020), and as settings of the store they come from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.consistency import FrameSets, PmK, pm_k
from shiftbed.display import SAID, Result, Table, between, percent, schema
from shiftbed.errors import InputError
from shiftbed.labels import LabelPolicy, read_class_map
from shiftbed.records import Setting
from shiftbed.results.frame_files import FrameFiles, frame_key, read_frame_files
from shiftbed.store import (
    UNDECIDED,
    PredictionStore,
    StoredTestSet,
    part_from_top,
    twin_answers,
)
from shiftbed.testbed.stored import called_in

_SCHEMA = schema(
    "model setting: str; k: int; value low high: float; n left_out missing undecided: int; "
    "rule label_policy note: str"
)


def consistency(
    store: str | Path | PredictionStore,
    metadata: "Iterable[str | Path] | FrameFiles",
    *,
    setting: str | None = None,
    rule: str | None = None,
    k: Sequence[int] = (0, 10),
    class_map: str | Path | LabelPolicy | None = None,
    model: Iterable[str] | None = None,
    write: bool = False,
    level: float = 0.95,
) -> "FrameConsistency":
    """pm-k: right on an anchor frame and on every reviewed frame within ±k of it.

    ``metadata`` are the authors' files, such as ``pmsets.json`` and ``labels.json``; ``setting`` is
    the one of frames (default: the only one that has them). Every model that is complete on it is
    judged, by ``rule`` frame (a frame's own labels) or anchor (its anchor's). ``class_map``
    (a policy, or a JSON file of one) merges the setting's classes into superclasses, if they are
    not superclasses yet; frames that the stored best classes do not decide count as missing, and
    are counted apart. With ``write``, pm-k of every k (and of 0) becomes a setting of the store,
    SETTING@pm-k, whose examples are the anchors, and pm-0 → pm-k a shift of its testbed.
    """
    store = PredictionStore.existing(store)
    files = metadata if isinstance(metadata, FrameFiles) else read_frame_files(metadata)
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
    models = store.complete_models(name, model)
    if not models:
        raise InputError(f"no model is complete on {name!r}")
    if class_map is not None and not isinstance(class_map, LabelPolicy):
        class_map = read_class_map(class_map, "max-logit")
    policy = test_set.label_policy if class_map is None else class_map.describe()
    rows: list[dict[str, Any]] = []
    missing = {}
    windows = sorted({0, *k}) if write else list(k)
    kept = _add_settings(store, test_set, sets, windows, class_map) if write else {}
    for one in models:
        answers = _answers(store, one, test_set, class_map)
        guess = np.where(at >= 0, answers[np.maximum(at, 0)], -3)
        result = pm_k(sets, guess, windows, level=level)
        for row, window in enumerate(windows if write else ()):
            _add_cell(store, one, name, kept[window], result.right[row], result.counted)
        undecided = int((guess == UNDECIDED).sum()) if class_map is not None else 0
        missing[one] = result.missing
        about = {"model": one, "setting": name, "rule": sets.rule, "undecided": undecided}
        rows += [about | {"label_policy": policy} | row for row in _rows(result)]
    return FrameConsistency(
        frame=pl.DataFrame(rows, schema=_SCHEMA, orient="row"),
        setting=name,
        label_policy=policy,
        rule=sets.rule,
        anchors=len(sets.anchors),
        frames=len(sets.frames),
        missing=missing,
        unlabelled=files.unlabelled,
        reviewed=files.reviewed,
        level=level,
        written=tuple(one.setting for one in kept.values()),
        called=called_in(store),
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FrameConsistency(Result):
    """pm-k per model and k, and the frames that some model lacks."""

    json_keys = (
        "rule anchors frames frames_reviewed=reviewed anchors_without_labels=unlabelled "
        "consistency=frame missing_frames=missing"
    )
    setting: str
    label_policy: str
    rule: str
    anchors: int
    frames: int
    missing: Mapping[str, tuple[str, ...]]
    """Model → frames without a prediction, within reach of the largest k."""
    unlabelled: tuple[str, ...]
    """Anchors without labels in the metadata."""
    reviewed: bool
    """Whether the metadata has a list of reviewed frames."""
    level: float

    written: tuple[str, ...] = ()
    """Settings that were added to the store."""

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | ({"written": list(self.written)} if self.written else {})

    def answer(self) -> Iterable[str]:
        known = self.frame.drop_nulls("value").sort("k", maintain_order=True)
        for (model,), rows in list(known.group_by(["model"], maintain_order=True))[:SAID]:
            first, last = rows["value"][0], rows["value"][-1]
            yield (
                f"{model}: {percent(first)} % right at pm-{rows['k'][0]}, {percent(last)} % at "
                f"pm-{rows['k'][-1]}: {percent(first - last)} points lost to nearby frames."
            )

    def tables(self) -> Iterable[Table]:
        judged = {
            "frame": "frames judged by their own labels",
            "anchor": "by their anchor's labels",
        }
        notes = [
            f"{self.label_policy}; {judged[self.rule]}; {self.anchors:,} anchors, "
            f"{self.frames:,} frames."
        ]
        if not self.reviewed:
            notes.append(
                "No list of reviewed frames was given: all frames of a video within ±k count."
            )
        if self.unlabelled:
            left_out = f"{len(self.unlabelled):,} anchors have no label in the metadata"
            notes.append(f"{left_out} and are left out.")
        for name, own in self.missing.items():
            more = f" and {len(own) - 5:,} more (--json lists all)" if len(own) > 5 else ""
            if own:
                notes.append(f"{name}: no prediction for {', '.join(own[:5])}{more}")

        if self.written:
            notes.append(f"Settings of the store now: {', '.join(self.written)}.")
        yield Table.of(
            f"Consistency on {self.setting}",
            self.frame,
            {
                "model": "model",
                "": lambda row: f"pm-{row['k']}",
                "accuracy": ("value", percent),
                f"{100 * self.level:g} % interval": lambda row: between(row["low"], row["high"]),
                "n": ("n", "{:,}".format),
                "note": "note",
            },
            left=2,
            notes=notes,
        )


def _rows(result: PmK) -> Iterable[dict[str, Any]]:
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
    made = {id for id, one in store.records().items() if one.window is not None}
    fits = [
        name
        for name in store.settings()
        if name not in made
        and not anchors.isdisjoint(map(frame_key, store.test_set(name).examples))
    ]
    if len(fits) != 1:
        seen = f"settings {', '.join(fits)} do" if fits else "none of its settings does"
        raise InputError(
            f"store {store.files.root}: one setting must have the metadata's frames, {seen}; name "
            "it with --setting"
        )
    return fits[0]


def _answers(
    store: PredictionStore, model: str, test_set: StoredTestSet, policy: LabelPolicy | None
) -> NDArray[np.int64]:
    """(examples,): predicted classes, negative where there is none."""
    if policy is not None:
        return twin_answers(store, model, test_set.setting, policy).predicted
    best = store.read_all(model, test_set, ["class_1"])["class_1"]
    answers: NDArray[np.int64] = best.cast(pl.Int64).fill_null(-2).to_numpy()
    return answers


_SAME = ("info", "spec", "preprocessing", "model_details", "identity", "seed", "backend")


def _add_settings(
    store: PredictionStore,
    frames: StoredTestSet,
    sets: FrameSets,
    windows: Sequence[int],
    policy: LabelPolicy | None,
) -> dict[int, StoredTestSet]:
    """A test set of anchors for every window: an answer is 1 if all within it is right, else 0."""
    base = frames.record or Setting(test_set=frames.setting)
    if policy is not None:
        base = base.under(policy)
    found = {}
    clean: Setting | None = None
    for k in windows:
        named = f"{base.id}{'.' if '@' in base.id else '@'}pm-{k}"
        record = replace(base, window=k, clean=clean, name=named)
        clean = clean or record
        found[k] = StoredTestSet(
            setting=record.id,
            record=record,
            examples=sets.anchors,
            labels=np.ones(len(sets.anchors), dtype=np.int64),
            fingerprint=f"{frames.fingerprint}:{sets.rule}:pm-{k}",
            label_policy=f"right on the anchor and on all its frames within ±{k}, judged by "
            f"{sets.rule}" + (f"; {policy.describe()}" if policy else ""),
            classes=2,
            details={"images": f"{frames.fingerprint}:anchors", "frames": frames.setting},
        )
        if record.id not in store.settings():
            store.add_test_set(found[k])
    return found


def _add_cell(
    store: PredictionStore,
    model: str,
    frames: str,
    test_set: StoredTestSet,
    right: NDArray[np.bool_],
    counted: NDArray[np.bool_],
) -> None:
    """Which anchors are right, those that lack a frame as unreadable ones."""
    source = store.cell(model, frames) or {}
    record = {key: source[key] for key in _SAME if key in source}
    store.write_part(model, test_set.setting, 0, part_from_top(right.astype(np.int64), counted))
    more = {"status": "complete", "consistency_of": frames, "n": len(test_set)}
    policy = {"label_policy": test_set.label_policy, "fingerprint": test_set.fingerprint}
    store.write_cell(model, test_set.setting, record | more | policy)
