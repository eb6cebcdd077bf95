"""The papers' quantities of a testbed, in percent: accuracy, ρ, τ, and correlations of ρ."""

import numpy as np
from numpy.typing import NDArray

from shiftbed.analysis.association import pearson
from shiftbed.testbed.record import Testbed
from shiftbed.testbed.select import Choice, choose

Floats = NDArray[np.float64]


def percent(testbed: Testbed, setting: str) -> Floats:
    """(models,) accuracies in that setting."""
    return 100.0 * testbed.accuracy(setting)


def rho(testbed: Testbed, shift: str, models: Choice = None) -> Floats:
    """(models,) ρ(f) = acc_ood(f) − β(acc_id(f)), β fitted on the fit set or on ``models``."""
    line = testbed.fit(shift, models=models, on_boundary="drop", bootstrap=0)
    return 100.0 * testbed.judge(line).effective


def tau(testbed: Testbed, shift: str, parent: str) -> Floats:
    """(models,) τ(f′) = acc_ood(f′) − acc_ood(f) against one parent f."""
    target = percent(testbed, testbed.shift(shift).target)
    return np.asarray(target - target[testbed.model_index(parent)])


def correlation(
    testbed: Testbed, synthetic: Floats, natural: Floats, over: Choice = "kind!=standard"
) -> float:
    """Pearson's r of ρ under a synthetic and under a natural shift, over non-standard models."""
    rows = choose(testbed.models, over)
    return pearson(synthetic[rows], natural[rows])[0]
