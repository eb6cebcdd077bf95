"""The plane over two ID accuracies, finished: what ``figures.interactive`` draws in 3-D.

shi2023, Section 4.2: β(x₁, x₂) = expit(w₁ logit x₁ + w₂ logit x₂ + b). A model's height above the
plane is its effective robustness given both ID accuracies.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.analysis.intervals import benjamini_hochberg
from shiftbed.errors import InputError
from shiftbed.figures.axis import Axis
from shiftbed.figures.data import measured_axis
from shiftbed.figures.groups import grouped
from shiftbed.figures.words import count, equation, notes
from shiftbed.records import Shift
from shiftbed.scales import LOGIT, Scale
from shiftbed.scales import scale as find_scale
from shiftbed.testbed.record import Testbed
from shiftbed.testbed.select import Choice

Floats = NDArray[np.float64]
_STEPS = 21


@dataclass(frozen=True, kw_only=True, eq=False)
class Plane:
    """Models over two ID accuracies, and the plane fitted through some of them."""

    title: str
    axes: tuple[Axis, Axis, Axis]
    """Of both ID settings and the OOD one."""
    models: tuple[str, ...]
    grouping: str
    group: tuple[str, ...]
    groups: tuple[str, ...]
    x: Floats
    """(M, 2) ID accuracies."""
    y: Floats
    fitted: NDArray[np.bool_]
    predicted: Floats
    effective: Floats
    low: Floats
    high: Floats
    """Measurement interval of ρ."""
    prediction_low: Floats
    prediction_high: Floats
    p_value: Floats
    q_value: Floats
    edge: NDArray[np.bool_]
    """An accuracy of 0 or 1 that the scale has no finite place for."""
    level: float
    """Of the intervals of ρ."""
    grid: tuple[Floats, Floats]
    """ID accuracies (S,), (S,) that span the surface."""
    surface: Floats
    """(S, S) predicted accuracies; row i is for the second ID setting's grid[1][i]."""
    equations: tuple[str, ...]
    reading: str
    notes: tuple[str, ...]
    citation: str


def plane(
    testbed: Testbed,
    id_settings: tuple[str, str],
    ood_setting: str,
    *,
    scale: str | Scale = LOGIT,
    level: float = 0.95,
    models: Choice = None,
    threshold: float | None = None,
    colour: str = "kind",
    **options: Any,
) -> Plane:
    """The plane that predicts an OOD accuracy from two ID ones; more options go to ``fit``.

    >>> from shiftbed.testbed import published
    >>> chart = plane(published("openclip"), ("ImageNet 1k", "CIFAR-10"), "ImageNet-R")
    >>> chart.surface.shape, len(chart.models)
    ((21, 21), 121)
    """
    if len(id_settings) != 2:
        raise InputError(f"a plane needs two ID settings, got {len(id_settings)}")
    source, on = (id_settings[0], id_settings[1]), find_scale(scale)
    name = f"{ood_setting} given {source[0]} and {source[1]}"
    shift = Shift(name=name, kind="natural-dataset", source=source, target=ood_setting)
    baseline = testbed.fit(
        shift, scale=on, models=models, threshold=threshold, **{"bootstrap": 0, **options}
    )
    judged = testbed.judge(baseline, level=level).columns()
    judged["q_value"] = benjamini_hochberg(judged["p_value"])
    x = np.column_stack([testbed.accuracy(setting) for setting in source])
    y = testbed.accuracy(ood_setting)
    there = np.isfinite(x).all(axis=1) & np.isfinite(y)
    below = there & ~(x[:, 0] >= (threshold or 0.0))
    shown = there & ~below
    axes = [measured_axis(testbed, s, shown, on, 0.95)[0] for s in (*source, ood_setting)]
    names = np.array(testbed.model_names, dtype=object)
    group, groups = grouped(testbed.models, colour, shown)
    placed = np.column_stack([axis.at(v) for axis, v in zip(axes, (*x.T, y), strict=True)])
    edge = shown & ~np.isfinite(placed).all(axis=1)
    grid = tuple(on.inverse(np.linspace(axis.low, axis.high, _STEPS)) for axis in axes[:2])
    if on.bounded:
        grid = tuple(np.clip(one, 0.0, 1.0) for one in grid)
    over = np.stack(np.meshgrid(*grid), axis=-1)
    left_out = set(baseline.left_out)
    kept = ("predicted", "effective", "low", "high", "prediction_low", "prediction_high")
    return Plane(
        title=name,
        axes=(axes[0], axes[1], axes[2]),
        models=tuple(names[shown]),
        grouping=colour,
        group=group,
        groups=groups,
        x=x[shown],
        y=y[shown],
        fitted=np.isin(names[shown].astype(str), baseline.models),
        **{column: judged[column][shown] for column in (*kept, "p_value", "q_value")},
        edge=edge[shown],
        level=level,
        grid=(grid[0], grid[1]),
        surface=baseline.predict(over.reshape(-1, 2)).reshape(_STEPS, _STEPS),
        equations=(equation(baseline),),
        reading=f"The surface is the plane through {count(baseline.n)}; stems show each ρ.",
        notes=notes(
            missing=names[~there].tolist(),
            below=(int(below.sum()), threshold, source[0]),
            edge=(names[edge].tolist(), on),
            left_out=[one for one in names[shown] if one in left_out],
        ),
        citation=testbed.citation,
    )
