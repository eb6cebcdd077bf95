import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from shiftbed.errors import InputError
from shiftbed.scales import LINEAR, LOGIT, PROBIT, SCALES, scale

inside = st.floats(1e-6, 1 - 1e-6)


@pytest.mark.parametrize("one", SCALES.values(), ids=SCALES)
class TestEveryScale:
    """One suite over all scales."""

    @given(p=inside)
    def test_inverse_undoes_forward(self, one, p):
        assert one.inverse(one.forward(p)) == pytest.approx(p, rel=1e-9)

    @given(p=st.floats(0.01, 0.99))
    def test_derivatives_are_derivatives(self, one, p):
        h = 1e-6
        numeric = (one.forward(p + h) - one.forward(p - h)) / (2 * h)
        assert one.derivative(p) == pytest.approx(numeric, rel=1e-4)
        assert one.inverse_derivative(one.forward(p)) == pytest.approx(1 / numeric, rel=1e-4)

    @given(a=inside, b=inside)
    def test_monotone(self, one, a, b):
        if a + 1e-9 < b:
            assert one.forward(a) < one.forward(b)

    @pytest.mark.parametrize(("low", "high"), [(0.5, 0.9), (0.001, 0.999), (0.7, 0.72), (0, 1)])
    def test_ticks_are_inside_increasing_and_few(self, one, low, high):
        ticks = one.ticks(low, high)
        assert len(ticks) <= 9 + 2
        assert ticks == sorted(set(ticks))
        assert all(low - 1e-9 <= t <= high + 1e-9 for t in ticks)

    @pytest.mark.parametrize(("low", "high"), [(0.712, 0.738), (0.9, 0.93), (0.5, 0.512)])
    def test_short_ranges_have_ticks_too(self, one, low, high):
        assert len(one.ticks(low, high)) >= 3

    def test_ticks_are_apart(self, one):
        position = one.forward(np.array(one.ticks(0.02, 0.98)))
        gaps = np.diff(position)
        assert gaps.min() > np.ptp(position) / 20


def test_reference_values():
    assert float(LOGIT.forward(0.75)) == pytest.approx(np.log(3))
    assert float(PROBIT.forward(0.975)) == pytest.approx(norm.ppf(0.975))
    assert float(LINEAR.forward(0.3)) == 0.3


def test_unknown_scale():
    with pytest.raises(InputError, match="did you mean 'logit'"):
        scale("logits")
