"""File names for models and settings: readable, reversible, and safe on any file system."""

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import quote

_LONGEST = 180


@lru_cache(maxsize=1 << 16)
def encode(name: str) -> str:
    """Percent-encoded as in Hive partitions; a very long name is cut and given its hash.

    >>> encode("timm:resnet18/a b")
    'timm%3Aresnet18%2Fa%20b'
    """
    plain = quote(name, safe="@+,=")
    if plain in (".", ".."):
        plain = plain.replace(".", "%2E")
    if len(plain) <= _LONGEST:
        return plain
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{plain[: _LONGEST - 17]}~{digest}"


def part_name(start: int, stop: int) -> str:
    """A part's file name: examples start … stop−1.

    >>> part_name(0, 2048)
    'part-0000000000-0000002048.parquet'
    """
    return f"part-{start:010d}-{stop:010d}.parquet"


@lru_cache(maxsize=1 << 16)
def part_range(name: str) -> tuple[int, int] | None:
    """Start and stop from a part's file name, None if it is not one."""
    stem = name.rpartition("/")[2]
    if not (stem.startswith("part-") and stem.endswith(".parquet")):
        return None
    pieces = stem.removeprefix("part-").removesuffix(".parquet").split("-")
    if len(pieces) != 2 or not all(piece.isdigit() for piece in pieces):
        return None
    return int(pieces[0]), int(pieces[1])


def cell_folder(model: str, setting: str) -> str:
    """The folder of a cell's parts."""
    return f"predictions/model={encode(model)}/setting={encode(setting)}"


def pack_file(setting: str, name: str) -> str:
    """The file of several small cells of a setting."""
    return f"packs/setting={encode(setting)}/pack-{name}.parquet"


def cell_file(model: str, setting: str) -> str:
    """The file of a cell's own record."""
    return f"cells/model={encode(model)}/setting={encode(setting)}.json"


def outermost(parts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, without those that lie within another one.

    >>> outermost([(0, 4), (0, 2), (2, 4), (4, 6)])
    [(0, 4), (4, 6)]
    """
    return list(_outermost(parts))


def _outermost(parts: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    end = -1
    for start, stop in sorted(set(parts), key=lambda part: (part[0], -part[1])):
        if stop > end:
            yield start, stop
            end = stop


def covers(parts: list[tuple[int, int]], n: int) -> bool:
    """Whether ranges cover 0 … n−1 without gap or overlap."""
    at = 0
    for start, stop in parts:
        if start != at:
            return False
        at = stop
    return at == n
