"""Video frames with reviewed labels: ImageNet-Vid-Robust and YTBB-Robust.

An anchor is a frame that was chosen; the frames within ten of it that reviewers found similar come
with it. A frame may show several superclasses, so labels are sets. Groups are the videos.
"""

import csv
import json
from collections.abc import Iterable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from shiftbed.catalogue.entries import TestSetEntry
from shiftbed.catalogue.maps import groups
from shiftbed.errors import InputError
from shiftbed.evaluation.data.authors.common import (
    file_in,
    listed,
    needed_file,
    text_of,
    wrong_layout,
)
from shiftbed.evaluation.data.image_files import printable
from shiftbed.evaluation.data.raw_examples import RawExamples, shown, some

_SWAPPED = {22: 23, 23: 22}
"""YouTube-BB's own table numbers ``none`` and ``car`` the other way round."""
_BAD = {
    *("dissimilar", "problematic", "incorrect", "dont know", "deformation"),
    *("background-change", "occlusion-increased", "blur-increase", "bad-anchor"),
}
"""Reviewers' words for a frame that does not count beside its anchor."""


Reviews = dict[str, frozenset[str]]
"""What reviewers said of each frame, by its key."""


def read_vid_robust(entry: TestSetEntry, path: Path) -> RawExamples:
    """Anchors or all frames, named as in the authors' labels.json."""
    within = ("", "metadata", "imagenet-vid-robust_metadata", "misc")
    labels = _mapping(entry, path, "labels.json", within)
    names: Iterable[str] = labels
    if entry.part != "frames":
        names = _mapping(entry, path, "pmsets.json", within)
    chosen = sorted(names)
    without = [name for name in chosen if name not in labels]
    if without:
        raise InputError(f"{path}: labels.json has no labels for {some(without, 2)}")
    for name in chosen:
        for label in labels[name]:
            if not isinstance(label, int) or not 0 <= label < 30:
                raise InputError(f"{path}: label {shown(label)} of {name} is none of 30 classes")
    return _found(entry, path, chosen, [sorted(labels[name]) for name in chosen], "val/")


def read_ytbb_robust(entry: TestSetEntry, path: Path) -> RawExamples:
    """Anchors whose label is good, or all reviewed frames, which are judged by their anchor's."""
    within = ("", "metadata", "ytbb-robust_metadata")
    anchors = _reviews(entry, path, "anchor_labels.json", within)
    frames = _reviews(entry, path, "pmk_labels.json", within)
    first = _initial(entry, path, within)
    number = {name: at for at, name in enumerate(groups("ytbb-robust"))}
    spoilt = {_split(path, key)[0] for key, words in frames.items() if "bad-anchor" in words}
    sets: dict[str, list[int]] = {}
    for key, words in anchors.items():
        if "good" not in words or words & {"bad", "unsure"} or key in spoilt:
            continue
        video = key.partition("/")[0]
        if video not in first:
            raise InputError(f"{path}: the table of anchors has no label for {shown(video)}")
        sets[key] = sorted({number[word] for word in words if word in number} | {first[video]})
    if entry.part == "frames":
        for key, words in frames.items():
            anchor, frame = _split(path, key)
            if anchor in sets and "similar" in words and not words & _BAD:
                sets.setdefault(frame, sets[anchor])
    chosen = sorted(sets)
    if not chosen:
        raise InputError(f"{path}: no anchor is marked good in anchor_labels.json")
    return _found(entry, path, chosen, [sets[name] for name in chosen], "")


def _found(
    entry: TestSetEntry, path: Path, names: list[str], sets: list[list[int]], prefix: str
) -> RawExamples:
    """Frames that exist; those that do not are listed by number and first names."""
    bare = [name.removeprefix(prefix) for name in names]
    roots = [root for root in (path, path / "val", path / "images") if root.is_dir()]
    root = max(roots, key=lambda root: sum((root / one).is_file() for one in bare[:200]))
    images, missing = listed(entry, root, bare)
    return RawExamples(
        where=str(path),
        examples=printable(names),
        images=images,
        labels=sets,
        classes=tuple(groups(entry.base)),
        groups=[one.rpartition("/")[0] for one in bare],
        missing=tuple(missing),
    )


def _json(entry: TestSetEntry, path: Path, name: str, within: tuple[str, ...]) -> tuple[Path, Any]:
    file = needed_file(entry, path, [name], within)
    try:
        return file, json.loads(text_of(file))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not valid JSON: {error}") from None


def _mapping(
    entry: TestSetEntry, path: Path, name: str, within: tuple[str, ...]
) -> Mapping[str, list[Any]]:
    file, read = _json(entry, path, name, within)
    if not isinstance(read, dict) or not all(isinstance(one, list) for one in read.values()):
        raise InputError(f"{file}: expected a list for each frame, such as VIDEO/FRAME.JPEG")
    return read


def _reviews(entry: TestSetEntry, path: Path, name: str, within: tuple[str, ...]) -> Reviews:
    """A file of the authors' reviews; of several of one frame the last counts."""
    file, read = _json(entry, path, name, within)
    found: Reviews = {}
    try:
        words = [str(word) for word in read["labels"]]
        for one in read["annotations"]:
            key = ",".join("/".join(part.split("/")[-2:]) for part in str(one["key"]).split(","))
            found[key] = frozenset(words[label] for label in one["labels"])
    except (KeyError, TypeError, IndexError, AttributeError):
        raise InputError(
            f"{file}: expected 'labels' and 'annotations' with a key and labels each"
        ) from None
    return found


def _split(path: Path, key: str) -> tuple[str, str]:
    anchor, comma, frame = key.partition(",")
    if not comma:
        raise InputError(f"{path}: pmk_labels.json: expected ANCHOR,FRAME, got {shown(anchor)}")
    return anchor, frame


def _initial(entry: TestSetEntry, path: Path, within: tuple[str, ...]) -> dict[str, int]:
    """YouTube-BB's own label of each anchor's video segment; reviewers only added to it."""
    name = "ytbb_robustness_test_anchors_full.csv"
    file = file_in(path, [name], within)
    if file is None:
        raise wrong_layout(entry, path, f"there is no {name}, without which labels are incomplete")
    found = {}
    try:
        for row in csv.DictReader(StringIO(text_of(file))):
            label = int(row["label"])
            found[f"{row['ytid']}_{row['time_ms']}"] = _SWAPPED.get(label, label)
    except (KeyError, ValueError, TypeError, csv.Error) as error:
        raise InputError(f"{file}: expected columns ytid, time_ms and label: {error}") from None
    if any(not 0 <= label < 24 for label in found.values()):
        raise InputError(f"{file}: a label is none of the 24 classes")
    return found
