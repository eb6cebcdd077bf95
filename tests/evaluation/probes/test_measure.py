"""Probes into a store: what is written, continued, refused; against a plain loop."""

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax

from shiftbed.errors import InputError
from shiftbed.evaluation.probes import default_probe, probe_model
from shiftbed.evaluation.probes.measure import into_parts
from shiftbed.evaluation.probes.paths import window
from shiftbed.evaluation.probes.probe import any_pairs
from shiftbed.results.scores import scores
from shiftbed.store import PredictionStore
from shiftbed.store.probes import (
    probe_parts,
    probe_record,
    read_probe,
    remove_probe_part,
    write_probe,
)
from tests.evaluation.probes.digits import (
    blend_amplitude,
    blend_phase,
    plain_model,
    some_digits,
    torch_model,
)

KEY = ("python:plain", "val", "amplitude")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("probes")


@pytest.fixture(scope="module")
def digits(folder):
    return some_digits(folder)


def test_against_the_straightforward_loop(folder, digits, tmp_path):
    """Every point's spectrum blended in full, by numpy, in normalised space."""
    model, store = plain_model(folder), PredictionStore(tmp_path)
    given = {"points": 30, "normalisation": "model"}
    probes = [default_probe(name, (8, 8), **given) for name in ("amplitude", "phase")]
    assert probe_model(store, model, digits, probes, pairs=6) == {}
    pairs = any_pairs(len(digits), 6)
    inside = window(8, 8, 0.2)
    for name, blend in (("amplitude", blend_amplitude), ("phase", blend_phase)):
        found = read_probe(store, "python:plain", "val", name)
        for row, (first, second) in zip(found.iter_rows(named=True), pairs, strict=True):
            x = [
                (np.asarray(digits.load(int(i)), float) / 255 - 0.3) / 0.4 for i in (first, second)
            ]
            f0, f1 = (np.fft.fft2(one[None]) for one in x)
            path = [np.fft.ifft2(blend(f0, f1, t, inside)).real for t in np.linspace(0, 1, 30)]
            logits = model.function(np.stack(path).astype(np.float32))
            p = softmax(logits.astype(float), axis=1)
            size = np.abs(np.fft.rfft(p, axis=0)).mean(axis=1)
            assert (row["first"], row["second"]) == (first, second)
            assert row["hff"] == pytest.approx(size[2:].sum() / size.sum(), rel=1e-4)
            assert row["hff_released"] == pytest.approx(size[2:-1].sum() / size.sum(), rel=1e-4)
            other = np.flatnonzero(p.argmax(axis=1) != p[0].argmax())
            assert row["cd"] == (other[0] if len(other) else 30)
            assert np.allclose(row["magnitude"], size, rtol=1e-3, atol=1e-5)


def test_scores_have_n_and_a_gaussian_interval(folder, digits, tmp_path):
    store = PredictionStore(tmp_path)
    model = torch_model(folder)
    names = ("amplitude", "pixel_within", "pixel_between", "jacobian")
    probes = [default_probe(n, (8, 8), normalisation="model") for n in names]
    probe_model(store, model, digits, probes, pairs=40)
    metrics = ["amplitude_hff", "amplitude_cd", "pixel_within_hff", "jacobian_norm", "phase_hff"]
    table = scores(store, metrics=metrics)
    row = {r["metric"]: r for r in table.iter_rows(named=True)}
    each = read_probe(store, model.id, "val", "amplitude")["hff"].to_numpy()
    assert row["amplitude_hff"]["value"] == pytest.approx(each.mean())
    half = 1.959964 * each.std(ddof=1) / np.sqrt(40)
    assert row["amplitude_hff"]["high"] - each.mean() == pytest.approx(half)
    assert row["amplitude_hff"]["n"] == 40
    square = read_probe(store, model.id, "val", "jacobian")["square"].to_numpy()
    assert row["jacobian_norm"]["value"] == pytest.approx(np.sqrt(square.mean()))
    with np.load(folder / "kept.npz") as arrays:  # a linear model: J is its weights
        assert square == pytest.approx((arrays["weights"] ** 2).sum())
    assert "not measured" in row["phase_hff"]["note"]
    assert row["phase_hff"]["value"] is None


def test_what_is_there_is_not_measured_again(folder, digits, tmp_path):
    calls = []
    model, store = plain_model(folder, calls), PredictionStore(tmp_path)
    probe = [default_probe("amplitude", (8, 8), points=5)]
    probe_model(store, model, digits, probe, pairs=150)
    assert probe_parts(store, *KEY) == [(0, 100), (100, 150)]
    assert sum(calls) == 150 * 5
    whole = read_probe(store, *KEY)
    calls.clear()
    probe_model(store, model, digits, probe, pairs=150)
    probe_model(store, model, digits, probe, pairs=120)
    assert not calls
    remove_probe_part(store, *KEY, (0, 100))  # as if killed there
    probe_model(store, model, digits, probe, pairs=150)
    assert sum(calls) == 100 * 5
    assert read_probe(store, *KEY).equals(whole)
    calls.clear()
    probe_model(store, model, digits, probe, pairs=230)
    assert sum(calls) == 130 * 5
    assert probe_parts(store, *KEY) == [(0, 100), (100, 200), (200, 230)]
    assert read_probe(store, *KEY)[:150].equals(whole)
    assert scores(store, metrics=["amplitude_hff"])["n"].to_list() == [230]


def test_other_parameters_or_images_are_refused(folder, digits, tmp_path):
    model, store = plain_model(folder), PredictionStore(tmp_path)
    probe_model(store, model, digits, [default_probe("amplitude", (8, 8), points=5)], pairs=5)
    wider = default_probe("amplitude", (8, 8), points=5, w=0.5)
    with pytest.raises(InputError, match=r"w = 0\.2, now 0\.5"):
        probe_model(store, model, digits, [wider], pairs=5)
    half, same = digits.subset(np.arange(100)), default_probe("amplitude", (8, 8), points=5)
    with pytest.raises(InputError, match="other images"):
        probe_model(store, model, half, [same], pairs=5)


def test_an_interrupted_probe_has_no_score_and_says_so(tmp_path):
    store = PredictionStore(tmp_path)

    def piece(start, stop):
        if start:
            raise KeyboardInterrupt
        return pl.DataFrame({"hff": [0.5] * (stop - start)})

    about = {"parameters": {}, "fingerprint": "x"}
    with pytest.raises(KeyboardInterrupt):
        into_parts(store, KEY, about, 20, 10, piece)
    assert probe_record(store, *KEY)["status"] == "running"
    row = scores(store, metrics=["amplitude_hff"]).row(0, named=True)
    assert row["value"] is None
    assert "interrupted" in row["note"]
    into_parts(store, KEY, about, 20, 10, lambda a, b: pl.DataFrame({"hff": [0.5] * (b - a)}))
    assert scores(store, metrics=["amplitude_hff"])["n"].to_list() == [20]


def test_a_probe_killed_before_its_last_record_is_complete_afterwards(tmp_path):
    store, about = PredictionStore(tmp_path), {"fingerprint": "f", "parameters": {}}
    into_parts(store, KEY, about, 20, 10, lambda a, b: pl.DataFrame({"hff": [0.5] * (b - a)}))
    whole = probe_record(store, *KEY)
    unfinished = {k: v for k, v in whole.items() if k != "sums"} | {"status": "running"}
    write_probe(store, *KEY, unfinished)

    def piece(start, stop):
        raise AssertionError("measured again")

    into_parts(store, KEY, about, 20, 10, piece)
    assert probe_record(store, *KEY) == whole


def test_without_gradients_there_is_a_reason(folder, digits, tmp_path):
    probes = [default_probe("jacobian", (8, 8)), default_probe("amplitude", (8, 8), points=5)]
    store = PredictionStore(tmp_path)
    refused = probe_model(store, plain_model(folder), digits, probes, pairs=3)
    assert list(refused) == ["jacobian"]
    assert "no gradients" in refused["jacobian"]
    assert probe_parts(store, *KEY) == [(0, 3)]


def test_an_unreadable_image_leaves_its_paths_out(tmp_path):
    from PIL import Image

    from shiftbed.evaluation.data import open_test_set

    rng = np.random.default_rng(0)
    for i in range(8):
        folder = tmp_path / "images" / str(i % 2)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(folder / f"{i}.png")
    (tmp_path / "images" / "0" / "0.png").write_bytes(b"no picture")
    images = open_test_set(tmp_path / "images")
    from tests.engine.digits import make_digits

    store = PredictionStore(tmp_path / "store")
    model = plain_model(make_digits(tmp_path / "digits"))
    probe_model(store, model, images, [default_probe("amplitude", (8, 8), points=5)])
    row = scores(store, metrics=["amplitude_hff"]).row(0, named=True)
    assert (row["n"], row["unreadable"]) == (3, 1)
