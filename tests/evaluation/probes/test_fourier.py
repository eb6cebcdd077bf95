"""Spectra and heat maps against closed forms."""

import numpy as np
import pytest

from shiftbed.evaluation.models import FunctionModel
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.evaluation.probes.fourier import (
    basis,
    default_norm,
    frequencies,
    heat_map,
    mean_spectrum,
    radial_spectra,
    spectra_of,
)
from shiftbed.results.charts.corruptions import error_map, spectrum_chart
from shiftbed.store import PredictionStore
from tests.evaluation.probes.digits import plain_model, some_digits


@pytest.mark.parametrize("k", [0, 1, 3, 8])
def test_a_wave_is_in_its_own_ring(k):
    t = np.arange(16)
    wave = np.broadcast_to(np.cos(2 * np.pi * k * t / 16), (1, 1, 16, 16))
    found = radial_spectra(wave)[0]
    assert found.argmax() == k
    assert np.delete(found, k).max() < 1e-9
    assert found.shape == (9,)


def test_white_noise_is_flat_and_a_mean_has_its_interval():
    noise = np.random.default_rng(0).normal(size=(200, 1, 16, 16))
    each = radial_spectra(noise)
    found = mean_spectrum("noise", each)
    wanted = 16 * np.sqrt(np.pi) / 2  # |complex Gaussian| of variance 256
    assert np.abs(found.mean[1:8] / wanted - 1).max() < 0.05
    assert found.n == 200
    half = 1.959964 * each.std(axis=0, ddof=1) / np.sqrt(200)
    assert np.allclose(found.high - found.mean, half)


def test_basis_images_are_orthonormal_and_cover_all_frequencies():
    waves = frequencies(6, 7)
    flat = np.stack([basis(6, 7, i, j).ravel() for i, j in waves])
    assert np.allclose(flat @ flat.T, np.eye(len(flat)), atol=1e-5)
    covered = {(i % 6, j % 7) for i, j in waves} | {(-i % 6, -j % 7) for i, j in waves}
    assert len(covered) == 42
    assert default_norm(16, 16) == 2.0


def test_a_model_that_sees_one_frequency_errs_there_only(tmp_path):
    digits = some_digits(tmp_path)
    wave = basis(8, 8, 1, 2)

    def sees(x):
        strength = np.abs((x[:, 0] * wave).sum(axis=(1, 2)))
        right = np.zeros((len(x), 10), np.float32)
        right[:, 0] = 1
        right[:, 1] = np.where(strength > 50, 2, 0)
        return right

    given = Preprocessing(size=(8, 8), mode="L", crop="none")
    model = FunctionModel(id="python:one", classes=10, function=sees, preprocessing=given)
    zeros = digits.subset(np.asarray(digits.labels) == 0)
    store = PredictionStore(tmp_path / "store")
    frame = heat_map(store, model, zeros, norm=100.0, images=20)
    wrong = {(r["i"], r["j"]): r["wrong"] for r in frame.iter_rows(named=True)}
    at = (1, 2) if (1, 2) in wrong else (-1, -2)
    assert wrong.pop(at) == 20
    assert set(wrong.values()) == {0}
    chart = error_map(frame, (8, 8))
    assert chart.values.shape == (8, 8)
    middle = chart.rows.index("0"), chart.columns.index("0")
    assert chart.values[middle[0] + 1, middle[1] + 2] == 100
    assert chart.values[middle[0] - 1, middle[1] - 2] == 100
    assert not np.isnan(chart.values).any()
    again = heat_map(store, model, zeros, norm=100.0, images=20)
    assert again.equals(frame)


def test_corrupted_minus_clean(tmp_path):
    digits = some_digits(tmp_path)
    model = plain_model(tmp_path)
    clean, noise, bright = spectra_of(
        model, digits, ["gaussian_noise:5", "brightness:3"], images=40
    )
    assert (clean.name, noise.name, noise.n) == ("val", "gaussian_noise:5", 40)
    assert noise.mean[4] / noise.mean[1] > bright.mean[4] / bright.mean[1]
    rows = [vars(one) for one in (clean, noise, bright)]
    made = spectrum_chart(rows)
    assert len(made.panels) == 2
    assert np.allclose(10 ** made.panels[0].curves[0].y, clean.mean)
