"""Class maps that ship with the package: which ImageNet classes another test set has.

Every map goes from ImageNet's 1,000 classes to the classes of a test set: a subset (ImageNet-A,
ImageNet-R, the 125 classes of taori2020), or many classes to one (ObjectNet, the superclasses of
Vid-Robust and YTBB-Robust, CIFAR-10 through CINIC-10's tree).

>>> len(indices("imagenet-a")), len(groups("objectnet")), len(groups("ytbb-robust"))
(200, 113, 24)
"""

import csv
from functools import cache
from importlib.resources import files
from io import StringIO

import polars as pl

from shiftbed.errors import InputError, unknown
from shiftbed.labels import LabelPolicy, class_map, subset

IMAGENET_CLASSES = 1000
_SUBSETS = ("imagenet-a", "imagenet-r", "imagenet-125")


def _rows(name: str) -> list[dict[str, str]]:
    text = (files("shiftbed") / "catalogue" / "data" / name).read_text("utf-8")
    return list(csv.DictReader(StringIO(text)))


@cache
def imagenet_synsets() -> tuple[str, ...]:
    """WordNet ids of ImageNet's classes, in the order of their indices."""
    data = (files("shiftbed") / "published_tables" / "imagenet-classes.parquet").read_bytes()
    return tuple(pl.read_parquet(data)["synset"].to_list())


@cache
def _maps() -> dict[str, dict[str, tuple[int, ...]]]:
    """Map → target's name → ImageNet indices, targets in the order of their numbers."""
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for row in _rows("maps.csv"):
        targets = found.setdefault(row["map"], {})
        own = (int(row["index"]),) if row["index"] else ()
        targets[row["name"]] = (*targets.get(row["name"], ()), *own)
    return found


def groups(name: str) -> dict[str, tuple[int, ...]]:
    """The ImageNet indices of each class of a test set; some may have none.

    >>> groups("objectnet")["Alarm clock"]
    (409, 530)
    """
    if name not in _maps():
        raise unknown("class map", name, _maps())
    return dict(_maps()[name])


def indices(name: str) -> tuple[int, ...]:
    """All ImageNet indices that a test set has, sorted; all 1,000 where it has no class map.

    >>> indices("imagenet-r")[:3], len(indices("imagenet-sketch"))
    ((1, 2, 4), 1000)
    """
    if name not in _maps():
        return tuple(range(IMAGENET_CLASSES))
    return tuple(sorted(index for own in _maps()[name].values() for index in own))


def policy_of(name: str) -> LabelPolicy:
    """How a model with ImageNet's 1,000 classes meets a test set that has a class map.

    A subset slices the logits before the argmax; superclasses have the largest logit of their
    classes (taori2020, Appendix E.1, and its released code).

    >>> policy_of("imagenet-a").describe()
    'subset of 200 of 1000 classes, logits sliced before argmax'
    >>> policy_of("objectnet").describe()
    '125 of 1000 classes mapped to 113 by max of logits'
    """
    if name in _SUBSETS:
        return subset(indices(name), of=IMAGENET_CLASSES)
    return through("imagenet", name, how="max-logit")


def through(source: str, target: str, how: str = "max") -> LabelPolicy:
    """Zero-shot: a model with the classes of ``source`` on the label space of ``target``.

    The classes mapped to one target are combined by ``how``: max, mean or sum of their softmax
    probabilities, or the max of their logits. Maps start at ImageNet's classes.

    >>> through("imagenet", "cifar-10", how="sum").describe()
    '142 of 1000 classes mapped to 10 by sum of softmax'
    """
    if source not in ("imagenet", "imagenet-1k"):
        raise unknown("label space that class maps start from", source, ["imagenet"])
    own = groups(target)
    filled = {name: found for name, found in own.items() if found}
    return class_map(filled, how=how, targets=tuple(own), of=IMAGENET_CLASSES)


def common_classes(names: "list[str] | tuple[str, ...]") -> LabelPolicy:
    """The classes that all these test sets have (as shi2023 compares), for ImageNet's models.

    Subsets are intersected. One set of superclasses among them keeps its targets, each with the
    classes that are left of it; targets without any are dropped.

    >>> common_classes(["imagenet-a", "imagenet-r", "imagenet-sketch"]).width
    86
    >>> common_classes(["objectnet", "imagenet-a"]).describe()
    '27 of 1000 classes mapped to 27 by max of logits'
    """
    if not names:
        raise InputError("common classes: name at least one test set")
    merged = {name for name in names if name in _maps() and name not in _SUBSETS}
    if len(merged) > 1:
        raise InputError(
            f"common classes: {' and '.join(sorted(merged))} merge classes in different ways; "
            "they have no common label space"
        )
    shared = set.intersection(*(set(indices(name)) for name in names))
    if not shared:
        raise InputError(f"common classes: {', '.join(names)} have none in common")
    if not merged:
        return subset(sorted(shared), of=IMAGENET_CLASSES)
    left = {
        target: [index for index in own if index in shared]
        for target, own in groups(merged.pop()).items()
    }
    return class_map({t: own for t, own in left.items() if own}, "max-logit", of=IMAGENET_CLASSES)


@cache
def objectnet_folders() -> dict[str, str]:
    """ObjectNet's 313 folders and the labels they stand for."""
    return {row["folder"]: row["label"] for row in _rows("objectnet-folders.csv")}


@cache
def cinic_synsets() -> dict[str, frozenset[str]]:
    """CIFAR-10's classes and the synsets whose images CINIC-10 has under them."""
    found: dict[str, set[str]] = {}
    for row in _rows("cinic-10.csv"):
        found.setdefault(row["class"], set()).add(row["synset"])
    return {name: frozenset(own) for name, own in found.items()}


@cache
def domain_classes(task: str) -> tuple[str, ...]:
    """Class names of a task of domains, in the order of their numbers.

    >>> domain_classes("pacs")
    ('dog', 'elephant', 'giraffe', 'guitar', 'horse', 'house', 'person')
    """
    return tuple(row["class"] for row in _rows("domain-classes.csv") if row["task"] == task)
