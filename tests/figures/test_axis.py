"""Axes hold their points, and their ticks are round, in order and apart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.figures.axis import fit_axis
from shiftbed.scales import SCALES

_fractions = st.floats(0.0, 1.0)


@pytest.mark.parametrize("name", list(SCALES))
@given(values=st.lists(_fractions, min_size=1, max_size=8))
def test_points_are_on_the_axis_and_ticks_too(name: str, values: list[float]) -> None:
    scale = SCALES[name]
    axis = fit_axis(values, scale=scale, setting="s", title="t", n=0)
    assert np.isfinite([axis.low, axis.high]).all()
    assert axis.low < axis.high
    at = axis.at(values)
    inside = np.isfinite(at)
    assert (at[inside] >= axis.low).all()
    assert (at[inside] <= axis.high).all()
    kept = axis.within(values)
    assert set(kept[~inside]) <= {axis.low, axis.high}
    ticks = axis.at(axis.ticks)
    assert (ticks >= axis.low - 1e-6).all()
    assert (ticks <= axis.high + 1e-6).all()
    assert (np.diff(ticks) > 0).all()


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0.55, 0.85], ["55%", "60%", "65%", "70%", "75%", "80%", "85%"]),
        ([0.003, 0.6], ["0.5%", "1%", "2%", "5%", "10%", "20%", "30%", "50%", "65%"]),
        ([0.712, 0.738], ["71.5%", "72%", "72.5%", "73%", "73.5%"]),
    ],
)
def test_ticks_of_usual_ranges(values: list[float], labels: list[str]) -> None:
    axis = fit_axis(values, scale=SCALES["logit"], setting="s", title="t", n=0)
    assert axis.tick_labels == labels


def test_intervals_widen_the_axis_a_little() -> None:
    logit = SCALES["logit"]
    narrow = fit_axis([0.4, 0.6], scale=logit, setting="s", title="t", n=0)
    wide = fit_axis([0.4, 0.6], [0.0, 0.5], [0.5, 0.61], scale=logit, setting="s", title="t", n=0)
    span = float(np.ptp(logit.forward([0.4, 0.6])))
    assert narrow.low - wide.low == pytest.approx(span / 8)
    assert wide.high == pytest.approx(float(logit.forward(0.61)) + 0.04 * span)
