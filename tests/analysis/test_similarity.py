"""Similarity of models, McNemar's test and shared difficulty against loops and other libraries."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.contingency_tables import mcnemar as reference
from statsmodels.stats.inter_rater import cohens_kappa
from statsmodels.stats.multitest import multipletests

from shiftbed.analysis.intervals import benjamini_hochberg, clopper_pearson
from shiftbed.analysis.similarity import (
    holm,
    mcnemar,
    mean_dominance,
    rank_agreement,
    similarity,
    unsolved,
)
from shiftbed.errors import InputError

VAL = "imagenetv2_67models_imagenet-validation-original.npz"


def drawn(m: int = 6, n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 5, n)
    skill = np.linspace(0.3, 0.9, m)[:, None]
    top1 = np.where(rng.random((m, n)) < skill, labels, rng.integers(0, 5, (m, n)))
    return top1 == labels, top1, labels


def dominance(a: np.ndarray, b: np.ndarray) -> float:
    low, high = (a, b) if a.mean() <= b.mean() else (b, a)
    return float((low & ~high).mean())


@given(seed=st.integers(0, 50), n=st.integers(1, 200))
def test_equal_to_a_naive_reference(seed, n):
    right, top1, _ = drawn(4, n, seed)
    found = similarity(right, top1)
    for i, j in itertools.permutations(range(4), 2):
        assert found.dominance[i, j] == pytest.approx(dominance(right[i], right[j]), abs=1e-15)
        assert found.agreement[i, j] == (top1[i] == top1[j]).mean()
        assert found.agreement_on_correctness[i, j] == (right[i] == right[j]).mean()
        if 0 < right[i].sum() < n or 0 < right[j].sum() < n:
            expected = cohen_kappa_score(right[i], right[j])
            assert found.kappa[i, j] == pytest.approx(expected, abs=1e-12)
    assert np.array_equal(found.dominance, found.dominance.T)
    assert not np.diag(found.dominance).any()


def test_standard_error_of_kappa_is_statsmodels():
    right, _, _ = drawn()
    found = similarity(right)
    low, high = found.kappa_interval(0.95)
    for i, j in [(0, 1), (0, 5), (4, 2)]:
        a, b = right[i].astype(int), right[j].astype(int)
        cells = np.zeros((2, 2))
        np.add.at(cells, (a, b), 1)
        reference = cohens_kappa(cells)
        assert found.kappa_error()[i, j] == pytest.approx(reference.std_kappa, rel=1e-9)
        assert low[i, j] == pytest.approx(reference.kappa_low, rel=1e-9)
        assert high[i, j] == pytest.approx(reference.kappa_upp, rel=1e-9)


def test_intervals_of_dominance_and_kappa_cover():
    """Two models with a known joint distribution, many samples."""
    rng = np.random.default_rng(3)
    cells = np.array([0.55, 0.10, 0.20, 0.15])  # both, first only, second only, neither
    p, q = cells[0] + cells[1], cells[0] + cells[2]
    expected = p * q + (1 - p) * (1 - q)
    kappa = (cells[0] + cells[3] - expected) / (1 - expected)
    covered = np.zeros(2)
    for _ in range(400):
        which = rng.choice(4, 500, p=cells)
        found = similarity(np.stack([which <= 1, (which == 0) | (which == 2)]))
        ends = clopper_pearson(found.dominance, found.n), found.kappa_interval()
        for k, (truth, (low, high)) in enumerate(zip((0.10, kappa), ends, strict=True)):
            covered[k] += low[0, 1] <= truth <= high[0, 1]
    assert (covered / 400 > 0.92).all()
    assert covered[1] / 400 < 0.98


def test_mean_dominance_is_the_mean_of_the_matrix():
    right, _, _ = drawn(7, 300)
    found = similarity(right)
    mean = mean_dominance(found, right)
    upper = np.triu_indices(7, 1)
    assert mean.value == pytest.approx(found.dominance[upper].mean(), rel=1e-12)
    assert mean.low < mean.value < mean.high
    assert (mean.pairs, mean.n) == (21, 300)
    assert mean.largest == found.dominance.max()


def test_independent_models_have_the_dominance_of_independent_models():
    rng = np.random.default_rng(0)
    right = rng.random((8, 40_000)) < np.linspace(0.4, 0.9, 8)[:, None]
    mean = mean_dominance(similarity(right), right)
    assert mean.ratio == pytest.approx(1.0, abs=0.01)


class TestEdges:
    def test_identical_models(self):
        right, top1, _ = drawn(2)
        found = similarity(np.stack([right[0]] * 2), np.stack([top1[0]] * 2))
        assert found.dominance[0, 1] == 0
        assert found.kappa[0, 1] == pytest.approx(1.0)
        assert found.agreement[0, 1] == 1
        assert np.isnan(found.kappa_interval()[0][0, 1])

    def test_models_that_are_always_right_or_wrong(self):
        some = np.array([True, False, True])
        right = np.stack([np.ones(3, bool), np.ones(3, bool), np.zeros(3, bool), some])
        kappa = similarity(right).kappa
        assert np.isnan(kappa[0, 1])
        assert np.isnan(kappa[2, 2])
        assert kappa[0, 2] == kappa[0, 3] == kappa[2, 3] == 0.0

    def test_one_model_has_a_matrix_but_no_mean(self):
        right = np.array([[True, False]])
        assert similarity(right).dominance.tolist() == [[0.0]]
        with pytest.raises(InputError, match="two models"):
            mean_dominance(similarity(right), right)

    def test_one_example(self):
        right = np.array([[True], [False]])
        mean = mean_dominance(similarity(right), right)
        assert mean.value == 0
        assert np.isnan(mean.low)

    @pytest.mark.parametrize("shape", [(0, 5), (5, 0)])
    def test_nothing(self, shape):
        with pytest.raises(InputError, match="there are"):
            similarity(np.ones(shape, dtype=bool))

    def test_shapes_that_differ(self):
        with pytest.raises(InputError, match="classes have shape"):
            similarity(np.ones((2, 3), bool), np.ones((2, 4), int))


class TestPublicPredictions:
    def test_67_models_on_validation(self, predictions):
        file = np.load(predictions / VAL)
        top1 = file["top1"]
        right = top1 == file["labels"]
        found = similarity(right, top1)
        for i, j in [(0, 1), (3, 66), (40, 12), (65, 5), (22, 23)]:
            assert found.dominance[i, j] == dominance(right[i], right[j])
            assert found.agreement[i, j] == (top1[i] == top1[j]).mean()
            kappa = cohen_kappa_score(right[i], right[j])
            assert found.kappa[i, j] == pytest.approx(kappa, abs=1e-12)
        wide = right.astype(np.float32)
        assert np.array_equal(found.both, (wide @ wide.T).astype(np.int64))

    def test_the_premise_of_the_linear_trend(self, predictions):
        """Low dominance: 4.2 % on average, 28 % of what independent errors would give."""
        file = np.load(predictions / VAL)
        right = file["top1"] == file["labels"]
        mean = mean_dominance(similarity(right), right)
        assert mean.pairs == 2211
        assert mean.value == pytest.approx(0.0422, abs=5e-5)
        assert mean.largest == pytest.approx(0.0909, abs=5e-5)
        assert mean.ratio == pytest.approx(0.282, abs=1e-3)
        assert mean.high - mean.low < 0.0013

    @pytest.mark.parametrize("setting", ["original", "v4", "v6"])
    def test_30_cifar_models_in_full(self, predictions, setting):
        file = np.load(predictions / "cifar10_predictions_30models.npz")
        top1 = file[setting]
        right = top1 == file[f"labels_{setting}"]
        found = similarity(right, top1)
        for i, j in itertools.combinations(range(30), 2):
            assert found.dominance[i, j] == dominance(right[i], right[j])
            assert found.agreement[i, j] == (top1[i] == top1[j]).mean()
        observed = (right[:, None] == right[None]).mean(axis=2)
        p = right.mean(axis=1)
        expected = np.outer(p, p) + np.outer(1 - p, 1 - p)
        assert found.kappa == pytest.approx((observed - expected) / (1 - expected), abs=1e-12)


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


def test_2384_validation_images_are_right_for_none_of_67(predictions):
    file = np.load(predictions / "imagenetv2_67models_imagenet-validation-original.npz")
    right = file["top1"] == file["labels"]
    found = unsolved(right, file["labels"].astype(np.int64))
    assert int(found.unsolved.sum()) == 2384
    assert found.by_class[:, 0].sum() == 2384
    assert (found.by_class[:, 1] == 50).all()
    assert (right.mean(axis=0) == 0).sum() == 2384


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
    expected = spearmanr(first.mean(axis=0), second.mean(axis=0)).statistic
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
