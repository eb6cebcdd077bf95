"""Families of models, from names and facts."""

from collections import Counter
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, logit

import shiftbed as sb
from shiftbed.testbed import PUBLISHED, open_testbed
from shiftbed.testbed.families import families, family_of

FIT_SET = {
    "AlexNet": 1,
    "DPN": 3,
    "DenseNet": 4,
    "EfficientNet": 16,
    "Inception": 4,
    "Inception-ResNet": 1,
    "MNASNet": 2,
    "MobileNet": 1,
    "NASNet": 2,
    "PNASNet": 1,
    "PNASNet (FixRes)": 1,
    "PolyNet": 1,
    "ResNeXt": 4,
    "ResNet": 8,
    "ResNet (FixRes)": 3,
    "ResNet (VTAB)": 5,
    "SE-ResNeXt": 2,
    "SE-ResNet": 3,
    "SENet": 1,
    "ShuffleNet": 2,
    "SqueezeNet": 2,
    "VGG": 4,
    "VGG-BN": 4,
    "Wide ResNet": 2,
    "Xception": 1,
}
"""taori2020's 78 standard models, sorted by hand."""
NAMELESS = {
    "test_byobnet.r160_in1k@160-0.95",
    "identity32_random_forests",
    "identity32_lstsq",
    "identity32_one_nn",
}


def test_the_fit_set_of_taori2020(imagenet):
    fitted = imagenet.models.filter("in_fit_set")
    assert sum(FIT_SET.values()) == 78
    assert Counter(fitted["family"]) == FIT_SET


@pytest.mark.parametrize(
    ("shift", "at_least"), [("objectnet", 0.4), ("imagenet-sketch", 0.3), ("imagenet-r", 0.5)]
)
def test_models_of_a_family_err_alike(imagenet, shift, at_least):
    """The intraclass correlation of residuals, one-way analysis of variance."""
    line = imagenet.fit(shift, bootstrap=0)
    rows = [imagenet.model_index(name) for name in line.models]
    x = logit(imagenet.accuracy(line.id_settings[0])[rows])
    y = logit(imagenet.accuracy(line.ood_setting)[rows])
    residual = y - np.polyval(np.polyfit(x, y, 1), x)
    family = np.array(imagenet.models["family"])[rows]
    groups = [residual[family == one] for one in set(family)]
    sizes = np.array([len(one) for one in groups])
    n, k = len(residual), len(groups)
    between = sum(len(one) * (one.mean() - residual.mean()) ** 2 for one in groups) / (k - 1)
    within = sum(((one - one.mean()) ** 2).sum() for one in groups) / (n - k)
    size = (n - (sizes**2).sum() / n) / (k - 1)
    assert (between - within) / (between + (size - 1) * within) > at_least


@pytest.mark.parametrize("name", PUBLISHED)
def test_shipped_models_have_families(name):
    models = sb.published(name).models
    unknown = models.filter(pl.col("family").is_null())["model"].to_list()
    assert set(unknown) <= NAMELESS
    assert models["family"].n_unique() < len(models) / 3


def test_one_model_in_two_testbeds_is_of_one_family(imagenet):
    other = sb.published("timm")
    for here, there in [
        ("resnet50", "resnet50.tv_in1k"),
        ("BiT-M-R50x1-ILSVRC2012", "resnetv2_50x1_bit.goog_in21k_ft_in1k"),
        ("resnext50_32x4d_swsl", "resnext50_32x4d.fb_swsl_ig1b_ft_in1k"),
        ("efficientnet-l2-noisystudent", "tf_efficientnet_l2.ns_jft_in1k"),
        ("resnet18_ssl", "resnet18.fb_ssl_yfcc100m_ft_in1k"),
        ("inceptionresnetv2", "inception_resnet_v2.tf_in1k"),
    ]:
        family = imagenet.models["family"][imagenet.model_index(here)]
        assert set(other.where(f"name={there}").models["family"]) == {family}


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("ResNet-50", "ResNet"),
        ("WideResNet-28-10", "Wide ResNet"),
        ("mobilevitv2_050.cvnets_in1k", "MobileViT"),
        ("vit_base_patch16_clip_224.laion2b_ft_in12k_in1k", "ViT (LAION)"),
        ("vit_b_32_clip_zeroshot", "ViT (CLIP)"),
        ("FixResNet50CutMix_v2", "ResNet (FixRes)"),
        ("googlenet/inceptionv1", "Inception"),
        ("inception_next_tiny.sail_in1k", "InceptionNeXt"),
        ("invitation", None),
        ("fit-7", None),
        ("bitter", None),
    ],
)
def test_names(name, family):
    assert family_of(name) == family


def test_facts_come_before_names():
    assert family_of("run-3", architecture="resnet18") == "ResNet"
    assert family_of("resnet18_ssl", training_data="ImageNet") == "ResNet"
    assert family_of("resnet18", training_data="our photographs") == "ResNet (our photographs)"


def test_a_column_is_left_as_it_is():
    models = pl.DataFrame({"model": ["resnet18", "vgg16"], "family": ["a", None]})
    assert families(models).to_list() == ["a", None]


def test_opened_files_have_families_where_names_say_them(tmp_path, imagenet):
    bed = imagenet.where("model=vgg*")
    named = bed.models.drop("family", "architecture").with_columns(parent=pl.lit(None, pl.String))
    unnamed = named.with_columns(model=pl.format("m{}", pl.int_range(pl.len())))
    for models, known in [(named, True), (unnamed, False)]:
        sb.write_testbed(replace(bed, models=models), tmp_path / "bed.parquet")
        assert ("family" in open_testbed(tmp_path / "bed.parquet").models.columns) == known


def trained(runs, steps, **columns):
    """A testbed of runs that err alike along their checkpoints, as ``train`` leaves them."""
    rng = np.random.default_rng(0)
    size = runs * steps
    x = rng.normal(size=size)
    y = 0.8 * x - 0.5 + 0.2 * np.repeat(rng.normal(size=runs), steps) + 0.02 * rng.normal(size=size)
    names = [f"net-{i}@{step}" for i in range(runs) for step in range(steps)]
    models = pl.DataFrame(
        {
            "model": names,
            "kind": "standard",
            "in_fit_set": True,
            "parent": pl.Series([None] * size, dtype=pl.String),
            "run": [name.partition("@")[0] for name in names],
        }
    ).with_columns(**columns)
    return sb.Testbed(
        name="trained",
        models=models,
        settings=("id", "ood"),
        value=np.column_stack([expit(x), expit(y)]),
        n=np.full((size, 2), 10_000),
        shifts=(sb.Shift(name="s", source=("id",), target="ood", kind="natural-dataset"),),
    )


def test_checkpoints_of_a_run_are_a_family():
    bed = trained(10, 5)
    line = bed.fit("s", bootstrap=0)
    named = replace(bed, models=bed.models.with_columns(family="run")).fit("s", bootstrap=0)
    assert line.families == 10
    assert line.covariance == pytest.approx(named.covariance)
    apart = bed.fit("s", families="none", bootstrap=0)
    assert line.covariance[0, 0] > 3 * apart.covariance[0, 0]
    fitted = sb.fit(bed, "s", bootstrap=0)
    assert "50 models of 10 families (checkpoints of a run are one)" in " ".join(fitted.notes)
    means = sb.groups(bed, shift="s", by="kind").frame
    assert means["families"].to_list() == [10]


def test_one_checkpoint_of_each_run_is_no_family():
    bed = trained(30, 1)
    assert bed.fit("s", bootstrap=0).families is None


def test_runs_of_one_architecture_are_related_by_run():
    bed = trained(10, 5, architecture=pl.lit("resnet18"))
    line = bed.fit("s", bootstrap=0)
    assert line.families == 10
    assert line.flags == (
        "all models are of one family: models of other families may lie elsewhere",
    )
    many = trained(10, 5, architecture=pl.Series(["resnet18", "vgg11", "vit", "swin", "dla"] * 10))
    assert many.fit("s", bootstrap=0).families == 5
