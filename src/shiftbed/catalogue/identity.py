"""Which names mean one test set: what it is called, how many images it has.

Tables call the validation set of ImageNet ``val``, ``ImageNet 1k`` or ``imagenet``. Testbeds are
joined on what is meant (``data/identities.toml``), and readers see one title.
"""

import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files

from shiftbed.catalogue.lookup import entries
from shiftbed.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A test set under one label space, whatever it is called."""

    name: str
    """The one name that stands for all."""
    title: str
    """For people: ``ImageNetV2``."""
    size: int | None = None
    """How many images a model is judged on, None where that is not published."""
    also: tuple[int, ...] = ()
    """Sizes that published tables give as well."""
    names: tuple[str, ...] = ()
    """Further names; case, spaces, ``-`` and ``_`` do not matter."""
    weak: tuple[str, ...] = ()
    """Names that are common words: they need another hint that it is meant."""
    twin: str | None = None
    """The test set whose images it has, of some classes only; None if it is none of those."""
    of: str | None = None
    """The OOD test set whose classes those are."""
    citation: str = ""


@lru_cache(maxsize=4096)
def identity(name: str) -> Identity | None:
    """What is known of the test set of that name, None if nothing.

    >>> identity("ImageNet 1k").size, identity("imagenet_a_clean").of
    (50000, 'imagenet-a')
    """
    known = _known()
    return known.get(name) or known.get(_key(name))


def is_weak(name: str) -> bool:
    """Whether the name is a common word that may mean something else.

    >>> is_weak("val"), is_weak("imagenet")
    (True, False)
    """
    found = identity(name)
    return found is not None and _key(name) in {_key(one) for one in found.weak}


def canonical(name: str) -> str | None:
    """The one name of the test set that ``name`` means, None if it is not known.

    >>> canonical("val"), canonical("imagenetv2_mf"), canonical("my photographs")
    ('imagenet', 'imagenet-v2', None)
    """
    found = identity(name)
    return None if found is None else found.name


def title(name: str) -> str:
    """What to call it in tables and charts: its title, or the name as it is.

    >>> title("imagenetv2-matched-frequency-format-val"), title("my photographs")
    ('ImageNetV2', 'my photographs')
    """
    found = identity(name)
    return name if found is None else found.title


def size(name: str) -> int | None:
    """How many images it has, None if that is not known.

    >>> size("ImageNet Sketch"), size("my photographs")
    (50889, None)
    """
    found = identity(name)
    return None if found is None else found.size


@cache
def identities() -> tuple[Identity, ...]:
    """All that are known: those with several names, then the rest of the catalogue."""
    text = (files("shiftbed") / "catalogue" / "data" / "identities.toml").read_text("utf-8")
    citations = {entry.name: entry.citation for entry in entries()}
    found = []
    for table in tomllib.loads(text)["test_sets"]:
        lists = {key: tuple(table[key]) for key in ("names", "also", "weak") if key in table}
        cited = citations.get(table["name"]) or citations.get(table["name"].split("@")[0], "")
        found.append(Identity(**table | lists, citation=cited))
    named = {_key(name) for one in found for name in (one.name, *one.names)}
    found += [
        Identity(name=one.name, title=one.title, size=one.images, citation=one.citation)
        for one in entries()
        if _key(one.name) not in named
    ]
    return tuple(found)


@cache
def _known() -> dict[str, Identity]:
    """By name, and by key where no other test set has that one, or only as a further name."""
    found: dict[str, Identity] = {}
    for one in identities():
        for name in (one.name, *one.names, *one.weak):
            if found.setdefault(name, one) is not one:
                raise InputError(f"{name!r} is the name of two test sets")
    for one in identities():
        found.setdefault(_key(one.name), one)
    for one in identities():
        for name in (*one.names, *one.weak):
            found.setdefault(_key(name), one)
    return found


_SEPARATORS = str.maketrans("", "", "-_")


def _key(name: str) -> str:
    return "".join(name.casefold().translate(_SEPARATORS).split())
