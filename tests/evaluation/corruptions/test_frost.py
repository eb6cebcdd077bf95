"""Frost: the synthesized textures, and pictures from a folder."""

import numpy as np
import pytest
from PIL import Image

from shiftbed.errors import InputError
from shiftbed.evaluation.corruptions import Corruption, parameters
from shiftbed.evaluation.corruptions.frost import COLOURS, CONTRASTS, synthesize, textures
from tests.evaluation.corruptions.images import batch


def test_textures_have_the_colours_contrasts_and_spectra_said():
    made = synthesize()
    assert len(made) == 5
    for texture, colour, contrast in zip(made, COLOURS, CONTRASTS, strict=True):
        assert texture.shape == (600, 800, 3)
        assert np.abs(texture.mean(axis=(0, 1)) - colour).max() < 0.02
        grey = texture.mean(axis=2)
        assert grey.std() == pytest.approx(contrast, rel=0.15)
        power = np.abs(np.fft.fft2(grey[:512, :512] - grey[:512, :512].mean())) ** 2
        radius = np.hypot(*np.meshgrid(np.fft.fftfreq(512), np.fft.fftfreq(512)))
        octaves = [
            power[(radius >= low) & (radius < 2 * low)].sum() / power.sum()
            for low in (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4)
        ]
        assert max(octaves) < 8 * min(octaves)  # power spread over scales, as in photographs


def folder_of_frost(folder, values):
    for i, value in enumerate(values):
        pixels = np.full((60, 50, 3), value, np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    (folder / "notes.txt").write_text("not a picture")
    return str(folder)


def test_pictures_from_a_folder(tmp_path):
    folder = folder_of_frost(tmp_path, (50, 200))
    x = batch(12, 40, 40)
    ids = [str(i) for i in range(12)]
    p = parameters("frost", 2, 40, 40)
    out = Corruption("frost", 2, frost=folder)(x, ids)
    used = set()
    for n in range(12):
        fits = [
            v
            for v in (50, 200)
            if np.allclose(out[n], np.clip(p["keep"] * x[n] + p["add"] * v / 255, 0, 1), atol=1e-5)
        ]
        assert len(fits) == 1
        used |= set(fits)
    assert used == {50, 200}


def test_small_pictures_are_enlarged(tmp_path):
    folder = folder_of_frost(tmp_path, (120,))
    for texture in textures(folder, 1.0, 300, 224):
        assert texture.shape[0] > 300
        assert texture.shape[1] > 224
    assert Corruption("frost", 1, frost=folder)(batch(1, 300, 224), ["a"]).shape == (1, 3, 300, 224)


def test_folders_that_do_not_serve(tmp_path):
    x = batch(1, 16, 16)
    with pytest.raises(InputError, match="is not a folder"):
        Corruption("frost", 1, frost=str(tmp_path / "none"))(x, ["a"])
    with pytest.raises(InputError, match=r"none in .*, expected \.bmp"):
        Corruption("frost", 1, frost=str(tmp_path))(x, ["a"])
    (tmp_path / "bad.png").write_bytes(b"not a png")
    with pytest.raises(InputError, match=r"cannot read .*bad\.png"):
        Corruption(name="frost", severity=1, frost=str(tmp_path))(x, ["a"])
