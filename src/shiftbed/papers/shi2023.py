"""Shi et al. 2023, "Effective Robustness … for Models with Different Training Data".

The accuracies of its models were not published, so its fits cannot be made again. Its Average rows
follow from their own columns: ρ is averaged over the OOD sets per model first, and a mean of means
over the same models is the mean of the printed means (their standard deviations do not follow).
Numbers of models and of test examples follow from their parts.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from shiftbed.papers import Key, Printed, Recomputed, printed

WITHIN = dict.fromkeys(("Table 1b", "Table 3a", "Table 3b", "Table 4"), 0.01 + 1e-09)
"""The mean of figures rounded to 0.01 is itself uncertain by half of that."""
NEEDS_MODELS = "needs the accuracies of the paper's own models, which were not published"
NEEDS_JOINT = "a standard deviation of per-model averages does not follow from those of its parts"
MODELS = {
    ("Table 1 (caption)", "CIFAR-10 and ImageNet"): (21, 89, 38),
    ("Table 2 (rows)", "ImageNet and YFCC"): (36, 13, 54),
    ("Table 2 (rows)", "ImageNet and LAION"): (37, 14, 56),
}
"""Models of each group, from Tables 1b, 3a and 3b."""
CLASSES = {"YFCC test set": 451, "LAION test set": 408}
PER_CLASS = 50


def recompute(predictions: Sequence[Path]) -> Mapping[Key, Recomputed]:
    """Every printed figure: recomputed, or the reason why it cannot be."""
    figures = printed("shi2023")
    found = {figure.key: Recomputed(why=NEEDS_MODELS) for figure in figures}
    return found | averages(figures) | _counts()


def averages(figures: Sequence[Printed]) -> dict[Key, Recomputed]:
    """The Average rows: the mean of the rows of the same group above them."""
    table = {f.key: float(f.text) for f in figures if f.table in WITHIN}
    found = {}
    for name, row, column in table:
        group, _, test_set = row.rpartition(": ")
        if test_set != "Average":
            continue
        if column.endswith("±"):
            found[name, row, column] = Recomputed(why=NEEDS_JOINT)
            continue
        parts = [
            value
            for (other, part, same), value in table.items()
            if other == name and same == column and part.rpartition(": ")[0] == group
            if part != row
        ]
        found[name, row, column] = Recomputed(
            value=sum(parts) / len(parts),
            why=f"mean of the {len(parts)} test sets' figures",
            follows=True,
        )
    return found


def _counts() -> dict[Key, Recomputed]:
    models = {
        (table, row, "models"): Recomputed(
            value=sum(groups),
            why=" + ".join(map(str, groups)) + " models of the groups",
            follows=True,
        )
        for (table, row), groups in MODELS.items()
    }
    examples = {
        ("Appendix B.2 (text)", row, "examples"): Recomputed(
            value=count * PER_CLASS, why=f"{count} classes of {PER_CLASS}", follows=True
        )
        for row, count in CLASSES.items()
    }
    return models | examples
