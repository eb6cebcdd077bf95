"""Rotations against statsmodels and brute force, and the fixing of signs and order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.multivariate.factor_rotation import rotate_factors

from shiftbed.analysis.rotation import (
    criterion,
    gamma_of,
    in_order,
    match,
    procrustes,
    rotate,
)
from shiftbed.errors import InputError


def some_loadings(seed: int, p: int = 10, k: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    simple = np.zeros((p, k))
    simple[np.arange(p), np.arange(p) % k] = rng.uniform(0.5, 0.9, p)
    return (simple + rng.normal(0, 0.1, (p, k))) @ np.linalg.qr(rng.standard_normal((k, k)))[0]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rotation", ["varimax", "quartimax", "equamax"])
@pytest.mark.parametrize("k", [2, 3, 4])
def test_rotations_agree_with_statsmodels(rotation: str, k: int, seed: int) -> None:
    loadings = some_loadings(seed, p=12, k=k)
    ours = in_order(rotate(loadings, rotation, kaiser=False)[0])
    kappa = gamma_of(rotation, k) / len(loadings)  # orthomax as Crawford and Ferguson write it
    theirs, _ = rotate_factors(
        loadings, "CF", kappa, "orthogonal", algorithm="gpa", max_tries=501, tol=1e-5
    )
    np.testing.assert_allclose(match(theirs, ours), ours, atol=1e-3)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["varimax", "quartimax", "equamax"]))
def test_no_orientation_is_better(seed: int, rotation: str) -> None:
    """In two dimensions every orientation can be tried."""
    rng = np.random.default_rng(seed)
    loadings = rng.uniform(-1, 1, (6, 2))
    gamma = gamma_of(rotation, 2)
    found = criterion(rotate(loadings, rotation, kaiser=False)[0], gamma)
    for angle in np.linspace(0, np.pi / 2, 181):
        c, s = np.cos(angle), np.sin(angle)
        assert criterion(loadings @ np.array([[c, -s], [s, c]]), gamma) <= found + 1e-9


@pytest.mark.parametrize("rotation", ["varimax", "quartimax", "equamax"])
@pytest.mark.parametrize("kaiser", [True, False])
def test_turning_is_orthogonal_and_ends_where_it_began(rotation: str, kaiser: bool) -> None:
    loadings = some_loadings(1, k=4)
    rotated, turn = rotate(loadings, rotation, kaiser=kaiser)
    np.testing.assert_allclose(turn.T @ turn, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(rotated @ rotated.T, loadings @ loadings.T, atol=1e-10)
    other = np.linalg.qr(np.random.default_rng(5).standard_normal((4, 4)))[0]
    again = rotate(loadings @ other, rotation, kaiser=kaiser)[0]
    np.testing.assert_allclose(in_order(again), in_order(rotated), atol=1e-6)


def test_kaiser_gives_rows_equal_weight() -> None:
    """Shrinking a row leaves the orientation alone with Kaiser's normalisation, not without."""
    loadings = some_loadings(2)
    shrunk = loadings * np.linspace(0.1, 1.0, len(loadings))[:, None]
    turn = rotate(loadings, "varimax", kaiser=True)[1]
    np.testing.assert_allclose(rotate(shrunk, "varimax", kaiser=True)[1], turn, atol=1e-6)
    assert not np.allclose(rotate(shrunk, "varimax", kaiser=False)[1], turn, atol=1e-3)


def test_no_rotation_and_one_factor_leave_loadings_alone() -> None:
    loadings = some_loadings(3)
    np.testing.assert_array_equal(rotate(loadings, "none")[0], loadings)
    np.testing.assert_array_equal(rotate(loadings[:, :1], "varimax")[0], loadings[:, :1])


def test_a_row_of_zeros_is_no_trouble() -> None:
    loadings = some_loadings(4)
    loadings[3] = 0.0
    assert np.isfinite(rotate(loadings, "varimax")[0]).all()
    np.testing.assert_array_equal(rotate(np.zeros((4, 2)), "equamax")[0], np.zeros((4, 2)))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000))
def test_order_and_signs_do_not_depend_on_what_they_were(seed: int) -> None:
    rng = np.random.default_rng(seed)
    loadings = rng.normal(0, 1, (7, 3))
    shuffled = loadings[:, rng.permutation(3)] * rng.choice([-1.0, 1.0], 3)
    np.testing.assert_allclose(in_order(shuffled), in_order(loadings))
    np.testing.assert_allclose(match(shuffled, loadings), loadings)
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    np.testing.assert_allclose((loadings @ turn) @ procrustes(loadings @ turn, loadings), loadings)


def test_an_unknown_rotation_is_named() -> None:
    with pytest.raises(InputError, match="did you mean 'varimax'"):
        rotate(some_loadings(0), "varmax")
    with pytest.raises(InputError, match="unknown rotation"):
        gamma_of("none", 3)
