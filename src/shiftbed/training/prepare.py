"""Training data: examples chosen from data sets, read when they are needed or held in memory."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbed.catalogue import policy_of
from shiftbed.errors import InputError
from shiftbed.evaluation.data import TestSet, batches, open_test_set
from shiftbed.evaluation.data.parts import TRAINING, part_rows, ranked
from shiftbed.evaluation.data.state import state_of
from shiftbed.evaluation.data.tars import TarImages
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.places import local
from shiftbed.training.select import (
    class_rows,
    difficulty_rows,
    few_shot_rows,
    fraction_rows,
    mix_counts,
    read_column,
    scores_of,
)
from shiftbed.training.sources import DataSpec

IMAGENET_CLASSES = 1000
Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingData:
    """Examples of one or more data sets, in an order that is that of their ids' hash."""

    name: str
    parts: tuple[TestSet, ...] = field(repr=False)
    names: tuple[str, ...]
    """Of the parts."""
    source: Rows = field(repr=False)
    """(N,) which part an example is of."""
    rows: Rows = field(repr=False)
    """(N,) its row there."""
    labels: Rows = field(repr=False)
    classes: int

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def examples(self) -> list[str]:
        """Ids, with the data set's name in front."""
        return [
            f"{self.names[part]}/{self.parts[part].examples[row]}"
            for part, row in zip(self.source.tolist(), self.rows.tolist(), strict=True)
        ]

    @property
    def counts(self) -> dict[str, int]:
        """Examples of each data set."""
        found = np.bincount(self.source, minlength=len(self.parts))
        return dict(zip(self.names, found.tolist(), strict=True))

    @property
    def fingerprint(self) -> str:
        """Identity of the examples, their order, labels and contents."""
        whole = hashlib.sha256()
        for part, (name, test_set) in enumerate(zip(self.names, self.parts, strict=True)):
            digests = test_set.digests[self.rows[self.source == part]]
            whole.update(name.encode() + b"\0" + digests.tobytes())
        for column in (self.source, self.rows, self.labels):
            whole.update(np.ascontiguousarray(column).tobytes())
        return whole.hexdigest()

    @property
    def captions(self) -> list[str | None]:
        """(N,) the caption of each example, where its data set has any."""
        places = zip(self.source.tolist(), self.rows.tolist(), strict=True)
        own = [part.captions for part in self.parts]
        return [None if (of := own[part]) is None else of[row] for part, row in places]

    def load(self, at: int) -> Image.Image:
        """One picture."""
        part = self.parts[int(self.source[at])]
        return part.load(int(self.rows[at]))

    def pixels(self, preprocessing: Preprocessing, workers: int = 2) -> NDArray[np.uint8]:
        """(N, H, W, C) of all examples, as the model sees them without augmentation."""
        height, width = preprocessing.size
        found = np.empty((len(self), height, width, preprocessing.channels), dtype=np.uint8)
        for part, test_set in enumerate(self.parts):
            left = np.flatnonzero(self.source == part)
            rows, draft = self.rows[left], preprocessing.draft
            for batch in batches(test_set, rows, preprocessing.pixels, 256, workers, draft):
                for bad in batch.unreadable:
                    raise InputError(
                        f"{test_set.name}: cannot read {bad.example}: {bad.reason}; leave it out "
                        "by exclude"
                    )
                now, left = np.split(left, [len(batch.rows)])
                found[now] = batch.pixels
        return found


def whole(test_set: TestSet) -> TrainingData:
    """All labelled examples of a test set as training data."""
    return _together({test_set.name: (test_set, np.flatnonzero(test_set.labels >= 0))})


def prepare(
    selection: Mapping[str, Any], specs: Mapping[str, DataSpec], base: str | Path = "."
) -> TrainingData:
    """The examples that a job's ``data`` names, of the data sets it names them from."""
    shares = selection.get("mix")
    names = list(shares) if shares else [str(selection["name"])]
    chosen = {}
    for name in names:
        test_set = open_data(specs[name])
        chosen[name] = (test_set, _selected(name, test_set, selection, Path(base)))
    if shares:
        sizes = {name: len(rows) for name, (_, rows) in chosen.items()}
        counts = mix_counts(sizes, shares, selection.get("total"))
        seed = int(selection.get("seed", 0))
        for name, (test_set, rows) in chosen.items():
            order = ranked([test_set.examples[row] for row in rows], f"sample:{seed}")
            chosen[name] = (test_set, rows[order[: counts[name]]])
    found = _together(chosen)
    if not len(found):
        raise InputError(f"no example of {found.name!r} is left to train on")
    return found


def _selected(name: str, test_set: TestSet, selection: Mapping[str, Any], base: Path) -> Rows:
    """Rows of one data set: classes first, then a fraction or shots, then difficulty."""
    seed = int(selection.get("seed", 0))
    rows = np.arange(len(test_set))
    labels = test_set.labels

    def ids() -> list[str]:
        return [test_set.examples[row] for row in rows]

    if "classes" in selection:
        core: Rows = np.empty(0, np.int64)
        if "core" in selection:  # a subset of ImageNet in the catalogue, such as imagenet-125
            policy = policy_of(selection["core"])
            core = np.flatnonzero(policy.relabel(np.arange(IMAGENET_CLASSES)) >= 0)
        rows = rows[class_rows(labels[rows], selection["classes"], core=core, seed=seed)]
    if "fraction" in selection:
        balanced = bool(selection.get("balanced", False))
        share = float(selection["fraction"])
        rows = rows[fraction_rows(ids(), labels[rows], share, seed=seed, balanced=balanced)]
    if "shots" in selection:
        rows = rows[few_shot_rows(ids(), labels[rows], int(selection["shots"]), seed=seed)]
    if "difficulty" in selection:
        table = dict(selection["difficulty"])
        hard = scores_of(base / table.pop("scores"), [f"{name}/{one}" for one in ids()])
        rows = rows[difficulty_rows(ids(), labels[rows], hard, seed=seed, **table)]
    return rows


def _together(chosen: Mapping[str, tuple[TestSet, Rows]]) -> TrainingData:
    """Chosen rows of data sets as one, over one label space, in the order of their ids' hash."""
    spaces = {
        part: test_set.classes
        for part, (test_set, _) in chosen.items()
        if test_set.captions is None or (test_set.labels >= 0).any()
    }
    if len(set(spaces.values())) > 1:
        sizes = ", ".join(f"{part}: {len(c or ())} classes" for part, c in spaces.items())
        raise InputError(f"a mix needs one label space; give both the same classes ({sizes})")
    names = tuple(chosen)
    source = np.repeat(np.arange(len(names)), [len(rows) for _, rows in chosen.values()])
    rows = np.concatenate([rows for _, rows in chosen.values()]).astype(np.int64)
    labels = np.concatenate([test_set.labels[rows] for test_set, rows in chosen.values()])
    ids = [f"{part}/{t.examples[row]}" for part, (t, some) in chosen.items() for row in some]
    order = ranked(ids, "order")
    known = next(iter(spaces.values()), None)
    return TrainingData(
        name="+".join(names),
        parts=tuple(test_set for test_set, _ in chosen.values()),
        names=names,
        source=source[order],
        rows=rows[order],
        labels=labels[order].astype(np.int64),
        classes=len(known) if known else max(int(labels.max(initial=-1)) + 1, 1),
    )


@lru_cache(maxsize=8)
def _opened(path: str, options: tuple[tuple[str, Any], ...], state: str) -> TestSet:
    return open_test_set(path, **dict(options))


def _all_of(path: str, options: Mapping[str, Any], state: str) -> TestSet:
    frozen = tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in options.items())
    return _opened(path, frozen, state)


def open_data(spec: DataSpec) -> TestSet:
    """A data set without what is held out, kept for validation or excluded, and without what has
    neither label nor caption.

    The last ones stay open: their contents are hashed once, not for every job.
    """
    about = None if spec.exclude is None else _seen(local(spec.exclude))
    key = (repr(spec), spec.state, about)
    if key not in _trained_on:
        for old in list(_trained_on)[: -_MOST_OPEN + 1]:
            del _trained_on[old]
        _trained_on[key] = _opened_data(spec)
    return _trained_on[key]


_MOST_OPEN = 8
_trained_on: dict[tuple[Any, ...], TestSet] = {}


def _seen(path: Path) -> tuple[int, int] | None:
    return (path.stat().st_size, path.stat().st_mtime_ns) if path.is_file() else None


def _opened_data(spec: DataSpec) -> TestSet:
    test_set = _all_of(spec.path, spec.options, spec.state)
    left = test_set.labels >= 0
    if test_set.captions is not None:
        left |= np.array([one is not None for one in test_set.captions])
    if spec.held_out or spec.validation:
        mine = np.zeros(len(test_set), dtype=bool)
        mine[_rows(test_set, TRAINING, spec.held_out, spec.validation)] = True
        left &= mine
    if spec.exclude is not None:
        left &= ~_excluded(local(spec.exclude), test_set)
    return test_set if left.all() else test_set.subset(left)


def open_part(
    path: str,
    options: Mapping[str, Any],
    part: str,
    held_out: float | None = None,
    validation: float | None = None,
) -> TestSet:
    """A part of a data set that ``open_data`` leaves out."""
    test_set = _all_of(path, options, state_of(path, options))
    return test_set.subset(_rows(test_set, part, held_out, validation))


def _rows(test_set: TestSet, part: str, held_out: float | None, validation: float | None) -> Rows:
    return part_rows(test_set.examples, test_set.labels, part, held_out, validation)


def _excluded(path: Path, test_set: TestSet) -> NDArray[np.bool_]:
    """Which examples a list names: a CSV with a column ``example``, or one id per line.

    ``captions`` writes such a list, holdout.csv; what it calls SHARD/KEY is KEY in data whose keys
    are all different. A list that names no example is refused.
    """
    if not path.is_file():
        raise InputError(f"exclude: {path}: no such file")
    if path.suffix == ".csv":
        out = set(read_column(path, "example", "exclude")["example"])
    else:
        out = set(path.read_text(encoding="utf-8").split())
    found = np.array([one in out for one in test_set.examples])
    if not found.any() and isinstance(test_set.images, TarImages):
        keys = {one.partition("/")[2] for one in out}
        found = np.array([one in keys for one in test_set.examples])
    if out and not found.any():
        raise InputError(
            f"exclude: {path}: none of its {len(out)} ids ({min(out)!r}, …) is an example of "
            f"{test_set.name} ({test_set.examples[0]!r}, …)"
        )
    return found
