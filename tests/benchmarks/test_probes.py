"""The probes benchmark compares like with like; its times are printed, never asserted."""

import numpy as np
import pytest

from benchmarks import probes
from shiftbed.evaluation.probes.paths import POINTS
from shiftbed.evaluation.probes.probe import default_probe


@pytest.mark.parametrize("kind", ["amplitude", "phase"])
def test_the_loop_makes_the_same_paths(kind):
    probe = default_probe(kind, (16, 16))
    ((x0, x1),) = probes.pairs_of(1, 16)
    theirs = probes.plain_path(x0, x1, probe)
    assert theirs.shape == (POINTS, 3, 16, 16)
    assert np.abs(theirs - probes.path_of(probe, x0, x1)).max() < 1e-5


def test_projections_at_equal_standard_errors():
    found = probes.jacobian(6, 12, 8, 1)
    assert found["projected_norm"] == pytest.approx(found["exact_norm"], rel=0.3)
    assert found["projected_images"] >= found["exact_images"]
    assert found["exact_over_projected"] > 0
