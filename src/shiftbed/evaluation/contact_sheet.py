"""The contact sheet: one picture under every corruption at every severity."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from shiftbed.atomic import write_atomically
from shiftbed.display import Result, Table
from shiftbed.errors import InputError
from shiftbed.evaluation.corruptions import NAMES, Corruption, severities
from shiftbed.evaluation.data.images import NoImage, decode_file
from shiftbed.evaluation.perturbations import SEVERITIES
from shiftbed.evaluation.preprocessing import Preprocessing

GAP, LABEL, HEAD = 4, 150, 28
BLOCKS = 2
"""Side by side, so that the sheet is not four times as high as wide."""
_INK, _PAPER = (30, 30, 30), (255, 255, 255)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ContactSheet(Result):
    """A sheet that was written; the frame has a row per corruption."""

    path: str
    size: tuple[int, int]
    """Width and height in pixels."""

    def tables(self) -> Iterator[Table]:
        size = f"{self.size[0]} × {self.size[1]} pixels"
        yield Table(notes=(f"{self.path}: {len(self.frame)} corruptions, {size}.",))

    def to_dict(self) -> dict[str, Any]:
        names = self.frame["corruption"].to_list()
        return {"sheet": self.path, "corruptions": names, "size": list(self.size)}


def write_sheet(
    path: str | Path,
    image: str | Path | None = None,
    *,
    size: int = 224,
    seed: int = 0,
    frost: str | Path | None = None,
) -> ContactSheet:
    """Draw all corruptions of a picture into a PNG file (``shiftbed corrupt --sheet``)."""
    given = None if frost is None else str(frost)
    drawn = contact_sheet(sheet_picture(image, size), seed=seed, frost=given)
    with write_atomically(path) as file:
        drawn.save(file, format="PNG")
    rows = pl.DataFrame({"corruption": NAMES, "severities": [len(severities(n)) for n in NAMES]})
    return ContactSheet(frame=rows, path=str(path), size=drawn.size)


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
        raise InputError("give a picture: scikit-learn, which has one, is not there") from None
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
    for at, name in enumerate(names):
        left, top = at // rows * width, HEAD + at % rows * (tile + GAP)
        if at % rows == 0:
            for column, text in enumerate(["clean", *map(str, SEVERITIES)]):
                draw.text((left + LABEL + column * (tile + GAP), 6), text, _INK, font)
        draw.text((left + GAP, top + tile // 2 - 8), name.replace("_", " "), _INK, font)
        tiles = {0: picture}
        for severity in severities(name):
            given = frost if name == "frost" else None
            corrupt = Corruption(name, severity, seed=seed, frost=given)
            tiles[severity] = corrupt(picture[None], ["sheet"])[0]
        for column, pixels in tiles.items():
            sheet.paste(Image.fromarray(pixels), (left + LABEL + column * (tile + GAP), top))
        if len(tiles) < 1 + len(SEVERITIES):
            at_end = left + LABEL + len(tiles) * (tile + GAP)
            draw.text((at_end + GAP, top + tile // 2 - 8), "one severity only", _INK, font)
    return sheet
