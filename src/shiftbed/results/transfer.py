"""Trained-on × tested-on: what training on one corruption does for accuracy under each other one.

Models are grouped by how they were augmented (the column ``augmentation`` of a testbed that
``train`` filled), settings by their corruption. A cell averages accuracy over severities first,
then over the models of its row.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtri

from shiftbed.analysis.intervals import check_level, clopper_pearson
from shiftbed.display import Table, between, interval, percent, points, records, schema
from shiftbed.errors import InputError, unknown
from shiftbed.results.charts import Charted
from shiftbed.results.corruption_error import find_corruptions
from shiftbed.testbed import Source, Testbed, open_testbed

if TYPE_CHECKING:
    from shiftbed.figures.charts import Heatmap

CLEAN = "clean"
"""Name of the column of uncorrupted images."""
PAIRED = "paired over images"
ALONE = "conservative: from accuracies alone"
Floats = NDArray[np.float64]


def transfer(
    store: Source,
    *,
    by: str = "augmentation",
    without: str = "none",
    clean: str | None = None,
    where: str = "memory",
    level: float = 0.95,
) -> "TransferGrid":
    """A row per (trained on, tested on): mean accuracy, its gain over ``without``, intervals, n.

    ``by`` is the column of models that says what they saw. ``clean`` is the ID setting the
    corruptions were made of (default: the only one). Corruptions in memory and on disk are never
    mixed: ``where``. Of a run's checkpoints only the last counts where the testbed says which one
    it is. ``low`` and ``high`` are for these models on other images; the models' own scatter is
    ``std``. Where who was right on which image is known, images are resampled jointly over models
    and severities (normal approximation); else the interval of the mean is that of one accuracy on
    n images, which is conservative, and the gain has none.
    """
    testbed = open_testbed(store)
    check_level(level)
    columns = _columns(testbed, clean, where)
    rows = _rows(testbed, by)
    reference = rows.get(without)
    found = []
    for trained, models in rows.items():
        for tested, settings in columns.items():
            there = _complete(testbed, models, settings)
            row: dict[str, Any] = {"trained_on": trained, "tested_on": tested}
            row |= {"models": len(there), "severities": len(settings)}
            if not len(there):
                found.append(row | {"note": "not computable: no model was evaluated on all of it"})
                continue
            row |= _accuracy(testbed, there, settings, level)
            if trained != without:
                base = None if reference is None else _complete(testbed, reference, settings)
                row |= _gain(testbed, there, base, settings, level)
            found.append(row)
    return TransferGrid(
        frame=pl.DataFrame(found, schema=_SCHEMA, orient="row"),
        source=testbed.name,
        by=by,
        without=without,
        level=level,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TransferGrid(Charted):
    """Trained on × tested on; ``frame`` has a row per cell."""

    source: str
    by: str
    without: str
    level: float

    def to_dict(self) -> Any:
        return records(self.frame)

    def answer(self) -> Iterable[str]:
        helps = self.frame.filter(pl.col("gain_low") > 0).sort("gain", descending=True)
        if not len(helps):
            yield "No training helps significantly anywhere: every gain's interval includes 0."
        for row in records(helps.head(1)):
            yield (
                f"Training on {row['trained_on']} helps most on {row['tested_on']}: "
                f"{points(row['gain'])} points ({interval(row['gain_low'], row['gain_high'])})."
            )

    def tables(self) -> Iterable[Table]:
        yield Table.of(
            f"Transfer between corruptions, {self.source}",
            self.frame,
            {
                "trained on": "trained_on",
                "tested on": "tested_on",
                "accuracy": ("accuracy", percent),
                f"{100 * self.level:g} % interval": lambda row: between(row["low"], row["high"]),
                "gain": ("gain", points),
                "interval": lambda row: interval(row["gain_low"], row["gain_high"]),
                "models": "models",
                "severities": "severities",
                "n": "n",
                "note": "note",
            },
            notes=[
                f"Gain: over models with {self.by} {self.without!r}. Means over severities, then "
                "over models."
            ],
            left=2,
        )

    def chart(self, value: str = "accuracy") -> "Heatmap":
        """The grid as a heat map of ``accuracy`` or ``gain``."""
        from shiftbed.results.charts.corruptions import transfer_heatmap

        return transfer_heatmap(self.frame, value)


_SCHEMA = schema(
    "trained_on tested_on: str; models severities: int; accuracy low high std: float; n: int; "
    "gain gain_low gain_high: float; note: str"
)


def _columns(testbed: Testbed, clean: str | None, where: str) -> dict[str, tuple[str, ...]]:
    """By name, the settings of a corruption in the order of severities; the clean one first."""
    chosen, own = find_corruptions(testbed, where, clean)
    found = {CLEAN: (chosen,)} if chosen in testbed.settings else {}
    return found | {name: tuple(by[at] for at in sorted(by)) for name, by in sorted(own.items())}


def _rows(testbed: Testbed, by: str) -> dict[str, NDArray[np.int64]]:
    """By augmentation, the models: last checkpoints alone, where that is known."""
    table = testbed.models
    if by not in table.columns:
        raise unknown("column of models", by, table.columns)
    kept = pl.Series(np.ones(len(table), dtype=bool))
    if "final" in table.columns:
        kept = table["final"].fill_null(True).cast(pl.Boolean)
    keys = table[by].cast(pl.String).to_list()
    names = sorted({key for key, keep in zip(keys, kept, strict=True) if key and keep})
    if not names:
        raise InputError(f"no model of {testbed.name} has its {by} written down")
    use = kept.to_list()
    return {
        name: np.array([i for i, key in enumerate(keys) if key == name and use[i]])
        for name in names
    }


def _complete(
    testbed: Testbed, models: NDArray[np.int64], settings: Sequence[str]
) -> NDArray[np.int64]:
    """Those of the models that were evaluated on all settings."""
    known = [np.isfinite(testbed.accuracy(setting)[models]) for setting in settings]
    return models[np.all(known, axis=0)]


def _accuracy(
    testbed: Testbed, models: NDArray[np.int64], settings: Sequence[str], level: float
) -> dict[str, Any]:
    each = np.mean([testbed.accuracy(setting)[models] for setting in settings], axis=0)
    mean = float(each.mean())
    std = float(each.std(ddof=1)) if len(each) > 1 else None
    per_image = _per_image(testbed, models, settings)
    if per_image is not None:
        low, high = _interval(per_image, level)
        low, high = max(low, 0.0), min(high, 1.0)
        found = {"accuracy": mean, "std": std, "low": low, "high": high}
        return {**found, "n": len(per_image), "note": PAIRED}
    n = int(min(testbed.size(setting)[models].min() for setting in settings))
    if not n:
        note = "no interval: the number of images is not known"
        return {"accuracy": mean, "std": std, "n": 0, "note": note}
    ends = clopper_pearson(np.array([mean]), np.array([n]), level)
    low, high = float(ends[0][0]), float(ends[1][0])
    return {"accuracy": mean, "std": std, "low": low, "high": high, "n": n, "note": ALONE}


def _gain(
    testbed: Testbed,
    models: NDArray[np.int64],
    base: NDArray[np.int64] | None,
    settings: Sequence[str],
    level: float,
) -> dict[str, Any]:
    """The difference to models trained without, paired over images where that is possible."""
    if base is None or not len(base):
        return {}
    values = [testbed.accuracy(setting) for setting in settings]
    gain = float(np.mean([v[models].mean() - v[base].mean() for v in values]))
    first, second = _per_image(testbed, models, settings), _per_image(testbed, base, settings)
    if first is None or second is None:
        return {"gain": gain}
    low, high = _interval(first - second, level)
    return {"gain": gain, "gain_low": low, "gain_high": high}


def _per_image(
    testbed: Testbed, models: NDArray[np.int64], settings: Sequence[str]
) -> Floats | None:
    """(images,) share of the models and severities that are right, where all have the same ones."""
    results: Mapping[str, Any] = testbed.results
    if not all(s in results and results[s].known[models].all() for s in settings):
        return None
    if len({results[setting].images for setting in settings}) > 1:
        return None
    right = [results[setting].bits[models].mean(axis=0) for setting in settings]
    found: Floats = np.mean(right, axis=0)
    return found


def _interval(per_image: Floats, level: float) -> tuple[float, float]:
    """mean ± z·s/√n; all that is possible for a single image."""
    mean, n = float(per_image.mean()), len(per_image)
    if n < 2:
        return -1.0, 1.0
    half = float(ndtri(0.5 + level / 2) * per_image.std(ddof=1) / np.sqrt(n))
    return mean - half, mean + half
