"""Slopes and R² per group against scipy, their intervals by simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import linregress, t

from shiftbed.analysis.predictors import fit_group, lead, predictor, ranks
from shiftbed.errors import InputError


def simulated(rng, n=20, groups=3, slope=-4.0, noise=0.2):
    which = np.repeat(np.arange(groups), n)
    x = rng.normal(0.2, 0.05, n * groups)
    y = slope * x + which + rng.normal(0, noise, n * groups)
    return x, y, [(str(g), which == g) for g in range(groups)]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(4, 30))
def test_a_group_is_scipys_regression(seed, n):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=n), rng.normal(size=n)
    fit, wanted = fit_group(x, y), linregress(x, y)
    assert fit.slope == pytest.approx(wanted.slope)
    assert fit.intercept == pytest.approx(wanted.intercept)
    assert fit.r2 == pytest.approx(wanted.rvalue**2)
    assert fit.slope_error == pytest.approx(wanted.stderr)
    half = t.ppf(0.975, n - 2) * wanted.stderr
    assert fit.slope_high - fit.slope == pytest.approx(half)
    assert 0 <= fit.r2_low <= fit.r2 <= fit.r2_high <= 1


def test_the_average_weighs_groups_alike():
    x, y, groups = simulated(np.random.default_rng(0))
    found = predictor(x, y, groups)
    own = [linregress(x[rows], y[rows]) for _, rows in groups]
    assert found.slope == pytest.approx(np.mean([one.slope for one in own]))
    assert found.r2 == pytest.approx(np.mean([one.rvalue**2 for one in own]))
    assert found.n == 60
    assert found.slope_low < found.slope < found.slope_high
    assert found.r2_low < found.r2 < found.r2_high


def test_intervals_cover():
    """95 % intervals of slope and R², in a group and averaged, over 300 simulated studies."""
    rng = np.random.default_rng(1)
    truth = (4 * 0.05) ** 2 / ((4 * 0.05) ** 2 + 0.2**2)
    hits = np.zeros(4)
    for _ in range(300):
        x, y, groups = simulated(rng, n=30)
        found = predictor(x, y, groups, bootstrap=200)
        one = found.fits[0]
        hits += [
            one.slope_low <= -4 <= one.slope_high,
            one.r2_low <= truth <= one.r2_high,
            found.slope_low <= -4 <= found.slope_high,
            found.r2_low <= truth <= found.r2_high,
        ]
    assert (hits / 300 > 0.9).all()
    assert (hits[:3] / 300 < 0.985).all()


def test_groups_without_a_line_are_left_out_and_named():
    x, y, groups = simulated(np.random.default_rng(2))
    few = np.zeros(60, bool)
    few[:2] = True
    found = predictor(x, y, [*groups, ("tiny", few)])
    assert found.n == 60
    assert len(found.fitted) == 3
    assert "tiny: 2 models" in found.note
    flat = predictor(np.ones(60), y, groups)
    assert np.isnan(flat.r2)
    assert flat.n == 0
    assert "no spread" in flat.note
    with pytest.raises(InputError):
        predictor(x, y, [])


def test_missing_values_do_not_count():
    x, y, groups = simulated(np.random.default_rng(3))
    x[0], y[1] = np.nan, np.nan
    found = predictor(x, y, groups)
    assert found.fits[0].n == 18
    assert found.n == 58


def test_a_perfect_line_has_no_interval_of_r2():
    fit = fit_group(np.arange(5.0), 2 * np.arange(5.0))
    assert (fit.r2, fit.slope) == pytest.approx((1, 2))
    assert "no interval" in fit.note


def test_ranks_of_ties_and_gaps():
    assert ranks([0.5, 0.5, 0.1]) == [1, 2, 0]
    assert ranks([float("nan")] * 2) == [0, 0]
    assert ranks([0.3]) == [1]


@pytest.mark.parametrize("truth", [0.0, 0.09, 0.5])
def test_the_interval_of_a_mean_r2_covers_where_r2_is_small(truth):
    """The plain mean R² is above the truth; its interval and the adjusted one are not."""
    rng = np.random.default_rng(3)
    inside, adjusted, plain = 0, [], []
    which = np.repeat(np.arange(4), 15)
    groups = [(str(g), which == g) for g in range(4)]
    for _ in range(150):
        x, noise = rng.normal(size=(2, 60))
        y = np.sqrt(truth) * x + np.sqrt(1 - truth) * noise
        found = predictor(x, y, groups, bootstrap=300)
        inside += found.r2_low <= truth <= found.r2_high
        adjusted.append(found.adjusted)
        plain.append(found.r2)
    assert inside / 150 >= 0.9
    assert abs(np.mean(adjusted) - truth) < 0.02
    assert truth == 0.5 or np.mean(plain) > truth + 0.04


def test_the_best_of_equals_is_rarely_called_best():
    rng = np.random.default_rng(4)
    everyone = [("all", np.ones(40, dtype=bool))]
    called = 0
    for seed in range(200):
        y = rng.normal(size=40)
        x = 0.5 * y + rng.normal(size=(4, 40))
        order = np.argsort([-fit_group(one, y).r2 for one in x])
        found = lead(x[order[0]], x[order[1]], y, everyone, bootstrap=200, seed=seed)
        assert found.gain >= 0
        called += found.p_value < 0.05
    assert called / 200 <= 0.08
    better = lead(y + 0.1 * x[0], x[1], y, everyone)
    assert better.p_value < 1e-4
    assert "not tested" in lead(x[0], x[1], y, everyone, bootstrap=0).note
