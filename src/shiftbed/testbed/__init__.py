"""Testbeds: the record, its file, the published ones, and how models are chosen."""

from dataclasses import replace
from functools import lru_cache
from importlib import import_module, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbed.errors import InputError, unknown
from shiftbed.places import local
from shiftbed.store import PredictionStore, is_store
from shiftbed.testbed.families import families, family_of
from shiftbed.testbed.files import read_testbed, write_testbed
from shiftbed.testbed.record import Testbed
from shiftbed.testbed.select import choose

if TYPE_CHECKING:
    from shiftbed.testbed.stored import testbed_from_store

__all__ = [
    "PUBLISHED",
    "Source",
    "Testbed",
    "choose",
    "families",
    "family_of",
    "open_testbed",
    "published",
    "read_testbed",
    "recognise",
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


Source = str | Path | Testbed | PredictionStore
"""What a testbed is opened from: a published one's name, a file, a store, or the testbed itself."""


def recognise(source: Source) -> Testbed | PredictionStore | Path:
    """A published testbed by its name or a store by its path, opened; the path of another file.

    A file at a URL is fetched.
    """
    if isinstance(source, Testbed | PredictionStore):
        return source
    name = str(source)
    if name in PUBLISHED:
        return published(name)
    return PredictionStore.existing(name) if is_store(name) else local(name)


def open_testbed(source: Source) -> Testbed:
    """A published testbed by its name, a testbed file or a prediction store by its path.

    A testbed is returned as it is; an open store becomes one. Models of files and stores get a
    column ``family`` where their names say it (``family_of``).

    >>> open_testbed("openclip") is open_testbed(open_testbed("openclip"))
    True
    """
    found = recognise(source)
    if isinstance(found, Testbed):
        return found
    if isinstance(found, PredictionStore):
        from shiftbed.testbed.stored import testbed_from_store

        return _with_families(testbed_from_store(found))
    if found.exists():
        return _with_families(read_testbed(found))
    if found.suffix or "/" in str(source):
        raise InputError(f"{source}: no such testbed file")
    raise unknown("testbed", str(source), PUBLISHED)


def _with_families(bed: Testbed) -> Testbed:
    found = families(bed.models)
    if found.null_count() == len(found):
        return bed
    return replace(bed, models=bed.models.with_columns(found.alias("family")))


def __getattr__(name: str) -> Any:
    """What reads stores, when it is first used."""
    if name == "testbed_from_store":
        return import_module("shiftbed.testbed.stored").testbed_from_store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
