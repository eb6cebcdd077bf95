"""Names that people can read: models of a recipe by what sets them apart, not by their hash."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import polars as pl

from shiftbed.catalogue import title

_RECIPE = re.compile(r"(?P<architecture>.+)-(?P<hash>[0-9a-f]{12})(@(?P<step>\d+))?")
_FURTHER = ("optimiser", "lr", "length", "tune", "stage", "grid", "from", "to", "epoch")
"""Columns that tell models apart whose names would be the same."""


def labels(models: pl.DataFrame) -> list[str]:
    """What to call each model of a testbed; a name without a hash stays as it is.

    >>> made = pl.DataFrame({"model": ["wide-898fff6cc4e4@150", "resnet50"], "seed": [0, None],
    ...     "training_data": ["mnist", None], "data_size": ["fraction-0.1", None]})
    >>> labels(made)
    ['wide · MNIST 10 % · seed 0 · step 150', 'resnet50']
    """
    names = models["model"].to_list()
    if not any(map(_RECIPE.fullmatch, names)):
        return names
    rows = models.to_dicts()
    found = [_label(row) for row in rows]
    counts = Counter(found)
    twins = {label: [r for r, own in zip(rows, found, strict=True) if own == label]
             for label, count in counts.items() if count > 1}  # fmt: skip
    return [
        label if counts[label] == 1 else _told_apart(label, row, twins[label])
        for label, row in zip(found, rows, strict=True)
    ]


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


def _label(row: Mapping[str, Any]) -> str:
    name = str(row["model"])
    made = _RECIPE.fullmatch(name)
    if made is None:
        return name

    def given(column: str, usual: str = "none") -> Any:
        value = row.get(column)
        return None if value is None or value == usual else value

    data = " ".join(filter(None, [_data(given("training_data")), _size(given("data_size"))]))
    if given("mix") is not None:
        data = _mix(str(row["mix"])) or f"{data} mix {row['mix']}"
    parts = [made["architecture"], data, given("augmentation"), given("objective", "cross-entropy")]
    if given("pruning"):
        sparse = row.get("sparsity")
        parts.append(str(row["pruning"]) + (f" {100 * sparse:.0f} %" if sparse is not None else ""))
    if given("alpha") is not None:
        parts.append(f"α {row['alpha']:g}")
    if given("seed") is not None:
        parts.append(f"seed {row['seed']}")
    if made["step"]:
        parts.append(f"step {made['step']}")
    return " · ".join(str(part) for part in parts if part)


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


def _size(size: str | None) -> str:
    """``fraction-0.1`` is 10 %, the whole set needs no words."""
    if size is None or size == "full":
        return ""
    share = re.fullmatch(r"fraction-([\d.]+)", size)
    return f"{100 * float(share[1]):g} %" if share else size.replace("-", " ")


def _told_apart(label: str, row: Mapping[str, Any], twins: list[dict[str, Any]]) -> str:
    """The label with a further column in which its twins differ, or with its hash."""
    for column in _FURTHER:
        values = [one.get(column) for one in twins]
        if None not in values and len(set(values)) == len(values):
            value = row[column]
            return (
                f"{label} · {column} {value:g}"
                if isinstance(value, float)
                else (f"{label} · {column} {value}")
            )
    made = _RECIPE.fullmatch(str(row["model"]))
    return label if made is None else f"{label} · {made['hash'][:6]}"
