"""``probe`` as a function: objects in, a result out, nothing on disk unless asked for."""

import json
import os
import sys

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from shiftbed.engine.probe import probe
from shiftbed.errors import InputError
from shiftbed.evaluation.models import model
from shiftbed.store import PredictionStore
from shiftbed.store.probes import probe_records
from tests.cli.in_process import shiftbed
from tests.evaluation.probes.digits import plain_model, some_digits, torch_model

NET = "python:digit_nets:net()"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("probe")


@pytest.fixture(scope="module")
def digits(folder):
    return some_digits(folder)


@pytest.fixture
def here(folder, digits, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    sys.modules.pop("digit_nets", None)
    yield folder
    sys.modules.pop("digit_nets", None)


def test_objects_in_and_nothing_on_disk(here, digits):
    before = sorted(os.listdir(here))
    found = probe([torch_model(here), plain_model(here)], digits, probes="all", pairs=20)
    assert sorted(os.listdir(here)) == before
    assert found.frame.columns[:6] == ["model", "setting", "metric", "value", "low", "high"]
    assert set(found.frame["n"]) == {20}
    net, plain = found.each
    assert (net.not_measured, list(plain.not_measured)) == ({}, ["jacobian"])
    assert "no gradients" in found.notes[0]
    whole = json.loads(found.to_json())
    assert [one["model"] for one in whole["models"]] == [net.model, plain.model]
    assert "2 models on val" in str(found)
    assert "jacobian_norm" in found._repr_html_()


def test_the_command_prints_what_the_function_returns(here):
    found = probe(NET, "val.npz", pairs=15, heatmap=True, images=10, most=2, probes=["phase"])
    done = shiftbed("probe", NET, "val.npz", "--pairs", 15, "--heatmap", "map.png", "--images", 10,
                    "--most", 2, "--probe", "phase", "--json", cwd=here)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {**json.loads(found.to_json()), "files": ["map.png"]}


def test_pictures_onto_given_axes(here, digits):
    found = probe(
        torch_model(here), digits, heatmap=True, spectrum=True, corruptions=["fog:3"], images=12,
        most=2, strip=True,
    )  # fmt: skip
    assert len(found.frame) == 0
    axes = Figure().subplots(1, 2)
    assert found.plot(axes[0]) is axes[0]
    assert axes[0].images[0].get_array().shape == (5, 5)
    assert found.plot(axes[1], kind="spectrum") is axes[1]
    assert [one.name for one in found.each[0].spectra] == ["val", "fog:3"]
    assert found.each[0].strip.width > 500
    with pytest.raises(InputError, match="probe with heatmap=True"):
        probe(plain_model(here), digits, pairs=2).plot(kind="heatmap")


def test_two_weights_files_are_two_models_in_one_store(here, tmp_path):
    """One network of the module's, its weights replaced by those of either file."""
    rng = np.random.default_rng(0)
    files, values = [], {}
    for at in range(2):
        state = {
            "1.weight": torch.from_numpy(rng.normal(size=(10, 64)).astype(np.float32)),
            "1.bias": torch.zeros(10),
        }
        files.append(tmp_path / f"weights{at}.pt")
        torch.save(state, files[at])
        values[at] = float((state["1.weight"] ** 2).sum() ** 0.5)  # J of a linear model
    asked = {"probes": ["jacobian", "phase"], "pairs": 25, "normalisation": "model"}
    store = PredictionStore(tmp_path / "store")
    found = [probe(NET, "val.npz", weights=file, store=store, **asked) for file in files]
    for at, one in enumerate(found):
        value = dict(one.frame.select("metric", "value").iter_rows())
        assert value["jacobian_norm"] == pytest.approx(values[at], rel=1e-5)
        again = probe(NET, "val.npz", weights=files[at], **asked)
        assert again.frame.equals(one.frame)
    assert found[0].each[0].model != found[1].each[0].model
    assert {one["model"] for one in probe_records(store)} == {one.each[0].model for one in found}
    named = {"name": "net", "store": store, "probes": "phase", "pairs": 5}
    probe(NET, "val.npz", weights=files[0], **named)
    with pytest.raises(InputError, match=r"phase of 'net' .* use another store, or another name"):
        probe(NET, "val.npz", weights=files[1], **named)


def test_a_network_trained_further_is_another_model(here, digits, tmp_path):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    asked = {"store": tmp_path / "store", "probes": "phase", "pairs": 5}
    wrapped = {"name": "mine", "size": 8, "mean": [0.0], "std": [1.0]}
    probe(model(network, **wrapped), digits, **asked)
    probe(model(network, **wrapped), digits, **asked)
    with torch.no_grad():
        network[1].weight += 1
    with pytest.raises(InputError, match=r"'mine' .* with other weights; use another store"):
        probe(model(network, **wrapped), digits, **asked)


def test_weights_that_do_not_fit_are_refused(here, tmp_path):
    torch.save({"head.weight": torch.zeros(10, 64)}, tmp_path / "other.pt")
    done = shiftbed("probe", NET, "val.npz", "--weights", tmp_path / "other.pt", cwd=here)
    assert done.returncode == 2
    assert "weights" in done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"models": []}, "at least one model"),
        ({"models": [NET, NET]}, "same name"),
        ({"models": [NET, "python:digit_nets:plain"], "name": "both"}, "one name"),
        ({"models": torch.nn.Linear(1, 1)}, "size"),
        ({"models": 3}, "not a function but int"),
        ({"probes": "phases"}, "did you mean 'phase'"),
        ({"corruptions": ["fog:3"]}, "for the spectrum"),
        ({"variant": "printed"}, "paper or released"),
    ],
)
def test_what_is_refused(here, change, said):
    given = {"models": NET, "test_set": "val.npz", "pairs": 2} | change
    with pytest.raises(InputError, match=said) as error:
        probe(given.pop("models"), given.pop("test_set"), **given)
    assert "\n" not in str(error.value)


def test_options_of_lines_are_refused_for_models(here, digits):
    with pytest.raises(InputError, match="python:plain is a model already: weights cannot change"):
        probe(plain_model(here), digits, weights="weights.pt")
