"""The finished data are what the testbed and the baseline say."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.errors import InputError
from shiftbed.figures.palette import MOST, OTHER
from shiftbed.records import Shift
from shiftbed.results.charts.scatter import grouped, plane, scatter
from shiftbed.testbed import Testbed, published

TAORI = "imagenet-testbed-2020"


def test_points_are_the_testbeds_and_rho_is_the_tables() -> None:
    testbed = published(TAORI)
    chart = scatter(testbed, "imagenet-v2")
    table = testbed.effective_robustness("imagenet-v2")
    assert list(chart.models) == table["model"].to_list()
    for ours, theirs in (
        (chart.x, "source"),
        (chart.y, "target"),
        (chart.predicted, "predicted"),
        (chart.effective, "effective"),
        (chart.low, "low"),
        (chart.high, "high"),
        (chart.prediction_low, "prediction_low"),
        (chart.p_value, "p_value"),
        (chart.q_value, "q_value"),
        (chart.fitted, "fitted"),
    ):
        np.testing.assert_allclose(ours, table[theirs].to_numpy(), atol=1e-12)
    low, high = clopper_pearson(chart.y, table["n_ood"].to_numpy(), 0.995)
    np.testing.assert_array_equal(chart.y_low, low)
    np.testing.assert_array_equal(chart.y_high, high)


@pytest.mark.parametrize("shift", ["imagenet-v2", "imagenet-a"])
def test_lines_and_bands_are_the_baselines(shift: str) -> None:
    testbed = published(TAORI)
    baseline = testbed.fit(shift, threshold=0.75)
    chart = scatter(testbed, shift, threshold=0.75)
    assert len(chart.trends) == len(baseline.lines)
    assert chart.fitted.sum() == baseline.n == sum(trend.n for trend in chart.trends)
    for trend, line in zip(chart.trends, baseline.lines, strict=True):
        np.testing.assert_array_equal(trend.predicted, baseline.predict(trend.x))
        for ours, theirs in zip((trend.low, trend.high), baseline.band(trend.x, 0.95), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(trend.extrapolated, baseline.extrapolated(trend.x))
        assert (trend.slope, trend.intercept) == (line.weights[0], line.intercept)
        assert trend.x.min() >= line.low
        assert trend.x.max() < line.high
        assert (np.diff(trend.x) > 0).all()


def test_the_pieces_of_a_knee_meet_it_and_both_are_written_down() -> None:
    chart = scatter(published(TAORI), "imagenet-a", threshold=0.75)
    assert chart.trends[0].x.max() == pytest.approx(0.9186, abs=1e-9)
    assert chart.trends[1].x.min() == pytest.approx(0.9186, abs=1e-9)
    assert chart.equations[0].count("\n") == 1
    assert "for x < 91.9%" in chart.equations[0]


def test_without_draws_the_band_is_analytic(small: Testbed) -> None:
    chart = scatter(small, "s", bootstrap=0)
    low, high = small.fit("s", bootstrap=0).band(chart.trends[0].x, kind="analytic")
    np.testing.assert_array_equal(chart.trends[0].low, low)
    np.testing.assert_array_equal(chart.trends[0].high, high)
    assert "bootstrap" not in chart.reading


def test_labelled_are_the_smallest_p_among_those_out_of_line() -> None:
    chart = scatter(published(TAORI), "imagenet-vid", label=4)
    p = np.sort(chart.p_value)
    assert chart.labelled.sum() == 4
    assert sorted(chart.p_value[chart.labelled]) == pytest.approx(p[:4])
    every = scatter(published(TAORI), "objectnet", label=1000)
    np.testing.assert_array_equal(every.labelled, every.q_value <= 0.05)
    assert not scatter(published(TAORI), "objectnet", label=0).labelled.any()


def test_boundary_and_missing_models_are_counted(small: Testbed) -> None:
    chart = scatter(small, "s")
    assert "m29" not in chart.models
    at = chart.models.index("m28")
    assert chart.edge.sum() == 1
    assert chart.edge[at]
    assert chart.y_axis.within(chart.y)[at] == chart.y_axis.low
    assert np.isfinite(chart.effective[at])
    assert chart.notes[:3] == (
        "1 model without an accuracy on every axis: not drawn.",
        f"{int((chart.x > small.fit('s').support[0, 1]).sum())} models beyond the fitted range: "
        "ρ is extrapolated.",
        "1 model at exactly 0% or 100%, where the logit is infinite, drawn on the edge (×): m28.",
    )
    assert not scatter(small, "s", scale="linear").edge.any()


def test_a_boundary_model_in_the_fit_is_refused_or_named(small: Testbed) -> None:
    with pytest.raises(InputError, match=r"^s: 'm28' has an accuracy of exactly 0 or 1 \(1 of"):
        scatter(small, "s", models="all")
    chart = scatter(small, "s", models="all", on_boundary="drop")
    assert not chart.fitted[chart.models.index("m28")]
    assert any("chosen for the fit but not in it" in note for note in chart.notes)


def test_threshold_hides_models_unless_highlighted(small: Testbed) -> None:
    chart = scatter(small, "s", threshold=0.5, highlight=["m0"])
    assert chart.x[1:].min() >= 0.5
    assert chart.models[0] == "m0"
    assert not chart.fitted[0]
    hidden = int((small.accuracy("id") < 0.5).sum()) - 1
    assert f"{hidden} models below 50% on id: not fitted, not drawn." in chart.notes


def test_a_line_per_group_judges_by_its_own_group(small: Testbed) -> None:
    chart = scatter(small, "s", by="architecture")
    assert chart.groups == ("vit", "conv")
    assert chart.fitted_by_trend == {"conv line": 10, "vit line": 10}
    only = small.where("architecture=conv")
    rho = only.judge(only.fit("s")).effective
    mine = np.array(chart.group) == "conv"
    np.testing.assert_allclose(chart.effective[mine], rho[np.isfinite(only.accuracy("ood"))])


def test_models_without_a_line_are_said_to_have_none(small: Testbed) -> None:
    chart = scatter(small.with_model("mine", {"id": 0.8, "ood": 0.6}), "s", by="architecture")
    assert np.isnan(chart.effective[chart.models.index("mine")])
    assert chart.groups[-1] == "own"
    assert chart.notes[-1].startswith("1 model whose architecture has fewer than 3 models to fit")


def test_own_models_are_highlighted_and_missing_ones_named(small: Testbed) -> None:
    testbed = small.with_model("mine", {"id": 0.8, "ood": 0.6}).with_model("half", {"id": 0.8})
    chart = scatter(testbed, "s")
    assert [chart.models[i] for i in np.flatnonzero(chart.highlighted)] == ["mine"]
    assert chart.labelled[chart.highlighted].all()
    assert "2 models without an accuracy on every axis: not drawn, among them half." in chart.notes


def test_what_is_not_an_accuracy_and_what_has_no_size_gets_no_bars(small: Testbed) -> None:
    chart = scatter(replace(small, metrics={"ood": "recall"}), "s")
    assert np.isnan(chart.y_low).all()
    assert np.isfinite(chart.x_low).all()
    assert chart.y_axis.title == "ood, recall (n = 1,000)"
    unknown = scatter(replace(small, n=np.zeros_like(small.n)), "s", label=0)
    assert np.isnan(unknown.x_low).all()
    assert "Clopper" not in unknown.reading


def test_full_source() -> None:
    chart = scatter(published(TAORI), "objectnet", full_source=True)
    assert chart.x_axis.setting == "val"


def test_refusals(small: Testbed) -> None:
    two = Shift(name="two", kind="natural-dataset", source=("id", "ood"), target="ood")
    with pytest.raises(InputError, match="draw it as a plane"):
        scatter(small, two)
    with pytest.raises(InputError, match="unknown column of models 'archtecture'"):
        scatter(small, "s", by="archtecture")
    with pytest.raises(InputError, match="no value of 'model' has the 3 models"):
        scatter(small, "s", by="model")
    with pytest.raises(InputError, match="unknown model in small"):
        scatter(small, "s", highlight=["nobody"])
    with pytest.raises(InputError, match="can be told apart"):
        scatter(published("timm"), "imagenet-v2", by="architecture")


def _over(*source: str) -> Shift:
    return Shift(name="p", kind="natural-dataset", source=source, target="ImageNet-R")


def test_surface_and_models_follow_the_plane() -> None:
    testbed, shift = published("openclip"), _over("ImageNet 1k", "CIFAR-10")
    baseline = testbed.fit(shift)
    chart = plane(testbed, shift)
    assert (chart.weights, chart.intercept) == (baseline.weights, baseline.intercept)
    np.testing.assert_allclose(chart.predicted, baseline.predict(chart.x))
    np.testing.assert_allclose(chart.effective, chart.y - chart.predicted)
    assert chart.fitted.all()
    assert chart.equations[0].startswith("logit y = 0.887 logit x₁ + 0.303 logit x₂")
    some = plane(testbed, shift, threshold=0.7, highlight=[testbed.model_names[0]], label=0)
    assert [some.models[i] for i in np.flatnonzero(some.labelled)] == [testbed.model_names[0]]
    assert some.x[~some.highlighted, 0].min() >= 0.7
    assert some.fitted.sum() == testbed.fit(shift, threshold=0.7).n


def test_a_plane_needs_two_known_settings() -> None:
    with pytest.raises(InputError, match="two ID settings, got 1"):
        plane(published("openclip"), _over("ImageNet 1k"))
    with pytest.raises(InputError, match="unknown setting"):
        plane(published("openclip"), _over("ImageNet 1k", "CIFAR-11"))


def _models(kinds: list[str], column: list[str | None]) -> pl.DataFrame:
    return pl.DataFrame({"kind": kinds, "c": column})


def test_known_kinds_come_first_and_small_groups_become_other() -> None:
    values: list[str | None] = [name for i in range(9) for name in [f"g{i}"] * (20 - i)]
    group, groups = grouped(
        _models(["standard"] * len(values), values), "c", np.ones(len(values), dtype=bool)
    )
    assert groups == (*(f"g{i}" for i in range(MOST)), OTHER)
    assert group.count(OTHER) == 14 + 13 + 12
    kinds = ["more-data", "own", "unheard-of", "standard", "unheard-of"]
    _, order = grouped(_models(kinds, [None] * 5), "kind", np.ones(5, dtype=bool))
    assert order == ("standard", "more-data", "unheard-of", "own")


def test_own_models_are_own_and_missing_values_are_said() -> None:
    models = _models(["own", "standard", "standard"], [None, None, ""])
    group, _ = grouped(models, "c", np.ones(3, dtype=bool))
    assert group == ("own", "not given", "not given")
