"""Frost: textures synthesized here, or pictures from a folder, laid over an image.

The published frost is five photographs, which are not ours to copy. The synthesized textures have
their number, and about their mean colours, contrasts and spectra (equal power per octave), and
look like needles of ice; they are not the same pictures, so accuracies under frost compare with
published ones only if the published pictures are given as a folder.
"""

from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbed.errors import InputError
from shiftbed.evaluation.corruptions.kernels import f, loose
from shiftbed.evaluation.corruptions.philox import Keys, fill_normals, uniforms
from shiftbed.places import local
from shiftbed.reading.files import regular

Texture = NDArray[np.float32]  # (H, W, 3)

SIZE = (600, 800)
COLOURS = (
    (0.30, 0.58, 0.65),
    (0.79, 0.81, 0.84),
    (0.77, 0.80, 0.84),
    (0.54, 0.60, 0.65),
    (0.44, 0.48, 0.53),
)
CONTRASTS = (0.07, 0.086, 0.086, 0.113, 0.169)
SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
MOST_PICTURES, MOST_PIXELS = 100, 40_000_000


@lru_cache(maxsize=1)
def synthesize() -> tuple[Texture, ...]:
    """Five textures, the same on every machine up to rounding.

    White noise is filtered to 1/f along each of six directions; where the strongest of the six is
    large lies a needle. A fixed share of plain 1/f noise clouds the whole.
    """
    height, width = SIZE
    down = np.fft.fftfreq(height)[:, None]
    along = np.fft.rfftfreq(width)[None, :]
    radius = np.hypot(down, along)
    radius[0, 0] = np.inf
    angle = np.arctan2(down, along)
    made = []
    for k, (colour, contrast) in enumerate(zip(COLOURS, CONTRASTS, strict=True)):
        noise = np.empty((7, height, width), f)
        fill_normals(np.uint64(k), 1000, noise.reshape(-1))  # type: ignore[arg-type]
        spectra = np.fft.rfft2(noise) / np.maximum(radius, 2 / width)
        needles = np.full((height, width), -np.inf)
        for d in range(6):
            off = angle - np.pi * (d + k / 5) / 6
            off = np.abs((off + np.pi / 2) % np.pi - np.pi / 2)
            beam = np.fft.irfft2(spectra[d] * np.exp(-0.5 * (off / 0.12) ** 2), s=SIZE)
            needles = np.maximum(needles, beam / beam.std())
        cloud = np.fft.irfft2(spectra[6], s=SIZE)
        mixed = (needles - needles.mean()) / needles.std() + 0.5 * cloud / cloud.std()
        shade = contrast * (mixed - mixed.mean()) / mixed.std()
        made.append(np.clip(shade[..., None] + np.array(colour), 0, 1).astype(f))
    return tuple(made)


@lru_cache(maxsize=4)
def read_frost(folder: str) -> tuple[Texture, ...]:
    """The pictures of a folder, sorted by name, as [0, 1] RGB."""
    place = local(folder, "frost")
    if not place.is_dir():
        raise InputError(f"frost pictures: {folder} is not a folder")
    found = sorted(p for p in place.iterdir() if p.suffix.lower() in SUFFIXES)
    if not found:
        raise InputError(f"frost pictures: none in {folder}, expected {', '.join(SUFFIXES)}")
    if len(found) > MOST_PICTURES:
        raise InputError(f"frost pictures: {len(found)} in {folder}, at most {MOST_PICTURES}")
    pictures = []
    for path in found:
        try:
            with Image.open(regular(path)) as picture:
                if picture.width * picture.height > MOST_PIXELS:
                    raise InputError(f"frost pictures: {path} has over {MOST_PIXELS} pixels")
                pictures.append(np.asarray(picture.convert("RGB"), dtype=f) / f(255))
        except (OSError, Image.DecompressionBombError) as error:
            raise InputError(f"frost pictures: cannot read {path}: {error}") from None
    return tuple(pictures)


@lru_cache(maxsize=8)
def textures(folder: str | None, resize: float, height: int, width: int) -> tuple[Texture, ...]:
    """The textures at the size used: times ``resize``, and larger where an image needs it."""
    resized = []
    for picture in synthesize() if folder is None else read_frost(folder):
        tall, wide = picture.shape[:2]
        needed = 1.1 * max(height / tall, width / wide)
        scale = resize if resize * min(tall / height, wide / width) > 1 else needed
        if scale == 1:
            resized.append(picture)
            continue
        how = cv2.INTER_LINEAR if scale < 1 else cv2.INTER_CUBIC
        shape = (max(round(wide * scale), width + 1), max(round(tall * scale), height + 1))
        resized.append(np.clip(cv2.resize(picture, shape, interpolation=how), 0, 1).astype(f))
    return tuple(resized)


def places(
    keys: Keys, made: tuple[Texture, ...], height: int, width: int
) -> list[tuple[Texture, int, int]]:
    """For each image a texture, and the row and column to cut from, drawn from its key."""
    chosen = []
    for key in keys:
        which, down, right = uniforms(int(key), 0, 3)
        texture = made[int(which * len(made))]
        y = int(down * (texture.shape[0] - height))
        x = int(right * (texture.shape[1] - width))
        chosen.append((texture, y, x))
    return chosen


@loose
def lay_frost(
    image: NDArray[np.float32],
    out: NDArray[np.float32],
    texture: NDArray[np.float32],
    top: int,
    left: int,
    keep: np.float32,
    add: np.float32,
) -> None:
    """keep·x + add·frost, cut from a texture; grey images get its luma."""
    height, width, channels = image.shape
    for y in range(height):
        if channels == 3:
            a, b, c = image[y].ravel(), texture[top + y].ravel()[3 * left :], out[y].ravel()
            for i in range(a.size):
                c[i] = min(keep * a[i] + add * b[i], f(1))
            continue
        for i in range(width):
            at = texture[top + y, left + i]
            grey = f(0.2989) * at[0] + f(0.587) * at[1] + f(0.114) * at[2]
            out[y, i, 0] = min(keep * image[y, i, 0] + add * grey, f(1))
