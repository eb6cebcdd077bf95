"""Names of test sets: which mean the same, what they are called, how many images they have."""

from dataclasses import replace

import numpy as np
import pytest

from shiftbed import catalogue
from shiftbed.testbed import PUBLISHED, published
from shiftbed.testbed.naming import find_setting, known_test_sets


@pytest.mark.parametrize(
    ("names", "one"),
    [
        (["val", "ImageNet 1k", "imagenet", "imagenet_val", "ImageNet-1K"], "imagenet"),
        (
            ["imagenetv2-matched-frequency-format-val", "imagenet-v2", "imagenetv2_b_33",
             "ImageNet v2", "imagenetv2_mf", "ImageNetV2"],
            "imagenet-v2",
        ),
        (
            ["val-on-imagenet-a-classes", "imagenet_a_clean", "imagenet@imagenet-a-classes"],
            "imagenet@imagenet-a-classes",
        ),
        (["cifar10.1_acc", "CIFAR-10.1", "cifar10.1 v6"], "cifar-10.1"),
        (["imagenetv2-threshold0.7"], "imagenet-v2-threshold-0.7-original"),
        (["imagenetv2-threshold-0.7-format-val"], "imagenet-v2-threshold-0.7"),
        (["my photographs", "imagenet top5", "cifar-101x"], None),
    ],
)  # fmt: skip
def test_names_of_one_test_set(names, one):
    assert {catalogue.canonical(name) for name in names} == {one}


def test_every_name_comes_back_however_it_is_written():
    for one in catalogue.identities():
        assert catalogue.canonical(one.name) == one.name
        for name in (*one.names, *one.weak):
            assert catalogue.canonical(name) == one.name
            assert catalogue.title(name) == one.title
            assert catalogue.size(name) == one.size


def test_the_catalogues_own_names_are_known():
    for name in catalogue.names():
        found = catalogue.identity(name)
        assert found is not None
        assert found.size is None or found.size == catalogue.size(found.name)


def test_sizes_are_those_of_the_catalogue():
    for entry in catalogue.entries():
        found = catalogue.identity(entry.name)
        if found.name == entry.name and entry.images:
            assert entry.images in (found.size, *found.also)


def test_class_twins_are_of_known_test_sets():
    twins = [one for one in catalogue.identities() if one.twin]
    assert len(twins) >= 6
    for one in twins:
        assert catalogue.canonical(one.twin) == "imagenet"
        assert catalogue.canonical(one.of) == one.of
        assert one.size < catalogue.size(one.twin)


@pytest.mark.parametrize("name", PUBLISHED)
def test_settings_of_published_testbeds_have_titles_and_sizes(name):
    bed = published(name)
    for setting, one in known_test_sets(bed).items():
        assert bed.title_of(setting) == one.title
        if setting not in bed.metrics:
            assert bed.usual_size(setting) in (one.size, *one.also)
    for shift in bed.shifts:
        for setting in (*shift.source, shift.target):
            assert "format-val" not in bed.title_of(setting)
            assert "_acc" not in bed.title_of(setting)


def test_titles(imagenet):
    assert imagenet.title_of("val") == "ImageNet"
    assert imagenet.axis_title("val") == "ImageNet, top-1 %"
    assert imagenet.title_of("imagenet-c.fog.3_on-disk") == "ImageNet, fog 3, on disk"
    assert imagenet.title_of("imagenet-c.fog.3_in-memory") == "ImageNet, fog 3"
    assert imagenet.title_of("pgd.l2.eps0.1") == "ImageNet, pgd.l2.eps0.1"
    assert published("openclip").axis_title("FMoW") == "FMoW, worst-region accuracy"
    assert published("robustnets-2022").title_of("fog") == "CIFAR-10-C, fog"


def test_settings_are_found_by_other_names(imagenet):
    for name in ("ImageNet 1k", "imagenet"):
        assert imagenet.setting_index(name) == imagenet.setting_index("val")
    assert find_setting(["imagenet", "ImageNet 1k"], "val") is None


def test_a_common_word_is_no_imagenet_by_itself(imagenet):
    own = replace(
        imagenet.where("model=vgg*"), settings=("val", "mine"), value=imagenet.value[:14, :2],
        n=np.full((14, 2), 500), shifts=(), derived={}, records={},
    )  # fmt: skip
    assert own.title_of("val") == "val"
    assert replace(own, n=np.full((14, 2), 50_000)).title_of("val") == "ImageNet"
    assert replace(own, n=own.n * 0, settings=("val", "imagenet-r")).title_of("val") == "ImageNet"
    assert replace(own, n=own.n * 0).title_of("val") == "val"
