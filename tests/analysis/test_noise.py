"""Joint noise against brute force: resampling images for real."""

import numpy as np
import pytest

from shiftbed.analysis.baseline import fit_baseline
from shiftbed.analysis.noise import Paired, attenuation, image_covariance, joint_noise
from shiftbed.analysis.robustness import effective_robustness
from shiftbed.records import Bits


def answers(m=12, n_id=3000, n_ood=2000, seed=0):
    """Models with abilities on images with difficulties, so that models err together."""
    rng = np.random.default_rng(seed)
    ability = np.linspace(-1, 1.5, m)[:, None]
    right_id = ability + 1.0 > rng.normal(0, 1, n_id) + rng.normal(0, 0.6, (m, n_id))
    right_ood = ability + 0.4 > rng.normal(0, 1, n_ood) + rng.normal(0, 0.6, (m, n_ood))
    return right_id, right_ood


def test_covariance_is_that_of_resampled_images():
    right_id, right_ood = answers()
    rng = np.random.default_rng(1)
    draws = []
    for _ in range(4000):
        a = right_id[:, rng.integers(0, 3000, 3000)].mean(axis=1)
        b = right_ood[:, rng.integers(0, 2000, 2000)].mean(axis=1)
        draws.append(np.concatenate([a, b]))
    empirical = np.cov(np.array(draws).T)
    closed = image_covariance([right_id, right_ood], ["id", "ood"])
    scale = np.sqrt(np.outer(np.diag(closed), np.diag(closed)))
    assert np.abs(empirical - closed).max() / scale.max() < 0.1
    assert np.all(closed[:12, 12:] == 0)


def test_settings_of_the_same_images_are_correlated():
    right, _ = answers()
    both = image_covariance([right, right], ["same", "same"])
    apart = image_covariance([right, right], ["one", "other"])
    assert both[:12, 12:] == pytest.approx(both[:12, :12])
    assert np.all(apart[:12, 12:] == 0)


@pytest.mark.parametrize("same_images", [False, True], ids=["two test sets", "one test set"])
def test_standard_error_of_rho_equals_resampling(same_images):
    """The delta method's standard errors against refitting on 2,000 resamples of the images."""
    right_id, right_ood = answers()
    if same_images:
        rng = np.random.default_rng(5)
        right_ood = right_id & (rng.random(right_id.shape) < 0.9)  # harder, on the same images
    images = ["a", "a" if same_images else "b"]
    covariance = image_covariance([right_id, right_ood], images)
    x, y = right_id.mean(axis=1), right_ood.mean(axis=1)
    n_id, n_ood = right_id.shape[1], right_ood.shape[1]
    line = fit_baseline(x, y, bootstrap=0)
    images = Paired(covariance=covariance, models=12)
    every = np.arange(12)
    noise = joint_noise(line.lines[0], line.scale, x[:, None], y, every, every, images)
    rng, draws = np.random.default_rng(2), []
    for _ in range(2000):
        some = rng.integers(0, n_id, n_id)
        other = some if same_images else rng.integers(0, n_ood, n_ood)
        a, b = right_id[:, some].mean(axis=1), right_ood[:, other].mean(axis=1)
        draws.append(b - fit_baseline(a, b, bootstrap=0).predict(a))
    spread = np.sqrt(noise.var_id + noise.var_ood)
    assert spread == pytest.approx(np.std(draws, axis=0), rel=0.08)
    fit = noise.reach @ noise.fit_covariance @ noise.reach.T
    matrix = noise.matrix(images, every) - fit
    assert np.diag(matrix) == pytest.approx(noise.var_id + noise.var_ood)
    assert np.abs(matrix - np.cov(np.array(draws).T)).max() < 0.12 * np.diag(matrix).max()


def test_paired_intervals_are_narrower_than_independent_ones():
    right_id, right_ood = answers()
    x, y = right_id.mean(axis=1), right_ood.mean(axis=1)
    line = fit_baseline(x, y, bootstrap=0, sizes=np.array([[3000, 2000]] * 12))
    common = {"n_id": 3000, "n_ood": 2000, "position": np.arange(12)}
    covariance = image_covariance([right_id, right_ood], ["a", "b"])
    paired = effective_robustness(line, x, y, covariance=covariance, **common)
    alone = effective_robustness(line, x, y, **common)
    assert np.all(paired.high - paired.low < alone.high - alone.low)


def test_attenuation_recovers_the_slope():
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 1, 5000)
    x, y = truth + rng.normal(0, 0.5, 5000), 0.8 * truth + rng.normal(0, 0.1, 5000)
    from scipy.special import expit

    line = fit_baseline(expit(x), expit(y), bootstrap=0).lines[0]
    assert line.weights[0] == pytest.approx(0.8 / 1.25, abs=0.02)
    corrected, _ = attenuation(line, np.array([[5000 * 0.25]]), np.zeros(1))
    assert corrected[1] == pytest.approx(0.8, abs=0.02)
    assert corrected[0] == pytest.approx(0.0, abs=0.02)


def test_without_noise_nothing_changes():
    line = fit_baseline([0.5, 0.6, 0.7, 0.8], [0.4, 0.5, 0.62, 0.7], bootstrap=0).lines[0]
    corrected, jacobian = attenuation(line, np.zeros((1, 1)), np.zeros(1))
    assert corrected == pytest.approx(line.coefficients)
    assert jacobian == pytest.approx(np.eye(2))


def test_attenuation_never_takes_off_more_than_half():
    line = fit_baseline([0.5, 0.6, 0.7, 0.8], [0.4, 0.5, 0.62, 0.7], bootstrap=0).lines[0]
    corrected, _ = attenuation(line, np.array([[1e6]]), np.zeros(1))
    assert corrected[1] == pytest.approx(2 * line.weights[0])


def test_a_class_twin_shares_images_with_its_whole_set():
    """Half of a set's images under another policy, against resampling the whole set's images."""
    right, _ = answers(m=4)
    twin = right[:, ::2] | (np.random.default_rng(3).random((4, 1500)) < 0.1)
    ids = [("val", np.arange(3000)), ("val", np.arange(0, 3000, 2))]
    found = image_covariance([right, twin], ["whole", "twin"], ids)
    rng, draws = np.random.default_rng(1), []
    at = np.full(3000, -1)
    at[::2] = np.arange(1500)
    for _ in range(3000):
        some = rng.integers(0, 3000, 3000)
        inside = at[some][at[some] >= 0]
        draws.append(np.concatenate([right[:, some].mean(axis=1), twin[:, inside].mean(axis=1)]))
    empirical = np.cov(np.array(draws).T)
    assert np.abs(found - empirical).max() < 0.1 * np.diag(empirical).max()
    assert found[0, 4] > 0.6 * np.sqrt(found[0, 0] * found[4, 4])
    apart = image_covariance([right, twin], ["whole", "twin"])
    assert np.all(apart[:4, 4:] == 0)
    other = [ids[0], ("another", ids[1][1])]
    assert np.all(image_covariance([right, twin], ["whole", "twin"], other)[:4, 4:] == 0)


def test_images_are_looked_at_a_few_at_a_time(monkeypatch):
    """Whether as an array or in bits, and where only some images are shared."""
    right, other = answers(m=4, n_id=301, n_ood=100)
    some = np.arange(300, 100, -2)
    ids = [("pool", np.arange(301)), ("pool", some)]
    whole = image_covariance([right, right[:, some], other], ["a", "b", "c"], [*ids, None])
    monkeypatch.setattr("shiftbed.analysis.noise.AT_ONCE", 37)
    bits = [Bits.of(right), Bits.of(right[:, some]), Bits.of(other)]
    found = image_covariance(bits, ["a", "b", "c"], [*ids, None])
    np.testing.assert_allclose(found, whole, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found[:4, :4], np.cov(right, bias=True) / 300, atol=1e-12)
