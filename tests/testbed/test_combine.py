"""Several testbeds as one."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import shiftbed as sb
from shiftbed.errors import InputError
from shiftbed.records import Bits, ImageResults, Shift
from shiftbed.testbed import Testbed, published
from shiftbed.testbed.combine import combine
from shiftbed.testbed.naming import joins

V2 = "imagenetv2-matched-frequency-format-val"


OPENCLIP = {
    "ImageNet 1k": "val",
    "ImageNet v2": V2,
    "ImageNet Sketch": "imagenet-sketch",
    "ImageNet-A": "imagenet-a",
    "ImageNet-R": "imagenet-r",
    "ObjectNet": "objectnet-1.0-beta",
}


@pytest.fixture(scope="module")
def three():
    return combine([published(n) for n in ("imagenet-testbed-2020", "timm", "openclip")])


def test_values_stay_in_place(imagenet):
    other = published("openclip")
    both = combine([imagenet, other])
    first = len(imagenet.models)
    assert len(both.models) == first + len(other.models)
    for setting in imagenet.settings:
        np.testing.assert_array_equal(both.accuracy(setting)[:first], imagenet.accuracy(setting))
    for setting in other.settings:
        there = OPENCLIP.get(setting, setting)
        np.testing.assert_array_equal(both.accuracy(there)[first:], other.accuracy(setting))
    assert both.models["testbed"].unique(maintain_order=True).to_list() == [
        "imagenet-testbed-2020",
        "openclip",
    ]


def test_one_imagenet_and_one_line(three, imagenet):
    assert len(three.models) == 204 + 1557 + 121
    for name in ("ImageNet 1k", "imagenet", "val"):
        assert three.setting_index(name) == three.settings.index("val")
    assert three.setting_index("imagenet_a_clean") == three.settings.index(
        "val-on-imagenet-a-classes"
    )
    line, alone = three.fit("imagenet-v2", bootstrap=0), imagenet.fit("imagenet-v2", bootstrap=0)
    assert line.n == 78
    assert line.weights == alone.weights
    table = three.effective_robustness("imagenet-v2")
    both = np.isfinite(three.accuracy("val")) & np.isfinite(three.accuracy(V2))
    assert len(table) == both.sum() > 1_800
    clip = table.filter(model="ViT-B-32/openai").row(0, named=True)
    assert clip["effective"] == pytest.approx(0.057, abs=0.001)
    assert clip["out_of_line"]


def test_kinds_of_published_models_are_kept(three):
    assert set(three.models.filter(testbed="openclip")["kind"]) == {"zero-shot"}
    assert set(three.models.filter(testbed="timm")["kind"]) == {"standard", "more-data"}
    assert not three.models.filter(testbed="timm")["in_fit_set"].any()


def test_the_same_model_twice_is_kept_and_marked(three):
    same = dict(three.models.select("model", "same_as").drop_nulls().iter_rows())
    assert same["resnet50.tv_in1k@224-0.875"] == "resnet50"
    assert same["legacy_senet154.in1k@224-0.875"] == "senet154"
    assert same["resnext101_32x8d.fb_wsl_ig1b_ft_in1k@224-0.875"] == "instagram-resnext101_32x8d"
    assert "resnet50.a1_in1k@224-0.95" not in same
    newest = combine([published("imagenet-testbed-2023"), published("openclip")])
    same = dict(newest.models.select("model", "same_as").drop_nulls().iter_rows())
    assert same["ViT-B-32/openai"] == "vit_b_32_clip_zeroshot"


def test_what_disagrees_or_is_left_out_is_said(three):
    assert three.notes[0] == (
        "timm: 7 of its 8 settings are also in imagenet-testbed-2020, 1 not (imagenet_real)"
    )
    assert three.notes[1].endswith("6 of its 38 settings are also in imagenet-testbed-2020, 32 not")
    assert any("ImageNet-Sketch" in n and "50,000" in n and "50,889" in n for n in three.notes)
    assert any(n.startswith("imagenet-real of timm is left out") for n in three.notes)
    assert "imagenet-real" not in {shift.name for shift in three.shifts}


def test_the_whole_id_set_is_never_taken_for_a_class_twin(three):
    assert three.shift("imagenet-a").source == ("val-on-imagenet-a-classes",)
    whole = three.shift("imagenet-a (whole ID set)")
    assert whole.source == ("val",)
    assert whole.title == "ImageNet-A, from the whole of ImageNet"
    clip = three.effective_robustness(whole).filter(model="ViT-B-32/openai")
    assert len(clip) == 1
    assert not len(three.effective_robustness("imagenet-a").filter(model="ViT-B-32/openai"))


def test_other_metrics_are_never_joined(imagenet):
    other = replace(imagenet.where("model=vgg*"), name="mine", metrics={"val": "top-5 accuracy"})
    other = replace(other, derived={}, shifts=(), records={})
    both = combine([imagenet, other])
    assert "val (mine)" in both.settings
    assert np.isnan(both.accuracy("val")[len(imagenet.models) :]).all()
    assert both.metrics == {"val (mine)": "top-5 accuracy"}


def test_sizes_known_by_name_are_filled_in(imagenet):
    models = imagenet.models.filter(model="vgg16").with_columns(model=pl.lit("mine"))
    own = Testbed(
        name="own",
        models=models,
        settings=("ImageNet", "ImageNet-Sketch", "elsewhere"),
        value=np.array([[0.7, 0.3, 0.2]]),
        n=np.zeros((1, 3), dtype=np.int64),
    )
    both = combine([imagenet, own])
    assert [int(both.size(s)[-1]) for s in own.settings] == [50_000, 50_889, 0]
    assert both.models["kind"][-1] == "own"


def test_two_names_of_one_test_set_in_one_testbed_stay_two(imagenet):
    own = Testbed(
        name="own",
        models=imagenet.models.filter(model="vgg16").with_columns(model=pl.lit("mine")),
        settings=("imagenet", "ImageNet 1k"),
        value=np.array([[0.7, 0.6]]),
        n=np.full((1, 2), 50_000),
    )
    both = combine([imagenet, own])
    assert both.accuracy("val")[-1] == 0.7
    assert both.accuracy("ImageNet 1k")[-1] == 0.6
    again = combine([own, imagenet])
    np.testing.assert_array_equal(again.accuracy("imagenet")[1:], imagenet.accuracy("val"))


def test_without_a_shared_shift_both_keep_their_fit_sets(imagenet):
    other = published("robustnets-2022")
    both = combine([imagenet, other])
    for name, bed in (("imagenet-v2", imagenet), ("cifar10.1", other)):
        theirs, ours = bed.fit(name, bootstrap=0), both.fit(name, models=None, bootstrap=0)
        assert ours.weights == pytest.approx(theirs.weights)


def test_models_of_one_name_are_told_apart(imagenet):
    own = replace(imagenet.where("model=resnet50*"), name="mine")
    both = combine([imagenet, own])
    assert len(set(both.model_names)) == len(both.models)
    assert both.model_names[-1].endswith("(mine)")
    assert set(both.models["kind"][len(imagenet.models) :]) == {"own"}
    assert both.models["same_as"][len(imagenet.models) :].to_list() == own.model_names
    assert both.fit("imagenet-v2", bootstrap=0).n == 78


def test_nothing_to_combine():
    with pytest.raises(InputError, match="no testbed"):
        combine([])


def test_results_per_image_stay_and_pair_models_on_the_same_images():
    rng = np.random.default_rng(0)
    images = {"id": rng.random((30, 400)) < 0.7, "ood": rng.random((30, 300)) < 0.5}

    def bed(name: str, rows: slice, fingerprint: str) -> Testbed:
        names = [f"m{i}" for i in range(30)][rows]
        right = {s: r[rows] for s, r in images.items()}
        return Testbed(
            name=name,
            models=pl.DataFrame({"model": names}).with_columns(
                pl.lit("standard").alias("kind"),
                pl.lit(True).alias("in_fit_set"),
                pl.lit(None, dtype=pl.String).alias("parent"),
            ),
            settings=("id", "ood"),
            value=np.column_stack([r.mean(axis=1) for r in right.values()]),
            n=np.tile([400, 300], (len(names), 1)),
            shifts=(Shift(name="s", kind="natural-dataset", source=("id",), target="ood"),),
            results={
                s: ImageResults(
                    images=s + fingerprint, bits=Bits.of(r), known=np.ones(len(r), bool)
                )
                for s, r in right.items()
            },
        )

    first = bed("first", slice(0, 20), "")
    alike = combine([first, bed("alike", slice(20, 30), "")])
    assert alike.effective_robustness("s")["interval"].to_list() == ["paired"] * 30
    np.testing.assert_array_equal(alike.results["ood"].right, images["ood"])
    other = combine([first, bed("other", slice(20, 30), " of others")])
    assert other.results["id"].known.tolist() == [True] * 20 + [False] * 10
    assert "paired" not in other.effective_robustness("s")["interval"][20:].to_list()


@pytest.mark.parametrize(
    ("settings", "sizes", "is_imagenet"),
    [
        (("val", "imagenet-r"), (0, 0), True),  # another known test set beside it
        (("val", "greyscale"), (50_000, 0), True),  # the size of ImageNet
        (("val", "greyscale"), (0, 0), False),  # a common word, and nothing else
        (("val", "imagenet-r"), (5_000, 0), False),  # another size
        (("ImageNet", "greyscale"), (0, 0), True),  # no common word
    ],
)
def test_one_rule_for_common_words_wherever_a_file_meets_a_testbed(
    imagenet, settings, sizes, is_imagenet
):
    own = Testbed(
        name="own",
        models=imagenet.models.filter(model="vgg16").with_columns(model=pl.lit("mine")),
        settings=settings,
        value=np.array([[0.7, 0.3]]),
        n=np.array([sizes]),
    )
    met = joins(imagenet, own)
    assert met.get(settings[0]) == ("val" if is_imagenet else None)
    assert met[settings[1]] in imagenet.settings
    both = combine([imagenet, own])
    assert np.isfinite(both.accuracy("val")[-1]) == is_imagenet
    if is_imagenet:
        assert sb.place_all(imagenet, own).frame["effective"].is_not_null().all()
    else:
        assert any("'val' is a common word" in note for note in both.notes)
        with pytest.raises(InputError, match="'val' is a common word and not taken for ImageNet"):
            sb.place_all(imagenet, own)
