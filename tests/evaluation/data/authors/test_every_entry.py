"""Every test set of the catalogue loads from a tree in its authors' layout."""

import pickle

import numpy as np
import pytest

from shiftbed.catalogue import entries, find
from shiftbed.errors import InputError
from shiftbed.evaluation.data import open_test_set
from tests.evaluation.data.conftest import check
from tests.trees import make

NAMES = [
    *(entry.name for entry in entries()),
    "imagenet-vid-robust/frames",
    "ytbb-robust/frames",
    "objectnet/border-1",
]
PARTS = {"imagenet-c": "imagenet-c/fog-3", "cifar-10-c": "cifar-10-c/fog-3"}


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_from_its_authors_layout(name, tmp_path):
    entry, path = make(name, tmp_path / "tree")
    found = open_test_set(f"{entry.name}@{path}")
    assert found.name == entry.test_set
    assert len(found) >= 1
    assert check(found) == []  # every picture can be read
    assert found.citation == entry.citation
    assert found.licence == entry.licence
    assert found.classes is not None
    labels = [one for sets in found.label_sets for one in sets] if found.label_sets else None
    if labels is None:
        labels = found.labels[found.labels >= 0].tolist()
        assert len(labels) == len(found)
    assert min(labels) >= 0
    assert max(labels) < len(found.classes)
    assert len(found.classes) in (entry.classes, 1000)
    assert pickle.loads(pickle.dumps(found)).load(0).size == found.load(0).size
    assert found.fingerprint == open_test_set(f"{entry.name}@{path}").fingerprint


@pytest.mark.parametrize("name", [n for n in NAMES if n != "digits/sklearn"])
def test_a_small_tree_is_not_taken_for_the_whole_set(name, tmp_path):
    entry, path = make(name, tmp_path / "tree")
    notes = " ".join(open_test_set(f"{entry.name}@{path}").notes)
    if entry.images is not None:
        assert f"{entry.images:,}" in notes
    else:
        assert "no folder" in notes or "not there" in notes or name == "ytbb-robust/frames"


@pytest.mark.parametrize("name", [n for n in NAMES if n != "digits/sklearn"])
def test_a_wrong_layout_says_what_was_expected_where(name, tmp_path):
    (tmp_path / "other" / "cats").mkdir(parents=True)
    (tmp_path / "other" / "cats" / "a.txt").write_text("no image")
    entry = find(PARTS.get(name, name))
    with pytest.raises(InputError) as raised:
        open_test_set(f"{entry.name}@{tmp_path / 'other'}")
    message = str(raised.value)
    assert str(tmp_path / "other") in message
    assert f"expected {entry.tree}" in message
    assert "\n" not in message


def test_an_absent_directory_and_unknown_names():
    with pytest.raises(InputError, match=r"no such directory; expected DIR/n01498041"):
        open_test_set("imagenet-a@nowhere")
    with pytest.raises(InputError, match="did you mean 'imagenet-a'"):
        open_test_set("imagenet-aa@nowhere")
    with pytest.raises(InputError, match="did you mean 'sketch'"):
        open_test_set("pacs/sketsh@nowhere")
    with pytest.raises(InputError, match="which domain"):
        open_test_set("pacs@nowhere")
    with pytest.raises(InputError, match="which part"):
        open_test_set("imagenet-c@nowhere")
    with pytest.raises(InputError, match="has no parts"):
        open_test_set("imagenet-r/half@nowhere")
    with pytest.raises(InputError, match="known from the catalogue"):
        open_test_set("imagenet-r@nowhere", classes=["a"])


def test_a_file_that_is_called_so_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("imagenet-a@mine.npz", images=np.zeros((2, 4, 4), np.uint8), labels=[0, 1])
    assert len(open_test_set("imagenet-a@mine.npz")) == 2
