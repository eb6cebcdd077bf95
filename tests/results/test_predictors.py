"""The predictor table of the published models, and of a store with probes."""

import json

import numpy as np
import polars as pl
import pytest
from scipy.special import ndtri
from scipy.stats import binomtest, linregress

from shiftbed.errors import InputError
from shiftbed.page import save
from shiftbed.page.document import chart_json
from shiftbed.results.predictors import groups_by, predictors
from shiftbed.testbed import published
from shiftbed.testbed.select import choose

CLEAN = "augmentation=clean"


@pytest.fixture(scope="module")
def bed():
    return published("robustnets-2022")


def test_a_cell_by_scipy(bed):
    table = predictors(bed, ood=["contrast"], by="architecture", models=CLEAN, bootstrap=50).frame
    rows = table.filter(metric="consistent_distances_amp")
    assert rows["group"].to_list() == ["average", "Conv8", "ResNet18", "VGG16"]
    vgg = choose(bed.models, ["architecture=VGG16", CLEAN])
    x = bed.accuracy("consistent_distances_amp")[vgg]
    wanted = linregress(x, ndtri(bed.accuracy("contrast")[vgg]))
    assert rows["slope"][3] == pytest.approx(wanted.slope)
    assert rows["r2"][3] == pytest.approx(wanted.rvalue**2)
    assert rows["n"].to_list() == [149, 47, 51, 51]
    assert rows["r2"][0] == pytest.approx(rows["r2"][1:].mean())


def test_an_accuracy_is_on_the_probit_scale(bed):
    table = predictors(bed, metric=["cifar10_acc"], ood=["cifar10.1"], bootstrap=0).frame
    wanted = linregress(ndtri(bed.accuracy("cifar10_acc")), ndtri(bed.accuracy("cifar10.1_acc")))
    assert table["r2"][0] == pytest.approx(wanted.rvalue**2)
    assert table["n"][0] == 447


def test_best_and_second_best_are_marked_once_per_ood_set(bed):
    table = predictors(bed, by="architecture", models=CLEAN, bootstrap=0).frame
    average = table.filter(group="average")
    for _, one in average.group_by("ood"):
        ordered = one.sort("r2", descending=True)
        assert ordered["rank"].to_list()[:2] == [1, 2]
        assert ordered["rank"][2:].null_count() == len(one) - 2
    assert table.filter(pl.col("group") != "average")["rank"].null_count() == len(table) * 3 // 4


def test_only_r2_above_one_half_is_marked(bed):
    options = {"by": "architecture", "models": CLEAN, "bootstrap": 0}
    found = predictors(bed, ood=["contrast", "gaussian_noise"], **options)
    average = found.frame.filter(group="average")
    above = (average["rank"].is_not_null() & (average["r2"] > 0.5)).to_list()
    assert average["marked"].to_list() == above
    assert sum(above) == 2
    assert set(average.filter("marked")["ood"]) == {"contrast"}
    starred = [row for table in found.tables() for row in table.rows if "*" in "".join(row)]
    assert len(starred) == 2


def test_bands_of_lines_by_another_library(bed):
    statsmodels = pytest.importorskip("statsmodels.api")
    found = predictors(bed, metric=["cifar10_acc"], ood=["contrast"], bootstrap=0).chart()
    panel = found.panels[0]
    (line,) = panel.lines
    at, low, high = np.array(line.band).T
    fit = statsmodels.OLS(panel.y, statsmodels.add_constant(panel.x)).fit()
    wanted = fit.get_prediction(statsmodels.add_constant(at)).conf_int(alpha=0.05)
    np.testing.assert_allclose(np.c_[low, high], wanted, rtol=1e-9)
    assert (at[0], at[-1]) == (panel.x.min(), panel.x.max())
    accuracy, n = bed.accuracy("contrast")[5], int(bed.size("contrast")[5])
    ends = binomtest(round(accuracy * n), n).proportion_ci(method="exact")
    assert panel.y_low[5] == pytest.approx(ndtri(ends.low), abs=1e-3)


def test_accuracies_of_0_and_1_are_left_out(bed):
    value = bed.value.copy()
    value[0, bed.setting_index("contrast")] = 1.0
    from dataclasses import replace

    table = predictors(replace(bed, value=value), ood=["contrast"], bootstrap=0).frame
    assert table["n"][0] == 446


def test_what_cannot_be_predicted(bed):
    with pytest.raises(InputError, match="no accuracy"):
        predictors(bed, ood=["jacobian_norm"])
    with pytest.raises(InputError, match="unknown"):
        predictors(bed, metric=["jacobian_nrm"])
    with pytest.raises(InputError, match="column of models"):
        groups_by(bed, "arch")
    with pytest.raises(InputError, match="is left"):
        groups_by(bed, None, np.zeros(447, bool))


def test_lines_are_as_opaque_as_r2(bed, tmp_path):
    options = {"ood": ["contrast", "gaussian_noise"], "by": "architecture", "models": CLEAN}
    found = predictors(bed, metric=["cifar10_acc"], bootstrap=0, **options)
    lines = found.chart()
    wanted = found.frame.filter(pl.col("group") != "average")["r2"].to_numpy()
    drawn = [line.opacity for panel in lines.panels for line in panel.lines]
    assert drawn == pytest.approx(np.clip(wanted, 0.06, 1))
    assert [line.group for line in lines.panels[0].lines] == ["Conv8", "ResNet18", "VGG16"]
    best = predictors(bed, ood=["contrast"], by="architecture", models=CLEAN, bootstrap=0).chart(
        "best"
    )
    assert best.panels[0].x_title == "high_freq_fracs_amp"
    for suffix in (".png", ".html"):
        save(lines, tmp_path / f"lines{suffix}")
    assert '"opacity":' in json.dumps(chart_json(lines))
