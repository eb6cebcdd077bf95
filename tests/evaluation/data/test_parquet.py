"""Parquet in Hugging Face's image layout, and which columns are taken."""

from concurrent.futures import ThreadPoolExecutor

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shiftbed.evaluation.data import UnreadableImage, open_test_set
from shiftbed.evaluation.data.parquet import ParquetImages
from tests.evaluation.data.conftest import CLASSES, check, same_photos, to_dataset


@pytest.fixture
def write(tmp_path, photos):
    """A Parquet file of the photographs with these columns besides."""

    def write(name="set.parquet", size=2, **columns):
        image = [{"bytes": photo.data, "path": None} for photo in photos]
        path = tmp_path / name
        columns = {"image": image} | columns
        table = pa.table({key: one for key, one in columns.items() if one is not None})
        pq.write_table(table, path, row_group_size=size)
        return path

    return write


def test_plain_columns(write, photos):
    labels = [photo.label for photo in photos]
    test_set = open_test_set(write(label=labels))
    same_photos(test_set, photos)
    assert test_set.classes is None
    assert test_set.examples == tuple("012345")
    just_bytes = open_test_set(
        write("bytes.parquet", image=[photo.data for photo in photos], label=labels)
    )
    same_photos(just_bytes, photos)
    assert just_bytes.fingerprint == test_set.fingerprint


def test_a_column_called_like_a_part_of_another(write, photos):
    columns = {"image": None, "image.bytes": [photo.data for photo in photos]}
    same_photos(open_test_set(write(**columns, label=[p.label for p in photos])), photos)


def test_labels_as_names_lists_and_with_gaps(write):
    names = open_test_set(write(label=list("abcabc")))
    assert (names.classes, names.labels.tolist()) == (("a", "b", "c"), [0, 1, 2] * 2)
    sets = open_test_set(write(labels=[[1, 0], [], [2], [3], [4], [5]]))
    assert sets.label_sets == ((0, 1), (), (2,), (3,), (4,), (5,))
    gaps = open_test_set(write(label=[0, 1, None, 3, -1, 5]))
    assert gaps.labels.tolist() == [0, 1, -1, 3, -1, 5]
    assert gaps.notes == ("no label for 2 of 6 images: '2', '4'",)


def test_class_names_in_a_list(tmp_path, photos):
    features = datasets.Features(
        {"image": datasets.Image(), "tags": datasets.List(datasets.ClassLabel(names=["a", "b"]))}
    )
    rows = {"image": [{"bytes": p.data, "path": None} for p in photos[:2]], "tags": [[1], [1, 0]]}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "x.parquet")
    test_set = open_test_set(tmp_path / "x.parquet")
    assert (test_set.classes, test_set.label_sets) == (("a", "b"), ((1,), (0, 1)))
    other = open_test_set(tmp_path / "x.parquet", classes=["x", "b", "a"])
    assert other.label_sets == ((1,), (1, 2))


def test_labels_follow_the_class_order_asked_for(tmp_path, photos, refused):
    to_dataset(photos).to_parquet(tmp_path / "x.parquet")
    turned = open_test_set(tmp_path / "x.parquet", classes=["tree", "flower", "china"])
    assert turned.labels.tolist() == [2, 2, 2, 1, 1, 1]
    refused(tmp_path / "x.parquet", "class 'flower' is not among", classes=["china", "tree"])


def test_columns_asked_for(write, refused):
    labels = {"fine": range(6), "coarse": [0, 1] * 3, "kind": list("xxyyzz"), "key": list("uvwxyz")}
    path = write(**{name: list(values) for name, values in labels.items()})
    refused(path, "one column of labels", "'fine', 'coarse'", "label_column=")
    refused(path, "unknown column", "'fin'", "'fine'", label_column="fin")
    refused(path, "unknown column", "'Key'", "'key'", label_column="fine", id_column="Key")
    test_set = open_test_set(path, label_column="fine", group_column="kind", id_column="key")
    assert test_set.labels.tolist() == list(range(6))
    assert test_set.groups.tolist() == list("xxyyzz")
    assert test_set.examples == tuple("uvwxyz")
    refused(path, "same id 'x'", label_column="fine", id_column="kind")
    refused(path, "'fine'", "expected struct<bytes, path>", image_column="fine", unlabelled=True)


def test_names_that_are_no_ids(write, photos):
    for names in (["a.jpg"] * 6, ["../a.jpg", *"bcdef"], ["/a.jpg", *"bcdef"], [None, *"bcdef"]):
        image = [{"bytes": p.data, "path": n} for p, n in zip(photos, names, strict=True)]
        assert open_test_set(write(image=image, label=[0] * 6)).examples == tuple("012345")


def test_no_bytes_is_unreadable_and_paths_are_not_followed(write, photos, tmp_path):
    secret = tmp_path / "secret.jpg"
    secret.write_bytes(photos[0].data)
    image = [{"bytes": photo.data, "path": f"{at}.jpg"} for at, photo in enumerate(photos)]
    image[1] = {"bytes": None, "path": "secret.jpg"}
    image[3] = None
    test_set = open_test_set(write(image=image, label=[0] * 6))
    assert [one.row for one in check(test_set)] == [1, 3]
    with pytest.raises(UnreadableImage, match="no bytes"):
        test_set.load(1)
    assert test_set.fingerprint


def test_row_groups_are_read_once_and_by_many_threads(write, photos, monkeypatch):
    path = write(label=[photo.label for photo in photos], size=2)
    read = []
    plain = ParquetImages.read
    monkeypatch.setattr(
        ParquetImages, "read", lambda self, *key: (read.append(key), plain(self, *key))[1]
    )
    test_set = open_test_set(path)
    with ThreadPoolExecutor(8) as pool:
        loaded = list(pool.map(test_set.load, [0, 1, 2, 3, 4, 5] * 10))
    assert sorted(read) == [(0, 0), (0, 1), (0, 2)]
    for at, image in enumerate(loaded):
        assert np.array_equal(np.asarray(image), photos[at % 6].pixels)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"image": None, "label": [0]}, ["column of images", "struct<bytes, path>", "'label'"]),
        ({"image": [1], "label": [0]}, ["column of images", "none"]),
        ({"label": None}, ["column of labels", "none", "unlabelled=True"]),
        (
            {"other": [b"x"] * 6, "image": None, "more": [b"x"] * 6},
            ["'other', 'more'", "say which"],
        ),
        ({"label": [0.5] * 6}, ["label 0.5"]),
        ({"label": [-1] * 6}, ["no image has a label"]),
    ],
)
def test_wrong_columns(write, refused, columns, words):
    refused(write(**columns), "set.parquet", *words)


def test_wrong_files(write, tmp_path, refused):
    path = write(label=[0] * 6)
    data = path.read_bytes()
    for cut in (0, 3, len(data) // 2, len(data) - 2):
        path.write_bytes(data[:cut])
        refused(path, "set.parquet", "Parquet")
    path.write_bytes(data)
    write("other.parquet", labels=[0] * 6)
    refused(str(tmp_path / "*.parquet"), "has other columns")


def test_damage_after_opening(write):
    path = write(label=[0] * 6)
    test_set = open_test_set(path)
    write(label=[0] * 6, image=[b"no struct"] * 6)
    with pytest.raises(UnreadableImage, match="its Parquet file cannot be read"):
        test_set.subset([0]).load(0)
    path.write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(UnreadableImage, match="its Parquet file cannot be read"):
        test_set.load(0)
    assert test_set.fingerprint


def test_text_that_is_no_text(tmp_path, photos, refused):
    broken = pa.array([b"\xc1\xff"]).view(pa.string())
    image = [{"bytes": photos[0].data, "path": "x"}]
    pq.write_table(pa.table({"image": image, "label": broken}), tmp_path / "x.parquet")
    refused(tmp_path / "x.parquet", "x.parquet", "cannot be read")


def test_broken_metadata_is_not_believed(tmp_path, photos):
    table = pa.table({"image": [{"bytes": photos[0].data, "path": "x"}], "label": [3]})
    for text in (
        b"{",
        b"[]",
        b'{"info": {"features": {"label": {"names": 3, "_type": "ClassLabel"}}}}',
    ):
        pq.write_table(table.replace_schema_metadata({"huggingface": text}), tmp_path / "x.parquet")
        assert open_test_set(tmp_path / "x.parquet").labels.tolist() == [3]


def test_names_of_shards(tmp_path, photos):
    dataset = to_dataset(photos)
    for at in range(2):
        dataset.shard(2, at).to_parquet(tmp_path / f"test-0000{at}-of-00002.parquet")
    test_set = open_test_set(str(tmp_path / "test-*.parquet"))
    assert test_set.name == "test"
    assert test_set.classes == tuple(CLASSES)
