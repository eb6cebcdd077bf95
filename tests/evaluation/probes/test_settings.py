"""What is chosen by image size, and what can be changed."""

import pytest

from shiftbed.errors import InputError
from shiftbed.evaluation.probes.probe import Probe, default_pairs, default_probe


@pytest.mark.parametrize(
    ("size", "amplitude", "phase", "pairs"),
    [
        (28, 0.2, 0.2, 5000),
        (32, 0.2, 0.2, 5000),
        (84, 0.2, 0.2, 5000),
        (85, 0.5, 0.1, 7000),
        (224, 0.5, 0.1, 7000),
    ],
)
def test_windows_and_pairs_by_size(size, amplitude, phase, pairs):
    assert default_probe("amplitude", (size, size)).w == amplitude
    assert default_probe("phase", (size, 2 * size)).w == phase
    assert default_pairs("phase", (size, size), 50_000) == pairs
    assert default_pairs("phase", (size, size), 999) == 499


def test_all_of_it_can_be_changed():
    probe = default_probe("phase", (32, 32), w=0.3, points=20, seed=4)
    given = {"w": 0.3, "points": 20, "normalisation": "cifar-10", "seed": 4}
    assert probe.describe() == given
    assert default_probe("jacobian", (32, 32), projections=3).describe()["projections"] == 3


@pytest.mark.parametrize(
    "wrong", [{"w": 0.6}, {"points": 1}, {"step": 0.0}, {"projections": -1}, {"name": "phases"}]
)
def test_what_is_no_probe(wrong):
    with pytest.raises(InputError):
        Probe(**{"name": "phase"} | wrong)
    with pytest.raises(InputError, match="did you mean"):
        default_probe("amplitud", (32, 32))
