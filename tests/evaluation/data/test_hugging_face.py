"""Hugging Face data sets, as objects and from disk."""

import datasets
import numpy as np
import pytest

from shiftbed.evaluation.data import UnreadableImage, open_test_set
from tests.evaluation.data.conftest import same_photos, to_dataset, write_folder


def test_shuffled_selected_and_formatted(photos):
    dataset = to_dataset(photos)
    order = [4, 1, 5]
    same_photos(open_test_set(dataset.select(order)), [photos[at] for at in order])
    formatted = dataset.with_format("numpy")
    same_photos(open_test_set(formatted), photos)
    transformed = dataset.with_transform(lambda rows: {"image": [0]})
    same_photos(open_test_set(transformed), photos)


def test_pictures_given_as_pil(scenes):
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    rows = {"image": [one.resize((30, 20)) for one in scenes], "label": [1, 0]}
    test_set = open_test_set(datasets.Dataset.from_dict(rows, features=features))
    assert test_set.examples == ("0", "1")
    for row, image in enumerate(rows["image"]):
        assert np.array_equal(np.asarray(test_set.load(row)), np.asarray(image))


def test_paths_of_files(tmp_path, photos):
    root = write_folder(tmp_path, photos)
    names = [str(root / photo.id) for photo in photos]
    paths = [*names, str(root / "gone.jpg"), "https://example.org/x.jpg"]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    dataset = datasets.Dataset.from_dict({"image": paths, "label": [0] * 8}, features=features)
    test_set = open_test_set(dataset)
    assert np.array_equal(np.asarray(test_set.load(5)), photos[5].pixels)
    with pytest.raises(UnreadableImage, match="No such file"):
        test_set.load(6)
    with pytest.raises(UnreadableImage, match="local file"):
        test_set.load(7)
    assert test_set.fingerprint


def test_groups_and_ids(photos):
    dataset = to_dataset(photos).add_column("place", list("aabbcc")).add_column("key", [*range(6)])
    test_set = open_test_set(dataset, group_column="place", id_column="key")
    assert test_set.groups.tolist() == list("aabbcc")
    assert test_set.examples == tuple("012345")


def test_splits_must_be_chosen(tmp_path, photos, refused):
    splits = datasets.DatasetDict({"train": to_dataset(photos), "test": to_dataset(photos[:2])})
    refused(splits, "splits", "train, test")
    splits.save_to_disk(tmp_path / "saved")
    refused(tmp_path / "saved", "splits", "test, train")
    same_photos(open_test_set(tmp_path / "saved" / "test"), photos[:2])


def test_what_cannot_be_opened(tmp_path, photos, refused):
    dataset = to_dataset(photos)
    refused(dataset.to_iterable_dataset(), "IterableDataset", "expected a datasets.Dataset")
    refused(dataset.select([]), "no rows")
    refused(dataset.remove_columns("image"), "column of images")
    refused(dataset.remove_columns("label"), "column of labels")
    dataset.save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / "state.json").write_text("{")
    refused(tmp_path / "saved", "cannot be read as a saved data set")
