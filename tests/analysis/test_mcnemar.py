"""McNemar's exact test and Holm's rule against statsmodels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar as reference
from statsmodels.stats.multitest import multipletests

from shiftbed.analysis.intervals import benjamini_hochberg
from shiftbed.analysis.mcnemar import holm, mcnemar
from shiftbed.errors import InputError


@given(b=st.integers(0, 400), c=st.integers(0, 400))
def test_exact_p_value(b, c):
    found = float(mcnemar(b, c, 1000).p_value)
    expected = reference([[100, b], [c, 100]], exact=True).pvalue if b + c else 1.0
    assert found == pytest.approx(min(expected, 1.0), rel=1e-9, abs=1e-300)


def test_large_counts_have_tiny_but_finite_p_values():
    found = mcnemar([2000, 9000], [1000, 100], 50_000)
    assert 0 < found.p_value[0] < 1e-70
    assert 0 <= found.p_value[1] < 1e-300


def test_models_that_never_differ():
    found = mcnemar(0, 0, 10)
    assert float(found.p_value) == 1.0
    assert float(found.low) < 0 < float(found.high)


def test_interval_covers_the_difference():
    rng = np.random.default_rng(0)
    cells = rng.multinomial(300, [0.6, 0.12, 0.08, 0.2], size=2000)
    found = mcnemar(cells[:, 1], cells[:, 2], 300)
    covered = ((found.low <= 0.04) & (found.high >= 0.04)).mean()
    assert 0.935 < covered < 0.97


def test_null_rejections_stay_below_the_level():
    rng = np.random.default_rng(1)
    cells = rng.multinomial(500, [0.6, 0.1, 0.1, 0.2], size=4000)
    assert (mcnemar(cells[:, 1], cells[:, 2], 500).p_value <= 0.05).mean() <= 0.05


@pytest.mark.parametrize(("m", "seed"), [(1, 0), (2, 1), (7, 2), (30, 3)])
def test_holm_and_benjamini_hochberg(m, seed):
    p = np.random.default_rng(seed).random(m).round(2) ** 2  # with ties, 0 and 1
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1], abs=1e-12)
    assert benjamini_hochberg(p) == pytest.approx(multipletests(p, method="fdr_bh")[1], abs=1e-12)


def test_missing_p_values_stay_missing():
    found = holm([0.01, float("nan"), 0.02])
    assert np.isnan(found[1])
    assert found[[0, 2]].tolist() == [0.02, 0.02]


@pytest.mark.parametrize(("b", "c", "n"), [(-1, 2, 10), (6, 6, 10), (0, 0, 0)])
def test_impossible_counts(b, c, n):
    with pytest.raises(InputError, match="McNemar"):
        mcnemar(b, c, n)
