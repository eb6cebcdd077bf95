import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

import shiftbed as sb
from shiftbed.analysis.baseline import fit_baseline
from shiftbed.analysis.intervals import beside
from shiftbed.analysis.robustness import effective_robustness


def fitted(m=40, seed=0, noise=0.05, **options):
    rng = np.random.default_rng(seed)
    x = rng.normal(1, 0.5, m)
    y = 0.9 * x - 0.5 + rng.normal(0, noise, m)
    return expit(x), expit(y), fit_baseline(expit(x), expit(y), bootstrap=0, **options)


@given(x=st.floats(0.05, 0.95), y=st.floats(0.0, 1.0))
def test_effective_robustness_is_what_it_says(x, y):
    _, _, line = fitted()
    placed = effective_robustness(line, [x], [y], n_id=1000, n_ood=1000)
    beta = expit(line.weights[0] * logit(x) + line.intercept)
    assert placed.predicted[0] == pytest.approx(beta)
    assert placed.effective[0] == pytest.approx(y - beta)
    assert placed.reference[0] == pytest.approx(x - beta)
    if abs(x - beta) > 1e-6:
        assert placed.share_of_gap[0] == pytest.approx((y - beta) / (x - beta))
    assert placed.low[0] <= placed.effective[0] <= placed.high[0]
    assert placed.prediction_low[0] < 0 < placed.prediction_high[0]
    assert placed.fit_share[0] + placed.id_share[0] + placed.ood_share[0] == pytest.approx(1)


def test_a_model_on_the_line_y_equals_x_covers_the_whole_gap():
    _, _, line = fitted()
    placed = effective_robustness(line, [0.7], [0.7], n_id=1000, n_ood=1000)
    assert placed.share_of_gap[0] == pytest.approx(1.0)
    assert placed.effective[0] == placed.reference[0]


def test_prediction_interval_equals_statsmodels():
    x, y, line = fitted()
    reference = sm.OLS(logit(y), sm.add_constant(logit(x))).fit()
    grid = np.array([0.5, 0.8])
    ends = reference.get_prediction(sm.add_constant(logit(grid))).conf_int(obs=True, alpha=0.05)
    placed = effective_robustness(line, grid, [0.5, 0.6], n_id=0, n_ood=0)
    assert placed.prediction_low + placed.predicted == pytest.approx(expit(ends[:, 0]))
    assert placed.prediction_high + placed.predicted == pytest.approx(expit(ends[:, 1]))


def test_a_fitted_model_is_judged_against_the_fit_without_it():
    x, y, line = fitted()
    placed = effective_robustness(line, x, y, n_id=0, n_ood=0, position=np.arange(len(x)))
    outlier = sm.OLS(logit(y), sm.add_constant(logit(x))).fit().outlier_test()
    assert placed.p_value == pytest.approx(np.asarray(outlier)[:, 1], rel=1e-6)
    for i in (0, 7):
        rest = np.arange(len(x)) != i
        without = fit_baseline(x[rest], y[rest], bootstrap=0)
        alone = effective_robustness(without, x[[i]], y[[i]], n_id=0, n_ood=0)
        assert placed.p_value[i] == pytest.approx(alone.p_value[0])
        expected = alone.prediction_low[0] + alone.predicted[0] - placed.predicted[i]
        assert placed.prediction_low[i] == pytest.approx(expected)


@given(seed=st.integers(0, 200))
@settings(max_examples=25)
def test_p_value_and_prediction_interval_agree(seed):
    x, y, line = fitted(seed=seed, noise=0.3)
    placed = effective_robustness(line, x, y, n_id=0, n_ood=0, position=np.arange(len(x)))
    outside = (placed.effective < placed.prediction_low) | (
        placed.effective > placed.prediction_high
    )
    assert np.array_equal(outside, placed.p_value < 0.05)


def test_unknown_sizes_give_no_measurement_interval():
    _, _, line = fitted()
    placed = effective_robustness(line, [0.7], [0.6], n_id=0, n_ood=1000)
    assert np.isnan(placed.low[0])
    assert np.isfinite(placed.p_value[0])


def test_more_images_narrow_the_measurement_interval_only():
    _, _, line = fitted()
    few, many = (
        effective_robustness(line, [0.7], [0.6], n_id=n, n_ood=n) for n in (1_000, 100_000)
    )
    assert many.high[0] - many.low[0] < few.high[0] - few.low[0]
    assert many.prediction_high[0] == few.prediction_high[0]


def test_fewer_images_than_the_baseline_models_widen_the_prediction_interval():
    *_, line = fitted(sizes=np.full((40, 2), 50_000))
    same, fewer, more = (
        effective_robustness(line, [0.7], [0.6], n_id=50_000, n_ood=n) for n in (50_000, 500, 10**6)
    )
    assert fewer.prediction_high[0] > same.prediction_high[0]
    assert fewer.p_value[0] > same.p_value[0]
    assert more.prediction_high[0] == same.prediction_high[0]


def test_accuracies_of_zero_and_one_are_flagged_and_finite():
    _, _, line = fitted()
    placed = effective_robustness(line, [1.0, 0.5], [0.5, 0.0], n_id=1000, n_ood=1000)
    assert placed.boundary.all()
    for values in (placed.effective, placed.low, placed.high, placed.p_value):
        assert np.isfinite(values).all()


def test_missing_accuracies_stay_missing():
    _, _, line = fitted()
    placed = effective_robustness(line, [0.7, np.nan], [np.nan, 0.6], n_id=10, n_ood=10)
    assert np.isnan(placed.effective).all()


def test_the_conservative_interval_allows_for_attenuation():
    """Noise in x flattens the line, so ρ of a model far to the right is overstated."""
    covered = []
    truth = 0.75 - expit(0.9 * 1.8 - 0.5)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        true_x = rng.normal(1, 0.2, 78)
        x = rng.binomial(200, expit(true_x)) / 200
        y = expit(0.9 * true_x - 0.5)
        line = fit_baseline(x, y, sizes=np.full((78, 2), 200), bootstrap=0)
        placed = effective_robustness(line, [expit(1.8)], [0.75], n_id=10**6, n_ood=10**6)
        assert line.weights[0] < 0.9
        assert placed.effective[0] > truth
        covered.append(placed.low[0] <= truth <= placed.high[0])
    assert np.mean(covered) > 0.93


def test_difference_is_the_difference(imagenet):
    line = imagenet.fit("imagenet-v2", bootstrap=0)
    rho = dict(zip(imagenet.model_names, imagenet.judge(line).effective, strict=True))
    gap = imagenet.difference(line, "resnet50", "vgg16")
    assert gap.effective == pytest.approx(rho["resnet50"] - rho["vgg16"])
    back = imagenet.difference(line, "vgg16", "resnet50")
    assert (back.low, back.high) == pytest.approx((-gap.high, -gap.low))
    assert back.p_value == pytest.approx(gap.p_value)
    assert not gap.paired


def test_a_model_does_not_differ_from_itself(imagenet):
    line = imagenet.fit("imagenet-a", bootstrap=0)
    gap = imagenet.difference(line, "vgg16", "vgg16")
    assert gap.effective == 0
    assert gap.p_value == pytest.approx(1.0)


def test_models_that_were_not_evaluated_are_named(imagenet):
    line = imagenet.fit("imagenet-v2", bootstrap=0)
    missing = imagenet.model_names[
        int(np.flatnonzero(np.isnan(imagenet.accuracy(line.ood_setting)))[0])
    ]
    with pytest.raises(sb.InputError, match="was not evaluated on 'imagenet-v2'"):
        imagenet.difference(line, "resnet50", missing)


def test_few_errors_widen_the_interval_to_the_side_they_must():
    """14 errors of 2,000: the ends are those of the score interval, not of the delta method."""
    _, _, line = fitted(m=200, noise=0.01)
    common = {"n_id": 2000, "n_ood": 10**9}
    placed = effective_robustness(line, [0.993], [0.95], **common)
    down, up = placed.effective[0] - placed.low[0], placed.high[0] - placed.effective[0]
    assert up > 1.03 * down  # an accuracy near 1 may well be lower: the prediction, too
    assert 2 * up > placed.high[0] - placed.low[0]
    usual = effective_robustness(line, [0.98], [0.93], **common)  # 40 errors
    assert usual.effective[0] - usual.low[0] == pytest.approx(
        usual.high[0] - usual.effective[0], rel=0.02
    )


def test_a_model_on_its_own_images_gets_the_lines_noise_too():
    """What the line owes to its images is not in its residuals: p-values allow for it."""
    from shiftbed.analysis.modelled import Modelled

    x, y, line = fitted(m=60, noise=0.02)
    at, on = np.append(x, 0.75), np.append(y, 0.66)
    n = np.full(61, 2000.0)
    images = Modelled.of(beside(at, on), beside(n, n))
    position = np.append(np.arange(60), -1)
    common = {"n_id": 2000, "n_ood": 2000, "position": position, "covariance": images}
    shared = effective_robustness(line, at, on, **common)
    apart = effective_robustness(line, at, on, own_images=position < 0, **common)
    assert (shared.interval[-1], apart.interval[-1]) == ("modelled", "independent")
    assert apart.high[-1] - apart.low[-1] > 1.3 * (shared.high[-1] - shared.low[-1])
    assert apart.p_value[-1] > shared.p_value[-1]
    assert apart.low[:-1] == pytest.approx(shared.low[:-1])
