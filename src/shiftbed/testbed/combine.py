"""Several testbeds as one: own models among the published ones."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from shiftbed.errors import InputError
from shiftbed.records import Shift
from shiftbed.testbed.record import Testbed


def combine(testbeds: Sequence[Testbed]) -> Testbed:
    """All models of the testbeds in all their settings; settings of one name are one setting.

    The first testbed says what the lines are: models of the others are judged by them and stay
    outside the fit set, marked as own, unless no shift is shared. The column ``testbed`` says where
    a model comes from.

    >>> from shiftbed.testbed import published
    >>> combine([published("openclip")]).name
    'openclip'
    """
    if not testbeds:
        raise InputError("no testbed to combine")
    if len(testbeds) == 1:
        return testbeds[0]
    first = testbeds[0]
    settings = list(dict.fromkeys(s for bed in testbeds for s in bed.settings))
    names: set[str] = set()
    frames, values, sizes = [], [], []
    for bed in testbeds:
        frame = _named_apart(bed, names)
        names |= set(frame["model"].to_list())
        lines_of_first = bed is not first and _shares(first, bed)
        if lines_of_first:
            frame = frame.with_columns(
                pl.lit(False).alias("in_fit_set"), pl.lit("own").alias("kind")
            )
        frames.append(frame.with_columns(pl.lit(bed.name).alias("testbed")))
        value = np.full((len(frame), len(settings)), np.nan)
        n = np.zeros(value.shape, dtype=np.int64)
        at = [settings.index(s) for s in bed.settings]
        value[:, at], n[:, at] = bed.value, bed.n
        values.append(value)
        sizes.append(n)
    return Testbed(
        name=" + ".join(bed.name for bed in testbeds),
        title=" and ".join(bed.title or bed.name for bed in testbeds),
        models=pl.concat(_same_types(frames), how="diagonal"),
        settings=tuple(settings),
        value=np.vstack(values),
        n=np.vstack(sizes),
        shifts=_shifts(testbeds),
        derived={k: v for bed in testbeds for k, v in bed.derived.items()},
        metrics={k: v for bed in testbeds for k, v in bed.metrics.items()},
        records={k: v for bed in testbeds for k, v in bed.records.items()},
        line=first.line,
        source="; ".join(bed.source for bed in testbeds if bed.source),
        licence="; ".join(bed.licence for bed in testbeds if bed.licence),
        citation=" ".join(bed.citation for bed in testbeds if bed.citation),
    )


def _shares(first: Testbed, other: Testbed) -> bool:
    """Whether a shift of the first testbed can be judged in the other."""
    there = set(other.settings)
    return any({*shift.source, shift.target} <= there for shift in first.shifts)


def _named_apart(bed: Testbed, taken: set[str]) -> pl.DataFrame:
    """The models, those whose name is taken with the testbed's name behind theirs."""

    def apart(name: str | None) -> str | None:
        return f"{name} ({bed.name})" if name in taken else name

    again = {name: apart(name) for name in bed.model_names}
    if len(set(again.values())) < len(again):
        raise InputError(f"two models of {bed.name} have the same name")
    parents = [again.get(p, p) for p in bed.models["parent"].to_list()]
    return bed.models.with_columns(
        pl.Series("model", list(again.values()), dtype=pl.String),
        pl.Series("parent", parents, dtype=pl.String),
    )


def _same_types(frames: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Columns of one name that differ in type become text."""
    types: dict[str, set[pl.DataType]] = {}
    for frame in frames:
        for name, kind in frame.schema.items():
            types.setdefault(name, set()).add(kind)
    mixed = [name for name, kinds in types.items() if len(kinds) > 1]
    return [
        frame.with_columns(pl.col(name).cast(pl.String) for name in mixed if name in frame.columns)
        for frame in frames
    ]


def _shifts(testbeds: Sequence[Testbed]) -> tuple[Shift, ...]:
    """The shifts of all; one whose name is taken by another has its testbed's name behind it."""
    found: dict[str, Shift] = {}
    for bed in testbeds:
        for shift in bed.shifts:
            taken = found.get(shift.name)
            if taken is None:
                found[shift.name] = shift
            elif (taken.source, taken.target) != (shift.source, shift.target):
                apart = replace(shift, name=f"{shift.name} ({bed.name})")
                found[apart.name] = apart
    return tuple(found.values())
