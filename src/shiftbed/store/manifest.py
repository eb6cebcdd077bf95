"""Records of cells: a file each while they are new, many in one file once there are many.

    STORE/cells/model=M/setting=S.json       a cell's own record
    STORE/cells/batch-G-DIGEST.json          a list of many; G counts up, DIGEST is of its bytes

A cell's own record holds before one in a batch, a later batch (greater G) before an earlier one.
So batches are the manifest of a store, the records beside them its newer tail: both are found by
one listing and few requests. Whoever gathers writes the batch first and removes what is in it
afterwards; killed in between, the same is there twice and read once.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from shiftbed.errors import InputError
from shiftbed.reading.files import parse_json
from shiftbed.store.files import Files
from shiftbed.store.sealing import Damaged, digest, opened
from shiftbed.store.shapes import check_batch, check_record

Key = tuple[str, str]
Record = dict[str, Any]
_BATCH = re.compile(r"cells/batch-(?:(\d+)-)?([0-9a-f]{16})\.json")


def generation(name: str) -> int | None:
    """Which batch a file is, counted up; 0 of older stores, None if it is no batch.

    >>> generation("cells/batch-000002-0123456789abcdef.json"), generation("cells/a.json")
    (2, None)
    """
    match = _BATCH.fullmatch(name)
    if match is None:
        return 0 if name.startswith("cells/batch-") else None
    return int(match[1] or 0)


class Manifest:
    """The records of a store's cells."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._batches: dict[str, dict[Key, Record]] = {}

    def listed(self) -> tuple[list[str], list[str]]:
        """Batches, earlier ones first, and files of single records."""
        names = self.files.below("cells")
        batches = sorted((g, name) for name in names if (g := generation(name)) is not None)
        return [name for _, name in batches], [n for n in names if generation(n) is None]

    def batch(self, name: str) -> Mapping[Key, Record]:
        """The records of a batch, which are not to be changed; read once."""
        if name not in self._batches:
            self._batches[name] = self._opened_batch(name, self.files.read(name))
        return self._batches[name]

    def _opened_batch(self, name: str, data: bytes) -> dict[Key, Record]:
        match = _BATCH.fullmatch(name)
        if match is None or not digest(data).startswith(match[2]):
            raise self._damaged(name, "its SHA-256 is not that of its name")
        try:
            found = parse_json(data, "it")
            check_batch(found)
        except InputError as error:
            raise self._damaged(name, str(error)) from None
        return {(record["model"], record["setting"]): record for record in found}

    def in_batches(self, model: str, setting: str) -> Record | None:
        """What the latest batch says of a cell; a copy."""
        for name in reversed(self.listed()[0]):
            found = self._if_there(name)
            if found is not None and (model, setting) in found:
                return dict(found[model, setting])
        return None

    def _if_there(self, name: str) -> Mapping[Key, Record] | None:
        """A batch, None if it has been gathered into another one since it was listed."""
        try:
            return self.batch(name)
        except FileNotFoundError:
            return None

    def all(
        self, damage: dict[str, str], seen: Mapping[str, bytes] | None = None
    ) -> dict[Key, Record]:
        """Every cell's record, not to be changed; damaged ones are left out, and in ``damage``.

        ``seen``: files of single records that were read just now.
        """
        for _ in range(5):  # unless somebody gathers them meanwhile
            try:
                return self._all(damage, seen or {})
            except FileNotFoundError:
                continue
        return self._all(damage, {})

    def _all(self, damage: dict[str, str], seen: Mapping[str, bytes]) -> dict[Key, Record]:
        batches, single = self.listed()
        unread = [name for name in batches if name not in self._batches]
        contents = dict(zip(unread, self.files.read_many(unread), strict=True))
        found: dict[Key, Record] = {}
        for name in batches:
            try:
                if name in contents:
                    self._batches[name] = self._opened_batch(name, contents[name])
                found |= self._batches[name]
            except Damaged as error:
                damage[name] = str(error)
        rest = [name for name in single if name not in seen]
        read = {**seen, **dict(zip(rest, self.files.read_many(rest), strict=True))}
        for name in single:
            try:
                record = opened_record(name, read[name])
                found[record["model"], record["setting"]] = record
            except Damaged as error:
                damage[name] = str(self._damaged(name, str(error)))
        return found

    def write_batch(self, records: Iterable[Mapping[str, Any]]) -> str | None:
        """Many records in one file, later than all other batches that are there; its name."""
        whole = sorted(records, key=lambda one: (one["model"], one["setting"]))
        if not whole:
            return None
        data = json.dumps(whole, ensure_ascii=False, sort_keys=True).encode()
        there = self.listed()[0]
        last = (generation(there[-1]) or 0) if there else 0
        if there and there[-1].endswith(f"-{digest(data)[:16]}.json"):
            return there[-1]  # written, and its writer killed before the earlier ones were removed
        name = f"cells/batch-{last + 1:06d}-{digest(data)[:16]}.json"
        self.files.write(name, data)
        return name

    def forget(self, model: str, setting: str) -> None:
        """Take a cell out of the batches; its own record must be gone."""
        names = self.listed()[0]
        if not any((model, setting) in self.batch(name) for name in names):
            return
        rest: dict[Key, Record] = {}
        for name in names:
            rest |= self.batch(name)
        rest.pop((model, setting), None)
        self.write_batch(rest.values())
        for name in names:
            self.files.remove(name)

    def _damaged(self, name: str, why: str) -> Damaged:
        return Damaged(f"{self.files.root}/{name} is damaged: {why} (see 'shiftbed store scrub')")


def opened_record(name: str, data: bytes) -> Record:
    """A record, refused if it is not what was written, or not of its kind."""
    found = opened(data)
    check_record(name, found)
    return found
