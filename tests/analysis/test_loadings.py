"""Extraction and rotation against factor_analyzer and statsmodels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.multivariate.factor import Factor
from statsmodels.multivariate.factor_rotation import rotate_factors

from shiftbed.analysis.factors import factor_analysis
from shiftbed.analysis.loadings import (
    correlation,
    criterion,
    eigenvalues,
    extract,
    gamma_of,
    in_order,
    match,
    parallel_analysis,
    procrustes,
    rotate,
)
from shiftbed.errors import InputError
from tests.analysis.test_factors import DATA, PATTERN, as_table, simulate

# What factor_analyzer 0.5.1 gives for DATA (scikit-learn 1.7.2, numpy 2.4.6, scipy 1.17.1), with
# n_factors=3, methods minres and principal, tolerance 1e-10. Its rotations other than varimax know
# no Kaiser normalisation, and its equamax is one only with rotation_kwargs={"kappa": k / (2 * p)}.
EIGENVALUES = [2.70602, 2.21292, 1.44145, 0.58156, 0.57014, 0.43497, 0.39933, 0.36166, 0.29194]
REFERENCE = {
    ("minimum-residual", "none", True): """
        0.8275 -0.2406 0.0995
        0.7876 -0.1981 -0.0081
        0.6207 -0.2247 0.0331
        0.7109 0.1178 -0.0256
        0.1652 0.6374 -0.3945
        0.2078 0.6051 -0.3901
        0.1894 0.6050 -0.0817
        0.0501 0.4669 0.5020
        0.0853 0.4904 0.6837
    """,
    ("minimum-residual", "varimax", True): """
        0.8652 -0.0614 0.0158
        0.8101 0.0217 -0.0551
        0.6565 -0.0598 -0.0468
        0.6618 0.2707 0.0934
        -0.0105 0.7673 0.0204
        0.0385 0.7482 0.0099
        0.0397 0.5788 0.2683
        -0.0279 0.1222 0.6758
        0.0121 0.0520 0.8441
    """,
    ("minimum-residual", "varimax", False): """
        0.8654 -0.0574 0.0168
        0.8101 0.0267 -0.0527
        0.6569 -0.0558 -0.0462
        0.6602 0.2723 0.0998
        -0.0143 0.7667 0.0340
        0.0348 0.7481 0.0233
        0.0362 0.5742 0.2786
        -0.0300 0.1101 0.6778
        0.0099 0.0371 0.8449
    """,
    ("minimum-residual", "quartimax", False): """
        0.8651 -0.0624 0.0173
        0.8102 0.0214 -0.0530
        0.6566 -0.0601 -0.0458
        0.6618 0.2692 0.0974
        -0.0098 0.7671 0.0273
        0.0392 0.7481 0.0168
        0.0396 0.5763 0.2736
        -0.0293 0.1161 0.6768
        0.0102 0.0443 0.8445
    """,
    ("minimum-residual", "equamax", False): """
        0.8656 -0.0548 0.0166
        0.8100 0.0294 -0.0526
        0.6571 -0.0535 -0.0465
        0.6594 0.2739 0.1009
        -0.0167 0.7665 0.0372
        0.0325 0.7481 0.0264
        0.0344 0.5731 0.2810
        -0.0304 0.1072 0.6783
        0.0097 0.0336 0.8450
    """,
    ("components", "none", True): """
        0.8295 -0.2871 0.1053
        0.8225 -0.2525 -0.0061
        0.7109 -0.3080 0.0541
        0.8019 0.0882 -0.0191
        0.2124 0.6926 -0.4453
        0.2599 0.6662 -0.4519
        0.2523 0.7242 -0.0904
        0.0769 0.5313 0.6887
        0.1037 0.4836 0.7363
    """,
    ("components", "varimax", True): """
        0.8815 -0.0651 0.0179
        0.8580 0.0184 -0.0604
        0.7702 -0.0877 -0.0471
        0.7436 0.2973 0.0999
        -0.0159 0.8501 -0.0100
        0.0365 0.8448 -0.0249
        0.0364 0.7048 0.3135
        -0.0286 0.1011 0.8669
        0.0133 0.0449 0.8857
    """,
    ("components", "quartimax", False): """
        0.8814 -0.0673 0.0166
        0.8580 0.0173 -0.0607
        0.7700 -0.0888 -0.0487
        0.7443 0.2944 0.1032
        -0.0141 0.8502 0.0008
        0.0383 0.8450 -0.0142
        0.0382 0.7006 0.3224
        -0.0278 0.0901 0.8681
        0.0139 0.0336 0.8862
    """,
    ("components", "equamax", False): """
        0.8817 -0.0623 0.0158
        0.8579 0.0229 -0.0606
        0.7705 -0.0838 -0.0497
        0.7426 0.2976 0.1061
        -0.0190 0.8501 0.0094
        0.0334 0.8453 -0.0056
        0.0342 0.6975 0.3295
        -0.0282 0.0811 0.8690
        0.0139 0.0247 0.8865
    """,
}


def reference(text: str) -> np.ndarray:
    return np.array(
        [[float(word) for word in line.split()] for line in text.split("\n") if line.strip()]
    )


@pytest.mark.parametrize(("extraction", "rotation", "kaiser"), REFERENCE)
def test_loadings_agree_with_factor_analyzer(extraction: str, rotation: str, kaiser: bool) -> None:
    theirs = reference(REFERENCE[extraction, rotation, kaiser])
    ours = factor_analysis(
        as_table(DATA),
        factors=3,
        extraction=extraction,
        rotation=rotation,
        kaiser=kaiser,
        bootstrap=0,
    )
    np.testing.assert_allclose(match(theirs, ours.loadings), ours.loadings, atol=1e-3)
    np.testing.assert_allclose(ours.eigenvalues, EIGENVALUES, atol=1e-4)


def test_what_factor_analyzer_calls_equamax_is_a_quartimax() -> None:
    """Its Crawford–Ferguson κ is 0 unless given; the true equamax is elsewhere."""
    quartimax = reference(REFERENCE["minimum-residual", "quartimax", False])
    equamax = reference(REFERENCE["minimum-residual", "equamax", False])
    assert np.abs(quartimax - equamax).max() > 0.005


def test_principal_axis_agrees_with_statsmodels() -> None:
    theirs = Factor(DATA, n_factor=3, method="pa", smc=True).fit(maxiter=500, tol=1e-10)
    ours = extract(correlation(DATA), 3, "principal-axis")
    np.testing.assert_allclose(match(theirs.loadings, ours.loadings), ours.loadings, atol=1e-3)
    np.testing.assert_allclose(theirs.uniqueness, ours.uniqueness, atol=1e-3)
    assert ours.converged


def test_varimax_of_principal_axis_agrees_with_statsmodels() -> None:
    theirs = Factor(DATA, n_factor=3, method="pa", smc=True).fit(maxiter=500, tol=1e-10)
    theirs.rotate("varimax")
    ours = factor_analysis(
        as_table(DATA),
        factors=3,
        extraction="principal-axis",
        rotation="varimax",
        kaiser=False,
        bootstrap=0,
    )
    np.testing.assert_allclose(match(theirs.loadings, ours.loadings), ours.loadings, atol=1e-3)


def test_minimum_residual_is_where_principal_axis_ends() -> None:
    for seed in range(3):
        matrix = correlation(simulate(PATTERN, 150, seed))
        axis, least = extract(matrix, 3, "principal-axis"), extract(matrix, 3)
        np.testing.assert_allclose(axis.uniqueness, least.uniqueness, atol=1e-4)


@pytest.mark.parametrize("extraction", ["principal-axis", "minimum-residual"])
def test_exact_factors_are_recovered(extraction: str) -> None:
    matrix = PATTERN @ PATTERN.T
    np.fill_diagonal(matrix, 1.0)
    found = extract(matrix, 3, extraction)
    np.testing.assert_allclose(found.loadings @ found.loadings.T, PATTERN @ PATTERN.T, atol=1e-4)
    assert not found.heywood.any()


def test_chance_eigenvalues_are_those_of_drawn_tables() -> None:
    """The Wishart short cut against drawing every row."""
    rng = np.random.default_rng(3)
    drawn = [eigenvalues(correlation(rng.standard_normal((60, 6)))) for _ in range(4000)]
    short = parallel_analysis(60, 6, draws=4000)
    np.testing.assert_allclose(short, np.quantile(drawn, 0.95, axis=0), atol=0.015)


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
