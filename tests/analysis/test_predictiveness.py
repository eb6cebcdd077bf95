"""Correlations of metrics and their averages over tasks, against scipy and loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import pearsonr, rankdata, spearmanr

from shiftbed.analysis.dependence import task_mean
from shiftbed.analysis.pairs import PairTable
from shiftbed.analysis.predictiveness import (
    REASONS,
    average_ranks,
    correlations,
    residual_name,
    why_undefined,
)
from shiftbed.errors import InputError

LEFT = residual_name("ood:error", "id:error")


def pair(values, metrics=("id:error", "id:ece", "ood:error"), task="t", source="a", **more):
    values = np.asarray(values, dtype=float)
    models = tuple(f"m{i}" for i in range(len(values)))
    named = {"task": task, "source": source, "target": "b", "models": models}
    return PairTable(**named, metrics=tuple(metrics), values=values, **more)


@given(
    arrays(np.float64, (3, 17), elements=st.integers(-4, 4).map(lambda i: i / 3.0)),
)
def test_ranks_equal_scipy_with_ties(values):
    assert np.array_equal(average_ranks(values), rankdata(values, axis=1))


@pytest.mark.parametrize("method", ["spearman", "pearson"])
@pytest.mark.parametrize("rounded", [1, 9])
def test_every_cell_equals_scipy(method, rounded):
    rng = np.random.default_rng(0)
    values = np.round(rng.random((40, 5)), rounded)
    values[:, 3] = np.round(values[:, 3] + values[:, 0], 9)
    names = ("id:error", "id:a", "corrupted:error", "ood:a", "ood:error")
    theirs = spearmanr if method == "spearman" else pearsonr
    found = correlations([pair(values, names)], method=method)
    for i, a in enumerate(names):
        for j, b in enumerate(names):
            expected = 1.0 if i == j else theirs(values[:, i], values[:, j]).statistic
            assert found.column(a, b)[0] == pytest.approx(expected, abs=1e-12)
    assert (found.n == 40).all()
    x, y = values[:, 0], values[:, 4]
    residual = y - np.polyval(np.polyfit(x, y, 1), x)
    expected = theirs(np.round(residual, 10), values[:, 1]).statistic
    assert found.column("id:a", LEFT)[0] == pytest.approx(expected, abs=2e-3)


def test_missing_cells_are_left_out_pairwise_and_ranked_among_the_rest():
    rng = np.random.default_rng(1)
    values = np.round(rng.random((30, 4)), 1)
    values[3, 0] = values[5:9, 1] = values[20:, 2] = np.nan
    names = ("id:error", "id:a", "ood:a", "ood:error")
    found = correlations([pair(values, names)], given=None)
    for i in range(4):
        for j in range(4):
            both = np.isfinite(values[:, i]) & np.isfinite(values[:, j])
            assert found.n[0, i, j] == both.sum()
            if i != j:
                expected = spearmanr(values[both, i], values[both, j]).statistic
                assert found.r[0, i, j] == pytest.approx(expected, abs=1e-12)
    assert np.array_equal(found.r[0], found.r[0].T)


def test_pairs_of_one_size_and_of_several_give_the_same():
    rng = np.random.default_rng(2)
    tables = [pair(rng.random((n, 3)), task=str(n)) for n in (12, 12, 20, 12)]
    together = correlations(tables)
    for i, one in enumerate(tables):
        assert np.allclose(together.r[i], correlations([one]).r[0])


class TestUndefined:
    """Never NaN without a reason."""

    def test_constant_columns(self):
        values = np.random.default_rng(0).random((10, 3))
        values[:, 1] = 0.1 + 0.2
        found = correlations([pair(values)])
        assert np.isnan(found.column("id:ece", "ood:error")[0])
        assert "the same for all networks in 1 of 1 pairs" in why_undefined(
            found, "id:ece", "ood:error"
        )
        assert np.isfinite(found.column("id:error", "ood:error")[0])
        assert why_undefined(found, "id:error", "ood:error") == ""

    def test_two_networks(self):
        found = correlations([pair(np.random.default_rng(0).random((2, 3)))])
        assert np.isnan(found.r).all()
        assert why_undefined(found, "id:error", "ood:error").startswith("fewer than 3 networks")

    def test_a_metric_of_another_pair(self):
        rng = np.random.default_rng(0)
        one = pair(rng.random((9, 3)))
        other = pair(rng.random((9, 2)), metrics=("id:error", "ood:error"))
        found = correlations([one, other])
        assert np.isfinite(found.column("id:ece", "ood:error")).tolist() == [True, False]
        assert why_undefined(found, "id:ece", "ood:error") == "not measured in 1 of 2 pairs"

    def test_nothing_left_after_the_adjustment(self):
        x = np.linspace(0.1, 0.4, 12)
        values = np.column_stack([x, np.random.default_rng(0).random(12), 0.1 + 1.7 * x])
        found = correlations([pair(values)])
        assert np.isnan(found.column("id:ece", LEFT)[0])
        assert "the same for all" in why_undefined(found, "id:ece", LEFT)

    def test_nothing_to_adjust_for(self):
        values = np.random.default_rng(0).random((12, 3))
        values[:, 0] = 0.25
        found = correlations([pair(values)])
        expected = spearmanr(values[:, 1], values[:, 2]).statistic
        assert found.column("id:ece", LEFT)[0] == pytest.approx(expected)

    def test_every_nan_has_a_reason_and_every_reason_a_nan(self):
        rng = np.random.default_rng(5)
        tables = []
        for i in range(20):
            values = np.round(rng.random((rng.integers(2, 9), 3)), 1)
            values[rng.random(values.shape) < 0.3] = np.nan
            tables.append(pair(values, source=str(i)))
        found = correlations(tables)
        assert np.array_equal(np.isnan(found.r), found.reason > 0)
        assert set(np.unique(found.reason)) <= set(range(len(REASONS)))

    def test_no_pair(self):
        with pytest.raises(InputError, match="at least one"):
            correlations([])

    def test_unknown_names(self):
        one = pair(np.random.default_rng(0).random((5, 3)))
        with pytest.raises(InputError, match="did you mean 'ood:error'"):
            correlations([one], target="ood:eror")
        with pytest.raises(InputError, match="spearman"):
            correlations([one], method="spearmann")


def spearman_of(r: float, n: float = np.inf) -> float:
    """Spearman's r of a normal pair: 6/π·asin(r/2), and its mean over samples of n (Moran 1948)."""
    limit = 6 / np.pi * np.arcsin(r / 2)
    if np.isinf(n):
        return float(limit)
    return float(6 / (np.pi * (n + 1)) * (np.arcsin(r) + (n - 2) * np.arcsin(r / 2)))


def study(rng, networks=216, per_task=8, tasks=4):
    """ID error X, a metric M and OOD error Y, jointly normal, with known correlations."""
    tables, truth = [], []
    for t in range(tasks):
        xm, xy, my = 0.5, 0.6 + 0.05 * t, 0.4 + 0.1 * t
        root = np.linalg.cholesky(np.array([[1, xm, xy], [xm, 1, my], [xy, my, 1]]))
        semi = (my - xm * xy) / np.sqrt(1 - xy**2)
        truth.append([xy, my, semi])
        for i in range(per_task + 4 * t):
            values = rng.standard_normal((networks, 3)) @ root.T
            tables.append(pair(values, task=str(t), source=str(i)))
    return tables, np.array(truth)


def test_a_simulated_study_is_recovered_within_its_intervals():
    rng = np.random.default_rng(10)
    inside, means = np.zeros(3), []
    for seed in range(150):
        tables, r = study(rng)
        found = correlations(tables)
        cells = [("id:error", "ood:error"), ("id:ece", "ood:error"), ("id:ece", LEFT)]
        columns = np.column_stack([found.column(a, b) for a, b in cells])
        mean = task_mean(columns, found.tasks, bootstrap=300, seed=seed)
        wanted = np.vectorize(spearman_of)(r, 216).mean(axis=0)
        inside += (mean.low <= wanted) & (wanted <= mean.high)
        means.append(mean.mean)
    assert (inside >= 135).all(), inside
    assert (mean.high - mean.low).max() < 0.08
    limit = np.vectorize(spearman_of)(r).mean(axis=0)
    assert np.abs(np.mean(means, axis=0) - limit).max() < 0.005


def test_a_metric_that_adds_nothing_has_no_adjusted_predictiveness():
    rng = np.random.default_rng(11)
    tables = []
    for i in range(40):
        x = rng.standard_normal(200)
        m, y = x + rng.standard_normal(200), x + rng.standard_normal(200)
        tables.append(pair(np.column_stack([x, m, y]), source=str(i)))
    found = correlations(tables)
    columns = np.column_stack([found.column("id:ece", b) for b in ("ood:error", LEFT)])
    mean = task_mean(columns, found.tasks)
    assert mean.mean[0] > 0.4
    assert mean.low[1] < 0 < mean.high[1]


def test_some_pairs_only():
    rng = np.random.default_rng(0)
    tables = [pair(rng.random((9, 3)), task=t, kind=k) for t, k in zip("aab", "xyx", strict=True)]
    found = correlations(tables)
    some = found.where(np.array([k == "x" for k in found.kinds]))
    assert some.tasks == ("a", "b")
    assert np.array_equal(some.r, found.r[[0, 2]])
