from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.stats import linregress

import shiftbed as sb
from shiftbed.analysis.difference import difference
from shiftbed.records import Bits, ImageResults

V2 = "imagenetv2-matched-frequency-format-val"


class TestPublishedFigures:
    """What the figures must give (taori2020, andreassen2021)."""

    def test_the_v2_line(self, imagenet):
        line = imagenet.fit("imagenet-v2")
        found = (line.n, *np.round([line.weights[0], line.intercept], 5), round(line.r2, 4))
        assert found == (78, 0.92170, -0.49467, 0.9965)

    @pytest.mark.parametrize(
        ("model", "rho"),
        [
            ("efficientnet-l2-noisystudent", 1.109),
            ("resnet152-imagenet11k", 2.091),
            ("BiT-M-R101x3-ILSVRC2012", -1.349),
        ],
    )
    def test_effective_robustness(self, imagenet, model, rho):
        table = imagenet.effective_robustness("imagenet-v2")
        found = table.filter(pl.col("model") == model)["effective"][0]
        assert round(100 * found, 3) == rho

    def test_the_line_through_all_models(self, imagenet):
        line = imagenet.fit("imagenet-v2", models="all")
        assert line.n == 201
        assert (round(line.weights[0], 5), round(line.intercept, 5)) == (0.92250, -0.48962)
        r2 = [imagenet.fit("imagenet-v2", models="all", scale=s).r2 for s in ("linear", "probit")]
        assert [*np.round(r2, 3), round(line.r2, 3)] == [0.984, 0.995, 0.996]

    def test_objectnet(self, imagenet):
        line = imagenet.fit("objectnet")
        found = (round(line.weights[0], 4), round(line.intercept, 4), round(line.r2, 3))
        assert found == (0.9697, -1.8660, 0.953)

    @pytest.mark.parametrize(
        ("shift", "mean", "noisy_student"),
        [("imagenet-vid-pm10", 6.71, 2.40), ("ytbb-pm10", 4.89, 7.45)],
    )
    def test_consistency(self, imagenet, shift, mean, noisy_student):
        table = imagenet.effective_robustness(shift)
        chosen = table.filter(
            pl.col("kind") == "lp-adversarial", pl.col("model").str.starts_with("resnet50")
        )
        assert len(chosen) == 13
        assert round(100 * chosen["effective"].mean(), 2) == mean
        one = table.filter(pl.col("model") == "efficientnet-l2-noisystudent")
        assert round(100 * one["effective"][0], 2) == noisy_student

    def test_relative_robustness_from_the_shipped_parents(self, imagenet):
        vid = imagenet.effective_robustness("imagenet-vid-pm10").filter(
            pl.col("kind") == "lp-adversarial",
            pl.col("source") >= 0.49,
            pl.col("parent") == "resnet50",
        )
        assert round(100 * vid["relative"].mean(), 1) == -8.5
        ytbb = imagenet.effective_robustness("ytbb")
        mix = "gaussian_noise_contrast_motion_blur_jpeg_compression"
        for name, tau in [
            ("greyscale", 1.8),
            ("pixelate", 2.0),
            ("jpeg_compression", 6.3),
            (mix, 5.0),
            ("gaussian_noise", 4.0),
        ]:
            row = ytbb.filter(pl.col("model") == f"resnet50_with_{name}_aws")
            assert row["parent"][0] == "resnet50_aws_baseline"
            assert round(100 * row["relative"][0], 1) == tau

    def test_imagenet_r(self, imagenet):
        table = imagenet.effective_robustness("imagenet-r", threshold=0.75)
        rho = dict(zip(table["model"], 100 * table["effective"], strict=True))
        assert round(max(v for m, v in rho.items()), 1) == 29.1
        assert round(rho["resnext101_32x8d_deepaugment_augmix"], 1) == 11.2
        assert round(rho["resnet50_deepaugment_augmix"], 1) == 10.2
        assert round(rho["efficientnet-b8-advprop-autoaug"], 1) == 7.5


def test_by_hand_against_linregress(imagenet):
    x, y = imagenet.accuracy("val"), imagenet.accuracy("greyscale")
    fit = imagenet.models["in_fit_set"].to_numpy() & np.isfinite(x) & np.isfinite(y)
    reference = linregress(np.log(x / (1 - x))[fit], np.log(y / (1 - y))[fit])
    line = imagenet.fit("greyscale")
    assert line.weights[0] == pytest.approx(reference.slope)
    assert line.intercept == pytest.approx(reference.intercept)


def test_full_id_instead_of_the_class_twin(imagenet):
    line = imagenet.fit("objectnet", full_source=True)
    assert line.id_settings == ("val",)
    a = imagenet.fit("imagenet-a", full_source=True)
    assert a.lines[0].high == 0.7613
    assert "resnet50" in a.left_out


def test_a_plane(imagenet):
    shift = sb.Shift(
        name="plane",
        kind="natural-dataset",
        source=("val", "val-on-objectnet-classes", "greyscale"),
        target="objectnet-1.0-beta",
    )
    plane = imagenet.fit(shift)
    assert len(plane.weights) == 3
    assert plane.r2 >= imagenet.fit("objectnet").r2
    table = imagenet.effective_robustness(shift)
    assert table["share_of_gap"].null_count() == len(table)


def test_threshold_and_choice(imagenet):
    assert imagenet.fit("imagenet-v2", threshold=0.7).support[0, 0] >= 0.7
    some = imagenet.fit("imagenet-v2", models=["kind=standard", "model=resnet*"])
    assert some.n >= 10
    assert all(m.startswith("resnet") for m in some.models)
    with pytest.raises(sb.InputError, match=r"no model .* is left"):
        imagenet.fit("imagenet-v2", threshold=0.999)


def test_weighted_by_size(imagenet):
    assert (
        imagenet.fit("pgd.linf.eps0.5", weighted=True).weights
        != imagenet.fit("pgd.linf.eps0.5").weights
    )


def test_scores_have_exact_intervals(imagenet):
    scores = imagenet.scores(0.995)
    row = scores.filter(pl.col("model") == "resnet50", pl.col("setting") == "val")
    low, high = sb.clopper_pearson(0.7613, 50_000, 0.995)
    assert (row["low"][0], row["high"][0]) == pytest.approx((float(low), float(high)))
    assert row["n"][0] == 50_000


def test_out_of_line_means_the_false_discovery_rate(imagenet):
    table = imagenet.effective_robustness(["imagenet-v2", "objectnet"], fdr=0.1)
    assert (table["out_of_line"] == (table["q_value"] <= 0.1)).all()
    assert (table["q_value"] >= table["p_value"] - 1e-12).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.fit("imagenet-v3"), "did you mean 'imagenet-v2'"),
        (lambda t: t.accuracy("vall"), "did you mean 'val'"),
        (lambda t: t.model_index("resnet500"), "did you mean 'resnet50'"),
        (lambda t: t.fit("imagenet-v2", models="kind=standart"), "did you mean 'standard'"),
        (lambda t: t.fit("imagenet-v2", models="sort=a"), "unknown column of models 'sort'"),
        (lambda t: t.fit("imagenet-v2", scale="log"), "did you mean 'logit'"),
        (lambda t: t.with_model("resnet50", {"val": 0.5}), "already has a model"),
        (lambda t: t.with_model("mine", {"val": 76.1}), "looks like a percentage"),
    ],
)
def test_errors_say_what_to_do(imagenet, call, message):
    with pytest.raises(sb.InputError, match=message):
        call(imagenet)


def test_ambiguous_bare_names_are_refused():
    timm = sb.published("timm")
    names = timm.models.group_by("name").len()
    one = names.filter(pl.col("len") == 1)["name"][0]
    two = names.filter(pl.col("len") > 1)["name"][0]
    assert timm.model_names[timm.model_index(one)].startswith(one + "@")
    with pytest.raises(sb.InputError, match="is ambiguous"):
        timm.model_index(two)


def paired_testbed(seed=0):
    rng = np.random.default_rng(seed)
    ability = np.linspace(-0.5, 1.5, 20)[:, None]
    right = {
        s: ability + shift > rng.normal(0, 1, n) + rng.normal(0, 0.5, (20, n))
        for s, shift, n in [("id", 0.8, 4000), ("ood", 0.2, 2000)]
    }
    return sb.Testbed(
        name="paired",
        models=pl.DataFrame(
            {
                "model": [f"m{i}" for i in range(20)],
                "kind": ["standard"] * 20,
                "in_fit_set": [True] * 20,
                "parent": pl.Series([None] * 20, dtype=pl.String),
            }
        ),
        settings=("id", "ood"),
        value=np.column_stack([r.mean(axis=1) for r in right.values()]),
        n=np.tile([4000, 2000], (20, 1)),
        shifts=(sb.Shift(name="s", kind="natural-dataset", source=("id",), target="ood"),),
        results={
            s: ImageResults(images=s, bits=Bits.of(r), known=np.ones(20, bool))
            for s, r in right.items()
        },
    )


class TestPairedIntervals:
    def test_are_used_where_results_exist(self):
        bed = paired_testbed()
        table = bed.effective_robustness("s")
        assert table["paired"].all()

    def test_own_predictions_on_the_same_images_are_paired_too(self):
        bed = paired_testbed()
        own = {s: bed.results[s].right[7] for s in ("id", "ood")}
        accuracy = {s: float(r.mean()) for s, r in own.items()}
        with_results = bed.with_model("mine", accuracy, right=own).effective_robustness("s")
        without = bed.with_model("mine", accuracy).effective_robustness("s")
        a, b = (t.filter(pl.col("model") == "mine") for t in (with_results, without))
        assert a["paired"][0]
        assert not b["paired"][0]
        assert without.filter(pl.col("model") == "m7")["paired"][0]
        assert a["high"][0] - a["low"][0] < b["high"][0] - b["low"][0]
        assert a["effective"][0] == pytest.approx(b["effective"][0])

    def test_results_must_be_of_the_same_images(self):
        with pytest.raises(sb.InputError, match="has 4000 images, got results for 3"):
            paired_testbed().with_model("mine", {"id": 0.5}, right={"id": [True] * 3})

    def test_differences_are_paired(self):
        bed = paired_testbed()
        line = bed.fit("s", bootstrap=0)
        gap = bed.difference(line, "m3", "m4")
        bare = replace(bed, results={})
        alone = bare.difference(line, "m3", "m4")
        assert (gap.paired, gap.interval, alone.interval) == (True, "paired", "modelled")
        sizes = {"n_id": bed.n[:, :1].astype(float), "n_ood": bed.n[:, 1].astype(float)}
        given = (line, bed.value[:, :1], bed.value[:, 1], (3, 4))
        independent = difference(*given, **sizes, position=np.arange(len(bed.models)))
        assert independent.interval == "independent"
        assert gap.high - gap.low < independent.high - independent.low
        assert gap.effective == pytest.approx(alone.effective)

    def test_a_model_that_is_always_right(self):
        """(k + ½)/(n + 1) stands in for 1, for the pair and for all others in the bed."""
        bed = paired_testbed()
        right = bed.results["ood"].right.copy()
        right[19] = True
        value = bed.value.copy()
        value[19, 1] = 1.0
        fit_set = bed.models.with_columns(in_fit_set=pl.Series([i != 19 for i in range(20)]))
        results = bed.results | {"ood": replace(bed.results["ood"], bits=Bits.of(right))}
        edge = replace(bed, models=fit_set, value=value, results=results)
        line = edge.fit("s", bootstrap=0)
        gap = edge.difference(line, "m3", "m4")
        assert gap.low < gap.effective < gap.high
        top = edge.difference(line, "m19", "m4")
        assert 0 < top.low < top.effective < top.high
        itself = edge.difference(line, "m3", "m3")
        assert (itself.effective, itself.low, itself.high, itself.p_value) == (0, 0, 0, 1)


def test_some_models_only(imagenet):
    lp = imagenet.where("kind=lp-adversarial")
    assert len(lp.models) == 16
    assert lp.value.shape[0] == 16
