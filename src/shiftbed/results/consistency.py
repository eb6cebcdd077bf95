"""pm-k of models on video frames: ``consistency``, and the authors' metadata it reads.

Metadata files are told apart by what is in them:

- ImageNet-Vid-Robust: ``pmsets.json`` {anchor: [frames]} and ``labels.json`` {frame: [labels]};
- YTBB-Robust: ``anchor_labels.json`` with annotations of anchors (marks such as good or bad, and
  labels that reviewers added), ``pmk_labels.json`` with annotations of pairs "anchor,frame",
  ``ytbb_class_index.json`` {number: name}, and the CSV of the anchors' first labels (columns ytid,
  time_ms, label), in which, as in the released code, 22 and 23 change places.

An anchor of YTBB-Robust is used if it is marked good and neither bad nor unsure; a frame if the
pair is marked similar and with no fault. Frames are named by their last two parts: VIDEO/FRAME.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.consistency import FrameSets, PmK, frame_sets, pm_k
from shiftbed.display import Result, Table, between, percent, records
from shiftbed.errors import InputError
from shiftbed.labels import LabelPolicy, read_class_map
from shiftbed.store import UNDECIDED, PredictionStore, StoredTestSet, twin_answers

_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("model", "setting"), pl.String),
    "k": pl.Int64,
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    **dict.fromkeys(("n", "left_out", "missing", "undecided"), pl.Int64),
    **dict.fromkeys(("rule", "label_policy", "note"), pl.String),
}


_LIMIT = 1 << 28
_FAULTS = frozenset(
    {
        "dissimilar",
        "problematic",
        "incorrect",
        "dont know",
        "deformation",
        "background-change",
        "occlusion-increased",
        "blur-increase",
        "bad-anchor",
    }
)
_NUMBER = re.compile(r"(\d+)\.[A-Za-z]+$")
_EXPECTED = (
    "expected {anchor: [frames]}, {frame: [labels]}, annotations, {number: class name}, or a CSV "
    "with ytid, time_ms and label"
)


def frame_key(name: str) -> str:
    """VIDEO/FRAME, whatever folders are above.

    >>> frame_key("val/ILSVRC2015_val_00000000/000432.JPEG")
    'ILSVRC2015_val_00000000/000432.JPEG'
    """
    return "/".join(name.replace("\\", "/").split("/")[-2:])


@dataclass(frozen=True, kw_only=True)
class FrameFiles:
    """What the metadata files say; frames are keys."""

    frames: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Reviewed frames of anchors."""
    labels: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    reviewed: bool = True
    """Whether there is a list of reviewed frames."""
    unlabelled: tuple[str, ...] = ()
    """Anchors without any label, which are left out."""

    def sets(self, rule: str | None, there: Iterable[str] = ()) -> FrameSets:
        """Frame sets under a rule: by default frame, where all frames have labels, else anchor.

        Without a list of reviewed frames, those of ``there`` are used: the frames of the same
        video that have predictions.
        """
        frames = dict(self.frames)
        if not self.reviewed:
            of_video: dict[str, list[str]] = {}
            for one in there:
                of_video.setdefault(_video(one), []).append(one)
            frames = {a: tuple(of_video.get(_video(a), ())) for a in frames}
        near = {
            anchor: {f: abs(_number(f) - _number(anchor)) for f in own if f != anchor}
            for anchor, own in frames.items()
        }
        every = all(f in self.labels for own in near.values() for f in own)
        return frame_sets(near, self.labels, rule=rule or ("frame" if every else "anchor"))


def _video(frame: str) -> str:
    return frame.partition("/")[0]


def _number(frame: str) -> int:
    found = _NUMBER.search(frame)
    if found is None:
        raise InputError(f"frame {frame!r} has no number at the end of its name")
    return int(found[1])


def consistency(
    store: str | Path | PredictionStore,
    metadata: "Iterable[str | Path] | FrameFiles",
    *,
    setting: str | None = None,
    rule: str | None = None,
    k: Sequence[int] = (0, 10),
    class_map: str | Path | LabelPolicy | None = None,
    model: Iterable[str] | None = None,
    level: float = 0.95,
) -> "FrameConsistency":
    """pm-k: right on an anchor frame and on every reviewed frame within ±k of it.

    ``metadata`` are the authors' files, such as ``pmsets.json`` and ``labels.json``; ``setting`` is
    the one of frames (default: the only one that has them). Every model that is complete on it is
    judged, by ``rule`` frame (a frame's own labels) or anchor (its anchor's). ``class_map``
    (a policy, or a JSON file of one) merges the setting's classes into superclasses, if they are
    not superclasses yet; frames that the stored best classes do not decide count as missing, and
    are counted apart.
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
    for one in models:
        answers = _answers(store, one, test_set, class_map)
        guess = np.where(at >= 0, answers[np.maximum(at, 0)], -3)
        result = pm_k(sets, guess, k, level=level)
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
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FrameConsistency(Result):
    """pm-k per model and k, and the frames that some model lacks."""

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

    def to_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "anchors": self.anchors,
            "frames": self.frames,
            "frames_reviewed": self.reviewed,
            "anchors_without_labels": list(self.unlabelled),
            "consistency": records(self.frame),
            "missing_frames": {name: list(own) for name, own in self.missing.items()},
        }

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


def _answers(
    store: PredictionStore, model: str, test_set: StoredTestSet, policy: LabelPolicy | None
) -> NDArray[np.int64]:
    """(examples,): predicted classes, negative where there is none."""
    if policy is not None:
        return twin_answers(store, model, test_set.setting, policy).predicted
    best = store.read_all(model, test_set, ["class_1"])["class_1"]
    answers: NDArray[np.int64] = best.cast(pl.Int64).fill_null(-2).to_numpy()
    return answers


def read_frame_files(paths: Iterable[str | Path]) -> FrameFiles:
    """Read the metadata of one test set, given in any number of files."""
    read = [(Path(path), _read(Path(path))) for path in paths]
    by_kind: dict[str, list[tuple[Path, Any]]] = {}
    for path, value in read:
        by_kind.setdefault(_kind(path, value), []).append((path, value))
    if "anchors" in by_kind:
        return _ytbb(by_kind)
    frames = {
        frame_key(anchor): tuple(map(frame_key, own))
        for _, value in by_kind.get("frames", [])
        for anchor, own in value.items()
    }
    labels = {
        frame_key(frame): tuple(own)
        for _, value in by_kind.get("labels", [])
        for frame, own in value.items()
    }
    if not frames or not labels:
        lacking = "{anchor: [frames]}" if labels else "{frame: [labels]}"
        raise InputError(f"{', '.join(str(p) for p, _ in read)}: also give the file of {lacking}")
    return FrameFiles(frames=frames, labels=labels)


def _read(path: Path) -> Any:
    try:
        if path.stat().st_size > _LIMIT:
            raise InputError(f"{path}: too large for metadata of frames")
        text = path.read_text(encoding="utf-8")
        if path.suffix.lower() == ".csv":
            return list(csv.DictReader(io.StringIO(text, newline="")))
        return json.loads(text)
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read as metadata of frames: {error}") from None


def _kind(path: Path, value: Any) -> str:
    if isinstance(value, list) and value and {"ytid", "time_ms", "label"} <= value[0].keys():
        return "first"
    if isinstance(value, dict) and value and isinstance(value.get("annotations"), list):
        rows, names = value["annotations"], value.get("labels")
        if not isinstance(names, list) or not all(_is_annotation(row, len(names)) for row in rows):
            raise InputError(f"{path}: annotations need a key and numbers of labels")
        return "pairs" if any("," in row["key"] for row in rows) else "anchors"
    if isinstance(value, dict) and value:
        if all(isinstance(v, str) and k.isdigit() for k, v in value.items()):
            return "names"
        flat = [one for own in value.values() for one in (own if isinstance(own, list) else [None])]
        if all(isinstance(one, str) for one in flat):
            return "frames"
        if all(isinstance(one, int) and not isinstance(one, bool) for one in flat):
            return "labels"
    raise InputError(f"{path}: {_EXPECTED}")


def _is_annotation(row: Any, names: int) -> bool:
    return (
        isinstance(row, dict)
        and isinstance(row.get("key"), str)
        and isinstance(row.get("labels"), list)
        and all(isinstance(one, int) and 0 <= one < names for one in row["labels"])
    )


def _ytbb(by_kind: dict[str, list[tuple[Path, Any]]]) -> FrameFiles:
    if "names" not in by_kind:
        raise InputError(
            f"{by_kind['anchors'][0][0]}: also give the file of {{number: class name}}"
        )
    numbers = {name: int(number) for number, name in by_kind["names"][0][1].items()}
    first = _first_labels(by_kind.get("first", []))
    good = {
        frame_key(key): marks
        for key, marks in _marks(by_kind["anchors"])
        if "good" in marks and not marks & {"bad", "unsure"}
    }
    pairs = {
        tuple(map(frame_key, key.split(",", 1))): marks
        for key, marks in _marks(by_kind.get("pairs", []))
    }
    bad = {anchor for (anchor, _), marks in pairs.items() if "bad-anchor" in marks}
    labels = {
        anchor: tuple(
            sorted(
                {numbers[m] for m in marks if m in numbers} | first.get(anchor.split("/")[0], set())
            )
        )
        for anchor, marks in good.items()
        if anchor not in bad
    }
    frames: dict[str, list[str]] = {anchor: [] for anchor, own in labels.items() if own}
    for (anchor, frame), marks in pairs.items():
        if anchor in frames and "similar" in marks and not marks & _FAULTS:
            frames[anchor].append(frame)
    return FrameFiles(
        frames={anchor: tuple(own) for anchor, own in frames.items()},
        labels={anchor: own for anchor, own in labels.items() if own},
        reviewed="pairs" in by_kind,
        unlabelled=tuple(anchor for anchor, own in labels.items() if not own),
    )


def _marks(files: list[tuple[Path, Any]]) -> Iterable[tuple[str, set[str]]]:
    for _, value in files:
        for row in value["annotations"]:
            yield row["key"], {value["labels"][one] for one in row["labels"]}


def _first_labels(files: list[tuple[Path, Any]]) -> dict[str, set[int]]:
    swapped = {22: 23, 23: 22}
    found: dict[str, set[int]] = {}
    for path, rows in files:
        for row in rows:
            try:
                label = int(row["label"])
            except (TypeError, ValueError):
                raise InputError(f"{path}: label {row['label']!r} is not a number") from None
            found[f"{row['ytid']}_{row['time_ms']}"] = {swapped.get(label, label)}
    return found
