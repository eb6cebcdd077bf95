"""Parameters: the two published ends, what lies between and below."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.errors import InputError
from shiftbed.evaluation.corruptions import NAMES, parameters, severities
from shiftbed.evaluation.corruptions.params import TABLE


def test_twenty_names_all_with_parameters():
    assert len(NAMES) == len(set(NAMES)) == 20
    assert set(TABLE) == set(NAMES)
    for params in TABLE.values():
        for p in params:
            assert len(p.imagenet) == len(p.cifar) == 5


@pytest.mark.parametrize("name", NAMES)
def test_the_published_ends_are_exact(name):
    for severity in severities(name):
        large, small = parameters(name, severity, 224, 500), parameters(name, severity, 32, 32)
        for p in TABLE[name]:
            assert large[p.name] == p.imagenet[severity - 1] or p.whole
            assert small[p.name] == p.cifar[severity - 1] or p.whole


@given(st.sampled_from(NAMES), st.integers(33, 223), st.data())
def test_between_lies_between(name, size, data):
    severity = data.draw(st.sampled_from(severities(name)))
    for p in TABLE[name]:
        low, high = sorted((p.imagenet[severity - 1], p.cifar[severity - 1]))
        assert low - 0.5 * p.whole - 1e-9 <= p.at(severity, size) <= high + 0.5 * p.whole + 1e-9


def test_lengths_shrink_below_32_pixels_and_shares_do_not():
    assert parameters("gaussian_blur", 5, 8, 8) == {"sigma": 0.25}
    assert parameters("gaussian_noise", 5, 8, 8) == {"scale": 0.1}
    assert parameters("glass_blur", 5, 8, 8)["reach"] == 1


@pytest.mark.parametrize(("name", "severity"), [("fog", 0), ("fog", 6), ("greyscale", 2)])
def test_wrong_severities(name, severity):
    with pytest.raises(InputError, match="severity must be 1"):
        parameters(name, severity, 32, 32)


def test_unknown_name():
    with pytest.raises(InputError, match="did you mean 'gaussian_noise'"):
        severities("gausian_noise")
