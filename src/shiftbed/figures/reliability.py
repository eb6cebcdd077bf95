"""Reliability diagrams of the models of a store."""

from collections.abc import Sequence

import numpy as np

from shiftbed.analysis.metrics import reliability
from shiftbed.errors import InputError
from shiftbed.figures.charts import Curve, Curves, Line
from shiftbed.store import PredictionStore, read_answers

MOST = 6
"""Models in one diagram, the first in name."""


def reliability_diagram(
    store: PredictionStore, setting: str, models: Sequence[str] | None = None
) -> Curves:
    """Accuracy over confidence in ten bins, one curve per model, with 95 % intervals."""
    complete = [
        r["model"]
        for r in store.cells()
        if r["setting"] == setting and r.get("status") == "complete"
    ]
    names = sorted(complete) if models is None else list(models)
    test_set = store.test_set(setting)
    curves: list[Curve] = []
    notes: list[str] = []
    for name in names:
        answers = read_answers(store, name, test_set, ["prob_1"])
        if "prob_1" not in answers.frame.columns or not len(answers.right):
            notes.append(f"{name} has no probabilities in the store.")
            continue
        if len(curves) == MOST:
            notes.append(f"{len(names) - MOST} more models are not drawn.")
            break
        p = np.clip(answers.frame["prob_1"].to_numpy().astype(np.float64), 0.0, 1.0)
        found = reliability(p, answers.right)
        there = found.n > 0
        curves.append(
            Curve(
                name=f"{name} (ECE {100 * found.error:.2f} %, n = {len(answers.right)})",
                x=found.confidence[there],
                y=found.accuracy[there],
                low=found.low[there],
                high=found.high[there],
            )
        )
    if not curves:
        raise InputError(f"no model has probabilities on {setting!r}")
    return Curves(
        title=f"Reliability on {setting}",
        x_title="confidence",
        y_title="accuracy",
        curves=tuple(curves),
        lines=(Line(name="calibrated", slope=1.0),),
        reading="Ten bins of equal width, left-closed; bands are 95 % Clopper–Pearson intervals.",
        notes=tuple(notes),
    )
