"""``probe`` as a function: objects in, a result out, nothing on disk unless asked for."""

import json
import os
import sys

import pytest
import torch
from matplotlib.figure import Figure

from shiftbed.engine.probe import probe
from shiftbed.errors import InputError
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"models": []}, "at least one model"),
        ({"models": [NET, NET]}, "same name"),
        ({"models": [NET, "python:digit_nets:plain"], "name": "both"}, "one name"),
        ({"models": torch.nn.Linear(1, 1)}, "Linear is no model"),
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
