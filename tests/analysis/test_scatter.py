"""Baseline models' scatter as it is: tails, and how often a null model is called out of line."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import kruskal, skewtest, spearmanr
from scipy.stats import t as student

from shiftbed.analysis.baseline import fit_baseline
from shiftbed.analysis.intervals import benjamini_hochberg
from shiftbed.analysis.residuals import bend, hidden_outliers, skewness, spread_trend
from shiftbed.analysis.robustness import effective_robustness
from shiftbed.analysis.scatter import NORMAL, fit_tails, tail_p, tail_quantile
from shiftbed.analysis.trust import trust_baseline


def test_tails_are_those_of_maximum_likelihood():
    sample = student.rvs(4, scale=0.7, size=300, random_state=1)
    found = fit_tails(sample)
    nu, _, scale = student.fit(sample, floc=0)
    assert found.nu in (3.5, 4.0, 5.0)
    assert abs(found.nu - nu) < 1.0
    assert found.width == pytest.approx(scale, rel=0.05)
    normal = np.random.default_rng(0).normal(size=300)
    assert fit_tails(normal) == NORMAL
    assert fit_tails(sample[:5]) == NORMAL


def test_p_values_and_quantiles_agree():
    heavy = fit_tails(student.rvs(3, size=200, random_state=0))
    dof = np.array([10.0, 76.0])
    for tails in (NORMAL, heavy):
        assert tail_p(tail_quantile(0.95, dof, tails), dof, tails) == pytest.approx(0.05)
    assert tail_p(np.array([4.0]), dof[:1], NORMAL) == pytest.approx(2 * student.sf(4.0, 10))


NULLS = {
    "normal": lambda rng, x: rng.normal(size=len(x)),
    "t3": lambda rng, x: rng.standard_t(3, len(x)) / np.sqrt(3),
    "t8": lambda rng, x: rng.standard_t(8, len(x)) / np.sqrt(8 / 6),
    "skewed": lambda rng, x: (rng.chisquare(4, len(x)) - 4) / np.sqrt(8),
    "very skewed": lambda rng, x: np.exp(rng.normal(size=len(x))) - np.exp(0.5),
    "uneven": lambda rng, x: rng.normal(size=len(x)) * np.exp(x / 2),
}


@pytest.mark.parametrize("kind", NULLS)
def test_null_models_are_rarely_called_or_the_line_is_not_trusted(kind):
    """Over 88 null models, 78 of them fitted: any out of line at q ≤ 0.05 in at most a tenth."""
    rng, called, doubted, runs = np.random.default_rng(3), 0, 0, 150
    for _ in range(runs):
        x = rng.normal(0, 1, 88)
        y = 0.9 * x + 0.15 * NULLS[kind](rng, x)
        line = fit_baseline(expit(x[:78]), expit(y[:78]), bootstrap=0)
        position = np.r_[np.arange(78), np.full(10, -1)]
        placed = effective_robustness(line, expit(x), expit(y), n_id=0, n_ood=0, position=position)
        called += bool((benjamini_hochberg(placed.p_value) <= 0.05).any())
        doubted += not trust_baseline(line).trusted
    assert called / runs <= 0.12 or doubted / runs >= 0.9
    if kind == "normal":
        assert doubted / runs < 0.08


def test_findings_equal_those_of_scipy():
    rng = np.random.default_rng(0)
    x, r = rng.normal(size=(2, 60))
    assert skewness(r).p_value == pytest.approx(skewtest(r).pvalue)
    found = spearmanr(x, np.abs(r))
    assert (spread_trend(x, r).effect, spread_trend(x, r).p_value) == pytest.approx(
        (found.statistic, found.pvalue)
    )
    fifths = np.array_split(r[np.argsort(x)], 5)
    assert bend(x, r).p_value == pytest.approx(kruskal(*fifths).pvalue)


def test_a_tenth_of_models_cannot_hide():
    """Outliers at one end turn the line; a robust fit names them all, least squares does not."""
    rng, found, alone = np.random.default_rng(0), 0, 0
    for _ in range(40):
        x = np.sort(rng.normal(0, 1, 80))
        y = 0.9 * x + 0.1 * rng.normal(size=80)
        y[-8:] -= 0.8
        line = fit_baseline(expit(x), expit(y), bootstrap=0)
        position = np.arange(80)
        placed = effective_robustness(line, expit(x), expit(y), n_id=0, n_ood=0, position=position)
        alone += int((benjamini_hochberg(placed.p_value)[-8:] <= 0.05).sum())
        hidden = hidden_outliers(line.lines[0])
        found += int(hidden[72:].sum())
        check = next(c for c in trust_baseline(line).checks if c.name == "outliers")
        assert check.passed is False
        assert "may hide each other" in check.text
    assert found > 0.93 * 320
    assert alone < 0.5 * 320
