from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import chi2

from shiftbed.analysis.planning import (
    QUESTIONS,
    Design,
    _beyond,
    own_scatter,
    power_of,
    residual_noise,
    smallest,
)
from shiftbed.errors import InputError

DESIGN = Design(
    accuracy=0.76,
    slope=0.92,
    intercept=-0.49,
    scatter=0.018,
    spread=0.32,
    centre=1.175,
    models=78,
    id_images=50_000,
    ood_images=10_000,
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_power_grows_with_the_effect(question):
    grown = [power_of(DESIGN, d, question) for d in (0.002, 0.005, 0.01, 0.02, 0.04)]
    assert grown == sorted(grown)


def test_no_effect_is_found_at_the_level_or_less_often():
    """The jackknife over families says a little more noise than there is; a model exactly on the
    line is never as far off as another baseline model."""
    assert power_of(DESIGN, 1e-12, "measured") == pytest.approx(0.05, abs=0.005)
    assert power_of(replace(DESIGN, scatter=0.1), 1e-12, "out-of-line") < 0.001


def test_image_noise_is_counted_once():
    """What images add to residuals is taken off the scatter and comes back with the images."""
    noise = residual_noise(DESIGN)
    assert own_scatter(DESIGN, np.sqrt(0.018**2 + noise)) == pytest.approx(0.018)
    assert own_scatter(DESIGN, 1e-6) == 0.0
    assert residual_noise(replace(DESIGN, id_images=10**9, ood_images=10**9)) < 1e-6
    assert noise == pytest.approx(4 * residual_noise(replace(DESIGN, id_images=200_000,
                                                             ood_images=40_000)))  # fmt: skip


def test_families_and_unlike_models_cost_power():
    related = replace(DESIGN, models=40, families=12, correlation=0.6)
    alone = replace(related, families=None, correlation=0.0)
    unlike = replace(alone, interval="independent")
    wanted = [power_of(one, 0.008, "measured") for one in (alone, related, unlike)]
    assert wanted[0] > wanted[1] + 0.02
    assert wanted[0] > wanted[2] + 0.1


def test_smallest_reaches_the_power_and_one_less_does_not():
    found = smallest(DESIGN, 0.01, "measured", 0.8)
    n = found["ood_images"]
    assert power_of(replace(DESIGN, ood_images=n), 0.01, "measured") >= 0.8
    assert power_of(replace(DESIGN, ood_images=n - 1), 0.01, "measured") < 0.8
    assert power_of(DESIGN, found["delta"], "measured") == pytest.approx(0.8, abs=1e-6)


def test_scatter_is_a_floor_that_models_do_not_remove():
    found = smallest(DESIGN, 0.002, "out-of-line", 0.8)
    assert found["models"] is None
    assert found["ood_images"] is None


def test_impossible_effects_are_refused():
    with pytest.raises(InputError, match="impossible"):
        power_of(DESIGN, 0.5, "measured")


@given(st.floats(0, 300), st.floats(1.5, 60), st.floats(1, 1e9))
def test_tails_of_a_non_central_t(away, t, dof):
    def chance(s):  # of |T| > t where the estimated standard deviation is s times the true one
        return ndtr(away - t * s) + ndtr(-away - t * s)

    s = np.sqrt(chi2.ppf((np.arange(20_000) + 0.5) / 20_000, dof) / dof)
    assert _beyond(away, t, dof) == pytest.approx(chance(s).mean(), abs=1e-3)
