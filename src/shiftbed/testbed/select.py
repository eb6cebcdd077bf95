"""Choosing models by what is known of them."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError, unknown

Choice = (
    None | str | Sequence[str] | NDArray[np.bool_] | pl.Expr | Callable[[pl.DataFrame], pl.Series]
)


def choose(models: pl.DataFrame, choice: Choice = None) -> NDArray[np.bool_]:
    """A mask over the models.

    ``None`` or ``"fit-set"`` is the testbed's own fit set, ``"all"`` every model; a string
    ``COLUMN=PATTERN`` or ``COLUMN!=PATTERN`` compares a column with a shell pattern, and several
    strings must all hold; a mask, a polars expression or a function of the frame also will do.

    >>> frame = pl.DataFrame({"model": ["resnet18", "vgg16"], "in_fit_set": [True, False]})
    >>> choose(frame, "model=resnet*").tolist()
    [True, False]
    """
    if choice is None:
        choice = "fit-set"
    if isinstance(choice, str):
        return _by_text(models, choice)
    if isinstance(choice, pl.Expr):
        return models.select(choice.alias("chosen"))["chosen"].fill_null(False).to_numpy()
    if callable(choice):
        choice = choice(models).fill_null(False).to_numpy()
    if isinstance(choice, np.ndarray):
        if choice.dtype != bool or choice.shape != (len(models),):
            raise InputError(f"a mask over models must hold {len(models)} booleans")
        return choice
    mask = np.ones(len(models), dtype=bool)
    for text in choice:
        mask &= _by_text(models, str(text))
    return mask


def _by_text(models: pl.DataFrame, text: str) -> NDArray[np.bool_]:
    if text == "all":
        return np.ones(len(models), dtype=bool)
    if text == "fit-set":
        return models["in_fit_set"].fill_null(False).to_numpy()
    column, equals, pattern = text.partition("=")
    if not equals:
        raise InputError(
            f"cannot choose models by {text!r}; say all, fit-set, COLUMN=PATTERN or COLUMN!=PATTERN"
        )
    negate = column.endswith("!")
    column = column.removesuffix("!").strip()
    if column not in models.columns:
        raise unknown("column of models", column, models.columns)
    values = ["" if v is None else _text(v) for v in models[column].to_list()]
    mask = np.array([fnmatchcase(value, pattern.strip()) for value in values], dtype=bool)
    if not mask.any() and not any(c in pattern for c in "*?[") and not negate:
        raise unknown(f"value of {column}", pattern, sorted(set(values)))
    return ~mask if negate else mask


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
