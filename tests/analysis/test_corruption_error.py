"""mCE against its definition, published rows and resampled images."""

import numpy as np
import pytest

from shiftbed.analysis.corruption_error import (
    ALEXNET,
    ALEXNET_CLEAN,
    BENCHMARK,
    corruption_error,
)
from shiftbed.errors import InputError

REFERENCE = np.array([ALEXNET[name] for name in BENCHMARK])
RESNET50 = [80, 82, 83, 75, 89, 78, 80, 78, 75, 66, 57, 71, 85, 77, 77]
"""CE of ResNet-50 as printed by Hendrycks and Dietterich (2019), Table 1; its mCE is 76.7."""


def errors(means):
    return np.repeat(np.asarray(means)[:, None], 5, axis=1)


def test_the_reference_itself_is_one():
    found = corruption_error(errors(REFERENCE), ALEXNET_CLEAN, REFERENCE, ALEXNET_CLEAN, n=50_000)
    assert found.mce == pytest.approx(1)
    assert found.relative == pytest.approx(1)
    np.testing.assert_allclose(found.ce, 1)


def test_a_published_row():
    means = REFERENCE * np.array(RESNET50) / 100
    found = corruption_error(errors(means), 0.239, REFERENCE, ALEXNET_CLEAN, n=50_000)
    assert 100 * found.mce == pytest.approx(76.7, abs=0.3)
    assert 100 * found.relative == pytest.approx(105, abs=1.5)  # printed: 105.0


def test_relative_errors_by_hand():
    found = corruption_error([[0.3, 0.5], [0.2, 0.4]], 0.1, [0.6, 0.5], 0.2)
    np.testing.assert_allclose(found.ce, [0.4 / 0.6, 0.3 / 0.5])
    np.testing.assert_allclose(found.relative_ce, [0.3 / 0.4, 0.2 / 0.3])
    assert np.isnan([found.low, found.high, found.relative_low]).all()
    assert found.n == 0


def test_paired_intervals_are_those_of_resampled_images():
    rng = np.random.default_rng(0)
    hard = rng.normal(size=400)
    wrong = rng.normal(size=(3, 5, 400)) + hard > np.linspace(1.5, 0, 15).reshape(3, 5, 1)
    clean = rng.normal(size=400) + hard > 1.7
    reference, own = np.array([0.7, 0.6, 0.8]), 0.3
    found = corruption_error(
        wrong.mean(axis=2), float(clean.mean()), reference, own, wrong=wrong, clean_wrong=clean
    )
    assert (found.paired, found.n) == (True, 400)
    mce, relative = [], []
    for _ in range(3000):
        rows = rng.integers(0, 400, 400)
        drawn = wrong[:, :, rows].mean(axis=(1, 2))
        mce.append((drawn / reference).mean())
        relative.append(((drawn - clean[rows].mean()) / (reference - own)).mean())
    for half, draws in (
        (found.high - found.mce, mce),
        (found.relative_high - found.relative, relative),
    ):
        assert half == pytest.approx(1.96 * np.std(draws), rel=0.06)


def test_without_images_the_interval_is_wider_never_narrower():
    rng = np.random.default_rng(1)
    hard = rng.normal(size=300)
    wrong = rng.normal(size=(4, 5, 300)) + 2 * hard > 0.5
    clean = rng.normal(size=300) + 2 * hard > 1.5
    given = (wrong.mean(axis=2), float(clean.mean()), np.full(4, 0.7), 0.4)
    paired = corruption_error(*given, wrong=wrong, clean_wrong=clean)
    alone = corruption_error(*given, n=300)
    assert not alone.paired
    assert alone.high - alone.low > paired.high - paired.low
    assert alone.relative_high > paired.relative_high


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([0.1, 0.2], 0.1, [0.5], 0.2), "corruptions, severities"),
        (([[0.1, 20]], 0.1, [0.5], 0.2), "error"),
        (([[0.1, 0.2]], 0.1, [0.0], 0.2), "reference must err"),
        (([[0.1, 0.2]], 0.1, [0.2], 0.2), "reference must err"),
    ],
)
def test_what_makes_no_sense_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        corruption_error(*given)
