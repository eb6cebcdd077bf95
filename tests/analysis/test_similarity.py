"""Dominance, agreement and κ against loops, scikit-learn, statsmodels; the public answers."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import cohens_kappa

from shiftbed.analysis.similarity import mean_dominance, similarity
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
        ends = found.dominance_interval(), found.kappa_interval()
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
