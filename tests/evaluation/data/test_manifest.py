"""CSV manifests."""

import numpy as np
import pytest

from shiftbed.evaluation.data import open_test_set
from tests.evaluation.data.conftest import check, write_folder


@pytest.fixture
def write(folder):
    """A manifest beside the photographs' classes."""

    def write(text: str, name: str = "m.csv"):
        path = folder / name
        path.write_text(text)
        return path

    return write


def test_numbers_names_and_no_label(write):
    numbers = open_test_set(write("path,label\nflower/1.jpg,7\nchina/0.jpg,3\nchina/2.jpg,\n"))
    assert numbers.examples == ("flower/1.jpg", "china/0.jpg", "china/2.jpg")
    assert numbers.labels.tolist() == [7, 3, -1]
    assert numbers.classes is None
    assert numbers.notes == ("no label for 1 of 3 images: 'china/2.jpg'",)
    names = open_test_set(write("path,label\nflower/1.jpg,rose\nchina/0.jpg,hall\n"))
    assert (names.classes, names.labels.tolist()) == (("hall", "rose"), [1, 0])
    given = ["x", "rose", "hall"]
    spaced = open_test_set(write("path , label\n flower/1.jpg , rose \n"), classes=given)
    assert spaced.labels.tolist() == [1]


def test_sets_groups_ids_and_other_separators(write):
    text = "\ufefffile;labels;domain;key\nflower/1.jpg;7 2;a;x\nchina/0.jpg;;b;y\n"
    test_set = open_test_set(write(text), group_column="domain", id_column="key")
    assert test_set.examples == ("x", "y")
    assert test_set.label_sets == ((2, 7), ())
    assert test_set.groups.tolist() == ["a", "b"]
    tabbed = open_test_set(write("path\tlabel\tgroup\nflower/1.jpg\t1\tg\n", "m.tsv"))
    assert tabbed.groups.tolist() == ["g"]


def test_missing_files_are_unreadable_images(write):
    test_set = open_test_set(write("path,label\nchina/0.jpg,0\ngone.jpg,1\n"))
    assert [tuple(one) for one in check(test_set)] == [(1, "gone.jpg", "no such file")]


def test_paths_stay_below_the_root(write, folder, tmp_path, photos, refused):
    refused(write("path,label\n../x.jpg,0\n"), "line 2", "'../x.jpg' is not below", "root")
    refused(write("path,label\nchina/../../x.jpg,0\n"), "line 2", "is not below")
    refused(write("path,label\n/etc/hostname,0\n"), "line 2", "is not below")
    refused(write("path,label\nnothing.jpg,0\n"), "none of 'nothing.jpg' exists", "relative to")
    inside = write(f"path,label\n{folder}/china/1.jpg,0\n./china/0.jpg,0\n")
    assert open_test_set(inside).examples == ("china/1.jpg", "china/0.jpg")
    other = tmp_path / "other"
    write_folder(other, photos)
    there = open_test_set(write("path,label\nchina/0.jpg,0\n"), root=other)
    (folder / "china" / "0.jpg").unlink()
    assert np.array_equal(np.asarray(there.load(0)), photos[0].pixels)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["the file is empty"]),
        ("path,label\n", ["no row below"]),
        ("name,label\nchina/0.jpg,0\n", ["line 1", "paths of images", "'name'"]),
        ("path,kind\nchina/0.jpg,0\n", ["line 1", "labels", "'kind'"]),
        ("path,label,class\nchina/0.jpg,0,1\n", ["line 1", "several"]),
        ("path,label\nchina/0.jpg\n", ["line 2", "1 field", "2"]),
        ("path,label\nchina/0.jpg,0\nchina/0.jpg,0\n", ["line 3", "already on line 2"]),
        ("path,label\n,0\n", ["line 2", "no path"]),
        ("path,label\nchina/0.jpg,-7\n", ["label -7", "no class"]),
        ("path,label\nchina/0.jpg,\n", ["no image has a label"]),
        ('path,label\n"china/0.jpg,0\n', ["line 2", "a quote is never closed"]),
    ],
)
def test_what_is_no_manifest(write, refused, text, words):
    refused(write(text), "m.csv", *words)


def test_other_mistakes(write, refused, folder):
    good = "path,label\nchina/0.jpg,cat\n"
    refused(write(good), "unknown column", "'labl'", "did you mean 'label'", label_column="labl")
    refused(write(good), "unknown class", "'cat'", "'cats'", classes=["cats", "dogs"])
    refused(write("path,label\nchina/0.jpg,2\n"), "label 2", "0 to 1", classes=["a", "b"])
    (folder / "latin.csv").write_bytes(b"path,label\ncaf\xe9.jpg,0\n")
    refused(folder / "latin.csv", "line 2", "not UTF-8")
