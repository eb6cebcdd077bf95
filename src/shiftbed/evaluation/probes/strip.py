"""A strip of images along paths, the model's class and confidence under each."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from shiftbed.errors import InputError
from shiftbed.evaluation.data import TestSet
from shiftbed.evaluation.models import Model
from shiftbed.evaluation.models.base import normalised
from shiftbed.evaluation.probes.measure import along, as_pixels, path_of, pixels_of
from shiftbed.evaluation.probes.paths import (
    consistent_distance,
    high_frequency_fraction,
    magnitudes,
)
from shiftbed.evaluation.probes.probe import Probe, any_pairs

GAP, LABEL, HEAD, FOOT = 6, 120, 8, 40
TILE = 96
_INK, _RED, _PAPER = (30, 30, 30), (178, 24, 24), (255, 255, 255)


def path_strip(
    model: Model,
    test_set: TestSet,
    probes: Sequence[Probe],
    *,
    pair: int = 0,
    every: int = 15,
    classes: Sequence[str] = (),
) -> Image.Image:
    """Every ``every``-th image of a pair's paths, a row per probe (as in the paper's Figure 1).

    Under each are the model's class and its probability, red where the class is not that of the
    first image; beside each row the path's HFF and consistent distance. Pixels are drawn clipped
    to [0, 1]; the model sees them as they are.
    """
    if every < 1:
        raise InputError(f"every must be at least 1, is {every}")
    pairs = any_pairs(len(test_set), None, probes[0].seed if probes else 0)
    if not 0 <= pair < len(pairs):
        raise InputError(f"pair must be between 0 and {len(pairs) - 1}, is {pair}")
    pixels = pixels_of(model, test_set, pairs[pair], threads=1)
    if len(pixels) < 2:
        raise InputError(f"pair {pair} has an image that cannot be read; choose another one")
    x0, x1 = (pixels[row] for row in pairs[pair].tolist())
    names = tuple(classes) or test_set.classes or model.class_names
    side = max(model.preprocessing.size)
    tile = side * max(1, TILE // side)  # small images are enlarged by a whole number
    rows = [_row(model, probe, x0, x1, every, tile, names) for probe in probes]
    sheet = Image.new(
        "RGB", (max(r.width for r in rows), sum(r.height for r in rows) + HEAD), _PAPER
    )
    top = HEAD
    for row in rows:
        sheet.paste(row, (0, top))
        top += row.height
    return sheet


def _row(
    model: Model,
    probe: Probe,
    x0: NDArray[np.float32],
    x1: NDArray[np.float32],
    every: int,
    tile: int,
    names: Sequence[str],
) -> Image.Image:
    space = probe.space(model.preprocessing)
    path = path_of(probe, normalised(x0, space), normalised(x1, space))
    shown = sorted({*range(0, len(path), every), len(path) - 1})
    pixels = as_pixels(path, space)
    probability = along(partial(model.logits, within=False), [pixels])
    best = probability.argmax(axis=1)
    hff = float(high_frequency_fraction(magnitudes(probability[None]))[0])
    cd = int(consistent_distance(probability[None])[0])
    row = Image.new("RGB", (LABEL + len(shown) * (tile + GAP), tile + FOOT), _PAPER)
    draw, font = ImageDraw.Draw(row), ImageFont.load_default(size=12)
    about = f"{probe.name.replace('_', ' ')}\nHFF {hff:.3f}\nCD {cd} of {len(path)}"
    draw.multiline_text((GAP, tile // 2 - 24), about, _INK, font)
    for column, at in enumerate(shown):
        left = LABEL + column * (tile + GAP)
        row.paste(_picture(pixels[at], tile, model), (left, 0))
        name = names[best[at]] if best[at] < len(names) else f"class {best[at]}"
        text = f"{_cut(name, tile // 7)}\n{100 * probability[at, best[at]]:.0f} %"
        colour = _INK if best[at] == best[0] else _RED
        draw.multiline_text((left, tile + 4), text, colour, font)
    return row


def _picture(pixels: NDArray[np.float32], tile: int, model: Model) -> Image.Image:
    eight = np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)
    if model.preprocessing.mode == "BGR":
        eight = eight[:, :, ::-1]
    shown = eight[:, :, 0] if eight.shape[2] == 1 else eight
    picture = Image.fromarray(np.ascontiguousarray(shown)).convert("RGB")
    scale = tile / max(picture.size)
    size = (round(picture.width * scale), round(picture.height * scale))
    return picture.resize(size, Image.Resampling.NEAREST)


def _cut(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: max(1, most - 1)]}…"
