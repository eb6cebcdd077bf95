"""Checksums: a record has its own in it, other files have theirs in a record.

A record's is of its content, however its file is laid out, so that older records (without one) and
files that were copied or indented anew are read as well.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from shiftbed.errors import InputError

SUM = "sha256"
"""The key under which a JSON file keeps the checksum of the rest of it."""


class Damaged(InputError):
    """A file of a store is not what was written."""


class FileUnreadable(OSError, InputError):
    """Nothing is known of a file: a permission, a disk that fails, no file in its place."""


class FileMissing(FileNotFoundError, InputError):
    """A file is not there (any more)."""


def digest(data: bytes) -> str:
    """SHA-256, in hex."""
    return hashlib.sha256(data).hexdigest()


def sealed(value: Mapping[str, Any]) -> bytes:
    """A record as indented JSON, with the checksum of the rest in it.

    >>> opened(sealed({"a": 1}))
    {'a': 1}
    """
    plain = json.loads(json.dumps(value))
    whole = {**plain, SUM: digest(_plain(plain))}
    return json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True).encode()


def opened(data: bytes) -> dict[str, Any]:
    """The record without its checksum; refused if it is not what was written.

    >>> opened(b'{"a": 2, "sha256": "0"}')
    Traceback (most recent call last):
    shiftbed.store.sealing.Damaged: its SHA-256 is not the recorded one
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Damaged("it is no JSON object")
    kept = found.pop(SUM, None)
    if kept is not None and kept != digest(_plain(found)):
        raise Damaged("its SHA-256 is not the recorded one")
    return found


def is_sealed(data: bytes) -> bool:
    """Whether a record has its checksum in it."""
    found = json.loads(data)
    return isinstance(found, dict) and SUM in found


def _plain(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
