"""The transfer grid as a heat map."""

import json

import numpy as np
import polars as pl
import pytest

from shiftbed.errors import InputError
from shiftbed.page import save
from shiftbed.page.document import data_of
from shiftbed.results.charts.corruptions import transfer_heatmap


@pytest.fixture
def grid():
    rows = []
    for trained in ("fog", "crop-flip+gaussian-noise:0.1", "none", "snow/frost:3"):
        for tested in ("snow", "gaussian_noise", "clean", "fog"):
            good = 0.9 if trained == tested else 0.5
            gain = None if trained == "none" else good - 0.5
            rows.append((trained, tested, 2, 5, good, good - 0.02, good + 0.02, 100, gain))
    names = ["trained_on", "tested_on", "models", "severities", "accuracy", "low", "high", "n"]
    return pl.DataFrame(rows, schema=[*names, "gain"], orient="row")


def test_rows_and_columns_are_ordered_and_own_corruptions_marked(grid):
    chart = transfer_heatmap(grid)
    assert chart.rows[0] == "none"
    assert chart.columns == ("clean", "gaussian_noise", "snow", "fog")
    fog = chart.rows.index("fog")
    assert chart.values[fog].tolist() == [50, 50, 50, 90]
    marked = {
        (chart.rows[i], chart.columns[j]) for i, j in zip(*np.nonzero(chart.marked), strict=True)
    }
    assert marked == {
        ("fog", "fog"),
        ("snow/frost:3", "snow"),
        ("crop-flip+gaussian-noise:0.1", "gaussian_noise"),
    }
    assert chart.notes[0] == "2 models a cell, 5 severities, n = 100 images."
    assert "±2.0 points" in chart.notes[1]


def test_gains_leave_the_reference_out_and_diverge(grid):
    chart = transfer_heatmap(grid, "gain")
    assert "none" not in chart.rows
    assert chart.diverging
    assert (chart.low, chart.high) == (-40, 40)
    with pytest.raises(InputError, match="trained without"):
        transfer_heatmap(grid.filter(trained_on="none"), "gain")
    with pytest.raises(InputError, match="did you mean 'gain'"):
        transfer_heatmap(grid, "gains")


@pytest.mark.parametrize("suffix", ["svg", "html"])
def test_it_is_drawn(grid, tmp_path, suffix):
    path = tmp_path / f"grid.{suffix}"
    save(transfer_heatmap(grid), path)
    text = path.read_text(encoding="utf-8")
    text = json.dumps(data_of(text)) if suffix == "html" else text
    assert "gaussian_noise" in text
    assert "trained on" in text
