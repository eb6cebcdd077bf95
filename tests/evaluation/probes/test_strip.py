"""The strip of a path."""

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.evaluation.probes import default_probe, path_strip
from shiftbed.evaluation.probes.probe import any_pairs
from tests.evaluation.probes.digits import plain_model, some_digits


def test_the_first_tile_is_the_image(tmp_path):
    digits = some_digits(tmp_path)
    model = plain_model(tmp_path)
    probes = [default_probe(name, (8, 8)) for name in ("amplitude", "phase")]
    strip = path_strip(model, digits, probes, pair=2)
    array = np.asarray(strip)
    tile = array[8 : 8 + 96 : 12, 120 : 120 + 96 : 12, 0]
    wanted = np.asarray(digits.load(int(any_pairs(len(digits))[2, 0])))
    assert np.abs(tile.astype(int) - wanted).max() <= 1
    assert array.shape == (8 + 2 * (96 + 40), 120 + 8 * (96 + 6), 3)
    with pytest.raises(InputError, match="pair must be"):
        path_strip(model, digits, probes, pair=10_000)
