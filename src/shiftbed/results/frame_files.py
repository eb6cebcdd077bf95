"""The authors' metadata of video frames: which frames are near an anchor, and what is on them.

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shiftbed.analysis.consistency import FrameSets, frame_sets
from shiftbed.errors import InputError
from shiftbed.labels.steps import MOST_CLASSES
from shiftbed.places import local
from shiftbed.reading.files import read_file

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


def read_frame_files(paths: Iterable[str | Path]) -> FrameFiles:
    """Read the metadata of one test set, given in any number of files."""
    read = [(Path(path), _read(local(path))) for path in paths]
    by_kind: dict[str, list[tuple[Path, Any]]] = {}
    for path, value in read:
        by_kind.setdefault(_kind(path, value), []).append((path, value))
    if "anchors" in by_kind:
        return _bounded(_ytbb(by_kind))
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
    return _bounded(FrameFiles(frames=frames, labels=labels))


def _bounded(files: FrameFiles) -> FrameFiles:
    for frame, own in files.labels.items():
        for label in own:
            if abs(label) >= MOST_CLASSES:
                raise InputError(f"the label of {frame!r}, {label}, is no class")
    return files


def _read(path: Path) -> Any:
    try:
        text = read_file(path, _LIMIT).decode("utf-8-sig")
        if path.suffix.lower() == ".csv":
            return list(csv.DictReader(io.StringIO(text, newline="")))
        return json.loads(text)
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read as metadata of frames: {error}") from None


def _kind(path: Path, value: Any) -> str:
    if (
        isinstance(value, list)
        and value
        and isinstance(value[0], dict)
        and {"ytid", "time_ms", "label"} <= set(value[0])
    ):
        return "first"
    if isinstance(value, dict) and value and isinstance(value.get("annotations"), list):
        rows, names = value["annotations"], value.get("labels")
        if not isinstance(names, list) or not all(_is_annotation(row, len(names)) for row in rows):
            raise InputError(f"{path}: annotations need a key and numbers of labels")
        return "pairs" if any("," in row["key"] for row in rows) else "anchors"
    if isinstance(value, dict) and value:
        if all(isinstance(v, str) and k.isdecimal() and len(k) < 10 for k, v in value.items()):
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
