import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import binomtest, false_discovery_control
from statsmodels.stats.proportion import proportion_confint

from shiftbed.analysis.intervals import (
    benjamini_hochberg,
    binomial_variance,
    check_fractions,
    clopper_pearson,
    off_boundary,
    pearson,
)
from shiftbed.errors import InputError


@given(n=st.integers(1, 3000), share=st.floats(0, 1), level=st.floats(0.5, 0.999))
def test_clopper_pearson_equals_scipy_and_statsmodels(n, share, level):
    k = round(share * n)
    low, high = clopper_pearson(k / n, n, level)
    reference = binomtest(k, n).proportion_ci(level, method="exact")
    assert float(low) == pytest.approx(reference.low, abs=1e-9)
    assert float(high) == pytest.approx(reference.high, abs=1e-9)
    other = proportion_confint(k, n, alpha=1 - level, method="beta")
    assert (float(low), float(high)) == pytest.approx(other, abs=1e-9)


def test_clopper_pearson_of_unknown_size_is_unknown():
    low, high = clopper_pearson([0.5, np.nan], [0, 10])
    assert np.isnan(low).all()
    assert np.isnan(high).all()


@pytest.mark.parametrize("level", [0.0, 1.0, 95, -0.1])
def test_levels_are_fractions(level):
    with pytest.raises(InputError, match="level must lie between 0 and 1"):
        clopper_pearson(0.5, 10, level)


def test_percentages_are_refused_with_a_hint():
    with pytest.raises(InputError, match=r"looks like a percentage, write 0\.7613"):
        check_fractions([0.5, 76.13])
    with pytest.raises(InputError, match=r"got -0\.1"):
        check_fractions(-0.1)


def test_boundary_moves_only_the_edge():
    moved = off_boundary([0.0, 0.25, 1.0, 1.0], [4, 4, 4, 0])
    assert moved.tolist() == [0.1, 0.25, 0.9, 1.0]


def test_binomial_variance():
    assert binomial_variance(0.5, 100) == pytest.approx(0.0025)
    assert binomial_variance(0.5, 0) == 0.0
    assert binomial_variance(0.0, 100) > 0.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_benjamini_hochberg_equals_scipy(p):
    assert benjamini_hochberg(p) == pytest.approx(false_discovery_control(p), abs=1e-12)


def test_benjamini_hochberg_skips_missing():
    q = benjamini_hochberg([0.01, np.nan, 0.02])
    assert np.isnan(q[1])
    assert q[[0, 2]].tolist() == pytest.approx([0.02, 0.02])


values = st.lists(st.integers(-5, 5), min_size=4, max_size=30)


@given(values, st.integers(0, 1000))
def test_pearson_is_scipys(a, seed):
    b = np.random.default_rng(seed).integers(-3, 4, len(a)) + np.array(a) // 2
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        assert np.isnan(pearson(a, b)[0])
        return
    r, low, high, n = pearson(a, b, 0.9)
    reference = stats.pearsonr(a, b)
    assert r == pytest.approx(reference.statistic)
    if n > 3 and abs(r) < 1 - 1e-12:
        assert (low, high) == pytest.approx(tuple(reference.confidence_interval(0.9)))


def test_missing_pairs_are_left_out():
    assert pearson([1, 2, 3, np.nan], [1, 2, 4, 5])[3] == 3
