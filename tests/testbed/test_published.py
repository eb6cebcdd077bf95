from importlib.resources import files

import numpy as np
import polars as pl
import pytest

import shiftbed as sb
from shiftbed.testbed import PUBLISHED, open_testbed
from tests.conftest import SHARED


@pytest.mark.parametrize("name", PUBLISHED)
class TestEveryPublishedTestbed:
    def test_all_shifts_fit_and_judge(self, name):
        bed = sb.published(name)
        table = bed.effective_robustness()
        assert set(table["shift"]) == {s.name for s in bed.shifts}
        for column in ("effective", "p_value", "prediction_low"):
            assert table[column].null_count() == 0
        assert table["low"].null_count() == 0  # every shift's sizes are known

    def test_says_where_it_comes_from(self, name):
        bed = sb.published(name)
        assert bed.source
        assert bed.licence in ("MIT", "Apache-2.0")
        assert bed.citation

    def test_accuracies_are_fractions(self, name):
        bed = sb.published(name)
        columns = [i for i, s in enumerate(bed.settings) if s not in bed.metrics]
        value = bed.value[:, columns]
        value = value[np.isfinite(value)]
        assert value.min() >= 0
        assert value.max() <= 1
        assert np.median(value) > 0.1

    def test_parents_are_models(self, name):
        bed = sb.published(name)
        assert set(bed.models["parent"].drop_nulls()) <= set(bed.model_names)


def test_shapes():
    shapes = {
        name: (len(bed.models), len([s for s in bed.settings if s not in bed.derived]))
        for name in PUBLISHED
        for bed in [sb.published(name)]
    }
    assert shapes == {
        "imagenet-testbed-2020": (204, 213),
        "imagenet-testbed-2023": (338, 213),
        "robustnets-2022": (447, 25),
        "timm": (1557, 8),
        "openclip": (121, 38),
    }


def test_together_under_a_megabyte():
    folder = files("shiftbed") / "published_tables"
    total = sum(
        len(file.read_bytes()) for file in folder.iterdir() if file.name.endswith(".parquet")
    )
    assert total < 1_000_000


def test_timm_fit_set_is_imagenet_1k_only():
    models = sb.published("timm").models
    fit = models.filter(pl.col("in_fit_set"))
    assert fit["tag"].str.contains("in1k").all()
    assert not fit["tag"].str.contains("in21k|in22k|in12k|laion|jft|ig1b|yfcc|openai|clip").any()
    assert not models.filter(pl.col("tag") == "fb_dino")["in_fit_set"].any()
    assert len(fit) > 1000


@pytest.mark.parametrize(
    ("shift", "slope", "intercept", "r2"),
    [("imagenet-v2", 0.9232, -0.4977, 0.9960), ("objectnet", 0.9809, -1.9283, 0.9525)],
)
def test_lines_of_the_newest_grid(shift, slope, intercept, r2):
    line = sb.published("imagenet-testbed-2023").fit(shift, bootstrap=0)
    assert line.n == 85
    assert line.weights[0] == pytest.approx(slope, abs=5e-5)
    assert line.intercept == pytest.approx(intercept, abs=5e-5)
    assert line.r2 == pytest.approx(r2, abs=5e-5)


def test_clip_stands_above_the_line_of_the_newest_grid():
    bed = sb.published("imagenet-testbed-2023")
    table = bed.effective_robustness("imagenet-v2")
    clip = table.filter(pl.col("model") == "vit_b_32_clip_zeroshot")
    assert clip["effective"].item() == pytest.approx(0.0563, abs=5e-5)
    assert clip["out_of_line"].item()


def test_sizes_of_the_newest_grid_are_those_of_its_figures():
    """Every accuracy is a whole number of images, up to the figures' single precision."""
    bed = sb.published("imagenet-testbed-2023")
    for setting in ("val", "imagenet-sketch", "ytbb-robust_pm0", "objectnet-1.0-beta"):
        right = (bed.accuracy(setting) * bed.size(setting))[bed.size(setting) > 0]
        assert np.abs(right - np.round(right)).max() < 0.01


def test_the_newest_grid_has_the_models_of_the_first(imagenet):
    bed = sb.published("imagenet-testbed-2023")
    rows = [bed.model_index(name) for name in imagenet.model_names]
    for setting in ("val", "imagenetv2-matched-frequency-format-val", "imagenet-sketch"):
        change = np.abs(bed.accuracy(setting)[rows] - imagenet.accuracy(setting))
        assert np.nanmax(change) < 0.001  # some were evaluated again
        assert np.nanmedian(change) < 1e-6


@pytest.mark.parametrize("year", ["2020", "2023"])
def test_what_the_models_of_taori2020_are(year):
    models = sb.published(f"imagenet-testbed-{year}").models
    facts = {row["model"]: row for row in models.to_dicts()}
    jft = facts["google_resnet101_jft-300M"]
    assert (jft["training_data"], jft["architecture"], jft["year"]) == ("JFT-300M", "ResNet", 2017)
    assert facts["resnet50_augmix"]["intervention"] == "data augmentation"
    assert facts["resnet50_lpf3"]["intervention"] == "architecture modification"
    assert facts["resnet50_l2_eps3_robust"]["intervention"] == "adversarial robustness"
    assert facts["alexnet"]["source"] == "Cadene/pretrained-models.pytorch"
    assert facts["dpn92"]["training_data"] == "ImageNet-21k subset"
    assert facts["resnet50_lpf3"]["training_data"] is None  # not stated
    counts = models.drop_nulls("intervention")["kind"].value_counts(name="n")
    assert dict(counts.iter_rows()) == {"intervention": 70, "lp-adversarial": 16}
    extra = models.filter((pl.col("kind") == "more-data") & pl.col("year").is_not_null())
    assert extra["training_data"].null_count() == 0
    assert len(extra) == 30


def test_models_are_chosen_and_grouped_by_their_facts(imagenet):
    assert len(imagenet.where("training_data=Instagram").models) == 11
    found = sb.groups(imagenet, shift=["imagenet-v2"], by="intervention")
    assert "data augmentation" in found.frame["group"].to_list()


def test_openclip_has_a_zero_shot_line():
    bed = sb.published("openclip")
    assert bed.line == "zero-shot line"
    assert all(s.full_source is None for s in bed.shifts)


def test_averages_are_of_averages(imagenet):
    parts = [imagenet.accuracy(f"imagenet-c.fog.{i}_on-disk") for i in range(1, 6)]
    assert np.allclose(imagenet.accuracy("fog_on-disk"), np.mean(parts, axis=0), equal_nan=True)
    assert len(imagenet.derived["avg_corruptions"]) == 38
    assert len(imagenet.derived["avg_pgd"]) == 4


def test_sizes_and_their_exceptions(imagenet):
    sizes = imagenet.size("imagenet-c.fog.1_on-disk")
    assert set(sizes.tolist()) == {0, 5_000, 50_000}
    assert imagenet.usual_size("imagenet-vid-robust_pm0") == 1_109


def test_the_tables_are_the_published_figures():
    source = SHARED / "figures"
    if not source.is_dir():
        pytest.skip("the published tables are not beside the checkout")
    wide = pl.read_csv(source / "imagenet_testbed_2020.csv")
    bed = sb.published("imagenet-testbed-2020")
    assert wide["model"].to_list() == bed.model_names
    for setting in wide.columns[2:]:
        theirs = wide[setting].cast(pl.Float64).fill_null(float("nan")).to_numpy() / 100
        assert np.array_equal(theirs, bed.accuracy(setting), equal_nan=True)


def test_open_testbed_knows_names_and_files(tmp_path):
    assert open_testbed("timm").name == "timm"
    sb.write_testbed(sb.published("openclip"), tmp_path / "own.parquet")
    assert open_testbed(str(tmp_path / "own.parquet")).name == "openclip"
    with pytest.raises(sb.InputError, match="did you mean 'timm'"):
        open_testbed("tim")
    with pytest.raises(sb.InputError, match="no such testbed file"):
        open_testbed("own.parquet")
