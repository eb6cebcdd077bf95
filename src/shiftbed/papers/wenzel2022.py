"""Wenzel et al. 2022, "Assaying Out-Of-Distribution Generalization in Transfer Learning".

The errors of its 31,104 networks were not published as a table. What its printed tables determine
is recomputed: Table 2 from Table S2, the gaps of Table S2 from its errors, the sizes of the study
from its task table (S1) and grid (S3).

Table 2 is the mean of Table S2 over the 172 (ID, OOD) pairs, so that a task weighs as many times as
it has pairs; the text before Table S2 says over tasks, which does not give the printed figures.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from shiftbed.papers import Key, Printed, Recomputed, printed

DOMAINS = {
    "PACS": 4,
    "VLCS": 4,
    "domain_net": 6,
    "office_home": 4,
    "sviro": 10,
    "terra_incognita": 4,
    "wilds-camelyon17": 1,
    "wilds-fmow": 1,
    "wilds-iwildcam": 1,
    "wilds-rxrx1": 1,
}
"""Data sets of each task (Table S1); a WILDS task's ID and OOD split are counted as one."""
MODELS, DATA_SIZES = 9, 3
GRID = 2 * 2 * 2 * 3
"""Learning rates, lengths, head or whole model, augmentations (Table S3)."""
PRE_SWEEP = 9 * 3 * 4 * 4 * (2 * 3 * 3)
"""Models × data sets × learning rates × lengths (Appendix H) × the rest of the grid and the three
data sizes."""
WITHIN = {"Table 2": 0.001 + 1e-9, "Table S2": 0.0015 + 1e-9}
"""What rounding explains: Table 2 is a mean of rounded figures, a gap the difference of two."""
COLUMNS = ("ID error", "OOD error", "OOD-ID gap")
NEEDS_NETWORKS = "needs the errors of single networks, which were not published"


def pairs(task: str) -> int:
    """(ID, OOD) pairs of a task: all ordered pairs of its domains, one for a WILDS task.

    >>> sum(pairs(task) for task in DOMAINS)
    172
    """
    count = DOMAINS[task]
    return count * (count - 1) if count > 1 else 1


def recompute(predictions: Sequence[Path]) -> Mapping[Key, Recomputed]:
    """Every printed figure: recomputed, or the reason why it cannot be."""
    figures = printed("wenzel2022")
    found = {figure.key: Recomputed(why=NEEDS_NETWORKS) for figure in figures}
    s2 = {f.key: float(f.text) for f in figures if f.table == "Table S2"}
    found |= _gaps(figures, s2)
    for figure in figures:
        if figure.table == "Table 2" and figure.column in COLUMNS:
            found[figure.key] = table_2(s2, figure.row, figure.column)
    return found | _sizes() | _differences(figures)


def table_2(s2: Mapping[Key, float], model: str, column: str) -> Recomputed:
    """Σ_t n_t·e_t / Σ_t n_t over tasks t with n_t pairs."""
    weights = {task: pairs(task) for task in DOMAINS}
    total = sum(weights.values())
    errors = {task: s2["Table S2", f"{model}: {task}", column] for task in DOMAINS}
    mean = sum(weights[task] * errors[task] for task in DOMAINS) / total
    over_tasks = sum(errors.values()) / len(errors)
    return Recomputed(
        value=mean,
        why=f"Table S2 over {total} pairs",
        if_differs=f"Table S2 over tasks gives {over_tasks:.3f}",
    )


def _gaps(figures: Sequence[Printed], s2: Mapping[Key, float]) -> dict[Key, Recomputed]:
    """OOD error − ID error, per model and task."""
    found = {}
    for figure in figures:
        if figure.table == "Table S2" and figure.column == "OOD-ID gap":
            ood = s2["Table S2", figure.row, "OOD error"]
            gap = ood - s2["Table S2", figure.row, "ID error"]
            found[figure.key] = Recomputed(value=gap, why="OOD error − ID error of the row")
    return found


def _sizes() -> dict[Key, Recomputed]:
    full = MODELS * sum(DOMAINS.values()) * GRID
    return {
        ("Section 2 (text)", "study", "data sets"): Recomputed(
            value=sum(DOMAINS.values()), why="Table S1, a WILDS task counted once"
        ),
        ("Section 2 (text)", "study", "(ID, OOD) pairs"): Recomputed(
            value=sum(map(pairs, DOMAINS)), why="ordered pairs of domains, one per WILDS task"
        ),
        ("Section 2 (text)", "study", "tasks"): Recomputed(value=len(DOMAINS), why="Table S1"),
        ("Appendix B (text)", "study", "networks on full data"): Recomputed(
            value=full, why="models × data sets × Table S3's grid"
        ),
        ("Appendix I.3 (text)", "study", "networks (thousands)"): Recomputed(
            value=(DATA_SIZES * full + PRE_SWEEP) / 1000, why="three data sizes and the pre-sweep"
        ),
    }


def _differences(figures: Sequence[Printed]) -> dict[Key, Recomputed]:
    """ "Approx. 3 % higher error than Deit", from Table 2."""
    table = {f.key: float(f.text) for f in figures if f.table == "Table 2"}
    return {
        ("Section 5.2 (text)", "ViT-B over Deit", f"{column} (points)"): Recomputed(
            value=100 * (table["Table 2", "ViT-B", column] - table["Table 2", "Deit", column]),
            why="Table 2",
            if_differs="the text says approximately",
        )
        for column in ("ID error", "OOD error")
    }
