"""Test sets from arrays, loaders, torch data sets and Hugging Face data sets."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset

from shiftbed.errors import InputError
from shiftbed.evaluation.data import TestSet, batches, open_test_set
from tests.evaluation.data.conftest import CLASSES, to_dataset

IMAGES = np.random.default_rng(0).integers(0, 256, (7, 6, 5, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2, 2])


def tensors(scale: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """As ``ToTensor`` makes them: (N, C, H, W), floats in [0, 1] unless they stay bytes."""
    pixels = torch.from_numpy(IMAGES.transpose(0, 3, 1, 2).copy())
    return pixels.float() / 255 if scale else pixels, torch.from_numpy(LABELS)


class Items(Dataset):
    """A map-style data set that counts how often it is read."""

    def __init__(self, images, labels, **attributes):
        self.images, self.labels, self.read = images, labels, []
        self.__dict__.update(attributes)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, at):
        self.read.append(at)
        return self.images[at], self.labels[at]


def pixels(test_set: TestSet) -> np.ndarray:
    return np.stack([np.asarray(test_set.load(row)) for row in range(len(test_set))])


def refusal(make, *words):
    with pytest.raises(InputError) as caught:
        make()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, f"{word!r} is not in {message!r}"


def test_arrays():
    test_set = TestSet(IMAGES, LABELS, name="val", groups=list("aabbccc"), citation="me2024")
    assert (test_set.name, len(test_set), test_set.citation) == ("val", 7, "me2024")
    assert test_set.examples == tuple("0123456")
    assert np.array_equal(pixels(test_set), IMAGES)
    assert np.array_equal(test_set.labels, LABELS)
    assert (test_set.label_sets, test_set.classes, test_set.notes) == (None, None, ())
    part = test_set.subset([4, 1])
    assert (part.examples, part.labels.tolist(), part.groups.tolist()) == (
        ("4", "1"),
        [1, 1],
        ["c", "a"],
    )
    assert np.array_equal(pixels(part), IMAGES[[4, 1]])
    again = pickle.loads(pickle.dumps(test_set))
    assert again.fingerprint == test_set.fingerprint
    (batch,) = batches(test_set, None, np.asarray, 8)
    assert np.array_equal(batch.pixels, IMAGES)


def test_grey_arrays():
    grey = TestSet(IMAGES[..., 0], LABELS, name="grey")
    assert grey.load(0).mode == "L"
    assert grey.fingerprint == TestSet(IMAGES[..., :1], LABELS, name="other").fingerprint


def test_labels_may_be_names_sets_or_missing():
    named = TestSet(IMAGES, ["b", "a", None, "a", "b", "a", "a"])
    assert (named.classes, named.labels.tolist()) == (("a", "b"), [1, 0, -1, 0, 1, 0, 0])
    assert named.notes == ("no label for 1 of 7 images: '2'",)
    given = TestSet(IMAGES, ["b", "a", None, "a", "b", "a", "a"], classes=["z", "b", "a"])
    assert given.labels.tolist() == [1, 2, -1, 2, 1, 2, 2]
    several = TestSet(IMAGES, [{2, 0}, {1}, set(), {1}, {0}, {0}, {2}])
    assert several.label_sets == ((0, 2), (1,), (), (1,), (0,), (0,), (2,))
    assert several.labels.tolist() == [-1] * 7
    assert TestSet(IMAGES, None).labels.tolist() == [-1] * 7
    assert TestSet(IMAGES, torch.tensor(LABELS)[:, None]).labels.tolist() == LABELS.tolist()


def test_the_fingerprint_is_of_contents():
    val = TestSet(IMAGES, LABELS, name="val")
    other = IMAGES.copy()
    other[3, 2, 1, 0] ^= 1
    assert val.fingerprint == TestSet(IMAGES.copy(), list(LABELS), name="other").fingerprint
    assert val.fingerprint != TestSet(other, LABELS, name="val").fingerprint
    assert val.fingerprint != TestSet(IMAGES, LABELS[::-1], name="val").fingerprint


def test_the_same_arrays_in_a_file(tmp_path):
    np.savez(tmp_path / "same.npz", images=IMAGES, labels=LABELS)
    saved = TestSet.open(tmp_path / "same.npz")
    assert saved.fingerprint == open_test_set(tmp_path / "same.npz").fingerprint
    assert saved.fingerprint == TestSet(IMAGES, LABELS).fingerprint


def test_later_changes_of_the_array_change_nothing():
    mine = IMAGES.copy()
    test_set = TestSet(mine, LABELS)
    mine[:] = 0
    assert np.array_equal(pixels(test_set), IMAGES)
    with pytest.raises(AttributeError):
        test_set.name = "other"


def test_axes_are_decided_or_refused():
    assert np.array_equal(pixels(TestSet(IMAGES.transpose(0, 3, 1, 2), LABELS)), IMAGES)
    both = np.zeros((2, 3, 8, 3), np.uint8)
    refusal(lambda: TestSet(both, [0, 1]), "(2, 3, 8, 3)", "NHWC or NCHW", "layout")
    assert TestSet(both, [0, 1], layout="NHWC").load(0).size == (8, 3)
    assert TestSet(both, [0, 1], layout="NCHW").load(0).size == (3, 8)


def test_refusals():
    refusal(lambda: TestSet(IMAGES, LABELS[:5]), "5 labels for 7 images")
    refusal(lambda: TestSet(IMAGES, np.eye(7, dtype=int)), "(7, 7)", "expected (7,)")
    refusal(lambda: TestSet(IMAGES, LABELS, examples=["x"] * 7), "same id 'x'")
    refusal(lambda: TestSet(IMAGES, LABELS, examples=["x"]), "7 labels for 1 images")
    refusal(lambda: TestSet(IMAGES, None, examples=["x"]), "7 images for 1 examples")
    refusal(lambda: TestSet(IMAGES, LABELS, name="a b"), "name 'a b'")
    refusal(lambda: TestSet(IMAGES.astype(int), LABELS), "int64", "uint8")
    refusal(lambda: TestSet(IMAGES, LABELS, classes=["a", "b"]), "label 2 is no class")
    refusal(lambda: TestSet(np.zeros((2, 9), np.uint8), [0, 1]), "shape (2, 9)")


@pytest.mark.parametrize("scale", [True, False], ids=["floats", "bytes"])
def test_a_loader(scale):
    loader = DataLoader(TensorDataset(*tensors(scale)), batch_size=3)
    test_set = TestSet.from_loader(loader, name="new", classes=list("abc"))
    assert np.array_equal(pixels(test_set), IMAGES)
    assert (test_set.labels.tolist(), test_set.notes) == (LABELS.tolist(), ())
    assert test_set.classes == ("a", "b", "c")
    assert test_set.fingerprint == TestSet(IMAGES, LABELS).fingerprint


def test_any_iterable_of_batches():
    made = ((IMAGES[at : at + 2], LABELS[at : at + 2].tolist()) for at in range(0, 7, 2))
    assert TestSet.from_loader(made).fingerprint == TestSet(IMAGES, LABELS).fingerprint


def test_a_loader_of_normalised_images_is_refused():
    images, labels = tensors()
    loader = DataLoader(TensorDataset((images - 0.5) / 0.25, labels), batch_size=3)
    refusal(lambda: TestSet.from_loader(loader), "batch 0", "normalisation", "mean= and std=")


def test_rounding_is_noted():
    images, labels = tensors()
    loader = DataLoader(TensorDataset(images * 0.999, labels), batch_size=3)
    assert TestSet.from_loader(loader).notes == ("images are floats, rounded to 8 bits",)


def test_what_a_loader_leaves_out_or_shuffles_is_noted():
    data = TensorDataset(*tensors())
    left = TestSet.from_loader(DataLoader(data, batch_size=3, drop_last=True))
    assert left.notes == ("the loader gave 6 of its 7 examples",)
    mixed = TestSet.from_loader(DataLoader(data, batch_size=3, shuffle=True))
    assert "shuffles" in mixed.notes[0]


def test_loaders_that_cannot_be_used():
    refusal(lambda: TestSet.from_loader([]), "no batch")
    refusal(lambda: TestSet.from_loader([{"x": IMAGES}]), "(images, labels)", "dict")
    refusal(lambda: TestSet.from_loader([(IMAGES, LABELS, LABELS)]), "tuple of 3")
    refusal(lambda: TestSet.from_loader([(IMAGES, LABELS[:2])]), "2 labels, 7 images")
    refusal(lambda: TestSet.from_loader([(IMAGES, np.eye(7))]), "shape (7,)", "set of classes")
    small = IMAGES[:, :5]
    refusal(lambda: TestSet.from_loader([(IMAGES, LABELS), (small, LABELS)]), "(5, 5, 3)")


@pytest.mark.parametrize("kind", ["pil", "arrays", "tensors"])
def test_a_data_set_is_read_by_index(kind):
    made = {
        "pil": [Image.fromarray(one) for one in IMAGES],
        "arrays": IMAGES,
        "tensors": tensors()[0],
    }
    data = Items(made[kind], LABELS, targets=LABELS.tolist(), classes=["a", "b", "c"])
    test_set = TestSet.from_dataset(data, name="items")
    assert set(data.read) == {0}
    assert (test_set.classes, test_set.labels.tolist()) == (("a", "b", "c"), LABELS.tolist())
    data.read.clear()
    assert np.array_equal(np.asarray(test_set.load(5)), IMAGES[5])
    assert data.read == [5]
    assert test_set.fingerprint == TestSet(IMAGES, LABELS).fingerprint
    assert test_set.subset([2]).fingerprint == TestSet(IMAGES, LABELS).subset([2]).fingerprint


def test_targets_that_are_not_the_labels_are_not_believed():
    data = Items(IMAGES, LABELS, targets=(LABELS + 1).tolist())
    assert TestSet.from_dataset(data).labels.tolist() == LABELS.tolist()
    moved = Items(IMAGES, LABELS, targets=[0] * 7, target_transform=lambda label: label)
    assert TestSet.from_dataset(moved).labels.tolist() == LABELS.tolist()


def test_data_sets_that_cannot_be_used():
    class Noise(Items):
        def __getitem__(self, at):
            return np.random.default_rng().integers(0, 256, (6, 5, 3), dtype=np.uint8), 0

    refusal(lambda: TestSet.from_dataset(Noise(IMAGES, LABELS)), "another image each time")
    normal = Items((tensors()[0] - 0.5) / 0.2, LABELS)
    refusal(lambda: TestSet.from_dataset(normal), "normalisation")
    refusal(lambda: TestSet.from_dataset(iter(IMAGES)), "from_loader")
    refusal(lambda: TestSet.from_dataset(Items(IMAGES, [])), "empty")


def test_a_hugging_face_data_set(photos):
    data = to_dataset(photos)
    test_set = TestSet.from_hf(data, name="hub")
    assert (test_set.name, test_set.classes) == ("hub", tuple(CLASSES))
    assert test_set.labels.tolist() == [photo.label for photo in photos]
    assert np.array_equal(np.asarray(test_set.load(4)), photos[4].pixels)
    renamed = data.rename_columns({"image": "picture", "label": "kind"})
    named = TestSet.from_hf(renamed, name="hub", image_column="picture", label_column="kind")
    assert named.fingerprint == test_set.fingerprint


def test_torch_is_not_imported_for_arrays():
    code = (
        "import sys, numpy as np; from shiftbed.evaluation.data import TestSet; "
        "TestSet(np.zeros((2, 4, 4), np.uint8), [0, 1]).fingerprint; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
