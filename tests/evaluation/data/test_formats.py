"""One set of photographs in every format: the same pictures, labels and, mostly, fingerprint."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

from shiftbed.evaluation.data import TestSet, open_test_set
from tests.evaluation.data.conftest import (
    CLASSES,
    members_of,
    same_photos,
    to_dataset,
    write_folder,
    write_manifest,
    write_tar,
)

FORMATS = ("folder", "manifest", "tar", "shards", "parquet", "parquets", "dataset", "saved", "npz")


@pytest.fixture(params=FORMATS)
def opened(request, tmp_path, photos) -> TestSet:
    kind = request.param
    if kind == "folder":
        spec = write_folder(tmp_path / "photos", photos)
    elif kind == "manifest":
        spec = write_manifest(tmp_path, photos)
    elif kind == "tar":
        spec = write_tar(tmp_path / "photos.tar", [one for p in photos for one in members_of(p)])
    elif kind == "shards":
        for at in range(2):
            members = [one for p in photos[3 * at : 3 * at + 3] for one in members_of(p)]
            write_tar(tmp_path / f"photos-{at:04d}.tar", members)
        spec = f"{tmp_path}/photos-{{0000..0001}}.tar"
    elif kind == "npz":
        spec = tmp_path / "photos.npz"
        labels = np.array([p.label for p in photos])
        np.savez(spec, images=np.stack([p.pixels for p in photos]), labels=labels)
    else:
        spec = _from_dataset(kind, tmp_path, photos)
    return open_test_set(spec, classes=CLASSES)


def _from_dataset(kind, tmp_path, photos):
    dataset = to_dataset(photos)
    if kind == "saved":
        dataset.save_to_disk(tmp_path / "photos")
        return tmp_path / "photos"
    if kind == "parquet":
        dataset.to_parquet(tmp_path / "photos.parquet", batch_size=2)
        return tmp_path / "photos.parquet"
    if kind == "parquets":
        for at in range(2):
            part = dataset.select(range(3 * at, 3 * at + 3))
            part.to_parquet(tmp_path / f"photos-0000{at}-of-00002.parquet", batch_size=2)
        return str(tmp_path / "photos-*.parquet")
    return dataset


def test_the_same_pictures_in_every_format(opened, photos):
    same_photos(opened, photos)
    assert opened.classes == tuple(CLASSES)
    assert opened.name in ("photos", "dataset")
    assert len(set(opened.examples)) == len(photos)
    assert opened.fingerprint.startswith("sha256:")


def test_pickled_and_back(opened, photos):
    opened.load(0)
    sent = pickle.dumps(opened)
    same_photos(pickle.loads(sent), photos)
    assert pickle.loads(sent).fingerprint == opened.fingerprint
    if "dataset" not in opened.name:  # one in memory has only its pixels
        assert len(sent) < 4000


def test_a_part_of_it(opened, photos):
    rows = [5, 0, 3]
    part = opened.subset(rows)
    same_photos(part, [photos[row] for row in rows])
    assert part.examples == tuple(opened.examples[row] for row in rows)
    fresh = part.fingerprint
    assert fresh != opened.fingerprint
    assert opened.subset(rows).fingerprint == fresh  # now from the digests of the whole
    assert opened.subset(range(6)).fingerprint == opened.fingerprint


def test_packing_does_not_change_the_fingerprint(tmp_path, photos):
    first = open_test_set(write_folder(tmp_path / "photos", photos))
    dataset = to_dataset(photos)
    dataset.to_parquet(tmp_path / "photos.parquet")
    assert open_test_set(tmp_path / "photos.parquet").fingerprint == first.fingerprint
    assert open_test_set(dataset).fingerprint == first.fingerprint


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent", ["absent", "no such file", "folder", ".parquet"]),
        ("notes.txt", ["not a known format", "sub-directory per class", ".csv"]),
        ("val.tar.gz", ["compressed", "unpack"]),
        ("val-*.tar", ["nothing matches"]),
        ("val-{0..1}.tar", ["val-0.tar", "no such file"]),
        ("val-{3..1}.tar", ["upwards"]),
        ("val-{x}.tar", ["{0000..0003}"]),
    ],
)
def test_what_is_no_test_set(tmp_path, refused, name, words):
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "val.tar.gz").write_bytes(b"\x1f\x8b")
    refused(str(tmp_path / name), *words)


def test_nothing_is_fetched_or_run(refused):
    refused("s4://bucket/val.tar", "Protocol not known: s4")
    refused("pipe:touch x", "commands are not run")
    refused(42, "path", "42")


def test_a_directory_of_shards_needs_a_choice(tmp_path, refused):
    (tmp_path / "test-0.parquet").write_bytes(b"")
    refused(tmp_path, "directory of .parquet files", "test-*.parquet")


def test_files_of_two_formats(tmp_path, refused):
    for name in ("a.tar", "b.parquet"):
        (tmp_path / name).write_bytes(b"")
    refused([tmp_path / "a.tar", tmp_path / "b.parquet"], "one format")


@pytest.mark.parametrize("name", ["", "a b", "val@x", "val+noise", "a/b", "a\nb"])
def test_names_that_do_not_fit_into_a_setting(folder, refused, name):
    refused(folder, "name", name=name)


def test_citation_and_licence(folder):
    test_set = open_test_set(folder, name="mine", citation="Me, 2020", licence="CC0-1.0")
    assert (test_set.name, test_set.citation, test_set.licence) == ("mine", "Me, 2020", "CC0-1.0")
    assert open_test_set(test_set) is test_set


def test_label_sets_by_name_and_by_list(tmp_path, photos, folder, refused):
    renamed = [f"{at}.jpg" for at in (5, 3, 1, 4, 2, 0)]  # file names in another order than classes
    root = tmp_path / "renamed"
    for photo, name in zip(photos, renamed, strict=True):
        (root / CLASSES[photo.label]).mkdir(parents=True, exist_ok=True)
        (root / CLASSES[photo.label] / name).write_bytes(photo.data)
    listed = [[at] if at else [] for at in range(6)]
    space = [*CLASSES, *"cdef"]
    by_list = open_test_set(root, label_sets=listed, classes=space)
    assert by_list.label_sets == tuple((number,) if number else () for number in (1, 3, 5, 0, 2, 4))
    assert [int(one.split("/")[1][0]) for one in by_list.examples] == [1, 3, 5, 0, 2, 4]
    assert (by_list.labels == -1).all()
    mapping = {f"{at}.jpg": row for at, row in enumerate(listed)}
    by_name = open_test_set(root, label_sets=mapping, classes=space)
    (tmp_path / "sets.json").write_text(json.dumps(mapping))
    from_file = open_test_set(root, label_sets=tmp_path / "sets.json", unlabelled=True)
    assert from_file.label_sets == by_list.label_sets
    assert by_name.label_sets == by_list.label_sets
    assert by_name.fingerprint == by_list.fingerprint != open_test_set(root).fingerprint
    refused(root, "label sets: label 3 is no class", "0 to 1", label_sets=mapping)
    (tmp_path / "sets.json").write_text("{")
    refused(root, "sets.json", "JSON", label_sets=tmp_path / "sets.json")
    refused(folder, "file names repeat", label_sets=listed)
    refused(folder, "5 for 6", label_sets=listed[:5])
    refused(folder, "no list of labels for 'china/0.jpg'", label_sets={"x": [1]})


def test_a_library_that_is_missing(tmp_path, monkeypatch, refused):
    (tmp_path / "x.parquet").write_bytes(b"")
    for module in ("parquet", "columns"):
        monkeypatch.delitem(sys.modules, f"shiftbed.evaluation.data.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused(tmp_path / "x.parquet", "needs pyarrow", "pip install")


def test_no_deep_learning_framework_is_loaded():
    code = (
        "import sys; import shiftbed.labels, shiftbed.evaluation.data.parquet, "
        "shiftbed.evaluation.data.hugging_face; print(sorted({'torch', 'timm'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
