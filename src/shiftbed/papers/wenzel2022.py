"""Wenzel et al. 2022, "Assaying Out-Of-Distribution Generalization in Transfer Learning".

The errors of its 31,104 networks were not published as a table. What its printed tables determine
is recomputed: Table 2 from Table S2, the gaps of Table S2 from its errors, the sizes of the study
from its task table (S1) and grid (S3), the bars of Figures 3 and 4 from the matrix of Figure S1.
The correlations of that matrix between two ImageNet test sets depend on nothing but the nine
backbones, and come from the timm table that ships.

Table 2 is the mean of Table S2 over the 172 (ID, OOD) pairs, so that a task weighs as many times as
it has pairs; the text before Table S2 says over tasks, which does not give the printed figures.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftbed.analysis.effects import signed_rank
from shiftbed.analysis.pairs import PairTable
from shiftbed.analysis.predictiveness import correlations
from shiftbed.papers import Key, Printed, Recomputed, printed
from shiftbed.testbed import published

Floats = NDArray[np.float64]

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
SMALLEST_P = ("Figure 5", "Full dataset: ID", "corrupted error p")
"""The smallest p-value that is printed."""
UPSTREAM = {
    "ImageNet": "imagenet",
    "ImageNet-A": "imagenet_a",
    "ImageNet-R": "imagenet_r",
    "ImageNet-Real": "imagenet_real",
    "ImageNet-Sketch": "imagenet_sketch",
    "ImageNet-V2": "imagenetv2_mf",
}
"""Column of Figure S1 → setting of the timm testbed."""
BACKBONES = (
    "deit_base_distilled_patch16_224.fb_in1k@224-0.9",
    "densenet169.tv_in1k@224-0.875",
    "efficientnetv2_rw_s.ra2_in1k@384-1",
    "gmlp_s16_224.ra3_in1k@224-0.875",
    "mixer_b16_224.goog_in21k_ft_in1k@224-0.875",
    "resmlp_24_224.fb_in1k@224-0.875",
    "resnet50d.ra2_in1k@224-0.875",
    "swin_small_patch4_window7_224.ms_in1k@224-0.9",
    "vit_base_patch16_224.augreg_in21k_ft_in1k@224-0.9",
)
"""Table S4's models with the weights that timm 0.4.12 gives for these names."""
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
    found[SMALLEST_P] = Recomputed(
        value=signed_rank(-np.arange(1.0, 37.0), method="normal").p_value,
        why="normal limit of the signed-rank test if all 36 data sets agree, the least there is",
        follows=True,
    )
    return found | _sizes() | _differences(figures) | _correlations()


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
        follows=True,
        if_differs=f"Table S2 over tasks gives {over_tasks:.3f}",
    )


def _gaps(figures: Sequence[Printed], s2: Mapping[Key, float]) -> dict[Key, Recomputed]:
    """OOD error − ID error, per model and task."""
    found = {}
    for figure in figures:
        if figure.table == "Table S2" and figure.column == "OOD-ID gap":
            ood = s2["Table S2", figure.row, "OOD error"]
            gap = ood - s2["Table S2", figure.row, "ID error"]
            found[figure.key] = Recomputed(
                value=gap, why="OOD error − ID error of the row", follows=True
            )
    return found


def figure_s1() -> tuple[tuple[str, ...], Floats]:
    """The 25 metrics of Figure S1, and (metrics, metrics) averaged rank correlations × 100.

    Wenzel et al. 2022, NeurIPS, Figure S1: over 172 (ID, OOD) pairs with equal weight per task.

    >>> names, matrix = figure_s1()
    >>> len(names), float(matrix[names.index("ID error"), names.index("OOD error")])
    (25, 49.0)
    """
    cells = {f.key[1:]: float(f.text) for f in printed("wenzel2022") if f.table == "Figure S1"}
    names = tuple(dict.fromkeys(row for row, _ in cells))
    return names, np.array([[cells[a, b] for b in names] for a in names])


def _correlations() -> dict[Key, Recomputed]:
    """Figure S1's mirror image, its upstream part, and what is drawn or said from it."""
    names, matrix = figure_s1()
    r = {(a, b): matrix[i, j] for i, a in enumerate(names) for j, b in enumerate(names)}
    found: dict[Key, Recomputed] = {}
    for i, a in enumerate(names):
        found["Figure S1", a, a] = Recomputed(value=100.0, why="with itself", follows=True)
        for b in names[:i]:
            why = "the same two metrics above the diagonal"
            found["Figure S1", a, b] = Recomputed(value=r[b, a], why=why, follows=True)
    found |= _upstream()
    from_matrix = {
        ("Figure 3", a, "with OOD error"): r[a, "OOD error"]
        for a in names
        if not a.startswith("OOD")
    }
    for figure in printed("wenzel2022"):
        if figure.table == "Figure 4":
            target = figure.column.removeprefix("with ")
            from_matrix[figure.key] = r[figure.row, target]
    corrupted = r["ID corr. error", "OOD error"]
    section = "Appendix A.1 (text)", "ID corr. error"
    from_matrix[*section, "with OOD error"] = corrupted
    from_matrix[*section, "below ID error"] = r["ID error", "OOD error"] - corrupted
    from_matrix[*section, "with ID error"] = r["ID error", "ID corr. error"]
    more = {
        key: Recomputed(value=float(value) / 100, why="Figure S1", follows=True)
        for key, value in from_matrix.items()
    }
    return found | more


def _upstream() -> dict[Key, Recomputed]:
    """Spearman's r of two ImageNet test sets over the nine backbones, above the diagonal.

    Every data set has as many networks of each backbone, so the mean over pairs is r of the nine.
    """
    bed = published("timm")
    rows = [bed.model_index(name) for name in BACKBONES]
    pair = PairTable(
        task="",
        source="",
        target="",
        models=BACKBONES,
        metrics=tuple(f"upstream:{name}" for name in UPSTREAM),
        values=np.column_stack([1.0 - bed.accuracy(s)[rows] for s in UPSTREAM.values()]),
    )
    r = correlations([pair], target="upstream:ImageNet", given=None)
    names = list(UPSTREAM)
    return {
        ("Figure S1", a, b): Recomputed(
            value=100.0 * float(r.column(f"upstream:{a}", f"upstream:{b}")[0]),
            why="the nine backbones in the timm table",
            if_differs="as printed if EfficientNetV2 and ViT-B, one image apart on ImageNetV2, "
            "change places there",
        )
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    }


def _sizes() -> dict[Key, Recomputed]:
    full = MODELS * sum(DOMAINS.values()) * GRID
    return {
        ("Section 2 (text)", "study", "data sets"): Recomputed(
            value=sum(DOMAINS.values()), why="Table S1, a WILDS task counted once", follows=True
        ),
        ("Section 2 (text)", "study", "(ID, OOD) pairs"): Recomputed(
            value=sum(map(pairs, DOMAINS)),
            why="ordered pairs of domains, one per WILDS task",
            follows=True,
        ),
        ("Section 2 (text)", "study", "tasks"): Recomputed(
            value=len(DOMAINS), why="Table S1", follows=True
        ),
        ("Appendix B (text)", "study", "networks on full data"): Recomputed(
            value=full, why="models × data sets × Table S3's grid", follows=True
        ),
        ("Appendix I.3 (text)", "study", "networks (thousands)"): Recomputed(
            value=(DATA_SIZES * full + PRE_SWEEP) / 1000,
            why="three data sizes and the pre-sweep",
            follows=True,
        ),
    }


def _differences(figures: Sequence[Printed]) -> dict[Key, Recomputed]:
    """ "Approx. 3 % higher error than Deit", from Table 2."""
    table = {f.key: float(f.text) for f in figures if f.table == "Table 2"}
    return {
        ("Section 5.2 (text)", "ViT-B over Deit", f"{column} (points)"): Recomputed(
            value=100 * (table["Table 2", "ViT-B", column] - table["Table 2", "Deit", column]),
            why="Table 2",
            follows=True,
            if_differs="the text says approximately",
        )
        for column in ("ID error", "OOD error")
    }
