"""``linear`` as a user types it: a random network's features of digits."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from shiftbed.store import PredictionStore
from tests.cli.in_process import shiftbed
from tests.train.minimal import one_thread

__all__ = ["one_thread"]

NET = "nets:resnet8?size=8&mode=L"
FIT = ["--train", "train.npz", "--validation", "held.npz", "--start", "random"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):  # type: ignore[no-untyped-def]
    place = tmp_path_factory.mktemp("linear")
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    pixels = (images[order] * 15.9375).round().astype(np.uint8).reshape(-1, 8, 8)
    for name, some in (("train", slice(600)), ("held", slice(600, 900)), ("val", slice(900, 1300))):
        np.savez(place / f"{name}.npz", images=pixels[some], labels=labels[order][some])
    return place


def test_a_probe_is_a_model_of_the_store(folder) -> None:  # type: ignore[no-untyped-def]
    command = ["linear", NET, "val.npz", *FIT, "-o", "probe.pt"]
    done = shiftbed(*command, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["sweep"]) == 10
    assert found["n_train"] == 600
    best = max(found["sweep"], key=lambda one: (one["validation"], one["penalty"]))
    assert found["penalty"] == best["penalty"]
    reached = found["settings"][0]
    assert reached["n"] == 400
    assert reached["low"] < reached["value"] < reached["high"]
    assert reached["value"] > 0.7  # features of random weights: far from chance
    info = PredictionStore(folder / "store").cell(found["model"], "val")["info"]
    assert info["tune"] == "linear probe"
    line = f"{NET}&weights=probe.pt"
    checked = shiftbed("eval", line, "val.npz", "--store", "again", "--json", cwd=folder)
    assert json.loads(checked.stdout)["settings"][0]["value"] == reached["value"]
    assert len(list((folder / "features").glob("*.npy"))) == 2
    assert json.loads(shiftbed(*command, "--json", cwd=folder).stdout) == found
    assert "Chosen: λ" in shiftbed(*command, cwd=folder).stdout


def test_the_head_is_the_one_scikit_learn_finds(folder) -> None:  # type: ignore[no-untyped-def]
    done = shiftbed("linear", NET, "val.npz", *FIT, "--json", cwd=folder)
    found = json.loads(done.stdout)
    kept = {len(f): f for f in map(np.load, (folder / "features").glob("*.npy"))}
    with np.load(folder / "train.npz") as arrays:
        labels = arrays["labels"]
    with np.load(folder / "held.npz") as arrays:
        held = arrays["labels"]
    fitted = LogisticRegression(C=1 / found["penalty"], max_iter=5000, tol=1e-6)
    accuracy = fitted.fit(kept[600], labels).score(kept[300], held)
    best = max(one["validation"] for one in found["sweep"])
    assert accuracy == pytest.approx(best, abs=2 / 300)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--train", "train.npz", "--validation", "train.npz", "--start", "random"], "the same"),
        (["--train", "train.npz", "--validation", "held.npz", "--start", "cold"], "--start"),
        (["--train", "none.npz", "--validation", "held.npz", "--start", "random"], "none.npz"),
    ],
)
def test_mistakes_are_said(folder, arguments, said) -> None:  # type: ignore[no-untyped-def]
    done = shiftbed("linear", NET, "val.npz", *arguments, cwd=folder)
    assert done.returncode == 2
    assert said in done.stderr


def test_another_probe_under_the_same_name_is_refused(folder) -> None:  # type: ignore[no-untyped-def]
    options = ["val.npz", *FIT, "--name", "mine"]
    assert shiftbed("linear", NET, *options, cwd=folder).returncode == 0
    done = shiftbed("linear", f"{NET}&seed=5", *options, cwd=folder)
    assert done.returncode == 2
    assert "another --name" in done.stderr
