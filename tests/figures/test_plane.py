"""The plane's data are the baseline's."""

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.figures import plane
from shiftbed.records import Shift
from shiftbed.testbed import published

IDS = ("ImageNet 1k", "CIFAR-10")


def test_surface_and_models_follow_the_baseline() -> None:
    testbed = published("openclip")
    shift = Shift(name="p", kind="natural-dataset", source=IDS, target="ImageNet-R")
    baseline = testbed.fit(shift)
    chart = plane(testbed, IDS, "ImageNet-R")
    corner = [chart.grid[0][3], chart.grid[1][5]]
    assert chart.surface[5, 3] == baseline.predict([corner])[0]
    np.testing.assert_allclose(chart.predicted, baseline.predict(chart.x))
    np.testing.assert_allclose(chart.effective, chart.y - chart.predicted)
    assert chart.fitted.all()
    assert chart.equations[0].startswith("logit y = 0.887 logit x₁ + 0.303 logit x₂")


def test_it_needs_two_known_settings() -> None:
    with pytest.raises(InputError, match="two ID settings, got 1"):
        plane(published("openclip"), ("ImageNet 1k",), "ImageNet-R")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown setting"):
        plane(published("openclip"), ("ImageNet 1k", "CIFAR-11"), "ImageNet-R")
