"""Digits drawn with the fonts that matplotlib carries: a domain that is rendered, not written.

Faces of the DejaVu family are for training, faces of STIX and Computer Modern for testing, so no
shape is in both. Every image is one digit in one face, turned, sheared, thickened and moved a
little, in MNIST's frame.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

__all__ = ["TEST_FACES", "TRAIN_FACES", "rendered"]

TRAIN_FACES = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
)
TEST_FACES = (
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
    *("cmb10", "cmr10", "cmss10", "cmti10", "cmtt10"),
)
LARGE = 96


def rendered(
    faces: tuple[str, ...], each: int, seed: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """``each`` images of every digit in every face: (N, 28, 28) and labels."""
    from matplotlib import get_data_path

    fonts = Path(get_data_path()) / "fonts" / "ttf"
    rng = np.random.default_rng(seed)
    images, labels = [], []
    for face in faces:
        font = ImageFont.truetype(str(fonts / f"{face}.ttf"), 64)
        for digit in range(10):
            for _ in range(each):
                images.append(_drawn(str(digit), font, rng))
                labels.append(digit)
    return np.stack(images), np.array(labels, dtype=np.int64)


def _drawn(text: str, font: ImageFont.FreeTypeFont, rng: np.random.Generator) -> NDArray[np.uint8]:
    """White on black: the digit in a box of about 20 pixels in the middle of 28."""
    angle, shear = rng.normal(0, 7), rng.normal(0, 0.12)
    wide = rng.uniform(0.85, 1.15)
    thick = 2 * int(rng.integers(0, 2)) + 1
    large = Image.new("L", (LARGE, LARGE))
    ImageDraw.Draw(large).text((LARGE / 2, LARGE / 2), text, fill=255, font=font, anchor="mm")
    if thick > 1:
        large = large.filter(ImageFilter.MaxFilter(thick))
    middle = LARGE / 2
    matrix = (1, shear, -shear * middle, 0, 1, 0)
    large = large.transform(large.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
    large = large.rotate(angle, Image.Resampling.BILINEAR)
    box = large.getbbox() or (0, 0, LARGE, LARGE)
    cut = large.crop(box)
    scale = rng.uniform(18, 21) / max(cut.size)
    width = min(26, max(2, round(cut.width * scale * wide)))
    height = min(26, max(2, round(cut.height * scale)))
    small = cut.resize((width, height), Image.Resampling.LANCZOS)
    frame = Image.new("L", (28, 28))
    left, top = (28 - width) // 2, (28 - height) // 2
    moved = rng.integers(-1, 2, 2)
    frame.paste(small, (left + int(moved[0]), top + int(moved[1])))
    return np.asarray(frame, dtype=np.uint8)
