"""Factor analysis against factor_analyzer, statsmodels and simulated studies with known factors."""

import numpy as np
import pytest
from statsmodels.multivariate.factor import Factor

from shiftbed.analysis.extraction import correlation, eigenvalues, extract, parallel_analysis
from shiftbed.analysis.factors import Factors, factor_analysis, squash_nll
from shiftbed.analysis.networks import NetworkTable, network_table, settings_table
from shiftbed.analysis.pairs import PairTable
from shiftbed.analysis.rotation import match, rotate
from shiftbed.errors import InputError

PATTERN = np.zeros((9, 3))
PATTERN[:4, 0] = 0.85, 0.8, 0.7, 0.6
PATTERN[3:7, 1] = 0.4, 0.8, 0.75, 0.6
PATTERN[6:, 2] = 0.3, 0.8, 0.7


def simulate(pattern: np.ndarray, n: int, seed: int) -> np.ndarray:
    """n rows of a factor model with orthogonal factors and these loadings."""
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((n, pattern.shape[1]))
    noise = rng.standard_normal((n, len(pattern)))
    return scores @ pattern.T + noise * np.sqrt(1 - (pattern**2).sum(axis=1))


def as_table(values: np.ndarray, columns: list[str] | None = None) -> NetworkTable:
    n, p = values.shape
    names = tuple(f"network {i}" for i in range(n))
    return NetworkTable(
        networks=names,
        columns=tuple(columns or [f"id:m{j}" for j in range(p)]),
        values=values,
        models=names,
        sources=tuple("ab"[i % 2] for i in range(n)),
    )


DATA = simulate(PATTERN, 240, 20220620)
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


def wenzel_like(n: int, seed: int) -> tuple[np.ndarray, NetworkTable]:
    """16 metrics with the four factors wenzel2022 describes: ID, OOD, calibration, disparity."""
    names, rows = [], []
    for where in ("id", "corrupted", "ood"):
        for metric in ("error", "nll", "ece", "disparity", "adversarial", "brier"):
            if where == "corrupted" and metric in ("adversarial", "brier"):
                continue
            row = np.zeros(4)
            row[{"ece": 2, "disparity": 3}.get(metric, 0)] = 0.75 if where != "ood" else 0.55
            if where == "ood":
                row[1] = 0.6
            names.append(f"{where}:{metric}")
            rows.append(row)
    pattern = np.array(rows)
    return pattern, as_table(simulate(pattern, n, seed), names)


@pytest.mark.parametrize("rotation", ["varimax", "quartimax", "equamax"])
def test_the_four_factors_of_a_simulated_study_are_found(rotation: str) -> None:
    pattern, table = wenzel_like(2000, 1)
    found = factor_analysis(table, rotation=rotation, bootstrap=0)
    assert found.k == found.by_eigenvalue == found.by_parallel == 4
    truth = population(pattern, rotation, kaiser=True)
    assert np.abs(match(found.loadings, truth) - truth).max() < 0.06
    calibration = [i for i, name in enumerate(found.columns) if name.endswith("ece")]
    own = np.abs(match(found.loadings, pattern))[:, 2]
    assert own[calibration].min() > 2 * np.delete(own, calibration).max()
    assert found.rmsr < 0.03


def test_parallel_analysis_finds_the_number_where_the_eigenvalue_rule_does_not() -> None:
    """Twenty columns of noise have eigenvalues over 1, and no factor."""
    noise = np.random.default_rng(0).standard_normal((100, 20))
    with pytest.raises(InputError, match="above chance"):
        factor_analysis(as_table(noise), choose_by="parallel", bootstrap=0)
    found = factor_analysis(as_table(noise), factors=1, bootstrap=0)
    assert found.by_eigenvalue > 5
    assert found.by_parallel == 0
    right = sum(
        factor_analysis(
            as_table(simulate(PATTERN, 200, seed)), factors=1, bootstrap=0, parallel_draws=100
        ).by_parallel
        == 3
        for seed in range(40)
    )
    assert right >= 38


def test_chance_eigenvalues_are_those_of_drawn_tables() -> None:
    """The Wishart short cut against drawing every row."""
    rng = np.random.default_rng(3)
    drawn = [eigenvalues(correlation(rng.standard_normal((60, 6)))) for _ in range(4000)]
    short = parallel_analysis(60, 6, draws=4000)
    np.testing.assert_allclose(short, np.quantile(drawn, 0.95, axis=0), atol=0.015)


def test_two_runs_agree_and_signs_and_order_are_fixed() -> None:
    one = factor_analysis(as_table(DATA), bootstrap=20)
    flipped = as_table(DATA[::-1].copy())
    two = factor_analysis(flipped, bootstrap=20)
    same = factor_analysis(as_table(DATA), bootstrap=20)
    np.testing.assert_array_equal(one.loadings, same.loadings)
    np.testing.assert_array_equal(one.low, same.low)
    np.testing.assert_allclose(one.loadings, two.loadings, atol=1e-4)
    assert (np.diff(one.variance) <= 0).all()
    assert (one.loadings.sum(axis=0) > 0).all()
    np.testing.assert_allclose(one.communality + one.uniqueness, 1.0)
    np.testing.assert_allclose(one.variance.sum() * 9, one.communality.sum())


def population(pattern: np.ndarray, rotation: str, kaiser: bool) -> np.ndarray:
    """The population's own rotated loadings: the pattern need not be at the rotation's maximum."""
    matrix = pattern @ pattern.T
    np.fill_diagonal(matrix, 1.0)
    found = extract(matrix, pattern.shape[1]).loadings
    return rotate(found, rotation, kaiser=kaiser)[0]


def coverage(studies: int, draws: int) -> float:
    inside = []
    for seed in range(studies):
        table = as_table(simulate(PATTERN, 200, 1000 + seed))
        found = factor_analysis(
            table, factors=3, rotation="varimax", kaiser=False, bootstrap=draws, seed=seed
        )
        truth = match(population(PATTERN, "varimax", kaiser=False), found.loadings)
        inside.append((found.low <= truth) & (truth <= found.high))
    return float(np.mean(inside))


def test_intervals_hold_the_loadings_they_should() -> None:
    assert 0.90 < coverage(12, 100) <= 1.0


@pytest.mark.slow
def test_intervals_hold_95_percent_of_the_loadings() -> None:
    assert 0.93 < coverage(100, 300) < 0.975


def test_rows_of_a_model_can_be_kept_together() -> None:
    """Every network twice: resampling networks claims too much, resampling models does not."""
    twice = np.repeat(DATA, 2, axis=0)
    names = tuple(f"m{i // 2}" for i in range(len(twice)))
    table = NetworkTable(
        networks=tuple(f"n{i}" for i in range(len(twice))),
        columns=tuple(f"id:m{j}" for j in range(9)),
        values=twice,
        models=names,
        sources=("a",) * len(twice),
    )
    naive = factor_analysis(table, factors=3, bootstrap=60)
    together = factor_analysis(table, factors=3, bootstrap=60, resample="model")
    single = factor_analysis(as_table(DATA), factors=3, bootstrap=60)
    width = [float((f.high - f.low).mean()) for f in (naive, together, single)]
    assert width[0] < 0.85 * width[1]
    assert width[1] == pytest.approx(width[2], rel=0.2)
    assert (together.units, naive.units) == (240, 480)
    with pytest.raises(InputError, match="nothing to resample"):
        factor_analysis(table, factors=3, resample="source")


def test_nll_is_squashed_before_anything_else() -> None:
    values = DATA.copy()
    values[:, 0] = np.exp(values[:, 0])
    values[3, 0] = 1e10
    names = ["ood:nll", *(f"id:m{j}" for j in range(8))]
    found = factor_analysis(as_table(values, names), factors=3, bootstrap=0)
    by_hand = values.copy()
    by_hand[:, 0] = squash_nll(values[:, 0])
    plain = factor_analysis(as_table(by_hand), factors=3, bootstrap=0)
    np.testing.assert_allclose(found.loadings, plain.loadings)


def test_heywood_cases_are_flagged() -> None:
    """A metric that is the factor itself, up to noise, and one that copies another."""
    rng = np.random.default_rng(4)
    factor = rng.standard_normal(60)
    values = np.column_stack([factor, *(0.5 * factor + rng.standard_normal(60) for _ in range(4))])
    found = factor_analysis(as_table(values), factors=1, bootstrap=0)
    assert found.heywood.tolist() == [True, False, False, False, False]
    copied = np.column_stack([DATA, 2 * DATA[:, 0]])
    found = factor_analysis(as_table(copied), factors=3, bootstrap=0)
    assert "id:m0 and id:m9 are the same up to scale" in found.warnings[0]
    assert np.isfinite(found.loadings).all()


class TestTablesThatLackSomething:
    def test_constant_and_missing_columns_are_dropped_with_a_reason(self) -> None:
        values = np.column_stack([DATA, np.full(240, 0.5), DATA[:, 0]])
        values[:150, 10] = np.nan
        values[5, 2] = np.nan
        values[6, 3] = np.inf
        found = factor_analysis(as_table(values), factors=3, bootstrap=10)
        assert dict(found.dropped) == {
            "id:m9": "the same in all networks",
            "id:m10": "missing in 62% of the networks",
        }
        assert (found.n, found.left_out, len(found.columns)) == (238, 2, 9)
        assert np.isfinite(found.loadings).all()

    def test_a_column_that_is_constant_where_all_others_are_known(self) -> None:
        values = DATA.copy()
        values[:100, 1] = np.nan
        values[100:, 0] = 3.0
        found = factor_analysis(as_table(values), factors=2, bootstrap=0)
        assert dict(found.dropped) == {"id:m0": "the same in all complete networks"}

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            (DATA[:2], "needs at least 11 networks, got 2"),
            (DATA[:, :2], "at least 3 metrics that vary, got 2"),
            (np.zeros((30, 4)), "got 0: none .dropped: id:m0: the same in all networks"),
            (np.full((30, 4), np.nan), "missing in 100% of the networks"),
        ],
    )
    def test_what_cannot_be_analysed_says_why(self, values: np.ndarray, message: str) -> None:
        with pytest.raises(InputError, match=message):
            factor_analysis(as_table(values))

    def test_numbers_of_factors_that_are_not_determined(self) -> None:
        with pytest.raises(InputError, match="9 metrics determine at most 5 factors, 6 asked for"):
            factor_analysis(as_table(DATA), factors=6)
        with pytest.raises(InputError, match="between 1 and 9, got 0"):
            factor_analysis(as_table(DATA), factors=0)
        every = factor_analysis(as_table(DATA), factors=9, extraction="components", bootstrap=0)
        np.testing.assert_allclose(every.communality, 1.0)

    def test_without_resampling_there_is_a_reason_for_no_interval(self) -> None:
        found = factor_analysis(as_table(DATA), bootstrap=0)
        assert np.isnan(found.low).all()
        assert found.interval_note == "no intervals: no resampling was asked for"

    def test_tied_values_are_no_trouble(self) -> None:
        found = factor_analysis(as_table(DATA.round()), factors=3, bootstrap=20)
        assert np.isfinite(found.low).all()

    def test_unknown_names(self) -> None:
        for option in ("extraction", "rotation", "choose_by", "resample"):
            with pytest.raises(InputError, match="unknown"):
                factor_analysis(as_table(DATA), **{option: "maximum"})  # type: ignore[arg-type]


def some_pairs() -> list[PairTable]:
    def one(source: str, target: str, shift: float) -> PairTable:
        return PairTable(
            task="t",
            source=source,
            target=target,
            models=("a", "b"),
            metrics=("id:error", "held-out:error", "ood:error"),
            values=np.array([[0.1, 0.0, shift], [0.2, 0.0, np.nan if shift > 0.4 else shift]]),
        )

    return [one("x", "y", 0.3), one("x", "z", 0.5), one("y", "x", 0.4)]


def test_ood_metrics_are_means_over_the_ood_sets_of_a_network() -> None:
    table = network_table(some_pairs())
    assert table.columns == ("id:error", "ood:error")
    assert table.sources == ("t: x", "t: x", "t: y", "t: y")
    np.testing.assert_allclose(table.values, [[0.1, 0.4], [0.2, 0.3], [0.1, 0.4], [0.2, 0.4]])


def test_settings_can_be_columns_of_their_own() -> None:
    table = settings_table(some_pairs(), ["ood:error"])
    assert table.columns == ("ood:error@y", "ood:error@z", "ood:error@x")
    np.testing.assert_allclose(table.values, [[0.3, 0.5, 0.4], [0.3, np.nan, 0.4]])
    with pytest.raises(InputError, match="unknown metric 'ood:eror'"):
        settings_table(some_pairs(), ["ood:eror"])


def test_a_record_knows_its_counts() -> None:
    found: Factors = factor_analysis(as_table(DATA), bootstrap=5)
    assert found.chosen_by == "eigenvalue"
    assert found.draws == 5
    assert found.interval_note.startswith("percentiles over 5 resamples of the networks")
