"""What the files behind a test set are like now, without reading them."""

import hashlib
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shiftbed.errors import InputError
from shiftbed.evaluation.data.wilds import PREFIX as WILDS
from shiftbed.evaluation.data.wilds import WildsSpec
from shiftbed.places import local, url_of
from shiftbed.reading.streams import expand


def state_of(path: str, options: Mapping[str, Any]) -> str:
    """A hash of names, sizes, times and inodes of the files that a test set is read from.

    Equal states are the same images. Where the files cannot be listed beforehand, as of a manifest
    that names files anywhere, every answer is another one: nothing kept is taken for it.
    """
    whole = hashlib.sha256()
    places = [path, *(str(one) for one in options.values() if isinstance(one, str | Path))]
    for place in places:
        if place.lower().endswith((".csv", ".tsv")):
            return uuid.uuid4().hex
        for file in sorted(_files(place)):
            about = os.stat(file)
            seen = (about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)
            whole.update(repr((file, seen)).encode())
    return whole.hexdigest()


def _files(place: str) -> Iterator[str]:
    """The files of a path, a folder, a pattern, ``FILE.npz:PREFIX`` or ``NAME@DIR``."""
    if place.startswith(WILDS) and not os.path.lexists(place):
        place = WildsSpec.parse(place).root
    _, at, folder = place.partition("@")
    archive, prefix, _ = place.rpartition(".npz:")
    if prefix:
        place = f"{archive}.npz"
    elif at and folder and url_of(place) is None and not os.path.lexists(place):
        place = folder
    if "\0" in place:
        return
    if not os.path.lexists(place) and any(mark in place for mark in "*?[{"):
        try:
            yield from map(str, expand(place))
        except InputError:  # opening it will say so
            return
        return
    root = str(local(place))
    if os.path.isfile(root):
        yield root
    for where, _, names in os.walk(root, followlinks=True):
        for one in names:
            file = os.path.join(where, one)
            if os.path.exists(file):
                yield file
