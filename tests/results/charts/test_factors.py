"""Charts of factors and patterns say what their tables say."""

import json

import numpy as np
import pytest

from shiftbed.analysis.factors import factor_analysis
from shiftbed.analysis.pairs import NetworkTable, PairTable
from shiftbed.errors import InputError
from shiftbed.figures.charts import Bars, Curves, Dots, Heatmap
from shiftbed.page import save
from shiftbed.page.document import data_of
from shiftbed.results.charts.factors import count_bars, factor_panels, pattern_panels
from shiftbed.results.patterns import pattern_counts, pattern_table


def networks(columns):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((60, 1)) + 0.5 * rng.standard_normal((60, len(columns)))
    names = tuple(f"n{i}" for i in range(60))
    return NetworkTable(
        networks=names, columns=tuple(columns), values=values, models=names, sources=names
    )


def pairs(count):
    rng = np.random.default_rng(1)
    x = rng.uniform(0.1, 0.5, 30)
    return [
        PairTable(
            task="t",
            source="a",
            target=f"target-{i}",
            models=tuple(f"m{j}" for j in range(30)),
            metrics=("id:error", "ood:error"),
            values=np.column_stack([x, np.where(np.arange(30) == i, np.nan, x + 0.2)]),
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("bootstrap", [0, 20])
def test_scree_and_loadings(bootstrap, tmp_path):
    found = factor_analysis(networks(["id:a", "id:b", "id:c", "ood:d"]), bootstrap=bootstrap)
    chart = factor_panels(found, title="mine")
    scree, loadings = chart.panels
    assert isinstance(scree, Curves)
    assert isinstance(loadings, Heatmap)
    np.testing.assert_array_equal(scree.curves[0].y, found.eigenvalues)
    np.testing.assert_array_equal(scree.curves[1].y, found.chance)
    np.testing.assert_array_equal(loadings.values, found.loadings)
    assert (loadings.marked is None) == (bootstrap == 0)
    assert found.interval_note in chart.notes[0]
    save(chart, tmp_path / "chart.html")
    assert "Loadings" in json.dumps(data_of((tmp_path / "chart.html").read_text()))


def test_test_sets_of_one_metric_are_named_once():
    found = factor_analysis(networks([f"ood:error@{s}" for s in "abcd"]), bootstrap=0)
    loadings = factor_panels(found, title="mine").panels[1]
    assert loadings.rows == tuple("abcd")
    assert loadings.title == "Loadings of ood:error"


def test_small_scatters_are_named_by_their_pattern():
    study = pairs(5)
    table = pattern_table(study, bootstrap=0, scale="linear")
    chart = pattern_panels(study, table, title="mine")
    assert [p.title for p in chart.panels] == ["increasing"] * 5
    first = chart.panels[0]
    assert isinstance(first, Dots)
    assert len(first.names) == 29  # a missing accuracy has no dot
    assert "m0" not in first.names
    assert first.x[0] == pytest.approx(100 * (1 - study[0].values[1, 0]))
    with pytest.raises(InputError, match="no pair to draw"):
        pattern_panels([], table.clear(), title="mine")


def test_counts_add_up():
    counts = pattern_counts(pattern_table(pairs(4), bootstrap=0))
    bars = count_bars(counts, title="mine")
    assert isinstance(bars, Bars)
    assert bars.values.sum() == 4
    assert bars.stacked
