"""Which settings the files of predictions hold: their names, and which of them are one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np

from shiftbed.errors import InputError, shown
from shiftbed.importing.predictions import Predictions

_SEPARATORS = "_-. "


def name_settings(
    found: Sequence[Predictions], names: Mapping[str, str]
) -> tuple[list[Predictions], set[str]]:
    """Settings with their names, and all the keys by which ``names`` could have named them.

    A setting that is alone in its file gets the file's stem, less what the stems have in common.
    The common start is cut back to a separator, so ``67models_val`` and ``67models_v2`` give
    ``val`` and ``v2``. ``names`` may give another name, by the file's name or the setting's.
    """
    stems = sorted({Path(one.path).stem for one in found if one.single})
    shared = _start(stems) if len(stems) > 1 else ""
    shared = shared[: max(shared.rfind(c) for c in _SEPARATORS) + 1]
    if shared in stems:
        shared = ""
    named: list[Predictions] = []
    keys: set[str] = set()
    for one in found:
        own = Path(one.path).stem[len(shared) :] if one.single else one.setting
        options = (*file_keys(one.path), own) if one.single else (own,)
        keys.update(options)
        chosen = next((names[key] for key in options if key in names), None)
        named.append(replace(one, setting=chosen or own, own=own, chosen=chosen is not None))
    return named, keys


def file_keys(path: str) -> tuple[str, str, str]:
    """By what a caller may mean a file: its path, its name, its stem."""
    return path, Path(path).name, Path(path).stem


def unite(found: Sequence[Predictions]) -> list[Predictions]:
    """Settings that are one under two names get one name, the first or the one chosen.

    Equal labels in equal order mean the same images. Where no model has two results on them and
    the names end alike (``67val`` and ``mine_val``), they are one setting; where some model has,
    they are several settings made from the same images, as corruptions are, and the names decide.
    Anything in between is refused: only the caller knows.
    """
    renamed = {id(one): one for one in found}
    for images in dict.fromkeys(one.images for one in found):
        group = [one for one in found if one.images == images]
        if len({one.setting for one in group}) == 1 or _overlap(group):
            continue
        anchors = list(dict.fromkeys(one.setting for one in group if one.chosen))
        anchors = anchors or [group[0].setting]
        for one in group:
            if one.chosen or one.setting in anchors:
                continue
            like = [name for name in anchors if _like(one, name, group)]
            if len(like) != 1:
                raise _undecided(one, next(o for o in group if o.setting == anchors[0]))
            renamed[id(one)] = replace(one, setting=like[0])
    united = [renamed[id(one)] for one in found]
    start: dict[str, Predictions] = {}
    for one in united:
        _check_labels(one, start.setdefault(one.setting, one))
    return united


def _overlap(group: Sequence[Predictions]) -> bool:
    """Whether a model has results under two names."""
    return any(
        a.setting != b.setting and not set(a.models).isdisjoint(b.models)
        for a, b in combinations(group, 2)
    )


def _like(one: Predictions, setting: str, group: Sequence[Predictions]) -> bool:
    """Whether a name is like that of a setting, or like what a file calls that setting."""
    names = {setting, *(other.own for other in group if other.setting == setting)}
    return any(_alike(one.own, name) for name in names)


def _alike(a: str, b: str) -> bool:
    """Whether names end alike: three letters or digits, or the whole of the shorter one."""
    left, right = ("".join(c for c in reversed(name.lower()) if c.isalnum()) for name in (a, b))
    return len(_start([left, right])) >= max(1, min(3, len(left), len(right)))


def _start(names: Sequence[str]) -> str:
    """The longest start that all names share."""
    low, high = min(names), max(names)
    same = (i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b)
    return low[: next(same, len(low))]


def _undecided(one: Predictions, other: Predictions) -> InputError:
    return InputError(
        f"{one.path}: {shown(one.setting)} has the labels of {shown(other.setting)} from "
        f"{other.path} and no model in common with it; say which setting it is with "
        f"setting_names={{{one.setting!r}: {other.setting!r}}}, or another name (--setting)"
    )


def _check_labels(one: Predictions, other: Predictions) -> None:
    """Files that give one setting must agree on its labels."""
    if one.images == other.images:
        return
    a, b = other.labels, one.labels
    if len(a) != len(b):
        difference = f"{len(b)} images, {other.path} has {len(a)}"
    else:
        at = int(np.flatnonzero(a != b)[0])
        difference = f"label {b[at]} for image {at}, {other.path} has {a[at]}"
    raise InputError(f"{one.path}: setting {shown(one.setting)} has {difference}")
