"""ρ under every defensible choice of the analysis.

shi2023's lesson: the answer can turn with the ID set chosen. So vary everything that reasonable
people choose differently, and see whether the sign of ρ survives.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, get_args

import numpy as np
import polars as pl

from shiftbed.analysis.baseline import Estimator
from shiftbed.display import Cell, Result, Table, interval, number, p_value, percent, points, schema
from shiftbed.errors import InputError
from shiftbed.records import Shift
from shiftbed.scales import SCALES
from shiftbed.testbed.record import Testbed


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sensitivity(Result):
    """ρ of one model on one shift under every choice.

    ``frame`` has a row per choice: fit_set, scale, id, threshold, knee, estimator, n, r2,
    effective, low, high, p_value, why (not).
    """

    json_keys = "shift choices low high sign_survives out_of_line rows=frame"
    model: str
    shift: str
    level: float

    @property
    def values(self) -> list[float]:
        return self.frame["effective"].drop_nulls().to_list()

    @property
    def choices(self) -> int:
        """How many could be computed."""
        return len(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    @property
    def sign_survives(self) -> bool:
        """Whether ρ has the same sign under every choice that could be computed."""
        return self.low > 0 or self.high < 0

    @property
    def out_of_line(self) -> int:
        """Under how many choices the model is unusual at p < 0.05."""
        return int((self.frame["p_value"].drop_nulls() < 0.05).sum())

    def tables(self) -> Iterable[Table]:
        verdict = "survives" if self.sign_survives else "does NOT survive"
        title = (
            f"{self.shift}: ρ under {len(self.values)} choices, {points(self.low)} to "
            f"{points(self.high)}; its sign {verdict}; out of line under {self.out_of_line}"
        )
        columns: dict[str, Cell] = {
            "fit set": "fit_set",
            "scale": "scale",
            "ID": "id",
            "x ≥": lambda row: percent(row["threshold"], 0),
            "knee": ("knee", percent),
            "fit": "estimator",
            "n": "n",
            "R²": lambda row: number(row["r2"], 3),
            "ρ": lambda row: points(row["effective"]) or row["why"],
            f"{100 * self.level:g} % interval": lambda row: interval(row["low"], row["high"]),
            "p": ("p_value", p_value),
        }
        return [Table.of(title, self.frame, columns, left=3)]


def sensitivity(
    testbed: Testbed, model: str, shift: str | Shift, *, level: float = 0.95
) -> Sensitivity:
    """ρ of a model of the testbed under each combination of

    - fit set: the testbed's own, all models of kind standard (if that differs), all models;
    - scale: linear, probit, logit;
    - ID: the class twin, the whole ID set, both at once (a plane), where the model has them;
    - threshold: none, and the one the published figures use;
    - knee: the published one and none, where there is one;
    - estimator: for the testbed's own fit set on the logit scale, Huber's and Theil–Sen's too.

    A combination that cannot be computed is a row with the reason.
    """
    base = testbed.shift(shift)
    row = testbed.model_index(model)
    name = testbed.model_names[row]
    rows = []
    for fit_set, scale, source, threshold, knee, estimator in product(
        _fit_sets(testbed),
        SCALES,
        _sources(testbed, base, row),
        [None, base.threshold] if base.threshold else [None],
        [True, False] if base.knee else [None],
        get_args(Estimator),
    ):
        if estimator != "least-squares" and (fit_set != "fit-set" or scale != "logit"):
            continue
        if estimator == "theil-sen" and len(source) > 1:
            continue  # a median of slopes is defined on one axis
        if knee and len(source) > 1:
            continue  # a knee is defined on one axis
        if threshold and source[0] != base.source[0]:
            continue  # the published threshold is on the published axis
        at = base.knee if source == base.source else base.full_knee
        variant = replace(base, source=source, knee=at if knee else None, full_source=None)
        options: dict[str, Any] = {"scale": scale, "models": fit_set, "threshold": threshold}
        options["estimator"] = estimator
        rows.append(
            {
                "fit_set": fit_set,
                "scale": scale,
                "id": " + ".join(source),
                "threshold": threshold,
                "knee": variant.knee,
                "estimator": estimator,
                **_one(testbed, variant, row, options, level),
            }
        )
    frame = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    found = Sensitivity(frame=frame, model=name, shift=base.name, level=level)
    if not found.values:
        raise InputError(f"{name!r} has no accuracy on both sides of {base.name!r}")
    return found


_SCHEMA = schema(
    "fit_set scale id: str; threshold knee: float; estimator: str; n: int; "
    "r2 effective low high p_value: float; why: str"
)


def _fit_sets(testbed: Testbed) -> list[str]:
    sets = ["fit-set"]
    own = testbed.models["in_fit_set"].fill_null(False)
    standard = testbed.models["kind"] == "standard"
    if standard.any() and not (standard == own).all():
        sets.append("kind=standard")
    if not own.all():
        sets.append("all")
    return sets


def _sources(testbed: Testbed, shift: Shift, row: int) -> list[tuple[str, ...]]:
    """ID settings to control for; the whole ID set only where this model was evaluated on it."""
    sources = [shift.source]
    full = shift.full_source
    if full and np.isfinite(testbed.value[row, testbed.setting_index(full)]):
        sources += [(full,), (*shift.source, full)]
    return sources


def _one(
    testbed: Testbed, shift: Shift, row: int, options: dict[str, Any], level: float
) -> dict[str, Any]:
    try:
        baseline = testbed.fit(shift, **options, on_boundary="drop", bootstrap=0)
    except InputError as error:
        return {"why": str(error)}
    placed = testbed.judge(baseline, level=level).columns()
    numbers = {key: float(placed[key][row]) for key in ("effective", "low", "high", "p_value")}
    found = {key: value if np.isfinite(value) else None for key, value in numbers.items()}
    return found | {"n": baseline.n, "r2": baseline.r2}
