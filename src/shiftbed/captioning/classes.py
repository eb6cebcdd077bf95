"""The classes looked for in captions: names and synonyms, from a file or ImageNet's."""

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl

from shiftbed.errors import InputError
from shiftbed.places import local
from shiftbed.reading.tables import decode, read_bytes, read_delimited

_LIMIT = 1 << 26
_LONGEST = 1000
"""The largest class file, in bytes."""
_EXPECTED = (
    "expected .csv with columns name and synonyms, .json {name: [synonyms]} or a list, or .txt "
    "with a class a line, synonyms after commas"
)


@dataclass(frozen=True, kw_only=True)
class CaptionClass:
    """A class: its number is its place in the list."""

    name: str
    synonyms: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All its names, each once."""
        return tuple(dict.fromkeys((self.name, *self.synonyms)))


def read_classes(where: str | Path) -> tuple[CaptionClass, ...]:
    """Classes in order, from a file or, for ``imagenet-1k``, from the packages installed.

    CSV: columns ``name`` and ``synonyms`` (separated by ``|`` or ``;``). JSON: ``{name:
    [synonyms]}``, a list of names, or a list of ``{"name", "synonyms"}``. Text: a class a line,
    ``tench, Tinca tinca``. A line's place is the class's number.
    """
    if str(where) == "imagenet-1k":
        return _imagenet()
    path = local(where)
    try:
        if path.stat().st_size > _LIMIT:
            raise InputError(f"{path}: too large for a class file")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; {_EXPECTED}, or imagenet-1k") from None
    text = decode(str(path), read_bytes(path))
    readers = {".csv": _csv, ".tsv": _csv, ".json": _json, ".txt": _lines}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: not a class file; {_EXPECTED}")
    return _checked(path, reader(path, text))


def _checked(path: Path, classes: Iterable[CaptionClass]) -> tuple[CaptionClass, ...]:
    found = tuple(classes)
    if not found:
        raise InputError(f"{path}: holds no class; {_EXPECTED}")
    seen: dict[str, int] = {}
    for number, one in enumerate(found):
        if not any(character.isalnum() for character in one.name):
            raise InputError(f"{path}: class {number} has no name")
        if any(len(name) > _LONGEST for name in one.names):
            raise InputError(f"{path}: a name of class {number} is over {_LONGEST} characters long")
        if seen.setdefault(one.name, number) != number:
            raise InputError(f"{path}: class {one.name!r} is there twice")
    return found


def _csv(path: Path, text: str) -> Iterable[CaptionClass]:
    table = read_delimited(str(path), text)
    names, synonyms = table.frame[table.need("name")], table.find("synonyms")
    others = [None] * len(names) if synonyms is None else table.frame[synonyms]
    for name, more in zip(names, others, strict=True):
        yield _class(name or "", (more or "").replace(";", "|").split("|"))


def _json(path: Path, text: str) -> Iterable[CaptionClass]:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON: {error}") from None
    if isinstance(read, dict):
        read = [{"name": name, "synonyms": others} for name, others in read.items()]
    if not isinstance(read, list):
        raise InputError(f"{path}: {_EXPECTED}")
    for number, one in enumerate(read):
        entry: Any = {"name": one} if isinstance(one, str) else one
        others = entry.get("synonyms") or [] if isinstance(entry, dict) else None
        names = [entry.get("name"), *others] if isinstance(others, list) else [None]
        texts = [name for name in names if isinstance(name, str)]
        if len(texts) < len(names):
            raise InputError(f"{path}: class {number} is not a name with a list of synonyms")
        yield _class(texts[0], texts[1:])


def _lines(path: Path, text: str) -> Iterable[CaptionClass]:
    for line in text.splitlines():
        if line.strip():
            name, *others = line.split(",")
            yield _class(name, others)


def _class(name: str, others: Iterable[str]) -> CaptionClass:
    kept = tuple(one.strip() for one in others if one.strip())
    return CaptionClass(name=name.strip(), synonyms=kept)


def _imagenet() -> tuple[CaptionClass, ...]:
    """The 1,000 synsets with WordNet's lemmas, which the installed timm brings as a text file."""
    data = (files("shiftbed") / "published_tables" / "imagenet-classes.parquet").read_bytes()
    synsets = pl.read_parquet(io.BytesIO(data)).sort("index")["synset"].to_list()
    spec = find_spec("timm")
    places = spec.submodule_search_locations if spec is not None else None
    names = Path(next(iter(places or ["."]))) / "data/_info/imagenet_synset_to_lemma.txt"
    if not places or not names.is_file():
        raise InputError(
            "imagenet-1k: names of the synsets come with timm, which is not installed; pip install "
            "timm, or give a class file"
        )
    pairs = (line.split("\t", 1) for line in names.read_text(encoding="utf-8").splitlines())
    lemmas = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    for synset in synsets:
        if synset not in lemmas:
            raise InputError(f"imagenet-1k: {names} has no name for {synset}")
    return tuple(_class(synset, lemmas[synset].split(",")) for synset in synsets)
