"""Testbeds: the record, its file, and how models are chosen from it."""

from pathlib import Path

from shiftbed.errors import InputError, unknown
from shiftbed.testbed.files import read_testbed, write_testbed
from shiftbed.testbed.published import PUBLISHED, published
from shiftbed.testbed.record import Testbed
from shiftbed.testbed.select import choose

__all__ = [
    "PUBLISHED",
    "Testbed",
    "choose",
    "open_testbed",
    "published",
    "read_testbed",
    "write_testbed",
]


def open_testbed(name: str) -> Testbed:
    """A published testbed by its name, or a testbed file by its path."""
    if name in PUBLISHED:
        return published(name)
    path = Path(name)
    if path.exists():
        return read_testbed(path)
    if path.suffix or "/" in name:
        raise InputError(f"{name}: no such testbed file")
    raise unknown("testbed", name, PUBLISHED)
