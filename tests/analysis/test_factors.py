"""Factor analysis of simulated studies with known factors, and of tables that lack something."""

import numpy as np
import pytest

from shiftbed.analysis.factors import Factors, _resampled_correlations, factor_analysis, squash_nll
from shiftbed.analysis.loadings import extract, match, rotate
from shiftbed.analysis.pairs import NetworkTable, PairTable, network_table, settings_table
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


def test_resampled_correlations_are_those_of_drawn_rows() -> None:
    """Weighted moments against the rows themselves, with whole models drawn."""
    units = np.arange(240) // 3
    found = _resampled_correlations(DATA, units, 4, 7)
    rng = np.random.default_rng([7, 240, 9, 4])
    for matrix in found:
        drawn = rng.integers(0, 80, 80)
        rows = np.concatenate([np.flatnonzero(units == unit) for unit in drawn])
        np.testing.assert_allclose(matrix, np.corrcoef(DATA[rows].T), atol=1e-10)


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
    naive = factor_analysis(table, factors=3, bootstrap=60, resample="network")
    together = factor_analysis(table, factors=3, bootstrap=60)
    single = factor_analysis(as_table(DATA), factors=3, bootstrap=60)
    width = [float((f.high - f.low).mean()) for f in (naive, together, single)]
    assert width[0] < 0.85 * width[1]
    assert width[1] == pytest.approx(width[2], rel=0.2)
    assert (together.units, naive.units) == (240, 480)
    assert (together.resampled, naive.resampled) == ("model", "network")
    with pytest.raises(InputError, match="nothing to resample"):
        factor_analysis(table, factors=3, resample="source")


def test_loadings_by_model_cover_and_by_network_do_not() -> None:
    """One factor; five networks of a model share 70 % of the variance of everything."""
    truth, inside = np.array([0.8, 0.7, 0.6, 0.5]), {"model": [], "network": []}
    rng = np.random.default_rng(3)

    def shared(columns: int) -> np.ndarray:
        model, own = rng.normal(size=(25, 1, columns)), rng.normal(size=(25, 5, columns))
        return (np.sqrt(0.7) * model + np.sqrt(0.3) * own).reshape(125, columns)

    for _ in range(60):
        values = shared(1) * truth + shared(4) * np.sqrt(1 - truth**2)
        table = NetworkTable(
            networks=tuple(f"n{i}" for i in range(125)),
            columns=tuple(f"id:m{j}" for j in range(4)),
            values=values,
            models=tuple(f"m{i // 5}" for i in range(125)),
            sources=tuple(f"s{i % 5}" for i in range(125)),
        )
        for unit, hits in inside.items():
            found = factor_analysis(
                table, factors=1, bootstrap=100, resample=unit, parallel_draws=1
            )
            ends = found.low[:, 0], found.high[:, 0]
            hits.append((ends[0] <= truth) & (truth <= ends[1]))
    assert np.mean(inside["model"]) >= 0.9
    assert np.mean(inside["network"]) < 0.85


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
    assert found.interval_note.startswith("percentiles over 5 resamples of the models")
