"""WebDataset tars of captions: ``0001.jpg`` with ``0001.txt`` or ``0001.json``, read in place.

Nothing is unpacked. The text is the ``.txt`` member, or a field of the JSON object; tags are a
field of it. Where an image lies is kept, so that the chosen ones can be copied out later.
"""

import json
import posixpath
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from shiftbed.captioning.columns import BATCH, LONGEST, Asked, Problems, batch_frame, choose_columns
from shiftbed.errors import InputError

IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm")
Sample = dict[str, Any]


def read_tar(path: Path, asked: Asked, problems: Problems) -> Iterator[pl.DataFrame]:
    """The samples of a tar in batches; ``row`` counts them from 0.

    ``id`` is SHARD/KEY unless a field is named, for keys may begin anew in every shard.
    A sample without an image is counted and left out.
    """
    samples: list[Sample] = []
    first = 0
    try:
        with tarfile.open(path, "r:") as tar:
            for sample in _samples(path, tar, asked, problems):
                if "offset" not in sample:
                    problems.add("no_image")
                    continue
                samples.append(sample)
                if len(samples) == BATCH:
                    yield _frame(first, samples)
                    first, samples = first + len(samples), []
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise InputError(f"{path}: cannot be read as an uncompressed tar file: {reason}") from None
    if samples:
        yield _frame(first, samples)


def _frame(first: int, samples: list[Sample]) -> pl.DataFrame:
    names = ("id", "text", "tags", "path", "url", "offset", "size")
    columns: dict[str, Any] = {name: [one.get(name) for one in samples] for name in names}
    return batch_frame({"row": range(first, first + len(samples)), **columns})


def _samples(
    path: Path, tar: tarfile.TarFile, asked: Asked, problems: Problems
) -> Iterator[Sample]:
    """Members that follow each other and share a key."""
    key, sample = "", Sample()
    while (member := tar.next()) is not None:
        tar.members.clear()  # type: ignore[attr-defined]  # or all headers would be kept
        if not member.isreg() or member.issparse():
            continue
        folder, base = posixpath.split(member.name)
        stem, _, ending = base.partition(".")
        own = posixpath.join(folder, stem)
        if own != key:
            if key and sample:
                yield {"id": f"{path.stem}/{key}", **sample}
            key, sample = own, Sample()
        _add(path, tar, member, f".{ending.lower()}", sample, asked, problems)
    if key and sample:
        yield {"id": f"{path.stem}/{key}", **sample}


def _add(
    path: Path,
    tar: tarfile.TarFile,
    member: tarfile.TarInfo,
    ending: str,
    sample: Sample,
    asked: Asked,
    problems: Problems,
) -> None:
    if ending in IMAGES:
        sample |= {"offset": member.offset_data, "size": member.size, "path": member.name}
    elif ending not in (".txt", ".json"):
        return
    elif member.size > LONGEST:
        problems.add("too_long")
    elif ending == ".txt":
        sample.setdefault("text", _text(tar, member, problems))
    else:
        try:
            read = json.loads(_text(tar, member, problems))
        except (ValueError, RecursionError):
            read = None
        if isinstance(read, dict):
            sample |= _fields(f"{path}: {member.name}", read, asked, "text" in sample)
        else:
            problems.add("malformed")


def _fields(where: str, read: dict[str, Any], asked: Asked, has_text: bool) -> Sample:
    """Text, tags, id and URL of a JSON object; named columns come before the ``.txt`` member."""
    columns = choose_columns(where, list(read), asked, needed=False)
    left_out = {"path"} if asked.id else {"path", "id"}
    found = {p: read.get(c) for p, c in columns.used().items() if p not in left_out}
    if has_text and asked.text is None:
        found.pop("text", None)
    tags = found.get("tags")
    if isinstance(tags, list):
        found["tags"] = " | ".join(str(one) for one in tags)
    return {p: v if isinstance(v, str) else str(v) for p, v in found.items() if v is not None}


def _text(tar: tarfile.TarFile, member: tarfile.TarInfo, problems: Problems) -> str:
    file = tar.extractfile(member)
    data = file.read() if file is not None else b""
    try:
        return data.decode()
    except UnicodeDecodeError:
        problems.add("invalid_utf8")
        return data.decode(errors="replace")
