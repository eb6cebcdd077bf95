import hashlib
import zipfile
from io import BytesIO

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.importing import import_results, predictions, read_predictions
from shiftbed.importing.predictions import fingerprint

LABELS = np.array([3, 1, 2, 0, 3], dtype=np.int16)
TOP1 = np.array([[3, 1, 2, 0, 0], [3, 0, 0, 0, 0]], dtype=np.int16)
RIGHT = [[True, True, True, True, False], [True, False, False, True, False]]


def one(**changes):
    return {"models": np.array(["a", "b"]), "top1": TOP1, "labels": LABELS} | changes


def test_one_setting(write):
    bed = import_results([write("val.npz", **one())])
    assert bed.settings == ("val",)
    assert bed.value.tolist() == [[0.8], [0.4]]
    assert bed.n.tolist() == [[5], [5]]
    assert bed.results["val"].right.tolist() == RIGHT
    assert bed.results["val"].known.all()
    assert bed.results["val"].images == fingerprint(LABELS)


def test_several_settings(write):
    path = write(
        "all.npz",
        models=np.array(["a", "b"]),
        original=TOP1,
        v4=TOP1[:, :3],
        labels_original=LABELS,
        labels_v4=LABELS[:3],
        seconds=np.array([1.0, 2.0]),
    )
    bed = import_results([path])
    assert bed.settings == ("original", "v4")
    assert bed.accuracy("v4").tolist() == [1.0, 1 / 3]
    assert bed.size("v4").tolist() == [3, 3]


@pytest.mark.parametrize("models", [np.array("a"), np.array(["a"]), np.array([b" a "])])
def test_one_model_may_come_without_a_second_axis(write, models):
    bed = import_results([write("val.npz", models=models, top1=TOP1[0], labels=LABELS)])
    assert bed.model_names == ["a"]
    assert bed.value.tolist() == [[0.8]]


def test_the_fingerprint_is_of_the_labels_not_of_their_type():
    canonical = b"".join(int(label).to_bytes(8, "little") for label in (*LABELS, len(LABELS)))
    same = {fingerprint(LABELS.astype(kind)) for kind in ("u1", ">i4", "<i8", "u8")}
    assert same == {"sha256:" + hashlib.sha256(canonical).hexdigest()}
    assert fingerprint(LABELS[:4]) not in same
    assert fingerprint(LABELS[::-1]) not in same


def test_read_predictions(write):
    rows = read_predictions(write("x.npz", **one()), "val")
    assert [(r.model, r.setting, r.right.tolist()) for r in rows] == [
        ("a", "val", RIGHT[0]),
        ("b", "val", RIGHT[1]),
    ]
    assert {r.images for r in rows} == {fingerprint(LABELS)}
    model, setting, right, images = rows[0]
    assert (model, setting, right.sum(), images) == ("a", "val", 4, fingerprint(LABELS))


def test_read_predictions_of_several_settings(write):
    path = write("x.npz", models=["a"], v4=TOP1[:1], labels_v4=LABELS)
    assert read_predictions(path, "v4")[0].right.tolist() == RIGHT[0]
    with pytest.raises(InputError, match=r"unknown setting in .* 'v6'"):
        read_predictions(path, "v6")


def test_read_predictions_of_no_such_file(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_predictions(tmp_path / "none.npz", "val")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"top1": TOP1, "labels": LABELS}, ["no array 'models'", "'top1', 'labels'"]),
        ({"models": ["a"], "labels": LABELS}, ["'labels'", "no predictions 'top1'"]),
        ({"models": ["a"]}, ["expected arrays", "'models'"]),
        ({"models": ["a"], "top1": TOP1[:1]}, ["'top1'", "needs labels", "'labels'"]),
        ({"models": ["a"], "v4": TOP1[:1]}, ["'v4'", "'labels_v4'"]),
        ({"models": ["a"], "labels_v4": LABELS}, ["'labels_v4'", "'v4'"]),
        (one(top1=TOP1.T), ["'top1'", "2 models × 5 images", "(5, 2)"]),
        (one(top1=TOP1[:, :4]), ["'top1'", "2 models × 5 images", "(2, 4)"]),
        (one(top1=TOP1[0]), ["'top1'", "2 models × 5 images", "(5,)"]),
        (one(top1=np.zeros((2, 5, 10), int)), ["'top1'", "(2, 5, 10)"]),
        (one(top1=TOP1.astype(float)), ["'top1'", "class numbers", "float64"]),
        (one(labels=LABELS[None]), ["'labels'", "(1, 5)"]),
        (one(labels=LABELS.astype(float)), ["'labels'", "float64"]),
        (one(labels=LABELS[:0], top1=TOP1[:, :0]), ["'labels'", "(0,)"]),
        (one(labels=LABELS - 1), ["'labels'", "label -1 of image 3"]),
        (one(labels=np.full(5, 2**63, np.uint64)), ["'labels'", "label 9223372036854775808"]),
        (one(models=np.array([1, 2])), ["'models'", "int64"]),
        (one(models=np.array([["a", "b"]])), ["'models'", "(1, 2)"]),
        (one(models=np.array([], dtype=str), top1=TOP1[:0]), ["'models'"]),
        (one(models=np.array(["a", ""])), ["'models'", "name 2 is empty"]),
        (one(models=np.array(["a", "a"])), ["'models'", "'a' appears twice"]),
        (one(models=np.array([b"a", b"\xff"])), ["'models'", "Unicode"]),
        (one(models=np.array(["a", "\ud800"])), ["'models'", "Unicode"]),
        (one(models=np.array(["a", "b"], dtype=object)), ["'models'", "Python objects"]),
        (one(top1=np.array([[{}], [{}]])), ["'top1'", "Python objects"]),
    ],
)
def test_what_is_refused(write, refused, arrays, words):
    refused(write("val.npz", **arrays), *words)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9, 0.99])
def test_truncated_archives(write, refused, share):
    path = write("val.npz", **one())
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    refused(path, "damaged .npz")


def test_flipped_bits(write, refused):
    path = write("val.npz", **one())
    data = bytearray(path.read_bytes())
    at = data.index(b"labels.npy") + 40
    data[at] ^= 0xFF
    path.write_bytes(bytes(data))
    refused(path, "damaged")


def test_members_that_are_no_arrays(tmp_path, refused):
    for name, content, words in (
        ("models.npy", b"not an array", ["'models'", "damaged"]),
        ("models.txt", b"a", ["'models.txt'"]),
    ):
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
            file.writestr(name, content)
        refused(tmp_path / "x.npz", *words)


def test_an_array_twice(tmp_path, refused):
    array = BytesIO()
    np.save(array, np.array(["a"]))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("models.npy", array.getvalue())
        file.writestr("modelz.npy", array.getvalue())
    data = (tmp_path / "x.npz").read_bytes().replace(b"modelz", b"models")
    (tmp_path / "x.npz").write_bytes(data)
    refused(tmp_path / "x.npz", "two arrays", "'models'")


def test_bombs_are_refused(write, refused, monkeypatch):
    path = write("val.npz", **one(top1=np.zeros((2, 50_000), int), labels=np.zeros(50_000, int)))
    monkeypatch.setattr(predictions, "LIMIT", 2**20)
    refused(path, "unpacks to", "GiB")


def test_headers_that_promise_too_much_are_refused(tmp_path, refused):
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000000,), }"
    header += b" " * (128 - 10 - len(header) - 1) + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("labels.npy", data)
    refused(tmp_path / "x.npz", "damaged")
