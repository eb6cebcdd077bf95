"""Uncertainty of a line by family, against refitting without each family, and in simulations."""

import numpy as np
import pytest
from scipy.special import expit, logit

from shiftbed.analysis.baseline import fit_baseline
from shiftbed.analysis.robustness import effective_robustness


def drawn(seed=0, families=25, correlation=0.6, sigma=0.1):
    """78 models in families of unequal size whose residuals correlate, and their families."""
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(families, 1.2))
    codes = np.concatenate([np.arange(families), rng.choice(families, 78 - families, p=share)])
    x = 1.0 + 0.5 * (0.7 * rng.normal(size=families)[codes] + 0.7 * rng.normal(size=78))
    common, own = rng.normal(size=families)[codes], rng.normal(size=78)
    y = 0.9 * x - 0.4 + sigma * (np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own)
    return expit(x), expit(y), [f"f{c}" for c in codes]


@pytest.mark.parametrize("weighted", [False, True])
def test_the_closed_form_is_leaving_each_family_out(weighted):
    x, y, families = drawn()
    weights = np.linspace(1, 3, len(x)) if weighted else None
    line = fit_baseline(x, y, families=families, weights=weights, bootstrap=0).lines[0]
    found = line.families
    assert found is not None
    assert found.n == 25
    total = np.zeros((2, 2))
    for i, name in enumerate(found.names):
        rest = np.array([family != name for family in families])
        some = None if weights is None else weights[rest]
        without = fit_baseline(x[rest], y[rest], weights=some, bootstrap=0).lines[0]
        change = line.coefficients - without.coefficients
        total += np.outer(change, change)
        assert found.pulls[i] == pytest.approx(change, abs=1e-12)
        inside = ~rest
        a = np.column_stack([np.ones(inside.sum()), logit(x[inside])])
        assert found.left_out[inside] == pytest.approx(
            logit(y[inside]) - a @ without.coefficients, abs=1e-10
        )
    assert line.covariance == pytest.approx(24 / 25 * total)
    assert line.covariance_dof == 24


def test_the_line_itself_does_not_change():
    x, y, families = drawn()
    alone, related = (fit_baseline(x, y, families=f, bootstrap=0) for f in (None, families))
    assert related.lines[0].coefficients == pytest.approx(alone.lines[0].coefficients)
    assert related.lines[0].independent_covariance == pytest.approx(alone.covariance)
    assert (alone.families, related.families) == (None, 25)


def test_families_of_one_are_independent_models():
    x, y, _ = drawn()
    single = fit_baseline(x, y, families=[str(i) for i in range(len(x))], bootstrap=0)
    unnamed = fit_baseline(x, y, families=[None] * len(x), bootstrap=0)
    for line in (single, unnamed):
        assert line.families == len(x)
        assert line.lines[0].families is None
        assert not line.flags


def test_few_families_are_flagged():
    x, y, _ = drawn()
    few = fit_baseline(x, y, families=[f"f{i % 6}" for i in range(len(x))], bootstrap=0)
    assert few.flags == ("only 6 families of models: intervals may be too narrow",)
    two = fit_baseline(x, y, families=[f"f{i % 2}" for i in range(len(x))], bootstrap=0)
    assert two.lines[0].families is None
    assert "too few to leave one out" in two.flags[0]


def test_members_are_judged_without_their_family():
    """Two models far off together hide each other unless both are left out."""
    x, y, families = drawn(correlation=0.0, sigma=0.05)
    x[:2], y[:2] = expit(np.array([3.5, 3.6])), expit(np.array([2.2, 2.3]))
    pair = ["pair", "pair", *families[2:]]
    common = {"n_id": 0, "n_ood": 0, "position": np.arange(len(x))}
    alone, together = (
        effective_robustness(fit_baseline(x, y, families=f, bootstrap=0), x, y, **common)
        for f in (None, pair)
    )
    line = fit_baseline(x[2:], y[2:], families=families[2:], bootstrap=0)
    expected = logit(y[0]) - (line.intercept + line.weights[0] * 3.5)
    ends = logit(
        together.predicted[0] + np.array([together.prediction_low[0], together.prediction_high[0]])
    )
    assert logit(y[0]) - ends.mean() == pytest.approx(expected, rel=1e-6)
    assert together.p_value[0] < alone.p_value[0]


def test_lines_cover_where_families_correlate():
    """The line's interval at a new x: by family it covers, as independent models it does not."""
    hit = {"family": 0, "independent": 0}
    for seed in range(400):
        x, y, families = drawn(seed)
        truth = expit(0.9 * 1.8 - 0.4)
        for name, given in (("family", families), ("independent", None)):
            line = fit_baseline(x, y, families=given, bootstrap=0)
            low, high = line.band([expit(1.8)], kind="analytic")
            hit[name] += bool(low[0] <= truth <= high[0])
    assert hit["family"] / 400 > 0.92
    assert hit["independent"] / 400 < 0.9


def test_a_new_familys_model_is_out_of_line_as_often_as_stated():
    rng, called = np.random.default_rng(1), 0
    for seed in range(500):
        x, y, families = drawn(seed, correlation=0.5)
        line = fit_baseline(x, y, families=families, bootstrap=0)
        new = rng.normal(1.0, 0.5)
        own = expit(0.9 * new - 0.4 + 0.1 * rng.normal())
        called += effective_robustness(line, [expit(new)], [own], n_id=0, n_ood=0).p_value[0] < 0.05
    assert 0.02 < called / 500 < 0.075
