"""Does a gain from other training data shrink under the plane? With intervals over models."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from shiftbed import Testbed

__all__ = ["FAMILIES", "IDS", "OOD", "Finding", "findings"]

IDS, OOD = ("photo", "art_painting"), ("cartoon", "sketch")
FAMILIES = {"all": "*", "from nothing": "scratch*", "on ImageNet weights": "imagenet*"}
"""Which grids of the recipe are fitted together."""
Floats = NDArray[np.float64]
RESAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The mean ρ of models trained on the other ID domain alone, by one ID set and by both."""

    family: str
    ood: str
    id: str
    """The single ID set; the models are trained on the other."""
    single: float
    multi: float
    shrinks: float
    """|single| − |multi|."""
    low: float
    high: float
    n: int
    models: int
    """All that the line and the plane go through."""

    @property
    def verdict(self) -> str:
        if self.low > 0:
            return "shrinks"
        return "grows" if self.high < 0 else "inconclusive"


def findings(bed: Testbed, seed: int = 0) -> list[Finding]:
    """For every family of models, OOD set and single ID set."""
    rng = np.random.default_rng(seed)
    found = []
    for family, pattern in FAMILIES.items():
        some = bed.where(f"grid={pattern}")
        data = np.array(some.models["training_data"].to_list())
        values = {one: _inside(some, one) for one in (*IDS, *OOD)}
        for ood in OOD:
            for own, other in (IDS, IDS[::-1]):
                rows = np.arange(len(data))
                single, multi = _gains(values, data == other, rows, own, ood)
                draws = []
                for _ in range(RESAMPLES):
                    drawn = rng.choice(rows, len(rows))
                    if (data[drawn] == other).any():
                        a, b = _gains(values, data == other, drawn, own, ood)
                        draws.append(abs(a) - abs(b))
                low, high = np.quantile(draws, [0.025, 0.975])
                found.append(
                    Finding(
                        family=family,
                        ood=ood,
                        id=own,
                        single=single,
                        multi=multi,
                        shrinks=abs(single) - abs(multi),
                        low=float(low),
                        high=float(high),
                        n=int((data == other).sum()),
                        models=len(data),
                    )
                )
    return found


def _inside(bed: Testbed, setting: str) -> Floats:
    """Accuracies, those of exactly 0 and 1 moved to (k + ½)/(n + 1)."""
    value, n = bed.accuracy(setting), bed.size(setting)
    return np.where((value <= 0) | (value >= 1), (value * n + 0.5) / (n + 1), value)


def _gains(
    values: dict[str, Any], other: Any, rows: Any, own: str, ood: str
) -> tuple[float, float]:
    """Mean ρ of the other models against the line through ``own`` and against the plane."""
    y = values[ood][rows]
    found = []
    for ids in ((own,), IDS):
        x = np.column_stack([np.ones(len(rows)), *(logit(values[one][rows]) for one in ids)])
        w = np.linalg.lstsq(x, logit(y), rcond=None)[0]
        found.append(float((y - expit(x @ w))[other[rows]].mean()))
    return found[0], found[1]
