import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shiftbed.analysis.association import kendall, pearson

values = st.lists(st.integers(-5, 5), min_size=4, max_size=30)


@given(values, st.integers(0, 1000))
def test_equal_to_scipy(a, seed):
    b = np.random.default_rng(seed).integers(-3, 4, len(a)) + np.array(a) // 2
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        assert np.isnan(pearson(a, b)[0])
        assert np.isnan(kendall(a, b)[0])
        return
    assert kendall(a, b)[0] == pytest.approx(stats.kendalltau(a, b).statistic)
    r, low, high, n = pearson(a, b, 0.9)
    reference = stats.pearsonr(a, b)
    assert r == pytest.approx(reference.statistic)
    if n > 3 and abs(r) < 1 - 1e-12:
        assert (low, high) == pytest.approx(tuple(reference.confidence_interval(0.9)))


def test_missing_pairs_are_left_out():
    assert pearson([1, 2, 3, np.nan], [1, 2, 4, 5])[3] == 3
    assert kendall([1, np.nan, 3], [3, 2, 1]) == (-1.0, 2)
