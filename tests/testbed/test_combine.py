"""Several testbeds as one."""

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.testbed import published
from shiftbed.testbed.combine import combine

V2 = "imagenetv2-matched-frequency-format-val"


def test_values_stay_in_place(imagenet):
    other = published("openclip")
    both = combine([imagenet, other])
    assert len(both.models) == len(imagenet.models) + len(other.models)
    np.testing.assert_array_equal(
        both.accuracy("val")[: len(imagenet.models)], imagenet.accuracy("val")
    )
    assert np.isnan(both.accuracy("val")[len(imagenet.models) :]).all()
    name = other.settings[3]
    np.testing.assert_array_equal(both.accuracy(name)[len(imagenet.models) :], other.accuracy(name))
    assert both.models["testbed"].unique(maintain_order=True).to_list() == [
        "imagenet-testbed-2020",
        "openclip",
    ]


def test_without_a_shared_shift_both_keep_their_fit_sets(imagenet):
    other = published("openclip")
    both = combine([imagenet, other])
    again = f"{other.shifts[0].name} (openclip)"
    for name, bed in (("imagenet-v2", imagenet), (again, other)):
        theirs = bed.fit(name.removesuffix(" (openclip)"), bootstrap=0)
        ours = both.fit(name, bootstrap=0)
        assert ours.n == theirs.n
        assert ours.weights == pytest.approx(theirs.weights)


def test_models_of_one_name_are_told_apart(imagenet):
    own = imagenet.where("model=resnet50*")
    both = combine([imagenet, own])
    assert len(set(both.model_names)) == len(both.models)
    assert both.model_names[-1].endswith("(imagenet-testbed-2020)")
    assert set(both.models["kind"][len(imagenet.models) :]) == {"own"}
    assert both.fit("imagenet-v2", bootstrap=0).n == 78


def test_nothing_to_combine():
    with pytest.raises(InputError, match="no testbed"):
        combine([])
