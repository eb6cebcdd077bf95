"""Charts of similarity hold the numbers that were computed, in the order they claim."""

import numpy as np
import polars as pl
import pytest

from shiftbed.analysis.joint_counts import triplets
from shiftbed.analysis.similarity import similarity
from shiftbed.results.charts.similarity import (
    dominance_against_difference,
    dominance_map,
    estimates_chart,
    made_chart,
    triplet_chart,
)


@pytest.fixture(scope="module")
def right() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.random((5, 300)) < np.array([0.9, 0.3, 0.7, 0.5, 0.6])[:, None]


def test_the_map_is_sorted_by_accuracy(right):
    found = similarity(right)
    chart = dominance_map("abcde", found)
    assert chart.rows == chart.columns == ("b", "d", "e", "c", "a")
    assert np.isnan(np.diag(chart.values)).all()
    assert chart.values[0, 4] == found.dominance[1, 0]


def test_dominance_against_difference(right):
    found = similarity(right)
    chart = dominance_against_difference("abcde", found)
    assert len(chart.names) == 20
    assert chart.groups.count("measured") == 10
    first = chart.names.index("a and b")
    assert chart.x[first] == pytest.approx(100 * abs(found.accuracy[0] - found.accuracy[1]))
    assert chart.y[first] == found.dominance[0, 1]
    assert chart.y[first + 10] == found.independent_dominance[0, 1]


def test_many_pairs_are_sampled_and_it_says_so():
    right = np.random.default_rng(0).random((80, 50)) < 0.5
    chart = dominance_against_difference([f"m{i}" for i in range(80)], similarity(right))
    assert len(chart.names) == 5000
    assert any("drawn at random" in note for note in chart.notes)


def test_triplets_with_their_cone(right):
    found = triplets(right, right[:, ::2], factor=1.5)
    chart = triplet_chart(found, "id", "ood")
    assert [line.slope for line in chart.lines] == pytest.approx([1, 1.5, 1 / 1.5])
    assert len(chart.x) == len(found.sample_id)
    assert "could not be checked" in " ".join(chart.notes)


@pytest.mark.parametrize("judged", [True, False])
def test_estimates(judged):
    frame = pl.DataFrame(
        {
            "model": ["a", "a", "b"],
            "method": ["ALine-S", "ID", "ALine-S"],
            "id_accuracy": [0.8, 0.8, 0.7],
            "estimate": [0.6, 0.8, None],
            "low": [0.5, None, None],
            "high": [0.7, None, None],
            "truth": [0.62, 0.62, 0.5] if judged else pl.Series([None] * 3, dtype=pl.Float64),
        }
    )
    chart = estimates_chart(frame, "id", "ood")
    assert chart.names == ("a", "a")
    assert chart.x.tolist() == pytest.approx([62, 62] if judged else [80, 80])
    assert ("measured" in chart.x_title) is judged


def test_made_classifiers():
    frame = pl.DataFrame(
        {
            "classifier": ["x"],
            "id_accuracy": [0.5],
            "effective": [0.01],
            "low": [0.0],
            "high": [0.02],
            "n_id": [10],
            "n_ood": [20],
        }
    )
    chart = made_chart(frame, "id", "ood")
    assert (chart.x[0], chart.y[0], chart.y_high[0]) == (50, 1, 2)
