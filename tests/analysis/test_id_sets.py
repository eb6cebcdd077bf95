"""Choosing ID sets: leave-one-out by hand, ridge and VIF of other libraries, known answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from statsmodels.api import OLS, add_constant
from statsmodels.stats.outliers_influence import variance_inflation_factor

from shiftbed.analysis.baseline import fit_baseline
from shiftbed.analysis.id_sets import (
    IdSets,
    collinearity,
    examine,
    partial_residuals,
    press,
    ridge_path,
)
from shiftbed.errors import InputError


def choose_id_sets(x, y, penalties=None, **options) -> IdSets:
    return examine(fit_baseline(x, y, bootstrap=0, **options), penalties)


def study(
    seed: int = 0, n: int = 60, k: int = 4, weights: tuple[float, ...] = (0.6, 0.4)
) -> tuple[np.ndarray, np.ndarray]:
    """Models whose OOD accuracy depends on the first ID sets only."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0.5, 0.8, (n, k)) + 0.4 * rng.standard_normal((n, 1))
    y = z[:, : len(weights)] @ np.array(weights) - 0.3 + 0.1 * rng.standard_normal(n)
    return expit(z), expit(y)


def test_leave_one_out_errors_are_those_of_leaving_one_out() -> None:
    x, y = study(n=25)
    found = choose_id_sets(x, y, id_settings=list("abcd"))
    for subset in found.subsets:
        columns = ["abcd".index(name) for name in subset.id_settings]
        predicted = cross_val_predict(
            LinearRegression(), logit(x[:, columns]), logit(y), cv=LeaveOneOut()
        )
        assert subset.press == pytest.approx(((logit(y) - predicted) ** 2).sum())
        assert subset.loo_mae == pytest.approx(np.abs(y - expit(predicted)).mean())
        assert subset.n == 25
    assert len(found.subsets) == 15
    assert np.all(np.diff([s.press for s in found.subsets]) >= 0)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(8, 30))
def test_press_is_explicit_leave_one_out(seed: int, k: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    design = np.column_stack([np.ones(n), rng.standard_normal((n, k))])
    y = rng.standard_normal(n)
    by_hand = []
    for i in range(n):
        rest = np.arange(n) != i
        theta = np.linalg.lstsq(design[rest], y[rest], rcond=None)[0]
        by_hand.append(y[i] - design[i] @ theta)
    np.testing.assert_allclose(press(design, y), by_hand, rtol=1e-6, atol=1e-9)


def test_ridge_is_that_of_scikit_learn() -> None:
    x, y = study(n=30)
    scaled, target = logit(x), logit(y)
    grid = [0.0, 0.5, 10.0, 300.0]
    found = ridge_path(scaled, target, grid)
    standard = (scaled - scaled.mean(axis=0)) / scaled.std(axis=0)
    for i, penalty in enumerate(grid):
        model = Ridge(alpha=penalty) if penalty else LinearRegression()
        np.testing.assert_allclose(found.weights[i], model.fit(standard, target).coef_, atol=1e-9)
        left_out = cross_val_predict(model, standard, target, cv=LeaveOneOut())
        assert found.press[i] == pytest.approx(((target - left_out) ** 2).sum())
    assert found.degrees[0] == pytest.approx(4)
    assert np.all(np.diff(found.degrees) < 0)


def test_inflation_is_that_of_statsmodels() -> None:
    x, _ = study(n=40)
    x[:, 3] = expit(0.9 * logit(x[:, 0]) + 0.1 * logit(x[:, 3]))
    found = collinearity(logit(x), list("abcd"))
    design = add_constant(logit(x))
    theirs = [variance_inflation_factor(design, i) for i in range(1, 5)]
    np.testing.assert_allclose(found.inflation, theirs)
    assert found.condition == pytest.approx(np.sqrt(np.linalg.cond(found.correlation)))
    assert any(w.startswith("a: the other ID sets predict it") for w in found.warnings)
    assert any(w.startswith("a and d correlate by 0.99") for w in found.warnings)


def test_the_sets_that_matter_are_chosen() -> None:
    """Two of four matter. The chosen subset has them nearly always; the best may have more."""
    found = [choose_id_sets(*study(seed), id_settings=list("abcd")) for seed in range(60)]
    assert np.mean([one.chosen.id_settings == ("a", "b") for one in found]) >= 0.9
    assert all({"a", "b"} <= set(one.best.id_settings) for one in found)


def test_one_set_is_enough_when_it_is() -> None:
    found = [choose_id_sets(*study(seed, weights=(0.9,))).chosen for seed in range(40)]
    assert np.mean([one.id_settings == ("id 1",) for one in found]) >= 0.9


def test_nothing_beats_the_best_and_the_chosen_is_near_it() -> None:
    found = choose_id_sets(*study(3))
    assert found.best.best
    assert found.best.worse == 0.0
    assert sum(s.best for s in found.subsets) == sum(s.chosen for s in found.subsets) == 1
    assert found.chosen.worse <= found.chosen.worse_se or found.chosen.best
    assert len(found.chosen.id_settings) <= len(found.best.id_settings)
    assert all(s.loo_r2 <= s.r2 for s in found.subsets)


def test_the_fit_through_all_is_that_of_statsmodels() -> None:
    x, y = study(5)
    found = choose_id_sets(x, y)
    theirs = OLS(logit(y), add_constant(logit(x))).fit()
    np.testing.assert_allclose(found.baseline.lines[0].coefficients, theirs.params)
    whole = next(s for s in found.subsets if len(s.id_settings) == 4)
    assert whole.r2 == pytest.approx(theirs.rsquared)
    influence = theirs.get_influence()
    assert whole.press == pytest.approx((influence.resid_press**2).sum())


def test_partial_residuals_have_the_weight_as_their_slope() -> None:
    x, y = study(6)
    baseline = fit_baseline(x, y, id_settings=list("abcd"), bootstrap=0)
    rows = partial_residuals(baseline)
    assert len(rows) == 4 * 60
    for j, name in enumerate("abcd"):
        own = [r for r in rows if r["id_setting"] == name]
        slope = np.polyfit([r["scaled"] for r in own], [r["partial_residual"] for r in own], 1)[0]
        assert slope == pytest.approx(baseline.weights[j])
        assert [r["accuracy"] for r in own] == pytest.approx(x[:, j].tolist())


@pytest.mark.parametrize("scale", ["linear", "probit", "logit"])
def test_every_scale_works(scale: str) -> None:
    x, y = study(7)
    found = choose_id_sets(x, y, scale=scale)
    assert found.baseline.scale.name == scale
    assert {"id 1", "id 2"} <= set(found.best.id_settings)


class TestWhatCannotBeChosen:
    def test_missing_cells_leave_models_out_of_every_subset(self) -> None:
        x, y = study(8)
        x[3, 2], y[5] = np.nan, np.nan
        found = choose_id_sets(x, y, models=[f"m{i}" for i in range(60)])
        assert {s.n for s in found.subsets} == {58}
        assert found.baseline.left_out == ("m3", "m5")

    def test_columns_that_say_nothing_or_the_same(self) -> None:
        x, y = study(9)
        same = x.copy()
        same[:, 1] = 0.5
        with pytest.raises(InputError, match="the same accuracy on 'id 2'"):
            choose_id_sets(same, y)
        twice = x.copy()
        twice[:, 1] = x[:, 0]
        with pytest.raises(InputError, match="collinear"):
            choose_id_sets(twice, y)
        with pytest.raises(InputError, match="all 60 models have the same accuracy on 'ood'"):
            choose_id_sets(x, np.full(60, 0.5))
        alone = x.copy()
        alone[:, 1] = np.where(np.arange(60) == 7, 0.9, 0.5)
        with pytest.raises(InputError, match="'model 7' alone determines the weight"):
            choose_id_sets(alone, y)

    def test_too_few_or_too_many(self) -> None:
        x, y = study(10)
        with pytest.raises(InputError, match="at least 2"):
            choose_id_sets(x[:, 0], y)
        with pytest.raises(InputError, match="too few models"):
            choose_id_sets(x[:2], y[:2])
        wide = np.random.default_rng(0).uniform(0.2, 0.8, (60, 13))
        with pytest.raises(InputError, match="at most 12"):
            choose_id_sets(wide, y)
        with pytest.raises(InputError, match="penalties"):
            choose_id_sets(x, y, penalties=[-1.0])

    def test_knees_and_weights_are_refused(self) -> None:
        x, y = study(11)
        with pytest.raises(InputError, match="without a knee"):
            examine(fit_baseline(x, y, weights=np.arange(1, 61), bootstrap=0))

    def test_ties_are_no_trouble(self) -> None:
        x, y = study(12)
        found = choose_id_sets(x.round(1).clip(0.1, 0.9), y.round(1).clip(0.1, 0.9))
        assert np.isfinite([s.press for s in found.subsets]).all()
