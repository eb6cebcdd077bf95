"""Test sets of the catalogue in a testbed.toml."""

import pytest

from shiftbed.catalogue import policy_of
from shiftbed.engine.testbed_file import read_testbed_toml
from shiftbed.errors import InputError

HEAD = '[[models]]\nid = "timm:resnet18"\n'


def spec_of(folder, text):
    path = folder / "testbed.toml"
    path.write_text(HEAD + text)
    return read_testbed_toml(path)


def sets(*paths: str) -> str:
    return "".join(f'[[test_sets]]\npath = "{path}"\n' for path in paths)


def test_names_paths_and_policies_come_from_the_catalogue(tmp_path):
    spec = spec_of(
        tmp_path,
        sets("imagenet@images/val", "imagenet-a@images/a", "pacs/sketch@PACS", "digits/sklearn@"),
    )
    val, a, sketch, sklearn = spec.settings
    assert [s.id for s in spec.settings] == [
        *("imagenet", "imagenet-a", "pacs/sketch", "digits/sklearn")
    ]
    assert a.images.path == f"imagenet-a@{tmp_path}/images/a"
    assert sklearn.images.path == "digits/sklearn@"
    assert a.setting.policy == policy_of("imagenet-a")
    assert a.setting.relabel
    assert val.setting.policy.describe() == "all 1000 classes"
    assert sketch.setting.policy is None


def test_a_shift_of_the_catalogue_brings_its_twin(tmp_path):
    text = sets("imagenet-a@a", "objectnet@o") + (
        '[[test_sets]]\nname = "val"\npath = "imagenet@val"\n'
        '[[shifts]]\ncatalogue = "imagenet-a"\n'
        '[[shifts]]\ncatalogue = "objectnet"\nname = "objects"\n'
    )
    spec = spec_of(tmp_path, text)
    assert [s.id for s in spec.settings] == [
        *("imagenet-a", "objectnet", "val", "val@imagenet-a-classes", "val@objectnet-classes")
    ]
    first, second = spec.shifts
    assert (first.name, first.kind) == ("imagenet-a", "adversarially-filtered")
    assert first.source == ("val@imagenet-a-classes",)
    assert first.target == "imagenet-a"
    assert first.full_source == "val"
    assert (second.name, second.target) == ("objects", "objectnet")
    twin = spec.settings[3]
    assert twin.setting.relabel
    assert twin.setting.policy.width == 200
    pooled = spec.settings[4].setting.policy
    assert pooled.describe() == "125 of 1000 classes mapped to 113 by max of logits"


def test_the_125_classes_on_both_sides(tmp_path):
    text = sets("imagenet@val", "imagenet-v2@v2") + '[[shifts]]\ncatalogue = "imagenet-v2-125"\n'
    (one,) = spec_of(tmp_path, text).shifts
    assert one.source == ("imagenet@imagenet-125-classes",)
    assert one.target == "imagenet-v2@imagenet-125-classes"


def test_all_pairs_of_a_task(tmp_path):
    text = sets("pacs/photo@d", "pacs/sketch@d", "pacs/cartoon@d")
    spec = spec_of(tmp_path, text + '[[shifts]]\ncatalogue = "pacs"\n')
    assert len(spec.shifts) == 6
    assert {s.name for s in spec.shifts} >= {"pacs/photo-to-sketch", "pacs/sketch-to-photo"}
    one = spec_of(tmp_path, text + '[[shifts]]\ncatalogue = "pacs/photo-to-sketch"\n')
    assert [(s.source, s.target) for s in one.shifts] == [(("pacs/photo",), "pacs/sketch")]


def test_corruptions_on_disk_are_called_after_the_clean_set(tmp_path):
    text = '[[test_sets]]\nname = "val"\npath = "imagenet@val"\n' + sets("imagenet-c/fog-3@c")
    spec = spec_of(tmp_path, text)
    assert [s.id for s in spec.settings] == ["val", "val+fog:3@disk"]
    assert [(s.source, s.target, s.kind) for s in spec.shifts] == [
        (("val",), "val+fog:3@disk", "corruption")
    ]


def test_other_policies_on_request(tmp_path):
    text = sets("imagenet-a@a", "cifar-10@c") + (
        '[[settings]]\ntest_set = "imagenet-a"\n'
        '[[settings]]\ntest_set = "imagenet-a"\npolicy = "full"\n'
        '[[settings]]\ntest_set = "imagenet-a"\nsubset = [6, 11]\n'
        '[[settings]]\ntest_set = "cifar-10"\nthrough = "imagenet"\nhow = "sum"\n'
    )
    subset, full, own, mapped = spec_of(tmp_path, text).settings
    assert (subset.id, full.id, own.id) == (
        *("imagenet-a", "imagenet-a@full"),
        "imagenet-a@classes-6-11",
    )
    assert full.setting.policy is None
    assert own.setting.policy.width == 2
    assert mapped.id.startswith("cifar-10@10-by-sum-")
    assert not mapped.setting.relabel
    assert mapped.setting.policy.classes == 1000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (sets("imagenet-x@a"), "did you mean"),
        (sets("imagenet-a@a") + '[[shifts]]\ncatalogue = "imagenet-a"\n', "'imagenet@DIR'"),
        (sets("imagenet-a@a") + '[[shifts]]\ncatalogue = "imagenet-q"\n', "unknown shift"),
        (
            sets("imagenet-a@a") + '[[shifts]]\ncatalogue = "imagenet-a"\nkind = "x"\n',
            "key beside catalogue",
        ),
        (sets("pacs/photo@d") + '[[shifts]]\ncatalogue = "pacs"\n', "need two of its domains"),
        (
            sets("imagenet@v") + '[[shifts]]\ncatalogue = "imagenet-vid-robust-pm10"\n',
            "predictions of imagenet-vid-robust/frames",
        ),
        (
            sets("imagenet-a@a") + '[[settings]]\ntest_set = "imagenet-a"\npolicy = "none"\n',
            "unknown policy",
        ),
        (
            sets("imagenet-a@a")
            + '[[settings]]\ntest_set = "imagenet-a"\npolicy = "full"\nsubset = [1]\n',
            "not both",
        ),
        (
            sets("imagenet-r@a") + '[[settings]]\ntest_set = "imagenet-r"\nthrough = "imagenet"\n',
            "no class map",
        ),
        (
            '[[test_sets]]\nname = "v"\npath = "v"\n'
            '[[settings]]\ntest_set = "v"\npolicy = "full"\n',
            "test sets of the catalogue",
        ),
    ],
)
def test_what_cannot_be(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        spec_of(tmp_path, text)
