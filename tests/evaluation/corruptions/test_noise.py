"""Noise in distribution."""

import numpy as np
import pytest
from scipy import stats

from shiftbed.evaluation.corruptions import Corruption, noise, parameters, severities

WIDE = (1, 1, 250, 400)


def flat(value: float) -> np.ndarray:
    return np.full(WIDE, value, np.float32)


@pytest.mark.parametrize("severity", severities("gaussian_noise"))
def test_gaussian_and_speckle_are_normal(severity):
    for name, factor in (("gaussian_noise", 1.0), ("speckle_noise", 0.5)):
        scale = parameters(name, severity, 250, 400)["scale"] * factor
        out = Corruption(name, severity)(flat(0.5), ["a"]).ravel().astype(np.float64)
        within = out[(out > 0) & (out < 1)]
        cut = stats.truncnorm(-0.5 / scale, 0.5 / scale, 0.5, scale)
        assert stats.kstest(within, cut.cdf).pvalue > 1e-3
        outside = 2 * stats.norm.sf(0.5 / scale)
        assert np.mean((out == 0) | (out == 1)) == pytest.approx(outside, abs=0.006)


@pytest.mark.parametrize("severity", severities("impulse_noise"))
def test_impulse_replaces_its_share_half_by_white(severity):
    amount = parameters("impulse_noise", severity, 250, 400)["amount"]
    out = Corruption("impulse_noise", severity)(flat(0.5), ["a"])
    spread = 5 * np.sqrt(amount / out.size)
    assert np.mean(out == 1) == pytest.approx(amount / 2, abs=spread)
    assert np.mean(out == 0) == pytest.approx(amount / 2, abs=spread)
    assert np.mean(out == 0.5) == pytest.approx(1 - amount, abs=2 * spread)


@pytest.mark.parametrize("photons", [3.0, 12.0, 60.0, 500.0])
@pytest.mark.parametrize("level", [0.0, 1 / 255, 30 / 255, 0.5, 0.5004, 0.9999, 1.0])
def test_shot_noise_is_poisson(photons, level):
    """On a level of the table, between two, and just below one."""
    x = np.full((1, 250, 400, 1), level, np.float32)
    out = np.empty_like(x)
    keys = np.array([17], np.uint64)
    table, start = noise.poisson_table(photons)
    noise.shot(x, out, keys, table, start, np.float32(photons))
    rate = float(np.float32(level)) * photons
    top = int(photons)  # larger counts are clipped to white
    counts = np.rint(out.ravel() * photons).astype(int)
    seen = np.bincount(counts, minlength=top + 1)
    expected = stats.poisson.pmf(np.arange(top + 1), rate) * counts.size
    expected[top] += stats.poisson.sf(top, rate) * counts.size
    edges = [0]
    for k in range(top + 1):  # bins of at least 10 expected counts
        if expected[edges[-1] : k + 1].sum() >= 10 and expected[k + 1 :].sum() >= 10:
            edges.append(k + 1)
    groups = [np.add.reduceat(v, edges) for v in (seen, expected)]
    if len(edges) == 1:
        assert groups[0][0] == counts.size
        return
    statistic = np.sum((groups[0] - groups[1]) ** 2 / groups[1])
    assert stats.chi2.sf(statistic, len(edges) - 1) > 1e-4


def test_the_poisson_table_is_exact_to_two_to_the_minus_32():
    table, start = noise.poisson_table(25.0)
    for k in (0, 1, 100, 255):
        exact = stats.poisson.cdf(np.arange(table.shape[1] - 1), 25.0 * k / 255)
        assert np.abs((table[k, :-1] + 1.0) / 2**32 - exact).max() <= 1.01 / 2**32
        assert int(table[k, -1]) == 2**32 - 1
        assert (np.diff(start[k].astype(int)) >= 0).all()
