"""Results of groups, correlations and plans as charts."""

import numpy as np
import pytest

import shiftbed as sb

BED = "imagenet-testbed-2020"


def test_a_bar_is_a_groups_mean_with_its_interval():
    found = sb.groups(BED, shift=["imagenet-v2", "objectnet"])
    chart = found.chart()
    row = found.frame.filter(shift="objectnet", group="more-data").row(0, named=True)
    at = chart.series.index("more-data"), chart.categories.index("objectnet")
    ends = [100 * row[name] for name in ("mean", "low", "high")]
    assert [one[at] for one in (chart.values, chart.low, chart.high)] == pytest.approx(ends)


def test_of_several_id_sets_the_plane_is_drawn():
    ids = ["ImageNet 1k", "CIFAR-10"]
    found = sb.groups("openclip", id=ids, ood=["ImageNet-R", "ImageNet-A"], by="kind")
    chart = found.chart()
    plane = found.parts["groups"].filter(evaluation="multi-ID")
    assert np.isfinite(chart.values).sum() == len(plane)
    assert chart.categories == ("ImageNet-R", "ImageNet-A", "Average")


def test_correlations_are_a_heat_map():
    found = sb.correlate(BED, synthetic=["avg_pgd"], natural=["imagenet-v2", "objectnet"])
    assert found.chart().values.tolist() == [found.frame["r"].to_list()]


@pytest.mark.parametrize("delta", [0.02, -0.02])
def test_power_grows_with_rho_and_is_the_plans(delta):
    found = sb.plan(delta, BED)
    chart = found.chart()
    assert chart.lines[0].intercept == 0.8
    for curve, power in zip(chart.curves, found.frame["power"], strict=True):
        assert (np.sign(curve.x) == np.sign(delta)).all()
        assert (np.diff(curve.y) >= -1e-9).all()
        at = np.interp(100 * abs(delta), np.abs(curve.x), curve.y)
        assert at == pytest.approx(power, abs=0.02)


def test_they_are_drawn_onto_the_axes_given():
    plt = pytest.importorskip("matplotlib.pyplot")
    figure, axes = plt.subplots()
    assert sb.plan(0.02, BED).plot(axes) is axes
    plt.close(figure)
