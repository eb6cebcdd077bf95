import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from shiftbed.analysis.taskmean import task_mean
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
