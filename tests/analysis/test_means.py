"""Means of groups: what they share with the line counts, and what models differ by counts once."""

import numpy as np
import pytest
from scipy.special import expit, stdtrit

from shiftbed.analysis.baseline import fit_baseline
from shiftbed.analysis.intervals import beside
from shiftbed.analysis.means import Errors, group_mean
from shiftbed.analysis.modelled import Modelled
from shiftbed.analysis.noise import joint_noise


def errors(matrix, rho, dof=20.0):
    return Errors(
        matrix=matrix, fit=np.zeros(matrix.shape), corrected=rho, dof=dof, interval="paired"
    )


def test_shared_error_does_not_average_out():
    rho = np.array([0.01, 0.02, 0.03, 0.04])
    found = group_mean(rho, errors(np.full((4, 4), 1e-4), rho))
    assert found.shared == pytest.approx(1e-4)
    assert found.spread == pytest.approx(rho.var(ddof=1) / 4)


def test_errors_of_single_models_are_not_counted_twice():
    """Models that differ by no more than their own errors: the mean errs by those alone."""
    rng, variance = np.random.default_rng(0), 1e-4
    totals = []
    for _ in range(2000):
        rho = rng.normal(0, 0.01, 10)
        found = group_mean(rho, errors(variance * np.eye(10), rho))
        totals.append(found.shared + found.spread)
    assert np.median(totals) == pytest.approx(variance / 10, rel=0.05)


def test_families_count_as_one():
    rho = np.array([0.0, 0.0, 0.03, 0.03])
    found = group_mean(rho, errors(np.zeros((4, 4)), rho), ["a", "a", "b", "b"])
    assert found.families == 2
    assert found.spread == pytest.approx(np.var([0.0, 0.03], ddof=1) / 2)
    assert found.high - found.mean == pytest.approx(stdtrit(1, 0.975) * np.sqrt(found.spread))


def test_one_model_has_no_mean_to_speak_of():
    found = group_mean(np.array([0.02]), errors(np.zeros((1, 1)), np.array([0.02])))
    assert (found.mean, found.n) == (0.02, 1)
    assert np.isnan([found.low, found.high, found.std]).all()


def test_means_against_a_line_of_few_models_cover():
    """The line's error is common to the group; its spread alone covers far too rarely."""
    rng, covered, naive, truth = np.random.default_rng(0), 0, 0, []
    for _ in range(400):
        x = rng.normal(1.0, 0.5, 35)
        y = 0.9 * x - 0.3 + rng.normal(0, 0.1, 35)
        a, b, n = expit(x), expit(y), np.full(35, 1e7)
        line = fit_baseline(a[:15], b[:15], bootstrap=0)
        images = Modelled.of(beside(a, b), beside(n, n))
        rows = np.arange(15, 35)
        noise = joint_noise(line.lines[0], line.scale, a[:, None], b, rows, np.arange(15), images)
        rho = b[rows] - line.predict(a[rows])
        fit = noise.reach @ noise.fit_covariance @ noise.reach.T
        made = Errors(
            matrix=noise.matrix(images, rows), fit=fit, corrected=rho, dof=13, interval="modelled"
        )
        found = group_mean(rho, made)
        truth = float((b[rows] - expit(0.9 * x[rows] - 0.3)).mean())  # of these models
        expected = 0.0
        covered += found.low <= expected <= found.high
        half = stdtrit(19, 0.975) * rho.std(ddof=1) / np.sqrt(20)
        naive += abs(rho.mean() - expected) <= half
        assert abs(truth) < 0.05
    assert 0.92 < covered / 400 < 0.985
    assert naive / 400 < 0.88
