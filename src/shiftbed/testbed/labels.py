"""Names that people can read: models of a recipe by what sets them apart, not by their hash."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from shiftbed.catalogue import title

_RECIPE = re.compile(r"(?P<architecture>.+)-(?P<hash>[0-9a-f]{12})(@(?P<step>\d+))?")
_FURTHER = ("optimiser", "lr", "length", "tune", "stage", "start", "grid", "from", "to", "epoch")
"""Columns that tell models apart whose names would be the same."""


def labels(models: pl.DataFrame) -> list[str]:
    """What to call each model of a testbed; a name without a hash stays as it is.

    Runs that a recipe named itself (``called``) keep that name, with their step.

    >>> made = pl.DataFrame({"model": ["wide-898fff6cc4e4@150", "resnet50"], "seed": [0, None],
    ...     "training_data": ["mnist", None], "data_size": ["fraction-0.1", None]})
    >>> labels(made)
    ['wide · MNIST 10 % · seed 0 · step 150', 'resnet50']
    """
    names = models["model"].to_list()
    if not any(map(_RECIPE.fullmatch, names)):
        return names
    rows = models.to_dicts()
    further = [
        {c: f"{c} {row[c]:g}" if isinstance(row[c], float) else f"{c} {row[c]}"
         for c in _FURTHER if row.get(c) is not None}
        for row in rows
    ]  # fmt: skip
    return told_apart([label_parts(row) for row in rows], further, names)


def told_apart(
    parts: Sequence[tuple[str, str]], further: Sequence[Mapping[str, str]], names: Sequence[str]
) -> list[str]:
    """Labels of a beginning and an end each; between them, where both are the same for several,
    as few of the ``further`` words as set these apart, or else a name's hash.

    >>> told_apart([("cnn", "seed 0")] * 2, [{"lr": "lr 0.1"}, {"lr": "lr 1"}], ["a", "b"])
    ['cnn · lr 0.1 · seed 0', 'cnn · lr 1 · seed 0']
    """
    twins: dict[tuple[str, str], list[int]] = {}
    for at, both in enumerate(parts):
        twins.setdefault(both, []).append(at)
    found = [""] * len(parts)
    for (start, end), rows in twins.items():
        words = _telling_words([further[at] for at in rows]) if len(rows) > 1 else [[]]
        said = [joined(start, *own, end) for own in words]
        for at, label in zip(rows, said, strict=True):
            made = _RECIPE.fullmatch(names[at]) if said.count(label) > 1 else None
            found[at] = label if made is None else f"{label} · {made['hash'][:6]}"
    return found


def _telling_words(further: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """Of each, the words of the first keys that split what the keys before left together."""
    words: list[list[str]] = [[] for _ in further]
    apart = 1
    for key in dict.fromkeys(key for one in further for key in one):
        if apart == len(further):
            break
        split = [[*own, one.get(key, "")] for own, one in zip(words, further, strict=True)]
        count = len(set(map(tuple, split)))
        if count > apart:
            words, apart = split, count
    return words


def joined(*parts: Any) -> str:
    return " · ".join(str(part) for part in parts if part)


def called(models: pl.DataFrame) -> dict[str, str]:
    """Labels by name of the models that have another name, and of their runs, without a step.

    >>> made = pl.DataFrame({"model": ["wide-898fff6cc4e4@150", "resnet50"], "seed": [0, 1]})
    >>> sorted(called(made))
    ['wide-898fff6cc4e4', 'wide-898fff6cc4e4@150']
    """
    both = zip(models["model"].to_list(), labels(models), strict=True)
    found = {name: label for name, label in both if name != label}
    runs = {}
    for name, label in found.items():
        run, _, step = name.partition("@")
        runs[run] = label.replace(f" · step {step}", "")
    return runs | found


def label_parts(row: Mapping[str, Any]) -> tuple[str, str]:
    """What a model is, and which of those: its seed and its step."""
    name = str(row["model"])
    made = _RECIPE.fullmatch(name)
    if made is None:
        return name, ""

    def given(column: str, usual: str = "none") -> Any:
        value = row.get(column)
        return None if value is None or value == usual else value

    step = f"step {made['step']}" if made["step"] else ""
    if given("called"):
        return str(row["called"]), step
    data = " ".join(filter(None, [_data(given("training_data")), size_title(given("data_size"))]))
    if given("mix") is not None:
        data = _mix(str(row["mix"])) or f"{data} mix {row['mix']}"
    parts = [made["architecture"], data, given("augmentation"), given("objective", "cross-entropy")]
    if given("pruning"):
        sparse = row.get("sparsity")
        parts.append(str(row["pruning"]) + (f" {100 * sparse:.0f} %" if sparse is not None else ""))
    if given("alpha") is not None:
        parts.append(f"α {row['alpha']:g}")
    seed = given("seed")
    return joined(*parts), joined(None if seed is None else f"seed {seed}", step)


def _data(name: str | None) -> str:
    return "" if name is None else " + ".join(title(one) for one in name.split("+"))


def _mix(shares: str) -> str:
    """
    >>> _mix("mnist=0.1+digits=0.9")
    'MNIST 10 % + digits 90 %'
    """
    found = [re.fullmatch(r"(.+)=([\d.]+)", one) for one in shares.split("+")]
    if not all(found):
        return ""
    return " + ".join(f"{title(one[1])} {100 * float(one[2]):g} %" for one in found if one)


def natural(name: Any) -> list[tuple[float, str]]:
    """What to sort names by, so that numbers in them count as numbers.

    >>> sorted(["full", "fraction-0.1", "fraction-0.03"], key=natural)
    ['fraction-0.03', 'fraction-0.1', 'full']
    """
    parts = re.split(r"(\d+(?:\.\d+)?)", str(name))
    return [(float(p), "") if i % 2 else (-1.0, p) for i, p in enumerate(parts)]


def size_title(size: str | None) -> str:
    """``fraction-0.1`` is 10 %, the whole set needs no words."""
    if size is None or size == "full":
        return ""
    share = re.fullmatch(r"fraction-([\d.]+)", size)
    return f"{100 * float(share[1]):g} %" if share else size.replace("-", " ")
