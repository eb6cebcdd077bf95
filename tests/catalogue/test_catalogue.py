"""The catalogue: its counts, its class maps, and whether it agrees with what is published."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shiftbed as sb
from shiftbed.catalogue import (
    common_classes,
    count_of_pairs,
    entries,
    find,
    find_task,
    look_up,
    policy_of,
    shift,
    shifts,
    tasks,
    through,
)
from shiftbed.catalogue.maps import (
    cinic_synsets,
    domain_classes,
    groups,
    imagenet_synsets,
    indices,
    objectnet_folders,
)
from shiftbed.errors import InputError
from shiftbed.records import KINDS
from tests.conftest import SHARED

PAIRS = {
    **{"pacs": 12, "vlcs": 12, "domainnet": 30, "officehome": 12, "sviro": 90},
    **{"terraincognita": 12, "camelyon17": 1, "fmow": 1, "iwildcam": 1, "rxrx1": 1},
}


def test_172_pairs_over_ten_tasks():
    pairs = [one for one in shifts() if one.task is not None]
    counted = {task: sum(one.task == task for one in pairs) for task in PAIRS}
    assert counted == PAIRS
    assert len(pairs) == 172
    assert sum(bool(one.held_out) for one in pairs) == 168
    assert sum(task.datasets for task in tasks() if task.paper) == 36
    assert "172" in count_of_pairs()


def test_the_pairs_are_those_of_the_papers_table():
    paper = SHARED / "papers" / "wenzel2022.txt"
    if not paper.is_file():
        pytest.skip("the papers are not beside the checkout")
    text = paper.read_text().partition("Table S1: Overview")[2].partition("Figure S10")[0]
    listed: dict[str, list[tuple[str, str]]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if len(cells) == 2:  # an empty task is stripped with the bars
            listed[list(listed)[-1]].append((cells[0], cells[1].lower()))
        elif len(cells) == 3 and cells[2] in ("Real", "Artificial"):
            listed[cells[0]] = [(cells[1], cells[2].lower())]
    ours = {
        task.paper: [
            (f"{task.name}-{d.name}" if task.predefined else d.name, d.type) for d in task.domains
        ]
        for task in tasks()
        if task.paper
    }
    slip = {"wilds-rxx1": "wilds-rxrx1"}  # as printed
    listed = {
        slip.get(task, task): [(name.replace("rxx1", "rxrx1"), kind) for name, kind in domains]
        for task, domains in listed.items()
    }
    assert ours == listed


def test_held_out_domains_are_the_others():
    pacs = find_task("pacs")
    assert pacs.held_out("photo", "sketch") == ("art_painting", "cartoon")
    assert find_task("wilds-camelyon17").held_out("id", "ood") == ()
    with pytest.raises(InputError, match="unknown domain of pacs"):
        pacs.held_out("photo", "sketchy")


def test_class_counts_as_published():
    counted = {one.name: one.classes for one in shifts()}
    assert counted["imagenet-a"] == counted["imagenet-r"] == 200
    assert counted["objectnet"] == 113
    assert counted["imagenet-vid-robust"] == 30
    assert counted["ytbb-robust"] == 24
    assert counted["imagenet-v2-125"] == 125
    for entry in entries():
        if entry.policy is not None:
            assert entry.policy.width == entry.classes
        elif domain_classes(entry.base):
            assert len(domain_classes(entry.base)) == entry.classes


def test_sizes_are_those_of_the_published_testbed(imagenet):
    """ID twins have 50 images of each of their ImageNet classes."""
    sizes = {
        "imagenet-a": 10_000,
        "imagenet-r": 10_000,
        "objectnet": 6250,
        "imagenet-vid-robust": 14_400,
        "ytbb-robust": 11_550,
        "imagenet-125": 6250,
    }
    names = {
        "imagenet-vid-robust": "val-on-vid-robust-classes",
        "imagenet-125": "val_subsampled_class_1_8",
    }
    for name, size in sizes.items():
        assert 50 * len(indices(name)) == size
        setting = names.get(name, f"val-on-{name}-classes")
        column = imagenet.n[:, imagenet.settings.index(setting)]
        assert column.max() == size


def test_published_lines_exist_and_kinds_agree():
    for one in shifts():
        assert one.kind in KINDS
        for line in one.published:
            bed, _, name = line.partition(":")
            found = next(s for s in sb.published(bed).shifts if s.name == name)
            assert found.kind == one.kind


def test_names_are_unique_and_lead_back():
    names = [one.name for one in shifts()]
    assert len(set(names)) == len(names)
    for entry in entries():
        if entry.base not in ("imagenet-c", "cifar-10-c"):
            assert find(entry.name) == entry
    assert look_up("pacs/photo-to-sketch") == shift("pacs/photo-to-sketch")
    with pytest.raises(InputError, match="did you mean"):
        look_up("imagenet-b")


def test_maps_are_within_imagenet():
    maps = {
        *("imagenet-a", "imagenet-r", "imagenet-125", "objectnet"),
        *("imagenet-vid-robust", "ytbb-robust", "cifar-10"),
    }
    for name in maps:
        own = indices(name)
        assert len(set(own)) == len(own)
        assert 0 <= own[0] <= own[-1] < 1000
    assert set(groups("objectnet")) < set(objectnet_folders().values())
    empty = [name for name, own in groups("ytbb-robust").items() if not own]
    assert empty == ["cow", "giraffe", "skateboard", "toilet", "none"]
    every = imagenet_synsets()
    for name, own in groups("cifar-10").items():
        assert {every[index] for index in own} <= cinic_synsets()[name]


def test_maps_are_the_authors_own():
    folder = SHARED / "class_maps"
    if not folder.is_dir():
        pytest.skip("the authors' class maps are not beside the checkout")
    for name in ("imagenet_a", "imagenet_r", "imagenet_125"):
        text = (folder / f"{name}_indices.txt").read_text()
        assert list(indices(name.replace("_", "-"))) == [int(line) for line in text.split()]
    import json

    for name, file in (("imagenet-vid-robust", "vid"), ("ytbb-robust", "ytbb")):
        read = json.loads((folder / f"{file}_robust_class_idx_map.json").read_text())
        ours = {str(i): at for at, own in enumerate(groups(name).values()) for i in own}
        assert ours == read


def test_objectnets_twin_pools_the_logits_of_an_object():
    """A clock counts if either kind of clock has the largest logit (taori2020)."""
    policy = policy_of("objectnet")
    logits = np.zeros((1, 1000), dtype=np.float32)
    logits[0, [409, 530]] = 3.0, 5.0  # analog and digital clock
    logits[0, 7] = 9.0  # a cock: not one of the objects
    name = list(groups("objectnet"))[int(policy.apply(logits).argmax())]
    assert name == "Alarm clock"


NAMES = ("imagenet-a", "imagenet-r", "imagenet-125", "imagenet-sketch", "objectnet")


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4))
def test_common_classes_are_an_intersection(names):
    policy = common_classes(names)
    shared = set(range(1000))
    for name in names:
        shared &= set(indices(name))
    kept = np.flatnonzero(policy.relabel(np.arange(1000)) >= 0)
    assert set(kept.tolist()) == shared
    assert policy == common_classes(sorted(set(names)))


def test_superclasses_that_merge_differently_have_nothing_in_common():
    with pytest.raises(InputError, match="no common label space"):
        common_classes(["objectnet", "ytbb-robust"])


@pytest.mark.parametrize(("how", "combine"), [("max", np.max), ("mean", np.mean), ("sum", np.sum)])
def test_zero_shot_through_a_class_map(how, combine):
    logits = np.random.default_rng(0).normal(size=(20, 1000)) * 3
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    own = groups("cifar-10")
    wanted = np.stack([combine(softmax[:, list(g)], axis=1) for g in own.values()], axis=1)
    scores = np.exp(through("imagenet", "cifar-10", how=how).apply(logits))
    np.testing.assert_allclose(scores, wanted, rtol=1e-9)
    assert list(own) == sorted(own)  # CIFAR-10's own order


def test_the_map_to_cifar_as_sources_and_targets():
    with pytest.raises(InputError, match="label space that class maps start from"):
        through("cifar-100", "cifar-10")
    with pytest.raises(InputError, match="unknown class map"):
        through("imagenet", "cifar-100")
    assert 656 in groups("cifar-10")["automobile"]  # minivan: under truck, too, in the tree
    assert 656 not in groups("cifar-10")["truck"]
