import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import linregress

from shiftbed.analysis.baseline import fit_baseline
from shiftbed.errors import InputError


def data(m=30, k=1, seed=0, noise=0.05):
    rng = np.random.default_rng(seed)
    x = rng.normal(1, 0.6, (m, k))
    y = x @ np.linspace(0.9, 0.3, k) - 0.5 + rng.normal(0, noise, m)
    return expit(x), expit(y)


@given(seed=st.integers(0, 1000), m=st.integers(4, 100))
@settings(max_examples=40)
def test_line_equals_linregress(seed, m):
    x, y = data(m, seed=seed)
    line = fit_baseline(x, y, bootstrap=0)
    reference = linregress(logit(x[:, 0]), logit(y))
    assert line.weights[0] == pytest.approx(reference.slope, rel=1e-9)
    assert line.intercept == pytest.approx(reference.intercept, rel=1e-9, abs=1e-9)
    assert line.r2 == pytest.approx(reference.rvalue**2, rel=1e-9)
    errors = np.sqrt(np.diag(line.covariance))
    assert errors == pytest.approx([reference.intercept_stderr, reference.stderr], rel=1e-8)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_planes_equal_statsmodels(k):
    x, y = data(60, k)
    plane = fit_baseline(x, y, bootstrap=0)
    reference = sm.OLS(logit(y), sm.add_constant(logit(x))).fit()
    assert [plane.intercept, *plane.weights] == pytest.approx(reference.params.tolist(), rel=1e-8)
    assert plane.covariance == pytest.approx(reference.cov_params(), rel=1e-6, abs=1e-12)
    assert plane.r2 == pytest.approx(reference.rsquared)
    assert plane.mae == pytest.approx(np.abs(y - expit(reference.fittedvalues)).mean())


def test_weighted_equals_statsmodels():
    x, y = data(40)
    weights = np.linspace(1, 9, 40)
    line = fit_baseline(x, y, weights=weights, bootstrap=0)
    reference = sm.WLS(logit(y), sm.add_constant(logit(x)), weights=weights).fit()
    assert [line.intercept, *line.weights] == pytest.approx(reference.params.tolist())
    assert line.covariance == pytest.approx(reference.cov_params(), rel=1e-8)


def test_analytic_band_equals_statsmodels():
    x, y = data(25)
    line = fit_baseline(x, y, bootstrap=0)
    grid = np.array([0.4, 0.7, 0.95])
    reference = (
        sm.OLS(logit(y), sm.add_constant(logit(x)))
        .fit()
        .get_prediction(sm.add_constant(logit(grid)))
        .conf_int(alpha=0.05)
    )
    low, high = line.band(grid, kind="analytic")
    assert np.column_stack([low, high]) == pytest.approx(expit(reference))


@pytest.mark.parametrize("k", [1, 2])
def test_bootstrap_equals_refitting_each_resample(k):
    x, y = data(20, k)
    line = fit_baseline(x, y, bootstrap=50, seed=3)
    from shiftbed.analysis.estimators import _counts

    for counts, theta in zip(_counts(20, 50, 3), line.lines[0].draws, strict=True):
        rows = np.repeat(np.arange(20), counts.astype(int))
        reference = sm.OLS(logit(y[rows]), sm.add_constant(logit(x[rows]))).fit()
        assert theta == pytest.approx(reference.params, rel=1e-6, abs=1e-9)


def test_bootstrap_band_is_seeded_and_near_the_analytic_one():
    x, y = data(80)
    a, b = (fit_baseline(x, y, seed=s) for s in (0, 0))
    other = fit_baseline(x, y, seed=1)
    grid = np.array([0.5, 0.7, 0.9])
    assert np.array_equal(a.band(grid), b.band(grid))
    assert not np.array_equal(a.band(grid), other.band(grid))
    width = np.subtract(*a.band(grid)[::-1]), np.subtract(*a.band(grid, kind="analytic")[::-1])
    assert width[0] == pytest.approx(width[1], rel=0.25)


def test_knee_makes_two_lines_and_leaves_out_the_model_on_it():
    x = np.array([0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9])
    y = np.array([0.1, 0.11, 0.12, 0.13, 0.0, 0.3, 0.4, 0.5, 0.6])
    line = fit_baseline(x, y, models=list("abcdefghi"), knee=0.7)
    assert [piece.n for piece in line.lines] == [4, 4]
    assert line.left_out == ("e",)
    low = linregress(logit(x[:4]), logit(y[:4]))
    assert line.predict([0.52])[0] == pytest.approx(expit(low.slope * logit(0.52) + low.intercept))
    assert line.lines[0].high == line.lines[1].low == 0.7


def test_extrapolation_is_flagged():
    x, y = data(30)
    line = fit_baseline(x, y)
    outside = [x.min() - 0.01, x.mean(), x.max() + 0.001]
    assert line.extrapolated(outside).tolist() == [True, False, True]


@pytest.mark.parametrize("policy", ["raise", "drop", "clip"])
def test_accuracies_of_zero_are_decided_aloud(policy):
    x, y = data(10)
    y = y.copy()
    y[3] = 0.0
    names = [f"m{i}" for i in range(10)]
    sizes = np.full((10, 2), 99)
    if policy == "raise":
        with pytest.raises(InputError, match="'m3' has an accuracy of exactly 0 or 1"):
            fit_baseline(x, y, models=names)
        return
    line = fit_baseline(x, y, models=names, on_boundary=policy, sizes=sizes)
    assert line.left_out == (("m3",) if policy == "drop" else ())
    if policy == "clip":
        clipped = y.copy()
        clipped[3] = 0.5 / 100
        assert line.intercept == pytest.approx(fit_baseline(x, clipped).intercept)


def test_linear_scale_takes_zero_and_one():
    line = fit_baseline([0.0, 0.5, 1.0], [0.0, 0.4, 1.0], scale="linear")
    assert line.n == 3


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([0.5, 0.6], [0.4, 0.5], "too few models"),
        ([0.5, 0.5, 0.5, 0.5], [0.4, 0.5, 0.6, 0.7], "same accuracy on 'id 1'"),
        ([50.0, 60.0, 70.0], [0.4, 0.5, 0.6], "looks like a percentage"),
        ([[0.5, 0.5], [0.6, 0.6], [0.7, 0.7], [0.8, 0.8]], [0.4, 0.5, 0.6, 0.7], "collinear"),
        ([0.5, 0.6, 0.7], [0.4, 0.5], "x has 3 models but y has 2"),
    ],
)
def test_what_cannot_be_fitted_says_why(x, y, message):
    with pytest.raises(InputError, match=message):
        fit_baseline(x, y)


def test_missing_accuracies_are_left_out_by_name():
    x, y = data(10)
    y = y.copy()
    y[2] = np.nan
    assert fit_baseline(x, y, models=[f"m{i}" for i in range(10)]).left_out == ("m2",)


@pytest.mark.parametrize("estimator", ["huber", "theil-sen"])
def test_robust_fits_are_those_of_statsmodels_and_scipy(estimator):
    from scipy.stats import theilslopes

    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, 50)
    y = 0.8 * x + 0.1 * rng.normal(size=50)
    y[:4] += 2.0
    line = fit_baseline(expit(x), expit(y), estimator=estimator, bootstrap=0)
    if estimator == "huber":
        reference = sm.RLM(y, sm.add_constant(x), M=sm.robust.norms.HuberT()).fit(
            scale_est=sm.robust.scale.mad, update_scale=True
        )
        expected = reference.params
        assert [line.intercept, line.weights[0]] == pytest.approx(expected, abs=5e-3)
    else:
        slope = theilslopes(y, x).slope
        assert line.weights[0] == pytest.approx(slope)
        assert line.intercept == pytest.approx(np.median(y - slope * x))
    plain = fit_baseline(expit(x), expit(y), bootstrap=0)
    assert abs(line.intercept) < 0.05 < plain.intercept


def test_unknown_estimators_are_refused():
    x, y = np.linspace(0.2, 0.8, 10), np.linspace(0.1, 0.7, 10)
    with pytest.raises(InputError, match="estimator must be one of least-squares, huber"):
        fit_baseline(x, y, estimator="ridge")
    both = np.column_stack([x, x**2])
    with pytest.raises(InputError, match="theil-sen is defined for one ID setting"):
        fit_baseline(both, y, estimator="theil-sen")


def test_bands_of_few_models_cover():
    """Percentiles over resamples of 8 models are too narrow; their band is analytic by default."""
    rng, inside = np.random.default_rng(0), {"auto": 0, "bootstrap": 0}
    for seed in range(300):
        x = rng.normal(0, 1, 8)
        y = 0.9 * x + 0.2 * rng.normal(size=8)
        line = fit_baseline(expit(x), expit(y), bootstrap=200, seed=seed)
        assert line.band_kind == "analytic"
        for kind in inside:
            low, high = line.band([expit(0.5)], kind=kind)
            inside[kind] += bool(low[0] <= expit(0.45) <= high[0])
    assert 0.92 < inside["auto"] / 300 < 0.98
    assert inside["bootstrap"] / 300 < 0.92
