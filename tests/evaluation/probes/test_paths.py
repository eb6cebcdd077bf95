"""Paths on the complex spectrum, against numpy's plain transforms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftbed.errors import InputError
from shiftbed.evaluation.probes.paths import (
    amplitude_path,
    phase_path,
    pixel_pieces,
    window,
)
from tests.evaluation.probes.digits import blend_amplitude, blend_phase

SIZES = [(32, 32, 0.2), (32, 32, 0.5), (31, 33, 0.5), (20, 48, 0.1), (7, 8, 0.3)]


def pixel_path(*given):
    return np.concatenate(list(pixel_pieces(*given)))


def images(height, width, channels=3, seed=0):
    return np.random.default_rng(seed).normal(size=(2, channels, height, width)).astype(np.float32)


def shifted_window(height, width, w):
    """Half width ⌊w·min⌋ about the centred zero frequency, by slicing."""
    mask = np.zeros((height, width), bool)
    half = int(np.floor(w * min(height, width)))
    down, across = height // 2, width // 2
    mask[max(0, down - half) : down + half + 1, max(0, across - half) : across + half + 1] = True
    return np.fft.ifftshift(mask)


def test_the_window_of_cifar_is_13_by_13():
    inside = np.fft.fftshift(window(32, 32, 0.2))
    rows, columns = np.nonzero(inside)
    assert inside.sum() == 13 * 13
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (10, 22, 10, 22)
    assert window(224, 224, 0.5).all()
    assert window(224, 224, 0.1).sum() == 45 * 45


@pytest.mark.parametrize(("height", "width", "w"), SIZES)
def test_windows_by_slicing(height, width, w):
    assert (window(height, width, w) == shifted_window(height, width, w)).all()


@pytest.mark.parametrize("make", [amplitude_path, phase_path])
@pytest.mark.parametrize(("height", "width", "w"), SIZES)
def test_lambda_0_returns_the_image(make, height, width, w):
    x0, x1 = images(height, width)
    path = make(x0, x1, w)
    assert path.shape == (100, 3, height, width)
    assert path.dtype == np.float32
    assert np.abs(path[0] - x0).max() <= 1e-5


@pytest.mark.parametrize(
    ("make", "blend"), [(amplitude_path, blend_amplitude), (phase_path, blend_phase)]
)
@pytest.mark.parametrize(("height", "width", "w"), SIZES)
def test_paths_are_the_real_part_of_the_blended_spectrum(make, blend, height, width, w):
    x0, x1 = images(height, width, seed=1)
    path = make(x0, x1, w, 7)
    f0, f1 = np.fft.fft2(x0.astype(float)), np.fft.fft2(x1.astype(float))
    for lam, found in zip(np.linspace(0, 1, 7), path, strict=True):
        wanted = np.fft.ifft2(blend(f0, f1, lam, window(height, width, w))).real
        assert np.abs(found - wanted).max() < 2e-5


@settings(max_examples=25, deadline=None)
@given(lam=st.floats(0, 1), w=st.sampled_from([0.1, 0.2, 0.5]), seed=st.integers(0, 99))
def test_what_a_blend_keeps(lam, w, seed):
    x0, x1 = images(16, 16, seed=seed).astype(float)
    f0, f1 = np.fft.fft2(x0), np.fft.fft2(x1)
    inside = window(16, 16, w)
    amplitude, phase = blend_amplitude(f0, f1, lam, inside), blend_phase(f0, f1, lam, inside)
    # A phase is compared where there is an amplitude to carry it.
    assert np.allclose(amplitude / np.abs(amplitude), f0 / np.abs(f0), atol=1e-9)
    assert np.allclose(np.abs(phase), np.abs(f0))
    blended = (1 - lam) * np.abs(f0) + lam * np.abs(f1)
    assert np.allclose(np.abs(amplitude)[:, inside], blended[:, inside])
    for found in (amplitude, phase):
        assert np.allclose(found[:, ~inside], f0[:, ~inside])


def test_amplitude_and_phase_on_the_spectrum_of_the_path_itself():
    """Where the inverse transform is real by itself, the path's own spectrum shows the identity."""
    x0, x1 = images(15, 15, seed=3)  # odd sides: only the zero frequency is its own mirror
    inside = window(15, 15, 0.2)
    f0 = np.fft.fft2(x0.astype(float))
    for image in amplitude_path(x0, x1, 0.2, 5):
        turned = np.angle(np.fft.fft2(image.astype(float)) / f0)
        assert np.abs(turned).max() < 1e-3
        assert np.allclose(np.fft.fft2(image)[:, ~inside], f0[:, ~inside], atol=1e-3)
    for image in phase_path(x0, x1, 0.2, 5):
        found = np.fft.fft2(image.astype(float))
        size, own = np.abs(found), np.abs(f0)
        size[:, 0, 0], own[:, 0, 0] = 0, 0
        assert np.allclose(size, own, atol=1e-3)
        assert np.allclose(found[:, ~inside], f0[:, ~inside], atol=1e-3)


def test_the_end_of_an_amplitude_path_has_the_other_amplitudes():
    x0, x1 = images(32, 32, seed=4)
    last = amplitude_path(x0, x1, 0.5)[-1]
    wanted = np.abs(np.fft.fft2(x1.astype(float)))
    assert np.allclose(np.abs(np.fft.fft2(last.astype(float))), wanted, atol=1e-2)


def test_pixel_paths_have_unit_steps():
    x0, x1 = images(8, 8, seed=5)
    path = pixel_path(x0, x1)
    distance = float(np.linalg.norm((x1 - x0).ravel()))
    assert len(path) == int(distance) + 1
    steps = np.linalg.norm(np.diff(path, axis=0).reshape(len(path) - 1, -1), axis=1)
    assert np.allclose(steps, 1, atol=1e-4)
    assert (path[0] == x0).all()
    assert len(pixel_path(x0, x0)) == 1
    pieces = list(pixel_pieces(x0, x1, most=4))
    assert max(map(len, pieces)) == 4
    assert (np.concatenate(pieces) == path).all()
    assert len(pixel_path(x0, x1, 0.5)) > 1.9 * len(path) - 2


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: amplitude_path(x, x[:, :-1], 0.2),
        lambda x: phase_path(x, x, 0.6),
        lambda x: phase_path(x, x, 0.0),
        lambda x: amplitude_path(x, x, 0.2, 1),
        lambda x: pixel_path(x, x, 0),
        lambda x: pixel_path(x, x[:2]),
        lambda x: amplitude_path(x[0], x[0], 0.2),
    ],
)
def test_what_makes_no_path(wrong):
    with pytest.raises(InputError):
        wrong(images(8, 8)[0])
