"""Do effectively robust checkpoints answer unlike the line's networks? (Section 5.4, C.10)

Dominance of two networks is the share of images that the less accurate one alone gets right. It
depends on both accuracies, which change along training, so it is compared as a share (%) of what
two networks of these accuracies would have if they erred independently.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.imagenet_cifar10.judged import Answers, Sides, figure, row
from examples.imagenet_cifar10.published import Published
from shiftbed.analysis.joint_counts import triplets
from shiftbed.analysis.similarity import unsolved

__all__ = ["dominance", "similar"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rows = list[dict[str, Any]]
CONE = 2.0
ENOUGH = 20
"""Images that nobody gets right, for a share of them to be worth a row."""


def similar(answers: Answers, parts: dict[str, list[int]], known: Published | None) -> Rows:
    """Rows of findings of one kind of run: its checkpoints at the peak and at the end."""
    beds = {"the line's networks": answers.line_id}
    if known is not None:
        beds[f"{len(known.id)} published networks"] = known.id
    rows = [one for name, bed in beds.items() for one in _dominance(answers, parts, name, bed)]
    return [*rows, _closeness(answers, parts)]


def _dominance(answers: Answers, parts: dict[str, list[int]], name: str, bed: Bools) -> Rows:
    rows: Rows = []

    def at(part: str, counts: Any) -> Floats:
        return dominance(answers.id[parts[part]], bed, counts[0])

    def among(counts: Any) -> float:
        every = range(len(bed))
        each = [dominance(bed[[i]], np.delete(bed, i, 0), counts[0]) for i in every]
        return float(np.mean(each))

    usual = among(answers.once())
    for part, when in (("peak", "at its peak"), ("final", "at the end")):

        def above(counts: Any, part: str = part) -> Sides:
            return [at(part, counts) - among(counts)]

        what = (
            f"{when} a head has more dominance over {name} than they have among themselves "
            f"({usual:.0f} % of independent ones)"
        )
        rows.append(row(what, "5.4, Fig. 5", "above", figure(above, answers)))
    what = f"dominance of a head over {name} is larger at its peak than at the end"
    drop = figure(lambda counts: [at("peak", counts) - at("final", counts)], answers)
    rows.append(row(what, "5.4, Fig. 5", "above", drop))
    own = answers.id[parts["peak"]]
    mine = np.arange(len(bed) + len(own)) < len(bed)
    found = unsolved(np.vstack([bed, own]), baseline=mine)
    if found.unsolved.sum() >= ENOUGH:
        what = (
            f"of {int(found.unsolved.sum())} images that none of {name} gets right, a head at its "
            "peak gets a larger share than one of them gets of those that no other does"
        )
        more = 100 * (found.share[~mine] - found.share[mine].mean())
        rows.append(row(what, "5.4, Fig. 5c", "above", figure(lambda counts: [more], answers)))
    return rows


def dominance(models: Bools, bed: Bools, counts: Floats) -> Floats:
    """(models,) mean over the bed, % of that of independent networks of the same accuracies.

    >>> one, bed = np.array([[1, 1, 0, 0]], bool), np.array([[1, 0, 1, 1]], bool)
    >>> dominance(one, bed, np.ones(4)).tolist()
    [200.0]
    """
    n = counts.sum()
    mine, theirs = models @ counts / n, bed @ counts / n
    both = (models * counts) @ bed.T / n
    alone = np.minimum(mine[:, None] - both, theirs - both)
    low, high = np.minimum(mine[:, None], theirs), np.maximum(mine[:, None], theirs)
    independent = (low * (1 - high)).sum(axis=1)
    return np.asarray(100 * alone.sum(axis=1) / np.maximum(independent, 1 / n))


def _closeness(answers: Answers, parts: dict[str, list[int]]) -> dict[str, Any]:
    """Triplets with a checkpoint at its peak are no less close, ID and OOD, than those of the line.

    The share (%) of events within a factor of two; that of triplets with the checkpoint follows
    from the counts with and without it. The interval is over seeds alone.
    """
    line = triplets(answers.line_id, answers.line_ood, factor=CONE)
    fewer = []
    for at in parts["peak"]:
        ids = np.vstack([answers.line_id, answers.id[[at]]])
        more = triplets(ids, np.vstack([answers.line_ood, answers.ood[[at]]]), factor=CONE)
        own = (more.inside - line.inside) / (more.events - line.events)
        fewer.append(100 * (line.share_inside - own))
    what = (
        "triplets with a head at its peak are as close, ID and OOD, as those of the line's "
        f"networks ({100 * line.share_inside:.1f} % within a factor of 2); points fewer"
    )
    each = np.array(fewer)
    return row(what, "C.10, Fig. 20", "no more", figure(lambda counts: [each], answers))
