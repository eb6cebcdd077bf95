"""The contact sheet: one picture under every corruption at every severity."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from shiftbed.errors import InputError
from shiftbed.evaluation.corruptions import NAMES, Corruption, severities
from shiftbed.evaluation.data.images import NoImage, decode_file
from shiftbed.evaluation.image_batches import eight_bits
from shiftbed.evaluation.perturbations import SEVERITIES
from shiftbed.evaluation.preprocessing import Preprocessing

GAP, LABEL, HEAD = 4, 150, 28
BLOCKS = 2
"""Side by side, so that the sheet is not four times as high as wide."""
_INK, _PAPER = (30, 30, 30), (255, 255, 255)


def sheet_picture(path: str | Path | None = None, size: int = 224) -> NDArray[np.uint8]:
    """(size, size, 3) of a picture; scikit-learn's photograph of a temple, if none is given."""
    preprocessing = Preprocessing(size=(size, size), resize=size * 256 // 224)
    if path is not None:
        try:
            return preprocessing.pixels(decode_file(path))
        except NoImage as error:
            raise InputError(f"{path}: {error}") from None
    try:
        from sklearn.datasets import load_sample_image
    except ModuleNotFoundError:
        raise InputError(
            "give a picture with --image: scikit-learn, which has one, is not there"
        ) from None
    return preprocessing.pixels(load_sample_image("china.jpg"))


def contact_sheet(
    picture: NDArray[np.uint8],
    names: Sequence[str] = NAMES,
    *,
    seed: int = 0,
    frost: str | None = None,
) -> Image.Image:
    """The sheet of a square (H, H, 3) picture: a row per corruption, the picture and severities.

    Nothing is scaled: noise and blocks of pixels are drawn as they are.
    """
    tile = len(picture)
    rows = -(-len(names) // BLOCKS)
    width = LABEL + (1 + len(SEVERITIES)) * (tile + GAP)
    sheet = Image.new("RGB", (BLOCKS * width, HEAD + rows * (tile + GAP) + GAP), _PAPER)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=14)
    x = picture.transpose(2, 0, 1)[None] / np.float32(255)
    for at, name in enumerate(names):
        left, top = at // rows * width, HEAD + at % rows * (tile + GAP)
        if at % rows == 0:
            for column, text in enumerate(["clean", *map(str, SEVERITIES)]):
                draw.text((left + LABEL + column * (tile + GAP), 6), text, _INK, font)
        draw.text((left + GAP, top + tile // 2 - 8), name.replace("_", " "), _INK, font)
        tiles = {0: picture}
        for severity in severities(name):
            given = frost if name == "frost" else None
            corrupt = Corruption(name=name, severity=severity, seed=seed, frost=given)
            tiles[severity] = eight_bits(corrupt(x, ["sheet"]))[0]
        for column, pixels in tiles.items():
            sheet.paste(Image.fromarray(pixels), (left + LABEL + column * (tile + GAP), top))
        if len(tiles) < 1 + len(SEVERITIES):
            at_end = left + LABEL + len(tiles) * (tile + GAP)
            draw.text((at_end + GAP, top + tile // 2 - 8), "one severity only", _INK, font)
    return sheet
