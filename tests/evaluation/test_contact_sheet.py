"""The contact sheet: every corruption at every severity, in its place."""

import numpy as np
import pytest
from PIL import Image

from shiftbed.errors import InputError
from shiftbed.evaluation.contact_sheet import GAP, HEAD, LABEL, contact_sheet, sheet_picture
from shiftbed.evaluation.corruptions import Corruption
from shiftbed.evaluation.image_batches import eight_bits


def tile(sheet, row, column, block=0, size=32):
    width = LABEL + 6 * (size + GAP)
    left, top = block * width + LABEL + column * (size + GAP), HEAD + row * (size + GAP)
    return np.asarray(sheet.crop((left, top, left + size, top + size)))


def test_tiles_are_the_corruptions_themselves():
    picture = sheet_picture(size=32)
    names = ["greyscale", "contrast", "gaussian_noise", "pixelate"]
    sheet = contact_sheet(picture, names, seed=2)
    x = picture.transpose(2, 0, 1)[None] / np.float32(255)
    for row, block, name in ((1, 0, "contrast"), (0, 1, "gaussian_noise"), (1, 1, "pixelate")):
        np.testing.assert_array_equal(tile(sheet, row, 0, block), picture)
        for severity in range(1, 6):
            expected = Corruption(name=name, severity=severity, seed=2)(x, ["sheet"])
            found = tile(sheet, row, severity, block)
            np.testing.assert_array_equal(found, eight_bits(expected)[0])
    grey = tile(sheet, 0, 1)
    assert (grey.max(axis=2) - grey.min(axis=2)).max() <= 1


def test_all_twenty_by_default():
    sheet = contact_sheet(sheet_picture(size=16))
    assert sheet.size == (2 * (LABEL + 6 * (16 + GAP)), HEAD + 10 * (16 + GAP) + GAP)
    for block in (0, 1):
        for row in range(10):
            for column in range(0 if row + block else 2, 2 if not row + block else 6):
                assert (tile(sheet, row, column, block, size=16) != 255).any()


def test_a_picture_of_your_own(tmp_path):
    Image.new("RGB", (300, 400), (200, 30, 10)).save(tmp_path / "red.png")
    assert (sheet_picture(tmp_path / "red.png", 64) == (200, 30, 10)).all()
    (tmp_path / "no.png").write_text("nothing")
    with pytest.raises(InputError, match="not an image"):
        sheet_picture(tmp_path / "no.png")
