import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import permutation_test, quantile_test, wilcoxon

from shiftbed.analysis.signedrank import median_interval, signed_rank
from shiftbed.errors import InputError


@pytest.mark.parametrize("alternative", ["less", "greater"])
@pytest.mark.parametrize("n", [4, 13, 36, 50])
def test_exact_p_values_equal_scipy(n, alternative):
    d = np.random.default_rng(n).normal(0.2, 1, n)
    theirs = wilcoxon(d, alternative=alternative, method="exact")
    found = signed_rank(d, alternative)
    assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert found.statistic == theirs.statistic
    assert found.method == "exact"


@pytest.mark.parametrize("alternative", ["less", "greater"])
def test_normal_p_values_with_ties_and_zeros_equal_scipy(alternative):
    d = np.round(np.random.default_rng(0).normal(0.1, 1, 200), 1)
    theirs = wilcoxon(d, alternative=alternative, method="asymptotic", correction=False)
    found = signed_rank(d, alternative)
    assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert found.zeros == (d == 0).sum() > 0
    assert found.method == "normal"


def test_exact_p_values_with_ties_equal_all_sign_flips():
    d = np.array([0.1, 0.1, -0.2, 0.3, 0.3, -0.3, 0.5, 0.1])

    def statistic(x, axis):
        ranks = np.array([2, 2, 4, 6, 6, 6, 8, 2.0])
        return (ranks * (x > 0)).sum(axis=axis)

    theirs = permutation_test(
        (d,), statistic, permutation_type="samples", alternative="greater", n_resamples=np.inf
    )
    assert signed_rank(d, "greater").p_value == pytest.approx(theirs.pvalue)


def test_36_unanimous_id_sets_give_the_smallest_p_value_of_wenzel2022():
    """Fig. 5 prints 8e-8 for corrupted error; no smaller one is possible with 36 ID sets."""
    found = signed_rank(-np.arange(1.0, 37.0), method="normal")
    assert f"{found.p_value:.0e}" == "8e-08"
    assert found.rank_biserial == -1.0


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=30))
def test_the_two_alternatives_mirror_each_other(values):
    d = np.array(values) / 7
    less, greater = signed_rank(d, "less"), signed_rank(-d, "greater")
    assert less.p_value == pytest.approx(greater.p_value)
    assert less.rank_biserial == pytest.approx(-greater.rank_biserial)
    assert 0 < less.p_value <= 1
    assert -1 <= less.rank_biserial <= 1


@pytest.mark.parametrize("n", [6, 15, 37, 200])
def test_the_interval_of_the_median_equals_scipy(n):
    x = np.random.default_rng(n).normal(size=n)
    theirs = quantile_test(x, q=0, p=0.5).confidence_interval(0.95)
    assert median_interval(x)[:2] == pytest.approx((theirs.low, theirs.high))


def test_null_differences_are_significant_at_the_nominal_rate():
    rng = np.random.default_rng(0)
    p = np.array([signed_rank(rng.standard_t(3, 36)).p_value for _ in range(1500)])
    for level in (0.01, 0.05, 0.2):
        rate = (p <= level).mean()
        assert abs(rate - level) < 4 * np.sqrt(level * (1 - level) / 1500)


class TestEdges:
    def test_few_differences_have_no_interval_but_a_reason(self):
        found = signed_rank([0.1, 0.2])
        assert np.isnan(found.low)
        assert "too few differences (2)" in found.note
        assert found.p_value == 1.0

    def test_zeros_only(self):
        found = signed_rank(np.zeros(8))
        assert (found.p_value, found.rank_biserial, found.zeros) == (1.0, 0.0, 8)
        assert "all differences are zero" in found.note

    def test_none_at_all(self):
        found = signed_rank([])
        assert found.n == 0
        assert found.note

    def test_bad_input(self):
        with pytest.raises(InputError, match="finite"):
            signed_rank([0.1, np.nan])
        with pytest.raises(InputError, match="less"):
            signed_rank([0.1], "two-sided")
