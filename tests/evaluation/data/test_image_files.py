"""Folders of images: which classes, in which order, and what is passed over."""

import os

import numpy as np
import pytest

from shiftbed.evaluation.data import open_test_set
from tests.evaluation.data.conftest import write_folder


def touch(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def test_classes_called_by_numbers_are_sorted_as_numbers(tmp_path):
    touch(tmp_path, *(f"{at}/x.jpg" for at in range(12)))  # as ImageNetV2's are
    test_set = open_test_set(tmp_path)
    assert [int(one.split("/")[0]) for one in test_set.examples] == test_set.labels.tolist()
    assert test_set.classes == tuple(map(str, range(12)))


def test_a_class_order(tmp_path, refused):
    touch(tmp_path / "set", "b/1.jpg", "a/1.jpg", "a/2.jpg")
    given = open_test_set(tmp_path / "set", classes=["c", "b", "a"])
    assert given.examples == ("a/1.jpg", "a/2.jpg", "b/1.jpg")
    assert given.labels.tolist() == [2, 2, 1]
    assert given.classes == ("c", "b", "a")
    (tmp_path / "order.txt").write_text("c\nb\n\na\n")
    listed = open_test_set(tmp_path / "set", classes=tmp_path / "order.txt")
    assert listed.labels.tolist() == [2, 2, 1]
    refused(tmp_path / "set", "class 'b' is not among the 2 classes given", classes=["a", "c"])
    refused(tmp_path / "set", "all different", classes=["a", "a"])
    refused(tmp_path / "set", "absent.txt", "a class name per line", classes="absent.txt")


def test_some_of_imagenets_classes_keep_its_numbers(tmp_path):
    touch(tmp_path, "n01440764/1.jpg", "n01498041/1.jpg", "n15075141/1.jpg")
    assert open_test_set(tmp_path).labels.tolist() == [0, 1, 2]
    numbered = open_test_set(tmp_path, classes="imagenet-1k")
    assert numbered.labels.tolist() == [0, 6, 999]  # tench, stingray, toilet tissue
    assert len(numbered.classes) == 1000
    assert list(numbered.classes) == sorted(numbered.classes)


def test_the_order_is_by_directory_then_file(tmp_path):
    touch(tmp_path, "a/2.jpg", "a/10.jpg", "a-b/1.jpg", "a/deep/1.jpg", "B/1.JPEG")
    test_set = open_test_set(tmp_path)
    assert test_set.examples == ("B/1.JPEG", "a/10.jpg", "a/2.jpg", "a/deep/1.jpg", "a-b/1.jpg")
    assert test_set.classes == ("B", "a", "a-b")
    assert test_set.labels.tolist() == [0, 1, 1, 1, 2]


def test_hidden_and_other_files(tmp_path):
    touch(tmp_path, "a/1.jpg", "a/.2.jpg", ".git/x.jpg", "a/.cache/3.jpg", "README", "a/x.npy")
    test_set = open_test_set(tmp_path)
    assert test_set.examples == ("a/1.jpg",)
    assert test_set.notes == ("not used, no images of a class: 'README', 'a/x.npy'",)


def test_layouts_that_are_no_folder_of_classes(tmp_path, refused):
    touch(tmp_path, "flat/1.jpg", "flat/2.jpg", "text/a/readme.txt")
    (tmp_path / "nothing").mkdir()
    refused(tmp_path / "flat", "flat", "images but no sub-directories", "per class", "manifest")
    refused(tmp_path / "nothing", "no sub-directories")
    refused(tmp_path / "text", "no images", ".jpeg")
    flat = open_test_set(tmp_path / "flat", unlabelled=True)
    assert flat.examples == ("1.jpg", "2.jpg")
    assert flat.labels.tolist() == [-1, -1]


def test_links_are_followed_but_not_in_circles(tmp_path, photos):
    write_folder(tmp_path / "real", photos)
    root = tmp_path / "linked"
    root.mkdir()
    (root / "temple").symlink_to(tmp_path / "real" / "china")
    (tmp_path / "real" / "china" / "again").symlink_to(tmp_path / "real" / "china")
    test_set = open_test_set(root)
    assert test_set.examples == ("temple/0.jpg", "temple/1.jpg", "temple/2.jpg")
    assert np.array_equal(np.asarray(test_set.load(0)), photos[0].pixels)


@pytest.mark.skipif(os.name != "posix", reason="names of files are bytes on POSIX only")
def test_a_name_that_is_not_unicode(tmp_path, photos):
    root = os.fsencode(tmp_path / "set")
    os.makedirs(os.path.join(root, b"caf\xe9"))
    with open(os.path.join(root, b"caf\xe9", b"1.jpg"), "wb") as file:
        file.write(photos[0].data)
    test_set = open_test_set(tmp_path / "set")
    assert test_set.examples == ("caf\\xe9/1.jpg",)
    assert np.array_equal(np.asarray(test_set.load(0)), photos[0].pixels)
    assert test_set.fingerprint
