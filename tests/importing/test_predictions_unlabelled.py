"""Files of predictions without labels."""

import io

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.importing.predictions import parse_unlabelled

TOP1 = np.array([[0, 1, 2], [0, 1, 1]])
MODELS = np.array(["a", "b"])


def packed(**arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def test_settings_without_labels_are_found():
    data = packed(models=MODELS, val=TOP1, labels_val=TOP1[0], new=TOP1, other=TOP1)
    found = parse_unlabelled("f", data)
    assert [one.setting for one in found] == ["new", "other"]
    assert found[0].models == ("a", "b")
    assert np.array_equal(found[0].top1, TOP1)


def test_labels_of_minus_one_are_none():
    (one,) = parse_unlabelled("f", packed(models=MODELS, top1=TOP1, labels=np.full(3, -1)))
    assert one.setting == "top1"
    assert parse_unlabelled("f", packed(models=MODELS, top1=TOP1, labels=TOP1[0])) == []


def test_one_model_in_a_row():
    (one,) = parse_unlabelled("f", packed(models=MODELS[:1], top1=TOP1[0]))
    assert one.top1.shape == (1, 3)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"models": MODELS, "top1": TOP1[:1]}, "must be 2 models"),
        ({"models": MODELS, "top1": TOP1 / 2}, "class numbers"),
        ({"models": MODELS, "top1": TOP1[:, :0]}, "holds no image"),
        ({"models": MODELS, "top1": TOP1, "labels": np.full(2, -1)}, "3 images, but labels for 2"),
        ({"top1": TOP1}, "no array 'models'"),
    ],
)
def test_what_is_refused(arrays, message):
    with pytest.raises(InputError, match=message):
        parse_unlabelled("f", packed(**arrays))


def test_pickled_objects_are_refused():
    file = io.BytesIO()
    np.savez(file, models=MODELS, top1=np.array([object()], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="Python objects"):
        parse_unlabelled("f", file.getvalue())
