"""Kernels against other libraries and plain definitions, at the parameters of every severity."""

import colorsys
import io

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy import ndimage

from shiftbed.evaluation.corruptions import (
    Corruption,
    blur,
    digital,
    kernels,
    parameters,
    philox,
    severities,
    weather,
)
from tests.evaluation.corruptions.images import batch

HEIGHT, WIDTH = 240, 226
FIVE = severities("fog")


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    """One image, (1, 3, H, W)."""
    return batch(1, HEIGHT, WIDTH)


def corrupted(image: np.ndarray, name: str, severity: int) -> np.ndarray:
    """The result as (H, W, 3)."""
    return Corruption(name, severity)(image, ["a"])[0].transpose(1, 2, 0)


@pytest.mark.parametrize("severity", FIVE)
def test_gaussian_blur_is_scipys(image, severity):
    sigma = parameters("gaussian_blur", severity, HEIGHT, WIDTH)["sigma"]
    plain = image[0].astype(np.float64)
    expected = ndimage.gaussian_filter(plain, (0, sigma, sigma), mode="nearest", truncate=4)
    ours = corrupted(image, "gaussian_blur", severity).transpose(2, 0, 1)
    assert np.abs(ours - expected).max() < 2e-6


@pytest.mark.parametrize("severity", FIVE)
def test_defocus_blur_is_opencvs(image, severity):
    p = parameters("defocus_blur", severity, HEIGHT, WIDTH)
    half = max(8, int(p["radius"]))
    y, x = np.mgrid[-half : half + 1, -half : half + 1]
    disk = (x**2 + y**2 <= p["radius"] ** 2).astype(np.float32)
    size = (3, 3) if p["radius"] <= 8 else (5, 5)
    kernel = cv2.GaussianBlur(disk / disk.sum(), size, p["edge"])
    plain = np.ascontiguousarray(image[0].transpose(1, 2, 0), dtype=np.float64)
    expected = np.clip(cv2.filter2D(plain, -1, kernel), 0, 1)
    assert np.abs(corrupted(image, "defocus_blur", severity) - expected).max() < 1e-5


@pytest.mark.parametrize("severity", FIVE)
def test_zoom_blur_is_scipys(image, severity):
    p = parameters("zoom_blur", severity, HEIGHT, WIDTH)
    plain = np.ascontiguousarray(image[0].transpose(1, 2, 0))
    layers = [plain]
    for z in np.arange(1, p["end"], p["step"]):
        tall, wide = int(np.ceil(HEIGHT / z)), int(np.ceil(WIDTH / z))
        top, left = (HEIGHT - tall) // 2, (WIDTH - wide) // 2
        middle = plain[top : top + tall, left : left + wide]
        layers.append(ndimage.zoom(middle, (z, z, 1), order=1)[:HEIGHT, :WIDTH])
    expected = np.mean(layers, axis=0)
    assert np.abs(corrupted(image, "zoom_blur", severity) - expected).max() < 1e-5


@pytest.mark.parametrize("severity", FIVE)
def test_motion_blur_is_the_sum_of_shifts(image, severity):
    p = parameters("motion_blur", severity, HEIGHT, WIDTH)
    key = philox.image_keys(["a"], 0, "motion_blur", severity)[0]
    angle = np.deg2rad(-45 + 90 * philox.uniforms(int(key), 9, 1)[0])
    steps = np.arange(2 * int(p["radius"]) + 1)
    weights = np.exp(-(steps**2) / (2 * p["sigma"] ** 2))
    plain = image[0].transpose(1, 2, 0)
    expected = np.zeros(plain.shape)
    for i, weight in enumerate(weights / weights.sum()):
        dy, dx = np.ceil(i * np.sin(angle) - 0.5), np.ceil(i * np.cos(angle) - 0.5)
        rows = np.clip(np.arange(HEIGHT) + int(dy), 0, HEIGHT - 1)
        columns = np.clip(np.arange(WIDTH) + int(dx), 0, WIDTH - 1)
        expected += weight * plain[rows][:, columns]
    assert np.abs(corrupted(image, "motion_blur", severity) - expected).max() < 1e-5


@pytest.mark.parametrize("severity", FIVE)
@pytest.mark.parametrize("size", [(226, 240), (32, 32), (45, 70)])
def test_pixelate_is_pillows(severity, size):
    height, width = size
    x = batch(1, height, width)
    factor = parameters("pixelate", severity, height, width)["factor"]
    picture = Image.fromarray(np.rint(x[0].transpose(1, 2, 0) * 255).astype(np.uint8))
    few = picture.resize((int(width * factor), int(height * factor)), Image.Resampling.BOX)
    expected = np.asarray(few.resize((width, height), Image.Resampling.NEAREST))
    # Pillow rounds to 8 bits twice
    assert np.abs(corrupted(x, "pixelate", severity) * 255 - expected).max() < 1.01


@given(st.integers(8, 400), st.sampled_from([0.25, 0.3, 0.4, 0.5, 0.6, 0.65, 0.85, 0.95]))
def test_pixels_are_averaged_and_repeated_as_by_pillow(size, factor):
    values = np.random.default_rng(size).integers(0, 256, size).astype(np.float32)
    first, last, shown = digital.bounds(size, factor)
    few = Image.fromarray(values[None]).resize((len(first), 1), Image.Resampling.BOX)
    means = [values[a:b].mean() for a, b in zip(first, last, strict=True)]
    assert np.asarray(few)[0] == pytest.approx(np.array(means), abs=1e-3)
    back = np.asarray(few.resize((size, 1), Image.Resampling.NEAREST))[0]
    assert np.array_equal(back, np.asarray(few)[0][shown])


@pytest.mark.parametrize("severity", FIVE)
@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_is_pillows_bit_for_bit(severity, channels):
    x = batch(1, 61, 75, channels)
    quality = int(parameters("jpeg_compression", severity, 61, 75)["quality"])
    pixels = np.rint(x[0].transpose(1, 2, 0) * 255).astype(np.uint8)
    stored = io.BytesIO()
    picture = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
    picture.save(stored, "JPEG", quality=quality)
    expected = np.asarray(Image.open(stored)).reshape(pixels.shape)
    ours = corrupted(x, "jpeg_compression", severity)
    assert np.array_equal(np.rint(ours * 255).astype(np.uint8), expected)


@pytest.mark.parametrize("severity", FIVE)
def test_brightness_and_saturation_are_those_of_hsv(severity):
    x = batch(1, 24, 24)
    x[0, :, :4, :4] = x[0, :1, :4, :4]  # greys
    x[0, :, 4, :4] = 0
    add = parameters("brightness", severity, 24, 24)["add"]
    p = parameters("saturate", severity, 24, 24)
    brighter, other = corrupted(x, "brightness", severity), corrupted(x, "saturate", severity)
    for y, i in np.ndindex(24, 24):
        h, s, v = colorsys.rgb_to_hsv(*(float(c) for c in x[0, :, y, i]))
        assert brighter[y, i] == pytest.approx(colorsys.hsv_to_rgb(h, s, min(v + add, 1)), abs=1e-6)
        full = min(s * p["factor"] + p["add"], 1)
        assert other[y, i] == pytest.approx(colorsys.hsv_to_rgb(h, full, v), abs=1e-6)


@pytest.mark.parametrize("severity", FIVE)
def test_contrast_and_greyscale(image, severity):
    factor = parameters("contrast", severity, HEIGHT, WIDTH)["factor"]
    mean = image.mean(axis=(2, 3), keepdims=True, dtype=np.float64)
    expected = (image - mean) * factor + mean
    assert np.abs(Corruption("contrast", severity)(image, ["a"]) - expected).max() < 1e-6
    grey = np.tensordot([0.299, 0.587, 0.114], image[0].astype(np.float64), 1)
    assert np.abs(Corruption("greyscale", 1)(image, ["a"])[0] - grey).max() < 1e-6


@pytest.mark.parametrize(
    ("sigma", "error"), [(0.0, 1e-6), (2.44, 1e-6), (19.52, 2e-4), (170.8, 2e-4)]
)
def test_displacements_are_smoothed_as_by_scipy(sigma, error):
    """Narrow kernels by taps; wide ones by cosines, leaving out what is below 0.2 %."""
    field = np.empty((64, 90), np.float32)
    digital.draw_field(np.uint64(3), 0, field)
    assert -1 <= field.min() < -0.99 < 0.99 < field.max() < 1
    ours = digital.smoothed(field, sigma)
    expected = field
    if sigma:
        expected = ndimage.gaussian_filter(
            field.astype(np.float64), sigma, mode="reflect", truncate=3
        )
    assert np.abs(ours - expected).max() < error


def test_sampling_is_scipys():
    image = np.ascontiguousarray(batch(1, 20, 30)[0].transpose(1, 2, 0))
    rng = np.random.default_rng(0)
    at_y = rng.uniform(-45, 60, 500).astype(np.float32)
    at_x = rng.uniform(-70, 90, 500).astype(np.float32)
    out = np.empty(1500, np.float32)
    for border, mode in ((False, "mirror"), (True, "reflect")):
        digital.sample(image, at_y.copy(), at_x.copy(), out, border)
        for c in range(3):
            plain = image[..., c].astype(np.float64)
            expected = ndimage.map_coordinates(plain, [at_y, at_x], order=1, mode=mode)
            assert np.abs(out.reshape(-1, 3)[:, c] - expected).max() < 2e-5


def test_affine_maps_take_the_moved_points_back():
    key = np.array([99], np.uint64)
    matrix = digital.affine_maps(key, 224, 224, 10.0)[0]
    u = np.array([*philox.uniforms(99, 2, 4), *philox.uniforms(99, 3, 2)]).reshape(2, 3)
    points = np.array([[186, 186, 38], [186, 38, 38]], np.float64)
    moved = points + (2 * u - 1) * 10
    assert np.abs(matrix @ np.vstack([moved, np.ones(3)]) - points).max() < 1e-3
    still = digital.affine_maps(key, 224, 224, 0.0)[0]
    assert np.abs(still - np.eye(3)[:2]).max() < 1e-5


@pytest.mark.parametrize("reach", [1, 2, 4])
def test_glass_pixels_come_from_near_by(reach):
    moved = np.empty((40, 50), np.int32)
    blur.wander(moved, np.uint64(1), reach, 1)
    y, x = np.mgrid[:40, :50]
    dy, dx = moved // 50 - y, moved % 50 - x
    edge = (y <= reach) | (x <= reach) | (y > 40 - reach) | (x > 50 - reach)
    assert (dy[edge] == 0).all()
    assert (dx[edge] == 0).all()
    assert len(np.unique(dy)) > 2 * reach - 1
    blur.wander(moved, np.uint64(1), reach, 3)
    assert moved.min() >= 0
    assert moved.max() < 2000


def test_plasma_covers_zero_to_one_and_is_smooth_for_large_decay():
    rough, even = np.empty((64, 64), np.float32), np.empty((64, 64), np.float32)
    weather.plasma(np.uint64(4), 1.4, rough)
    weather.plasma(np.uint64(4), 3.0, even)
    for heights in (rough, even):
        assert heights.min() == 0
        assert heights.max() == pytest.approx(1, abs=1e-6)
    assert np.abs(np.diff(even)).mean() < np.abs(np.diff(rough)).mean()


def test_taps_and_disks_sum_to_one():
    for sigma in (0.05, 0.4, 1.0, 6.0):
        taps = kernels.gaussian_taps(sigma)
        assert taps[0] + 2 * taps[1:].sum() == pytest.approx(1, abs=1e-6)
    rows, ends, parts, reach = blur.disk(6.0, 0.5)
    weights = np.zeros((2 * reach + 1,) * 2)
    for row, some, part in zip(rows, ends, parts, strict=True):
        for end, w in zip(some, part, strict=True):
            for y in {row, -row}:
                weights[reach + y, reach - end : reach + end + 1] += w
    exact = blur.soft_disk(6.0, 0.5)
    inner = slice(8 - reach, 9 + reach)
    assert np.abs(weights - exact[inner, inner]).max() < 1e-8
