from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import nctdtr

from shiftbed.analysis.planning import Design, _beyond, power_of, simulated_power, smallest
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


@pytest.mark.parametrize("question", ["measured", "out-of-line"])
@pytest.mark.parametrize("delta", [0.008, -0.012])
def test_closed_form_agrees_with_simulation(question, delta):
    found = simulated_power(DESIGN, delta, question, simulations=1500, seed=1)
    assert found == pytest.approx(power_of(DESIGN, delta, question), abs=0.04)


@pytest.mark.parametrize("question", ["measured", "out-of-line"])
def test_power_is_the_level_at_no_effect_and_grows(question):
    assert power_of(DESIGN, 1e-12, question) == pytest.approx(0.05, abs=1e-6)
    grown = [power_of(DESIGN, d, question) for d in (0.002, 0.005, 0.01, 0.02, 0.04)]
    assert grown == sorted(grown)


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


@pytest.mark.parametrize("question", ["measured", "out-of-line"])
def test_few_models_have_heavier_tails(question):
    """With four models the normal quantile would promise far more than is found."""
    few = replace(DESIGN, models=4, ood_images=10**7, id_images=10**7)
    found = simulated_power(few, 0.02, question, simulations=1500, seed=2)
    assert found == pytest.approx(power_of(few, 0.02, question), abs=0.08)


@given(st.floats(0, 300), st.floats(1.5, 60), st.floats(1, 1e9))
def test_tails_of_a_non_central_t(away, t, dof):
    found = _beyond(away, t, dof)
    reference = 1 - nctdtr(dof, away, t) + nctdtr(dof, away, -t)
    assert 0 <= found <= 1
    if np.isfinite(reference):
        assert found == pytest.approx(reference, abs=1e-6)
