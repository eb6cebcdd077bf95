"""Unsolved examples and shared difficulty, against loops, scipy and the printed figure."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from shiftbed.analysis.difficulty import difficulty, rank_agreement, unsolved
from shiftbed.errors import InputError


def test_2384_validation_images_are_right_for_none_of_67(predictions):
    file = np.load(predictions / "imagenetv2_67models_imagenet-validation-original.npz")
    right = file["top1"] == file["labels"]
    found = unsolved(right, file["labels"].astype(np.int64))
    assert int(found.unsolved.sum()) == 2384
    assert found.by_class[:, 0].sum() == 2384
    assert (found.by_class[:, 1] == 50).all()
    assert (difficulty(right) == 0).sum() == 2384


def test_unsolved_equals_a_loop():
    rng = np.random.default_rng(0)
    right = rng.random((6, 200)) < 0.2
    baseline = np.array([1, 1, 1, 1, 0, 0], dtype=bool)
    found = unsolved(right, rng.integers(0, 3, 200), baseline)
    for m in range(6):
        others = [k for k in range(6) if baseline[k] and k != m]
        nobody = ~right[others].any(axis=0)
        assert found.out_of[m] == nobody.sum()
        assert found.solved[m] == (nobody & right[m]).sum()
        assert found.low[m] <= found.share[m] <= found.high[m]


def test_nothing_is_unsolved():
    found = unsolved(np.ones((3, 4), bool), np.zeros(4, np.int64))
    assert not found.unsolved.any()
    assert np.isnan(found.share).all()
    assert found.out_of.tolist() == [0, 0, 0]


def test_without_labels_there_are_no_classes():
    assert unsolved(np.zeros((2, 3), bool)).by_class.shape == (0, 2)


def test_an_empty_baseline():
    with pytest.raises(InputError, match="no baseline model"):
        unsolved(np.ones((2, 3), bool), None, np.zeros(2, bool))


@pytest.mark.parametrize("seed", range(5))
def test_rank_agreement_is_scipys_spearman(seed):
    rng = np.random.default_rng(seed)
    hard = rng.random(300)
    first, second = (rng.random((m, 300)) < hard for m in (7, 4))
    found = rank_agreement(first, second)
    expected = spearmanr(difficulty(first), difficulty(second)).statistic
    assert found.spearman == pytest.approx(expected, abs=1e-12)
    assert found.low < found.spearman < found.high


def test_rank_agreement_is_undefined_with_a_reason():
    found = rank_agreement(np.ones((2, 5), bool), np.eye(5, dtype=bool)[:2])
    assert np.isnan(found.spearman)
    assert "equally hard" in found.note
    same = np.array([[1, 0, 1, 0, 1]], dtype=bool)
    found = rank_agreement(same, same)
    assert found.spearman == pytest.approx(1.0)
    assert "no interval" in found.note


@pytest.mark.parametrize("group", [np.ones((0, 3), bool), np.ones((1, 4), bool)])
def test_groups_that_cannot_be_compared(group):
    with pytest.raises(InputError, match="group"):
        rank_agreement(np.eye(3, dtype=bool), group)
