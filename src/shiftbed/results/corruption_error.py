"""mCE and relative mCE of the models of a testbed or a store."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.corruption_error import (
    ALEXNET,
    ALEXNET_CLEAN,
    BENCHMARK,
    CorruptionError,
    corruption_error,
)
from shiftbed.display import Cell, Result, Table, between, percent, records
from shiftbed.errors import InputError, unknown
from shiftbed.testbed import Source, Testbed, open_testbed

WHERE = ("memory", "disk")
_FLOATS = ("clean_error", "mce", "low", "high", "relative_mce", "relative_low", "relative_high")
SEVERITIES = 5
PUBLISHED_REFERENCE = "alexnet-2019"
"""AlexNet's errors as printed by Hendrycks and Dietterich, not those of any testbed."""


class Corrupted(NamedTuple):
    """A setting that is a corruption at a severity."""

    clean: str
    name: str
    severity: int
    where: str


def corrupted_settings(testbed: Testbed) -> dict[str, Corrupted]:
    """The settings of a testbed that are corruptions at a severity, by what is recorded of them."""
    found = {}
    for id, one in testbed.records.items():
        what, clean = one.perturbation, one.clean
        if what is None or clean is None or what.kind != "corruption" or what.severity is None:
            continue
        if id in testbed.settings and 1 <= what.severity <= SEVERITIES:
            found[id] = Corrupted(clean.id, what.name, what.severity, what.place)
    return found


def find_corruptions(
    testbed: Testbed, where: str | None, clean: str | None, *, usual: str = ""
) -> tuple[str, dict[str, dict[int, str]]]:
    """The clean setting, and by corruption its settings by severity, of one place alone.

    Corruptions in memory and on disk are never mixed. ``clean`` may be left out where there is
    one, or where ``usual`` is among them.
    """
    if where is not None and where not in WHERE:
        raise unknown("place of corruptions", where, WHERE)
    every = corrupted_settings(testbed).items()
    parsed = {setting: one for setting, one in every if where in (None, one.where)}
    if not parsed:
        place = "" if where is None else f" ({where})"
        raise InputError(f"{testbed.name} has no corrupted settings such as val+fog:3{place}")
    if len({one.where for one in parsed.values()}) > 1:
        raise InputError(
            f"testbed {testbed.name} has corruptions in memory and on disk, which are never mixed; "
            "say which"
        )
    cleans = sorted({one.clean for one in parsed.values()})
    if clean is None and len(cleans) > 1 and usual not in cleans:
        raise InputError(f"corruptions of several test sets: say which, {', '.join(cleans)}")
    chosen = clean or (cleans[0] if len(cleans) == 1 else usual)
    if chosen not in cleans:
        raise unknown("corrupted test set", chosen, cleans)
    found: dict[str, dict[int, str]] = {}
    for setting, one in parsed.items():
        if one.clean == chosen:
            found.setdefault(one.name, {})[one.severity] = setting
    return chosen, found


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CorruptionErrors(Result):
    """A row per model: clean error, mCE and relative mCE with intervals, CE of each corruption."""

    json_keys = "testbed reference models=frame"
    testbed: str
    reference: str
    corruptions: tuple[str, ...]
    level: float
    most: int
    """Models in the printed table."""

    def answer(self) -> Iterator[str]:
        known = self.frame.drop_nulls("mce").sort("mce")
        if not len(known):
            yield "No model was evaluated under every corruption that mCE needs."
        for row in records(known.head(1)):
            ends = between(row["low"], row["high"])
            yield (
                f"Lowest mCE: {row['model']}, {percent(row['mce'])}{f' ({ends})' if ends else ''}; "
                f"100 is {self.reference}."
            )

    def tables(self) -> Iterator[Table]:
        columns: dict[str, Cell] = {
            "model": "model",
            "clean error": ("clean_error", percent),
            "mCE": ("mce", percent),
            f"{100 * self.level:g} % interval": lambda row: between(row["low"], row["high"]),
            "relative mCE": ("relative_mce", percent),
            f"its {100 * self.level:g} % interval": lambda row: between(
                row["relative_low"], row["relative_high"]
            ),
            "n": "n",
            "note": "note",
        }
        title = f"{self.testbed}: mean corruption error over {len(self.corruptions)} corruptions"
        more = len(self.frame) - self.most
        cut = (f"{more} more models; most={len(self.frame)} shows them.",) if more > 0 else ()
        yield Table.of(title, self.frame.head(self.most), columns, notes=(*self.notes, *cut))


def mce(
    testbed: Source = "imagenet-testbed-2020",
    *,
    where: str | None = None,
    clean: str | None = None,
    reference: str = PUBLISHED_REFERENCE,
    corruptions: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    most: int = 20,
    level: float = 0.95,
) -> CorruptionErrors:
    """Mean corruption error and relative mCE of models, relative to a reference model.

    Corruptions in memory and on disk are different settings: ``where`` says which, and may be left
    out if only one kind is there. ``clean`` is the ID setting they were made of (default: the only
    one, or ``val``). ``reference``: AlexNet's published errors, or a model of the testbed.
    ``corruptions``: the benchmark's fifteen by default. A model that lacks a cell has a row with
    the reason and no number.
    """
    bed = open_testbed(testbed)
    names = tuple(BENCHMARK if corruptions is None else corruptions)
    source = (
        "AlexNet's errors on ImageNet-C as published by Hendrycks and Dietterich (2019); they mean "
        "little for other images than ImageNet's."
        if reference == PUBLISHED_REFERENCE
        else f"{reference} of this testbed."
    )
    return CorruptionErrors(
        frame=_errors(_Table(bed, where, clean), reference, names, models, level),
        notes=(f"100 is the reference: {source}",),
        called=bed.called,
        testbed=bed.name,
        reference=reference,
        corruptions=names,
        level=level,
        most=most,
    )


def _errors(
    table: "_Table",
    reference: str,
    names: tuple[str, ...],
    models: Sequence[str] | None,
    level: float,
) -> pl.DataFrame:
    lacking = [name for name in names if name not in table.columns]
    if lacking and len(lacking) == len(names):
        raise InputError(
            f"none of the corruptions asked for is there at severities 1 to 5: {lacking}"
        )
    errors, own = _reference(table, reference, names)
    rows = []
    for model in table.testbed.model_names if models is None else models:
        row: dict[str, Any] = {"model": model}
        missing = lacking + table.missing(model, [n for n in names if n not in lacking])
        if missing:
            rows.append(row | {"note": f"not computable: lacks {', '.join(missing)}"})
            continue
        found = table.corruption_error(model, names, errors, own, level)
        rows.append(row | _values(found, names, 1 - float(table.accuracy(table.clean, model))))
    return pl.DataFrame(rows, schema=_schema(names), orient="row").sort("mce", nulls_last=True)


class _Table:
    """The corrupted settings of a testbed that belong together."""

    def __init__(self, testbed: Testbed, where: str | None, clean: str | None) -> None:
        self.testbed = testbed
        self.clean, found = find_corruptions(testbed, where, clean, usual="val")
        testbed.setting_index(self.clean)
        whole = range(1, SEVERITIES + 1)
        self.columns = {
            name: tuple(by[severity] for severity in whole)
            for name, by in found.items()
            if set(by) == set(whole)
        }
        """By corruption, its five settings in order; none with a severity missing."""

    def accuracy(self, setting: str, model: str) -> float:
        return float(self.testbed.accuracy(setting)[self.testbed.model_index(model)])

    def missing(self, model: str, names: Iterable[str]) -> list[str]:
        """What a model was not evaluated on."""
        lacks = [] if np.isfinite(self.accuracy(self.clean, model)) else [self.clean]
        for name in names:
            values = [self.accuracy(setting, model) for setting in self.columns[name]]
            lacks += [] if np.isfinite(values).all() else [name]
        return lacks

    def errors(self, model: str, names: Sequence[str]) -> NDArray[np.float64]:
        """(corruptions, severities)"""
        accuracies = [[self.accuracy(s, model) for s in self.columns[name]] for name in names]
        return 1 - np.array(accuracies)

    def corruption_error(
        self,
        model: str,
        names: Sequence[str],
        reference: NDArray[np.float64],
        reference_clean: float,
        level: float,
    ) -> CorruptionError:
        wrong, clean_wrong = self._wrong(model, names)
        row = self.testbed.model_index(model)
        settings = [self.clean, *(s for name in names for s in self.columns[name])]
        sizes = [int(self.testbed.size(setting)[row]) for setting in settings]
        return corruption_error(
            self.errors(model, names),
            1 - self.accuracy(self.clean, model),
            reference,
            reference_clean,
            n=min(sizes),
            wrong=wrong,
            clean_wrong=clean_wrong,
            level=level,
        )

    def _wrong(
        self, model: str, names: Sequence[str]
    ) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
        """Who was wrong on which image, where all settings are of the same images."""
        row, results = self.testbed.model_index(model), self.testbed.results
        settings = [setting for name in names for setting in self.columns[name]]
        everything = [self.clean, *settings]
        if not all(s in results and results[s].known[row] for s in everything):
            return None, None
        if len({results[setting].images for setting in everything}) > 1:
            return None, None
        wrong = np.stack([~results[setting].bits[row] for setting in settings])
        return wrong.reshape(len(names), SEVERITIES, -1), ~results[self.clean].bits[row]


def _reference(
    table: _Table, reference: str, names: Sequence[str]
) -> tuple[NDArray[np.float64], float]:
    """Mean errors over severities and the clean error, published or of a model in the testbed."""
    if reference == PUBLISHED_REFERENCE:
        extra = [name for name in names if name not in ALEXNET]
        if extra:
            raise InputError(
                f"AlexNet's error under {', '.join(extra)} is not among the published ones; give a "
                "reference model of the testbed"
            )
        return np.array([ALEXNET[name] for name in names]), ALEXNET_CLEAN
    known = [name for name in names if name in table.columns]
    missing = table.missing(reference, known)
    if missing:
        raise InputError(f"reference {reference!r} was not evaluated on {', '.join(missing)}")
    means = dict(zip(known, table.errors(reference, known).mean(axis=1).tolist(), strict=True))
    errors = np.array([means.get(name, np.nan) for name in names])
    return errors, 1 - table.accuracy(table.clean, reference)


def _values(found: CorruptionError, names: Sequence[str], clean: float) -> dict[str, Any]:
    note = "paired over images" if found.paired else "conservative: from errors alone"
    if not found.n:
        note = "no interval: the number of images is not known"
    numbers = (clean, found.mce, found.low, found.high, found.relative, found.relative_low)
    named = zip(_FLOATS, (*numbers, found.relative_high), strict=True)
    values = {key: value if value == value else None for key, value in named}
    each = {f"ce_{name}": float(ce) for name, ce in zip(names, found.ce, strict=True)}
    return {**values, "n": found.n, "corruptions": len(names), "note": note, **each}


def _schema(names: Sequence[str]) -> dict[str, Any]:
    return {
        "model": pl.String,
        **dict.fromkeys(_FLOATS, pl.Float64),
        "n": pl.Int64,
        "corruptions": pl.Int64,
        "note": pl.String,
        **dict.fromkeys([f"ce_{name}" for name in names], pl.Float64),
    }
