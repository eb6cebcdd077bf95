"""Planning against a testbed: its line and scatter make the design."""

import numpy as np

from shiftbed.analysis.planning import Design
from shiftbed.errors import InputError
from shiftbed.records import Shift
from shiftbed.testbed.record import Testbed


def design(
    testbed: Testbed,
    shift: str | Shift,
    *,
    accuracy: float | None = None,
    models: int | None = None,
    id_images: int | None = None,
    ood_images: int | None = None,
    level: float = 0.95,
) -> Design:
    """A design with what is not given taken from the testbed: the median baseline model's ID
    accuracy, its number of baseline models, its test-set sizes.
    """
    baseline = testbed.fit(shift, bootstrap=0)
    if len(baseline.lines) > 1 or len(baseline.id_settings) > 1:
        baseline = testbed.fit(shift, bootstrap=0, knee=None, on_boundary="drop")
    if len(baseline.id_settings) > 1:
        raise InputError("planning is for one ID setting")
    line = baseline.lines[0]
    scaled = line.design[:, 1]
    sizes = [int(n) for n in baseline.sizes]
    for given, known, what in ((id_images, sizes[0], "ID"), (ood_images, sizes[1], "OOD")):
        if not (given or known):
            raise InputError(f"the {what} test-set size is unknown in {testbed.name}; give one")
    return Design(
        accuracy=accuracy or float(baseline.scale.inverse(np.median(scaled))),
        slope=line.weights[0],
        intercept=line.intercept,
        scatter=line.sigma,
        spread=float(scaled.std()),
        centre=float(scaled.mean()),
        models=models or line.n,
        id_images=id_images or sizes[0],
        ood_images=ood_images or sizes[1],
        scale=baseline.scale,
        level=level,
    )
