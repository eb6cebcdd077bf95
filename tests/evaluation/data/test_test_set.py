"""What a test set promises, whatever it was read from."""

import os
import pickle
import shutil

import numpy as np
import pytest
from PIL import Image

from shiftbed.errors import InputError
from shiftbed.evaluation.data import UnreadableImage, open_test_set
from tests.evaluation.data.conftest import check, write_folder


def test_the_fingerprint_follows_content_only(folder, tmp_path):
    before = open_test_set(folder).fingerprint
    picture = folder / "flower" / "1.jpg"
    os.utime(picture, (1, 1))
    assert open_test_set(folder).fingerprint == before
    moved = tmp_path / "elsewhere"
    shutil.move(folder, moved)
    assert open_test_set(moved).fingerprint == before
    data = bytearray((moved / "flower" / "1.jpg").read_bytes())
    data[-10] ^= 1
    (moved / "flower" / "1.jpg").write_bytes(data)
    assert open_test_set(moved).fingerprint != before


def test_the_fingerprint_follows_ids_labels_and_groups(tmp_path, photos):
    write_folder(tmp_path, photos[:2])

    def of(*rows: str) -> str:
        (tmp_path / "m.csv").write_text("\n".join(("path,label,group,key", *rows)))
        return open_test_set(tmp_path / "m.csv", id_column="key").fingerprint

    base = of("china/0.jpg,0,a,x", "china/1.jpg,1,a,y")
    assert base == of("china/0.jpg,0,a,x", "china/1.jpg,1,a,y")
    different = {
        of("china/0.jpg,1,a,x", "china/1.jpg,1,a,y"),
        of("china/0.jpg,0,b,x", "china/1.jpg,1,a,y"),
        of("china/0.jpg,0,a,z", "china/1.jpg,1,a,y"),
        of("china/1.jpg,0,a,x", "china/0.jpg,1,a,y"),
        of("china/1.jpg,1,a,y", "china/0.jpg,0,a,x"),
    }
    assert len(different | {base}) == 6


def test_a_missing_file_has_a_fingerprint_too(folder):
    before = open_test_set(folder)
    (folder / "china" / "0.jpg").unlink()
    assert before.fingerprint.startswith("sha256:")
    with pytest.raises(UnreadableImage, match=r"'china/0\.jpg': no such file"):
        before.load(0)


def test_unreadable_images_by_name(folder, photos):
    (folder / "china" / "1.jpg").write_bytes(photos[1].data[:500])
    (folder / "flower" / "2.jpg").write_text("no picture")
    test_set = open_test_set(folder)
    assert [(one.row, one.example) for one in check(test_set)] == [
        (1, "china/1.jpg"),
        (5, "flower/2.jpg"),
    ]
    assert [one.reason for one in check(test_set)][1] == "not an image of a known format"
    with pytest.raises(UnreadableImage) as caught:
        test_set.load(5)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.example, again.reason) == (caught.value.example, caught.value.reason)
    assert str(again) == "'flower/2.jpg': not an image of a known format"


def test_subsets(folder):
    test_set = open_test_set(folder)
    mask = test_set.labels == 1
    assert test_set.subset(mask).examples == test_set.examples[3:]
    assert len(test_set.subset([])) == 0
    assert test_set.subset([]).fingerprint != test_set.fingerprint
    assert test_set.subset(np.array([2, 4])).subset([1]).examples == (test_set.examples[4],)
    for wrong in ([6], [-1], [0.5], [[0]], mask[:3]):
        with pytest.raises(InputError, match="rows"):
            test_set.subset(wrong)
    with pytest.raises(InputError, match="same id"):
        test_set.subset([0, 0])


def test_the_named_bad_folder(tmp_path, scenes, photos):
    """What `eval` meets: the policy for each is stated and none is silent."""
    good, half = photos[0].data, photos[0].data[: len(photos[0].data) // 2]
    small = scenes[0].resize((40, 30))
    root = tmp_path / "bad"
    for name in ("a", "b", "empty"):
        (root / name).mkdir(parents=True)
    (root / "a" / "good.jpg").write_bytes(good)
    (root / "a" / "truncated.jpg").write_bytes(half)
    (root / "a" / "zero.jpg").write_bytes(b"")
    (root / "a" / "text.jpg").write_text("not a picture")
    (root / "a" / "notes.txt").write_text("about the pictures")
    (root / "a" / ".hidden.jpg").write_text("a hidden file")
    small.resize((1, 1)).save(root / "b" / "pixel.png")
    small.convert("CMYK").save(root / "b" / "cmyk.jpg")
    Image.fromarray(np.full((9, 9), 40_000, dtype=np.uint16)).save(root / "b" / "sixteen.png")
    test_set = open_test_set(root)
    assert test_set.classes == ("a", "b", "empty")
    assert test_set.notes == (
        "class 'empty' has no images",
        "not used, no images of a class: 'a/notes.txt'",
    )
    assert [example for _, example, _ in check(test_set)] == [
        "a/text.jpg",
        "a/truncated.jpg",
        "a/zero.jpg",
    ]
    modes = {
        example: test_set.load(row).mode for row, example in enumerate(test_set.examples[4:], 4)
    }
    assert modes == {"b/cmyk.jpg": "CMYK", "b/pixel.png": "RGB", "b/sixteen.png": "I;16"}
