"""Taori et al. 2020, "Measuring Robustness to Natural Distribution Shifts".

ρ(f) = acc₂(f) − β(acc₁(f)) (Section 2), β the logit line of the 78 standard models; everything
here is that, an accuracy, a difference of accuracies or a correlation of two ρ. The paper leaves
open how it averages over corruptions: Table 1, Table 2 and the ρ of Appendix K.1 come out with 39
parts, the 38 corruptions of Appendix E.2 (each the mean of its severities) and Stylized ImageNet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from shiftbed.papers import Key, Recomputed
from shiftbed.papers.quantities import correlation, percent, rho
from shiftbed.papers.taori2020_text import text
from shiftbed.records import Shift
from shiftbed.testbed.published import published
from shiftbed.testbed.record import Testbed

WITHIN = {"Table 1": 0.01, "Table 2": 0.01}
"""Cells of these tables count as equal below this difference."""

AVERAGE = "avg_corruptions and stylized_imagenet"
NATURAL = {
    "ImageNetV2": "imagenet-v2",
    "ObjectNet": "objectnet",
    "ImageNetVid (pm-0)": "imagenet-vid",
    "YTBB (pm-0)": "ytbb",
    "ImageNetVid (pm-10)": "imagenet-vid-pm10",
    "YTBB (pm-10)": "ytbb-pm10",
    "ImageNet-A": "imagenet-a",
}
"""Columns of Table 2."""


def recompute(predictions: Sequence[Path]) -> Mapping[Key, Recomputed]:
    """Every figure that the published accuracies give; predictions are not needed."""
    testbed = with_average_of_39(published("imagenet-testbed-2020"))
    return {**table_1(testbed), **table_2(testbed), **text(testbed, AVERAGE)}


def with_average_of_39(testbed: Testbed) -> Testbed:
    """The testbed with the average over corruptions that the paper's tables use."""
    parts = (*testbed.derived["avg_corruptions"], "stylized_imagenet")
    value = np.mean([testbed.accuracy(part) for part in parts], axis=0)
    n = np.min([testbed.size(part) for part in parts], axis=0)
    shift = Shift(name=AVERAGE, kind="corruption", source=("val",), target=AVERAGE)
    return replace(
        testbed,
        settings=(*testbed.settings, AVERAGE),
        value=np.column_stack([testbed.value, value]),
        n=np.column_stack([testbed.n, n]),
        derived={**testbed.derived, AVERAGE: parts},
        shifts=(*testbed.shifts, shift),
    )


def table_1(testbed: Testbed) -> dict[Key, Recomputed]:
    """Appendix G: accuracy, ρ on ImageNetV2, and averages over corruptions and PGD attacks.

    Models trained on subsets of ImageNet are not listed.
    """
    columns = {
        "ImageNet accuracy": percent(testbed, "val"),
        "ImageNetV2 eff. robust.": rho(testbed, "imagenet-v2"),
        "Avg. corr. accuracy": percent(testbed, AVERAGE),
        "Avg. PGD accuracy": percent(testbed, "avg_pgd"),
    }
    return {
        ("Table 1", model, column): Recomputed(value=float(values[row]))
        for row, model in enumerate(testbed.model_names)
        for column, values in columns.items()
        if "subsample" not in model
    }


def table_2(testbed: Testbed) -> dict[Key, Recomputed]:
    """Appendix H: r of ρ under each synthetic and each natural shift.

    Both ρ are fitted on the standard models, with no accuracy threshold; r is over the models
    that are not standard and were evaluated under both. ImageNet-A has its two lines.
    """
    natural = {column: rho(testbed, shift) for column, shift in NATURAL.items()}
    cells = {}
    for shift in testbed.shifts:
        if shift.kind not in ("corruption", "adversarial") or shift.name == AVERAGE:
            continue
        synthetic = rho(testbed, AVERAGE if shift.name == "avg_corruptions" else shift.name)
        for column, values in natural.items():
            r = correlation(testbed, synthetic, values)
            cells["Table 2", shift.name, column] = Recomputed(value=r)
    return cells
