"""Test sets of a store, and its records: whole files or none, refused where they are damaged.

STORE/test_sets/setting=S.json              what the test set is
STORE/test_sets/setting=S.parquet           its examples, labels and groups
STORE/test_sets/copies-DIGEST.json          copies of the records, so that few requests read all
"""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError, unknown
from shiftbed.labels import Judged, judge
from shiftbed.records import Setting
from shiftbed.store.files import MemoryFiles, open_files
from shiftbed.store.manifest import opened_record
from shiftbed.store.names import encode
from shiftbed.store.sealing import Damaged, digest, opened, sealed
from shiftbed.store.shapes import check_record, read_examples

FORMAT = 1
MANY = 8
"""Test sets whose records are copied into one file at least."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredTestSet:
    """A setting's examples in order, with labels (−1 unknown) or label sets, and groups."""

    setting: str
    """Id of the setting."""
    examples: tuple[str, ...]
    labels: NDArray[np.int64]
    fingerprint: str
    record: Setting | None = None
    """What the setting is; None where an older store does not say."""
    label_policy: str = ""
    classes: int | None = None
    """Number of classes of the target label space, if known."""
    label_sets: tuple[tuple[int, ...], ...] | None = None
    """For multi-label targets: the right answers of each example; none means left out."""
    groups: tuple[str, ...] | None = None
    details: Mapping[str, Any] | None = None
    unread: tuple[int, ...] = ()
    """Images that could not be read when the fingerprint was made."""
    fingerprint_without: Callable[[Sequence[int]], str] | None = None
    """The fingerprint if others could not be read, where it can be computed."""
    checksum: str | None = None
    """SHA-256 of the store's file of examples and labels, where its record has it."""

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which examples have a label."""
        return self.judge(np.zeros(len(self), dtype=np.int64)).counted

    def judge(self, predicted: NDArray[Any]) -> Judged:
        """Which answers (n,) are right, and which examples have a label at all."""
        return judge(predicted, self.labels if self.label_sets is None else self.label_sets)


class TestSets:
    """The files of a store, and the test sets in it."""

    __test__ = False

    def __init__(self, path: str | Path | None, **options: Any) -> None:
        self.files = open_files(path, **options)
        self.damage: dict[str, str] = {}
        """What was found damaged and left out while reading, by file."""
        about = self._json_if_there("store.json")
        self._made = about is not None
        if about is not None and about.get("format") != FORMAT:
            raise InputError(f"{path}: store format {about.get('format')!r}, expected {FORMAT}")

    @property
    def in_memory(self) -> bool:
        return isinstance(self.files, MemoryFiles)

    def begin(self) -> None:
        """Make the store, if it is not there."""
        if not self._made:
            self.files.create("store.json", sealed({"format": FORMAT}))
            self._made = True

    def _write(self, name: str, data: bytes) -> None:
        self.begin()
        self.files.write(name, data)

    # --- whole files or none -----------------------------------------------------------------

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """A record, with its own checksum in it."""
        self._write(name, sealed(value))

    def read_json(self, name: str) -> dict[str, Any]:
        """A record, refused if it is not what was written; older ones have no checksum."""
        return self.record_of(name, self.files.read(name))

    def _json_if_there(self, name: str) -> dict[str, Any] | None:
        data = self.files.read_if_there(name)
        return None if data is None else self.record_of(name, data)

    def record_of(self, name: str, data: bytes) -> dict[str, Any]:
        """What a record's file holds, refused if it is not what was written."""
        try:
            return opened_record(name, data)
        except Damaged as error:
            raise self._damaged(name, str(error)) from None

    def read_bytes(self, name: str, checksum: str | None) -> bytes:
        """A file, refused if its SHA-256 is not the one recorded (None: none is)."""
        data = self.files.read(name)
        if checksum is not None and digest(data) != checksum:
            raise self._damaged(name)
        return data

    def _damaged(self, name: str, why: str = "its SHA-256 is not the recorded one") -> Damaged:
        return Damaged(f"{self.files.root}/{name} is damaged: {why} (see 'shiftbed store scrub')")

    # --- test sets ---------------------------------------------------------------------------

    def add_test_set(self, test_set: StoredTestSet) -> None:
        """Write a setting's examples and labels, once; others under its name are refused."""
        if self._compared(test_set) == "same":
            return
        columns: dict[str, Any] = {"example": list(test_set.examples), "label": test_set.labels}
        if test_set.label_sets is not None:
            sets = [list(s) for s in test_set.label_sets]
            columns["labels"] = pl.Series(sets, dtype=pl.List(pl.Int64))
        if test_set.groups is not None:
            columns["group"] = list(test_set.groups)
        buffer = io.BytesIO()
        pl.DataFrame(columns).write_parquet(buffer, compression="zstd")
        name = f"test_sets/setting={encode(test_set.setting)}"
        if f"{name}.json" in self._copies(self.files.below("test_sets")):
            self.forget_copies()
        self._write(f"{name}.parquet", buffer.getvalue())
        about = {
            "setting": test_set.setting,
            "examples": digest(buffer.getvalue()),
            "n": len(test_set),
            "fingerprint": test_set.fingerprint,
            "label_policy": test_set.label_policy,
            "classes": test_set.classes,
            "details": dict(test_set.details or {}),
        }
        if test_set.unread:
            about["unread"] = list(test_set.unread)
        if test_set.record is not None:
            about["record"] = test_set.record.to_json()
        self.write_json(f"{name}.json", about)

    def check_test_set(self, test_set: StoredTestSet) -> bool:
        """Whether it is in the store; other examples or labels under its name are refused."""
        return self._compared(test_set) != "absent"

    def _compared(self, test_set: StoredTestSet) -> Literal["absent", "same", "more"]:
        """What is in the store under its name; other examples or labels are refused.

        Images that could not be read before are no others: there are *more* now, or may be.
        """
        there = self._test_set_json(test_set.setting)
        if there is not None and there["label_policy"] != test_set.label_policy:
            raise InputError(
                f"setting {test_set.setting!r} is in the store with another label policy "
                f"({there['label_policy']}, now {test_set.label_policy})"
            )
        if there is not None and there["fingerprint"] != test_set.fingerprint:
            unread, again = there.get("unread"), test_set.fingerprint_without
            if unread and again is not None and again(unread) == there["fingerprint"]:
                return "more"
            if test_set.unread:
                first = test_set.examples[test_set.unread[0]]
                raise InputError(
                    f"{len(test_set.unread)} of {len(test_set)} images ({first!r}, …) cannot be "
                    f"read now: whether they are those of setting {test_set.setting!r} in the "
                    "store is not known"
                )
            raise InputError(
                f"setting {test_set.setting!r} is in the store with other examples or labels "
                f"({there['fingerprint'][:19]}…, now {test_set.fingerprint[:19]}…)"
            )
        return "absent" if there is None else "same"

    def leave_out(self, test_set: StoredTestSet, rows: Iterable[int]) -> None:
        """Note images that proved unreadable: its fingerprint is that of the others from now on.

        So it is the same test set once they are repaired, and nothing else.
        """
        about = self._test_set_json(test_set.setting)
        if about is None or test_set.fingerprint_without is None:
            return
        unread = sorted({*test_set.unread, *rows})
        new = {"unread": unread, "fingerprint": test_set.fingerprint_without(unread)}
        if unread and any(about.get(key) != value for key, value in new.items()):
            self.forget_copies()
            self.write_json(f"test_sets/setting={encode(test_set.setting)}.json", about | new)

    def _test_set_json(self, setting: str) -> dict[str, Any] | None:
        return self._json_if_there(f"test_sets/setting={encode(setting)}.json")

    def test_set(self, setting: str) -> StoredTestSet:
        about = self._test_set_json(setting)
        if about is None:
            raise unknown("setting in the store", setting, self.settings())
        return self.opened_test_set(about)

    def opened_test_set(self, about: Mapping[str, Any]) -> StoredTestSet:
        """The test set of a record that was read."""
        setting = about["setting"]
        name = f"test_sets/setting={encode(setting)}.parquet"
        data = self.read_bytes(name, about.get("examples"))
        try:
            frame = read_examples(data, about["n"])
        except Damaged as error:
            raise self._damaged(name, str(error)) from None
        sets = frame["labels"].to_list() if "labels" in frame.columns else None
        return StoredTestSet(
            setting=setting,
            examples=tuple(frame["example"].to_list()),
            labels=frame["label"].to_numpy().astype(np.int64),
            fingerprint=about["fingerprint"],
            label_policy=about["label_policy"],
            classes=about["classes"],
            label_sets=None if sets is None else tuple(tuple(s) for s in sets),
            groups=tuple(frame["group"].to_list()) if "group" in frame.columns else None,
            details=about["details"],
            unread=tuple(about.get("unread", ())),
            checksum=about.get("examples"),
            record=Setting.from_json(about["record"]) if "record" in about else None,
        )

    def settings(self) -> list[str]:
        return sorted(about["setting"] for about in self._test_sets())

    def _test_sets(self) -> list[dict[str, Any]]:
        """The records of all test sets: of most of them from the file that has copies."""
        names = self.files.below("test_sets")
        found = {name: one for name, one in self._copies(names).items() if name in names}
        rest = [n for n in names if n.endswith(".json") and n not in found and not is_copy(n)]
        read = self.files.read_many(rest)
        found |= {name: self.record_of(name, data) for name, data in zip(rest, read, strict=True)}
        return [found[name] for name in sorted(found)]

    def _copies(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Records of test sets by file, as ``gather_test_sets`` copied them."""
        found: dict[str, dict[str, Any]] = {}
        for name in filter(is_copy, names):
            try:
                whole = opened(self.files.read(name))
                for one, record in whole.items():
                    check_record(one, record)
                found |= whole
            except (Damaged, FileNotFoundError, AttributeError):  # a copy only
                continue
        return found

    def gather_test_sets(self) -> None:
        """Copies of all test sets' records in one file, so that few requests read them."""
        names = self.files.below("test_sets")
        records = [n for n in names if n.endswith(".json") and not is_copy(n)]
        if len(records) < MANY or set(self._copies(names)) == set(records):
            return
        read = zip(records, self.files.read_many(records), strict=True)
        data = sealed({name: self.record_of(name, one) for name, one in read})
        self.forget_copies()
        self._write(f"test_sets/copies-{digest(data)[:16]}.json", data)

    def forget_copies(self) -> None:
        """Before a test set's record is written anew."""
        for name in filter(is_copy, self.files.below("test_sets")):
            self.files.remove(name)


def is_copy(name: str) -> bool:
    """Whether a file has copies of test sets' records."""
    return name.startswith("test_sets/copies-")
