"""Covariances modelled from accuracies: closed forms, and real answers of another data set."""

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import multivariate_normal, norm

from shiftbed.analysis.baseline import fit_baseline
from shiftbed.analysis.intervals import beside
from shiftbed.analysis.modelled import CIFAR10, IMAGENET, Modelled, shared_probability
from shiftbed.analysis.robustness import effective_robustness
from tests.conftest import SHARED


@pytest.mark.parametrize(("a", "b", "r"), [(0.5, -1, 0.8), (1.5, 1.2, 0.9), (-2.5, 2, 0.3)])
def test_shared_probability_is_the_bivariate_normal(a, b, r):
    both = multivariate_normal.cdf([a, b], cov=[[1, r], [r, 1]])
    assert shared_probability(a, b, r) == pytest.approx(both - norm.cdf(a) * norm.cdf(b), abs=1e-9)


def test_the_table_gives_the_formula_and_a_covariance():
    rng = np.random.default_rng(0)
    p, n = rng.uniform(0.02, 0.98, 40), np.full(40, 1000.0)
    noise = Modelled.of(beside(p, p), beside(n, n))
    every = np.arange(40)
    matrix = noise.among(0, 0, every)
    z = ndtri(p)
    r = 0.90 - 0.26 * np.abs(z[:, None] - z)
    exact = shared_probability(z[:, None], z, r) / 1000
    np.fill_diagonal(exact, p * (1 - p) / 1000)
    assert matrix == pytest.approx(exact, abs=0.02 * exact.max())
    assert np.linalg.eigvalsh(matrix).min() > 0
    right = rng.normal(size=(12, 2))
    assert noise.times(0, 0, every[5:17], right) == pytest.approx(matrix[:, 5:17] @ right)
    assert noise.between(0, every[:5], every[3:8]) == pytest.approx(matrix[every[:5], every[3:8]])
    assert noise.own(0, 1) is None


def answers(name):
    folder = SHARED / "predictions"
    if name == "ImageNet":
        files = [
            folder / f"imagenetv2_67models_{one}.npz"
            for one in ("imagenet-validation-original", "imagenetv2-b-33")
        ]
        if not all(file.exists() for file in files):
            pytest.skip("needs the public predictions")
        both = [np.load(file) for file in files]
        return [one["top1"] == one["labels"] for one in both]
    file = folder / "cifar10_predictions_30models.npz"
    if not file.exists():
        pytest.skip("needs the public predictions")
    made = np.load(file)
    return [made[one] == made[f"labels_{one}"] for one in ("original", "v4")]


@pytest.mark.parametrize(("name", "errors"), [("ImageNet", CIFAR10), ("CIFAR-10", IMAGENET)])
def test_one_data_sets_numbers_cover_on_anothers_answers(name, errors):
    """Images of real test sets resampled: ρ is covered as stated, in narrower intervals."""
    right = [one.astype(np.float32) for one in answers(name)]
    x, y = (one.mean(axis=1, dtype=np.float64) for one in right)
    truth = y - fit_baseline(x, y, bootstrap=0).predict(x)
    n, m, rng = [one.shape[1] for one in right], len(x), np.random.default_rng(0)
    inside, widths = {"modelled": [], "independent": []}, {"modelled": [], "independent": []}
    for _ in range(25):
        a, b = (
            (one @ rng.multinomial(k, np.full(k, 1 / k)).astype(np.float32) / k).astype(float)
            for one, k in zip(right, n, strict=True)
        )
        line = fit_baseline(a, b, sizes=np.tile(n, (m, 1)), bootstrap=0)
        images = Modelled.of(beside(a, b), np.broadcast_to(np.array(n, float), (m, 2)), errors)
        for kind, covariance in (("modelled", images), ("independent", None)):
            placed = effective_robustness(
                line, a, b, n_id=n[0], n_ood=n[1], position=np.arange(m), covariance=covariance
            )
            assert set(placed.interval) == {kind}
            inside[kind].append(((placed.low <= truth) & (truth <= placed.high)).mean())
            widths[kind].append((placed.high - placed.low).mean())
    assert 0.93 < np.mean(inside["modelled"]) < 0.985
    assert np.mean(widths["modelled"]) < 0.78 * np.mean(widths["independent"])
