"""WebDataset tars, read in place: nothing is unpacked, so no name in them reaches the disk.

Members belong together by their name up to the first full stop: ``0001.jpg`` with ``0001.cls``
(a class number or name) or ``0001.json`` (a field ``label``); captions are a member (``0001.txt``)
or a field of that, where they are asked for. Everything else is passed over:
links, devices, sparse files, and above all pickles. A name that is absolute or climbs with ``..``
is refused together with its archive.
"""

import json
import posixpath
import tarfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.data.images import EXTENSIONS, NoImage, RowImages
from shiftbed.evaluation.data.raw_examples import Options, RawExamples, shown, some
from shiftbed.reading.streams import tar_members

_TEXT_LIMIT = 2**20
"""The largest label file, in bytes."""
_LABELS = ("label", "labels", "cls", "class")


@dataclass(frozen=True, kw_only=True, eq=False)
class TarImages(RowImages):
    """Stretches of tars: (number of the file, offset, size), size −1 where there is no image."""

    paths: tuple[str, ...]

    def data(self, row: int) -> bytes:
        number, offset, size = map(int, self.rows[row])
        if size < 0:
            raise NoImage("its tar holds a label but no image for it")
        try:
            with open(self.paths[number], "rb", buffering=0) as file:
                file.seek(offset)
                data = file.read(size)
        except OSError as error:
            raise NoImage(f"its tar cannot be read: {error.strerror}") from None
        if len(data) < size:
            raise NoImage("its tar is cut off")
        return data


@dataclass(kw_only=True)
class _Sample:
    """The members of one example."""

    key: str
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Image fields, such as ``jpg``: offset and size."""
    label: Any = None
    group: Any = None
    caption: str | None = None


def read_tars(paths: list[Path], options: Options) -> RawExamples:
    """The images of one or several tars in their order."""
    passed: Counter[str] = Counter()
    shards = [_index(path, options, passed) for path in paths]
    samples = [(number, one) for number, shard in enumerate(shards) for one in shard]
    where = some([str(path) for path in paths], 1)
    wanted = _image_fields(where, [one for _, one in samples], options)
    places = [
        (number, *next((one.places[end] for end in wanted if end in one.places), (0, -1)))
        for number, one in samples
    ]
    keys = [one.key for _, one in samples]
    if len(set(keys)) < len(keys):
        keys = [f"{paths[number].stem}/{one.key}" for number, one in samples]
    labels = [one.label for _, one in samples]
    groups = [one.group for _, one in samples]
    notes = [f"passed over in the tar: {count} × {what}" for what, count in sorted(passed.items())]
    return RawExamples(
        where=where,
        examples=tuple(keys),
        images=TarImages(
            paths=tuple(str(path.absolute()) for path in paths),
            rows=np.array(places, dtype=np.int64),
        ),
        labels=None if options.unlabelled else labels,
        groups=None if all(group is None for group in groups) else groups,
        captions=[one.caption for _, one in samples] if options.caption_column else None,
        notes=tuple(notes),
    )


def _index(path: Path, options: Options, passed: "Counter[str]") -> list[_Sample]:
    """The samples of one tar, in order."""
    samples: dict[str, _Sample] = {}
    seen: set[str] = set()
    for member, read in tar_members(path):
        name = _safe(path, member.name)
        if member.isdir():
            continue
        if not member.isreg() or member.issparse():
            passed["link, device or sparse file"] += 1
            continue
        if name in seen:
            raise InputError(f"{path}: two members are called {shown(name)}")
        seen.add(name)
        folder, base = posixpath.split(name)
        stem, _, ending = base.partition(".")
        ending = ending.lower()
        is_image = f".{ending.rpartition('.')[2]}" in EXTENSIONS
        if not stem or not ending:
            passed["name without a key and an ending"] += 1
            continue
        if not is_image and ending not in ("cls", "json", options.caption_column):
            passed[f".{ending[:20]}"] += 1
            continue
        key = posixpath.join(folder, stem)
        sample = samples.setdefault(key, _Sample(key=key))
        if is_image:
            sample.places[ending] = (member.offset_data, member.size)
        elif ending == options.caption_column and ending != "json":
            sample.caption = _text(path, member, read).strip()
        elif ending == "cls":
            sample.label = _text(path, member, read).strip()
        else:
            fields = _json(path, member, read)
            wanted = [options.label_column] if options.label_column else _LABELS
            own = [fields[one] for one in wanted if one in fields]
            sample.label = own[0] if own and sample.label is None else sample.label
            sample.group = fields.get(options.group_column or "group")
            text = fields.get(options.caption_column or "")
            sample.caption = text if isinstance(text, str) else sample.caption
    return list(samples.values())


def _safe(path: Path, name: str) -> str:
    """A member's name, refused if it points out of the archive."""
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "\\" in name or not name.isprintable():
        raise InputError(f"{path}: member {shown(name)} has an unsafe name; nothing was read")
    return posixpath.normpath(name)


def _text(path: Path, member: tarfile.TarInfo, read: Callable[[], bytes]) -> str:
    if member.size > _TEXT_LIMIT:
        raise InputError(f"{path}: {shown(member.name)} is too large for a label")
    try:
        return read().decode()
    except UnicodeDecodeError:
        raise InputError(f"{path}: {shown(member.name)} is not text") from None


def _json(path: Path, member: tarfile.TarInfo, read: Callable[[], bytes]) -> dict[str, Any]:
    try:
        found = json.loads(_text(path, member, read))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError(f"{path}: {shown(member.name)} is not a JSON object")
    return found


def _image_fields(where: str, samples: list[_Sample], options: Options) -> tuple[str, ...]:
    """Which image fields hold the image: one per sample; several in a sample are a question."""
    fields = sorted({ending for one in samples for ending in one.places})
    if not fields:
        raise InputError(f"{where}: no images; expected members such as 0001.jpg with 0001.cls")
    if options.image_column is not None:
        asked = options.image_column.lower().removeprefix(".")
        if asked not in fields:
            raise unknown(f"image field in {where}", asked, fields)
        return (asked,)
    plain = [ending for ending in fields if "." not in ending] or fields
    if any(len(one.places.keys() & set(plain)) > 1 for one in samples):
        raise InputError(f"{where}: images end in {some(plain)}; say which (image_column=)")
    return tuple(plain)
