"""Patterns of scatters with a known shape, the margin, and the checks of a line."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import linregress, spearmanr
from statsmodels.api import OLS, add_constant

from shiftbed.analysis.patterns import PATTERNS, Pattern, Rules, classify
from shiftbed.analysis.trust import Trust, trust_line
from shiftbed.errors import InputError

CLASSES = 10


def scatter(pattern: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A study of n networks, its parameters drawn at random, of a shape that is clear by design.

    Population values keep clear of the thresholds: rank correlations of lines ≥ 0.7 (threshold
    0.5) and of clouds ≤ 0.25 in size, kept accuracy of horizontal ones ≤ 0.13 (0.2), steepness of
    vertical ones ≤ 0.15 (0.25).
    """
    noise = rng.standard_normal(n)
    if pattern in ("increasing", "decreasing"):
        x = expit(rng.uniform(0.0, 2.0) + rng.uniform(0.5, 1.0) * rng.standard_normal(n))
        sign = 1.0 if pattern == "increasing" else -1.0
        slope = sign * rng.uniform(0.6, 1.2)
        z = slope * (logit(x) - np.mean(logit(x))) + rng.uniform(-0.5, 1.0)
        return x, expit(z + noise * rng.uniform(0.1, 0.8) * z.std())
    if pattern == "vertical":
        width = rng.uniform(0.05, 0.15)
        x = np.clip(rng.uniform(0.96, 0.99) + width * 0.02 * rng.standard_normal(n), 0.0, 1.0)
        return x, np.clip(rng.uniform(0.5, 0.8) + rng.uniform(0.05, 0.1) * noise, 0.0, 1.0)
    if pattern == "horizontal":
        x = rng.uniform(0.5, rng.uniform(0.8, 0.95), n)
        return x, np.clip(1 / CLASSES + rng.uniform(0.005, 0.03) * np.abs(noise), 0.0, 1.0)
    x = np.clip(0.7 + 0.08 * rng.standard_normal(n), 0.0, 1.0)
    r = rng.uniform(-0.2, 0.25)
    mixed = r * (x - 0.7) / 0.08 + np.sqrt(1 - r**2) * noise
    return x, np.clip(0.5 + rng.uniform(0.05, 0.12) * mixed, 0.0, 1.0)


@pytest.mark.parametrize("pattern", [p for p in PATTERNS if p != "undecided"])
def test_simulated_shapes_are_told_apart(pattern: str) -> None:
    rng = np.random.default_rng(PATTERNS.index(pattern))
    found = [
        classify(*scatter(pattern, 100, rng), chance=1 / CLASSES, bootstrap=0).pattern
        for _ in range(400)
    ]
    assert np.mean([one == pattern for one in found]) >= 0.95


def anything(rng: np.random.Generator) -> tuple[float, ...]:
    """Parameters of a population of any shape, near thresholds or not."""
    return (
        rng.uniform(0.4, 0.9),  # centre of x
        rng.choice([0.004, 0.02, 0.05]),  # spread of x
        rng.uniform(0.12, 0.8),  # centre of y
        rng.choice([0.004, 0.02, 0.05, 0.1]),  # spread of y
        rng.uniform(-0.95, 0.95),  # correlation
    )


def draw(of: tuple[float, ...], n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    a, b = rng.standard_normal((2, n))
    x = of[0] + of[1] * a
    y = of[2] + of[3] * (of[4] * a + np.sqrt(1 - of[4] ** 2) * b)
    return np.clip(x, 0.01, 0.99), np.clip(y, 0.01, 0.99)


def agreement(studies: int, n: int) -> tuple[float, int, float]:
    """How often a pattern with a margin of 2 or more is the population's; how many; all others."""
    rng = np.random.default_rng(8)
    clear, close = [], []
    for _ in range(studies):
        of = anything(rng)
        truth = classify(*draw(of, 20_000, rng), chance=0.1, bootstrap=0, scale="linear").pattern
        found = classify(*draw(of, n, rng), chance=0.1, bootstrap=60, scale="linear")
        (clear if found.margin >= 2 else close).append(found.pattern == truth)
    return float(np.mean(clear)), len(clear), float(np.mean(close))


def test_a_margin_of_two_standard_errors_can_be_relied_on() -> None:
    right, n, otherwise = agreement(200, 60)
    assert n > 60
    assert right >= 0.95
    assert otherwise < right


@pytest.mark.slow
def test_a_margin_of_two_standard_errors_can_be_relied_on_in_many_studies() -> None:
    right, n, _ = agreement(1500, 80)
    assert n > 500
    assert right >= 0.95


def line(n: int = 60, noise: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.uniform(0.0, 2.0, n)
    return expit(z), expit(0.9 * z - 0.5 + noise * rng.standard_normal(n))


def test_measures_are_those_of_scipy() -> None:
    x, y = line()
    found = classify(x, y, level=0.9)
    fit = linregress(logit(x), logit(y))
    assert found.measures.slope == pytest.approx(fit.slope)
    half = (found.measures.slope_high - found.measures.slope_low) / 2
    from scipy.stats import t

    assert half == pytest.approx(fit.stderr * t.ppf(0.95, 58))
    assert found.measures.rank == pytest.approx(spearmanr(x, y).statistic)
    assert found.measures.spread_id == pytest.approx(np.quantile(x, 0.9) - np.quantile(x, 0.1))
    assert found.rank_low < found.measures.rank < found.rank_high


def test_what_the_margin_says() -> None:
    """A rank correlation just over its threshold is near no clear trend; a clear one is far."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0.4, 0.9, 80)
    for noise, expected in ((0.02, 5.0), (0.2, 0.0)):
        y = np.clip(0.5 * x + 0.2 + noise * rng.standard_normal(80), 0, 1)
        found = classify(x, y)
        assert (found.margin > 3.0) == (expected > 3.0)
        assert 0.0 <= found.share <= 1.0
    tight = classify(x, 0.5 * x + 0.2 + 0.02 * rng.standard_normal(80))
    assert tight.share == 1.0
    assert tight.nearest != tight.pattern


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(10, 60))
def test_order_of_networks_and_missing_ones_change_nothing(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(0.1, 0.9, (2, n))
    one = classify(x, y, bootstrap=0)
    order = rng.permutation(n)
    two = classify(np.r_[x[order], np.nan, 0.5], np.r_[y[order], 0.4, np.nan], bootstrap=0)
    assert (one.pattern, two.left_out) == (two.pattern, 2)
    assert one.measures.rank == pytest.approx(two.measures.rank)


def test_image_noise_is_taken_out_of_spreads() -> None:
    """Networks that differ by image noise alone have no spread once sizes are known."""
    rng = np.random.default_rng(3)
    x = rng.binomial(400, 0.8, 2000) / 400
    y = rng.binomial(400, 0.5, 2000) / 400
    assert classify(x, y).measures.spread_ood > 0.05
    found = classify(x, y, sizes=(400, 400))
    assert found.measures.spread_ood < 0.025
    assert found.pattern == "no clear trend"


def test_chance_decides_what_no_transfer_is() -> None:
    x = np.linspace(0.6, 0.95, 50)
    y = 0.5 + 0.01 * np.cos(20 * x)
    assert classify(x, y, chance=0.5).pattern == "horizontal"
    flat = classify(x, y)
    assert flat.pattern == "no clear trend"
    assert "chance is unknown and taken as 0" in flat.notes
    below = classify(x - 0.2, y, chance=0.7)
    assert (below.pattern, below.nearest) == ("undecided", "")
    assert "no better than chance" in below.reason


class TestOddScatters:
    def test_few_networks(self) -> None:
        for n in (0, 1, 2, 9):
            found = classify(np.linspace(0.1, 0.9, n), np.linspace(0.1, 0.9, n))
            assert found.pattern == "undecided"
            assert f"{n} network" in found.reason

    def test_constant_columns(self) -> None:
        x, same = np.linspace(0.5, 0.9, 30), np.full(30, 0.6)
        flat = classify(x, same)
        assert (flat.pattern, flat.measures.rank) == ("no clear trend", 0.0)
        assert "all OOD accuracies are the same: no rank correlation" in flat.notes
        upright = classify(same, x)
        assert upright.pattern == "vertical"
        assert "all ID accuracies are the same: no rank correlation" in upright.notes
        alike = classify(same, same)
        assert alike.pattern == "no clear trend"
        assert "alike" in alike.reason

    def test_ties_and_boundaries(self) -> None:
        x = np.round(np.linspace(0.5, 1.0, 60), 1)
        y = np.round(0.8 * x, 1)
        found = classify(x, y)
        assert found.pattern == "increasing"
        assert found.measures.on_boundary == (x == 1.0).sum()
        assert any("at exactly 0 or 1 are not in the logit slope" in note for note in found.notes)
        ends = classify(np.tile([0.0, 1.0], 10), np.tile([0.0, 1.0], 10))
        assert np.isnan(ends.measures.slope)
        assert any(note.startswith("no logit slope") for note in ends.notes)
        assert classify(np.tile([0.0, 1.0], 10), np.tile([0.0, 1.0], 10), scale="linear").pattern

    def test_bad_input(self) -> None:
        with pytest.raises(InputError, match="percentage"):
            classify([50.0] * 20, [0.5] * 20)
        with pytest.raises(InputError, match="chance must be a fraction"):
            classify([0.5] * 20, [0.5] * 20, chance=10)
        with pytest.raises(InputError, match="ID accuracies must be a list"):
            classify(np.zeros((5, 2)), np.zeros(5))

    def test_rules_can_be_changed(self) -> None:
        x, y = line(noise=0.6)
        strict: Pattern = classify(x, y, rules=Rules(trend=0.95, strong=0.99))
        assert classify(x, y).pattern == "increasing"
        assert strict.pattern == "no clear trend"


def failed(found: Trust) -> list[str]:
    return [check.name for check in found.checks if check.passed is False]


class TestTrust:
    def test_a_good_line_passes_every_check(self) -> None:
        x, y = line()
        groups = ["a", "b", "c"] * 20
        found = trust_line(x, y, groups=groups, sizes=(50_000, 10_000), pattern="increasing")
        assert found.trusted
        assert found.reasons == ()
        assert all(check.passed for check in found.checks)
        assert found.n == 60

    def test_null_lines_rarely_fail(self) -> None:
        """Curvature and groups are tested at 1 %, and must matter as well."""
        bad = [
            not trust_line(*line(noise=0.2, seed=seed), groups=["a", "b"] * 30).trusted
            for seed in range(200)
        ]
        assert np.mean(bad) <= 0.03

    def test_noise_about_the_line(self) -> None:
        x, y = line(noise=2.0)
        assert "r2" in failed(trust_line(x, y))

    def test_curvature_is_that_of_statsmodels(self) -> None:
        x, y = line()
        curved = expit(logit(y) + 0.5 * (logit(x) - 1) ** 2)
        found = trust_line(x, curved)
        assert failed(found) == ["curvature"]
        z = logit(x)
        full = OLS(logit(curved), add_constant(np.column_stack([z, (z - z.mean()) ** 2]))).fit()
        plain = OLS(logit(curved), add_constant(z)).fit()
        check = next(c for c in found.checks if c.name == "curvature")
        assert check.value == pytest.approx(full.rsquared - plain.rsquared, abs=1e-9)
        assert f"{full.pvalues[2]:.2g}" in check.text

    def test_groups_on_lines_of_their_own(self) -> None:
        x, y = line()
        groups = np.array(["cnn", "vit"] * 30)
        apart = expit(logit(y) + 0.6 * (groups == "vit"))
        found = trust_line(x, apart, groups=groups.tolist())
        assert failed(found) == ["groups"]
        z, d = logit(x), (groups == "vit").astype(float)
        full = OLS(logit(apart), add_constant(np.column_stack([z, d, d * z]))).fit()
        plain = OLS(logit(apart), add_constant(z)).fit()
        check = next(c for c in found.checks if c.name == "groups")
        assert check.value == pytest.approx(full.rsquared - plain.rsquared, abs=1e-9)
        assert f"{full.compare_f_test(plain)[1]:.2g}" in check.text

    def test_one_model_far_away(self) -> None:
        rng = np.random.default_rng(0)
        x = np.r_[expit(0.1 * rng.standard_normal(20)), 0.95]
        y = np.r_[expit(0.1 * rng.standard_normal(20)), 0.9]
        found = trust_line(x, y, models=[f"m{i}" for i in range(20)] + ["far"])
        assert "leverage" in failed(found)
        assert any("far from all others on ID data: far" in reason for reason in found.reasons)
        hat = OLS(logit(y), add_constant(logit(x))).fit().get_influence()
        values = {c.name: c.value for c in found.checks}
        assert values["leverage"] == pytest.approx(hat.hat_matrix_diag.max())
        assert values["influence"] == pytest.approx(hat.cooks_distance[0].max())

    def test_few_models_small_range_noise_and_boundary(self) -> None:
        x, y = line(n=8)
        assert failed(trust_line(x, y)) == ["models"]
        near = 0.5 + 0.02 * np.linspace(0, 1, 30)
        assert "support" in failed(trust_line(near, near - 0.1))
        assert "reliability" in failed(trust_line(near, near - 0.1, sizes=(500, 500)))
        x, y = line()
        assert failed(trust_line(np.where(x > 0.8, 1.0, x), y)) == ["boundary"]
        assert "the scatter is vertical, not a line" in trust_line(x, y, pattern="vertical").reasons

    def test_no_line_at_all_has_a_reason(self) -> None:
        same = np.full(30, 0.5)
        found = trust_line(same, np.linspace(0.1, 0.9, 30))
        assert found.reasons == ("all 30 models have the same accuracy on 'id 1'",)
        assert not trust_line([0.5, 0.6], [0.4, 0.5]).trusted
        assert not trust_line([], []).trusted
        flat = trust_line(np.linspace(0.1, 0.9, 30), same)
        assert "all OOD accuracies are the same" in flat.reasons
        with pytest.raises(InputError, match="one per accuracy"):
            trust_line([0.5, 0.6], [0.4, 0.5], models=["a"])
