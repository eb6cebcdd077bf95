import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.page import save
from shiftbed.results import effects as effect_tables
from shiftbed.results import predictiveness as tables
from shiftbed.results.charts import predictiveness as charts
from tests.analysis.test_effects import study as augmented
from tests.results.test_effects import tasks
from tests.results.test_predictiveness import METRICS, pairs


@pytest.fixture(scope="module")
def study():
    return tables.study(pairs(np.random.default_rng(0)))


def test_score_bars_hold_what_the_table_holds(study):
    frame = tables.scores(study)
    chart = charts.score_bars(frame, title="t", target="ood:error", given="id:error", method="S")
    assert chart.categories == METRICS[:4]
    assert np.allclose(chart.values[0], frame["r"].to_numpy())
    assert np.allclose(chart.values[1], frame["adjusted"].to_numpy())
    assert np.allclose(chart.high[1], frame["adjusted_high"].to_numpy())


def test_the_matrix_is_marked_where_its_interval_leaves_out_zero(study):
    whole = tables.matrix(study)
    chart = charts.matrix_heatmap(whole.metrics, whole.r, whole.low, whole.high, title="t")
    i, j = METRICS.index("id:error"), METRICS.index("ood:error")
    assert chart.marked[i, j] == (whole.low[i, j] > 0)
    assert (chart.low, chart.high, chart.diverging) == (-1.0, 1.0, True)


def test_groups_are_rows(study):
    frame = tables.by_group(study, "task")
    chart = charts.group_heatmap(frame, "task", title="t")
    assert chart.rows == ("a", "b", "c")
    backwards = charts.group_heatmap(frame.reverse(), "task", title="t")
    assert backwards.rows == ("a", "b", "c")
    expected = frame.filter(task="b", metric="id:ece")["r"][0]
    assert chart.values[1, chart.columns.index("id:ece")] == expected


def test_transfer_bars_are_in_their_places(study):
    frame = tables.transfer(study)
    chart = charts.transfer_bars(frame, title="t")
    assert chart.series == ("id → OOD", "corrupted → OOD", "held-out → OOD")
    row = frame.filter(metric="ece").rows(named=True)[0]
    assert chart.values[0, chart.categories.index("ece")] == row["r"]
    assert np.isnan(chart.values[1, chart.categories.index("ece")])


def test_significant_effects_have_a_star():
    found = augmented(np.random.default_rng(0), effect=0.05, sets=12)
    frame = effect_tables.differences(found, "augmentation", ["AugMix"], ["none"])
    chart = charts.effect_bars(frame, title="t", alternative="AugMix is lower")
    assert all(name.endswith("*") for name in chart.categories)
    frame = effect_tables.differences(
        found, "augmentation", ["AugMix"], ["none"], alternative="greater"
    )
    chart = charts.effect_bars(frame, title="t", alternative="AugMix is higher")
    assert not any(name.endswith("*") for name in chart.categories)


def test_architectures_and_head():
    found = augmented(np.random.default_rng(0))
    dots = charts.architecture_dots(effect_tables.architectures(found), title="t")
    assert dots.names == ("ViT", "ResNet")
    assert (dots.x_low < dots.x).all()
    head = effect_tables.full_and_head(found, "augmentation", ["none"], ["AugMix"])
    bars = charts.head_bars(head, title="t")
    assert bars.series == ("ID data", "OOD data")
    with pytest.raises(InputError, match="over all tasks"):
        charts.architecture_dots(effect_tables.architectures(found).filter(task="t"), title="t")


@pytest.mark.parametrize("suffix", ["svg", "html"])
def test_they_are_drawn(study, tmp_path, suffix):
    found = tasks(np.random.default_rng(1), per_task=3)
    hard = effect_tables.difficulty(found)
    points, _ = effect_tables.difficulty_effect(tables.study(found), hard)
    whole = tables.matrix(study)
    drawn = [
        charts.transfer_bars(tables.transfer(study), title="Transfer"),
        charts.matrix_heatmap(whole.metrics, whole.r, whole.low, whole.high, title="Matrix"),
        charts.difficulty_panels(hard, points, title="Difficulty"),
    ]
    for i, chart in enumerate(drawn):
        path = tmp_path / f"{i}.{suffix}"
        save(chart, path)
        assert path.stat().st_size > 1000
