"""Averages and correlations of dependent units, against loops, closed forms and simulations."""

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from shiftbed.analysis.dependence import clustered_pearson, task_mean
from shiftbed.analysis.intervals import pearson
from shiftbed.errors import InputError


def test_every_task_counts_the_same_whatever_its_number_of_pairs():
    values = np.array([[0.1], [0.2], [0.3], [0.9], [0.5]])
    found = task_mean(values, ["a", "a", "a", "b", "c"])
    assert found.mean[0] == pytest.approx((0.2 + 0.9 + 0.5) / 3)
    assert (found.pairs[0], found.tasks[0], found.spread[0]) == (5, 3, 1)


def test_missing_values_are_left_out_and_counted():
    values = np.array([[0.1, np.nan], [0.3, np.nan], [np.nan, 0.7]])
    found = task_mean(values, ["a", "a", "b"])
    assert found.mean.tolist() == pytest.approx([0.2, 0.7])
    assert found.pairs.tolist() == [2, 1]
    assert found.tasks.tolist() == [1, 1]
    assert np.isfinite(found.low[0])
    assert np.isnan(found.low[1])  # nothing to resample


def test_nothing_at_all_is_nan_with_counts_of_zero():
    found = task_mean(np.full((2, 1), np.nan), ["a", "b"])
    assert np.isnan(found.mean[0])
    assert (found.pairs[0], found.tasks[0]) == (0, 0)


def test_equal_values_have_no_interval():
    found = task_mean(np.full((5, 1), 0.4), ["a"] * 5)
    assert found.mean[0] == pytest.approx(0.4)
    assert found.spread[0] == 0
    assert np.isnan(found.low[0])


def test_the_matrix_product_is_the_plain_bootstrap():
    """The same weights, done pair by pair, with a missing cell."""
    rng = np.random.default_rng(3)
    values = rng.normal(size=(9, 2))
    values[4, 1] = np.nan
    tasks = ["a"] * 5 + ["b"] * 4
    found = task_mean(values, tasks, bootstrap=500, seed=8)
    again = np.random.default_rng(8)
    drawn = np.zeros((500, 2))
    for rows in (np.arange(5), np.arange(5, 9)):
        weights = again.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), size=500)
        for draw in range(500):
            some = values[np.repeat(rows, weights[draw])]
            for j in range(2):
                units = int(np.isfinite(values[rows, j]).sum())
                mean = np.nanmean(values[rows, j])
                got = np.nanmean(some[:, j]) if np.isfinite(some[:, j]).any() else mean
                drawn[draw, j] += mean + (got - mean) * np.sqrt(units / (units - 1))
    ends = np.quantile(drawn / 2, [0.025, 0.975], axis=0)
    for j in range(2):
        columns = [values[:5, j], values[5:, j]]
        columns = [column[np.isfinite(column)] for column in columns]
        v = np.array([column.var(ddof=1) / len(column) for column in columns])
        dof = v.sum() ** 2 / (v**2 / [len(column) - 1 for column in columns]).sum()
        widened = student.ppf(0.975, dof) / norm.ppf(0.975)
        assert found.low[j] == pytest.approx(found.mean[j] + widened * (ends[0, j] - found.mean[j]))
        assert found.high[j] == pytest.approx(
            found.mean[j] + widened * (ends[1, j] - found.mean[j])
        )


def test_units_that_are_drawn_together_widen_the_interval():
    rng = np.random.default_rng(0)
    sets = rng.normal(size=12).repeat(5)
    values = (sets + 0.01 * rng.normal(size=60))[:, None]
    units = [str(i // 5) for i in range(60)]
    alone = task_mean(values, ["a"] * 60)
    together = task_mean(values, ["a"] * 60, units=units)
    assert together.mean[0] == pytest.approx(alone.mean[0])
    wide = (together.high - together.low)[0] / (alone.high - alone.low)[0]
    assert wide == pytest.approx(np.sqrt(5), rel=0.3)


def test_intervals_of_few_pairs_cover():
    rng = np.random.default_rng(1)
    tasks = [name for name in "abcd" for _ in range(6)]
    inside = 0
    for seed in range(300):
        values = rng.normal(0.3, 0.2, size=(24, 1))
        found = task_mean(values, tasks, bootstrap=400, seed=seed)
        inside += bool(found.low[0] <= 0.3 <= found.high[0])
    assert inside / 300 >= 0.92


@pytest.mark.parametrize("values", [np.zeros((2, 1)), np.zeros(3), np.zeros((0, 1))])
def test_wrong_shapes_are_refused(values):
    with pytest.raises(InputError, match="must be"):
        task_mean(values, ["a"] * 3)


def crossed(rng, ids, oods, *, shared=False, spread=(1.0, 1.0, 0.5)):
    """Values a_i + b_j + c_ij with mean 0, and the names of their ID and OOD sets."""
    a, b = spread[0] * rng.normal(size=ids), spread[1] * rng.normal(size=oods)
    cells = [(i, j) for i in range(ids) for j in range(oods) if not (shared and i == j)]
    values = np.array([[a[i] + b[j] + spread[2] * rng.normal()] for i, j in cells])
    return values, [f"d{i}" for i, _ in cells], [f"{'d' if shared else 'o'}{j}" for _, j in cells]


@pytest.mark.parametrize(("ids", "oods", "shared"), [(5, 4, False), (4, 4, True), (10, 3, False)])
def test_two_way_intervals_cover_where_those_of_pairs_do_not(ids, oods, shared):
    rng = np.random.default_rng(5)
    inside = {"two-way": 0, "pair": 0}
    for seed in range(300):
        parts = [crossed(rng, ids, oods, shared=shared) for _ in range(3)]
        values = np.concatenate([part[0] for part in parts])
        tasks = [str(t) for t, part in enumerate(parts) for _ in part[0]]
        names = [[n for part in parts for n in part[k]] for k in (1, 2)]
        for unit, some in (
            ("two-way", {"units": names[0], "crossed": names[1]}),
            ("pair", {}),
        ):
            found = task_mean(values, tasks, bootstrap=200, seed=seed, **some)
            inside[unit] += bool(found.low[0] <= 0 <= found.high[0])
    assert inside["two-way"] / 300 >= 0.92
    assert inside["pair"] / 300 < 0.88


def test_two_way_variance_is_that_of_the_analysis_of_variance():
    """Balanced: V(rows) + V(columns) − σ²/(IJ), the classical two-way random-effects estimate."""
    rng = np.random.default_rng(0)
    values, ids, oods = crossed(rng, 6, 5)
    table = values.reshape(6, 5)
    residual = table - table.mean(1, keepdims=True) - table.mean(0) + table.mean()
    parts = table.mean(1).var(ddof=1) / 6, table.mean(0).var(ddof=1) / 5
    variance = sum(parts) - (residual**2).sum() / 20 / 30
    moved = np.array(parts) * variance / sum(parts)
    dof = variance**2 / (moved**2 / [5, 4]).sum()
    found = task_mean(values, ["t"] * 30, units=ids, crossed=oods, bootstrap=20_000)
    half = student.ppf(0.975, dof) * np.sqrt(variance)
    assert (found.high - found.low)[0] / 2 == pytest.approx(half, rel=0.06)


def test_crossing_with_one_set_is_drawing_the_other_sets():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(8, 2))
    values[3, 1] = np.nan
    names = [str(i) for i in range(8)]
    plain = task_mean(values, ["t"] * 8)
    for sides in ((["only"] * 8, names), (names, ["only"] * 8)):
        found = task_mean(values, ["t"] * 8, units=sides[0], crossed=sides[1])
        assert np.array_equal(found.low, plain.low)


def test_missing_pairs_leave_the_other_quantities_alone():
    rng = np.random.default_rng(2)
    values, ids, oods = crossed(rng, 5, 4)
    both = np.column_stack([values[:, 0], np.where(np.arange(20) == 7, np.nan, values[:, 0])])
    found = task_mean(both, ["t"] * 20, units=ids, crossed=oods)
    alone = task_mean(values, ["t"] * 20, units=ids, crossed=oods)
    assert found.low[0] == pytest.approx(alone.low[0])
    assert found.pairs.tolist() == [20, 19]
    assert np.isfinite(found.low[1])


def test_pairs_that_share_nothing_are_independent():
    rng = np.random.default_rng(3)
    values = rng.normal(size=(40, 1))
    names = [[f"{side}{i}" for i in range(40)] for side in "io"]
    found = task_mean(values, ["t"] * 40, units=names[0], crossed=names[1], bootstrap=4000)
    plain = task_mean(values, ["t"] * 40, bootstrap=4000)
    assert (found.high - found.low)[0] == pytest.approx((plain.high - plain.low)[0], rel=0.08)


def test_correlations_over_checkpoints_cover_by_run_only():
    rng = np.random.default_rng(4)
    by_run = by_row = 0
    for _ in range(400):
        runs, steps = 12, 8
        level = rng.normal(size=(2, runs, 1))  # a run's own level, uncorrelated over runs
        x, y = (level + 0.3 * rng.normal(size=(2, runs, steps))).reshape(2, -1)
        units = np.arange(runs).repeat(steps).astype(str)
        _, low, high, n, count = clustered_pearson(x, y, units)
        by_run += low <= 0 <= high
        _, low, high, _ = pearson(x, y)
        by_row += low <= 0 <= high
    assert (n, count) == (96, 12)
    assert by_run / 400 >= 0.92
    assert by_row / 400 < 0.75


def test_units_of_one_row_are_fishers_interval_and_few_units_have_none():
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(2, 15))
    assert clustered_pearson(x, y, [str(i) for i in range(15)])[:4] == pearson(x, y)
    assert np.isnan(clustered_pearson(x, y, ["a", "b", "c"] * 5)[1])
    with pytest.raises(InputError, match="2 units for 15"):
        clustered_pearson(x, y, ["a", "b"])
