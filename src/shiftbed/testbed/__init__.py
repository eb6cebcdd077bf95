"""Testbeds: the record, its file, the published ones, and how models are chosen."""

from dataclasses import replace
from functools import lru_cache
from importlib import resources
from pathlib import Path

from shiftbed.errors import InputError, unknown
from shiftbed.store import PredictionStore
from shiftbed.testbed.families import families, family_of
from shiftbed.testbed.files import read_testbed, write_testbed
from shiftbed.testbed.record import Testbed
from shiftbed.testbed.select import choose
from shiftbed.testbed.stored import testbed_from_store

__all__ = [
    "PUBLISHED",
    "Testbed",
    "choose",
    "families",
    "family_of",
    "open_testbed",
    "published",
    "read_testbed",
    "testbed_from_store",
    "write_testbed",
]
PUBLISHED = (
    "imagenet-testbed-2020",
    "imagenet-testbed-2023",
    "robustnets-2022",
    "timm",
    "openclip",
)


@lru_cache(maxsize=len(PUBLISHED))
def published(name: str) -> Testbed:
    """A published testbed, such as ``imagenet-testbed-2020``.

    >>> published("imagenet-testbed-2020").value.shape[0]
    204
    """
    if name not in PUBLISHED:
        raise unknown("published testbed", name, PUBLISHED)
    with resources.as_file(
        resources.files("shiftbed") / "published_tables" / f"{name}.parquet"
    ) as path:
        return read_testbed(path)


def open_testbed(source: "str | Path | Testbed | PredictionStore") -> Testbed:
    """A published testbed by its name, a testbed file or a prediction store by its path.

    A testbed is returned as it is; an open store becomes one. Models of files and stores get a
    column ``family`` where their names say it (``family_of``).

    >>> open_testbed("openclip") is open_testbed(open_testbed("openclip"))
    True
    """
    if isinstance(source, Testbed):
        return source
    if isinstance(source, PredictionStore):
        return _with_families(testbed_from_store(source))
    name = str(source)
    if name in PUBLISHED:
        return published(name)
    path = Path(name)
    if "://" in name or path.is_dir():
        return _with_families(testbed_from_store(PredictionStore.existing(name)))
    if path.exists():
        return _with_families(read_testbed(path))
    if path.suffix or "/" in name:
        raise InputError(f"{name}: no such testbed file")
    raise unknown("testbed", name, PUBLISHED)


def _with_families(bed: Testbed) -> Testbed:
    found = families(bed.models)
    if found.null_count() == len(found):
        return bed
    return replace(bed, models=bed.models.with_columns(found.alias("family")))
