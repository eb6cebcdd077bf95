"""``linear`` as a user types it: a random network's features of digits."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from shiftbed.store import PredictionStore
from tests.cli.in_process import shiftbed
from tests.training.minimal import one_thread

__all__ = ["one_thread"]

NET = "nets:resnet8?size=8&mode=L"
FIT = ["--train", "probe_train.npz", "--validation", "probe_held.npz", "--start", "random"]


@pytest.fixture(scope="module", autouse=True)
def _one_blas_thread() -> Iterator[None]:
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):  # type: ignore[no-untyped-def]
    place = tmp_path_factory.mktemp("linear")
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    pixels = (images[order] * 15.9375).round().astype(np.uint8).reshape(-1, 8, 8)
    for name, some in (
        ("train", slice(600)),
        ("held", slice(600, 900)),
        ("test", slice(900, 1300)),
    ):
        np.savez(place / f"probe_{name}.npz", images=pixels[some], labels=labels[order][some])
    return place


@pytest.fixture(scope="module")
def found(folder):  # type: ignore[no-untyped-def]
    done = shiftbed("linear", NET, "probe_test.npz", *FIT, "-o", "probe.pt", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_probe_is_a_model_of_the_store(folder, found) -> None:  # type: ignore[no-untyped-def]
    assert len(found["sweep"]) == 10
    assert found["n_train"] == 600
    best = max(found["sweep"], key=lambda one: (one["validation"], one["penalty"]))
    assert found["penalty"] == best["penalty"]
    reached = found["settings"][0]
    assert reached["n"] == 400
    assert reached["low"] < reached["value"] < reached["high"]
    assert reached["value"] > 0.7  # features of random weights: far from chance
    info = PredictionStore(folder / "store").cell(found["model"], "probe_test")["info"]
    assert info["tune"] == "linear probe"
    line = f"{NET}&weights=probe.pt"
    checked = shiftbed("eval", line, "probe_test.npz", "--store", "again", "--json", cwd=folder)
    assert json.loads(checked.stdout)["settings"][0]["value"] == reached["value"]
    assert len(list((folder / "features").glob("*.npy"))) == 2


def test_the_head_is_the_one_scikit_learn_finds(folder, found) -> None:  # type: ignore[no-untyped-def]
    kept = {len(f): f for f in map(np.load, (folder / "features").glob("*.npy"))}
    with np.load(folder / "probe_train.npz") as arrays:
        labels = arrays["labels"]
    with np.load(folder / "probe_held.npz") as arrays:
        held = arrays["labels"]
    fitted = LogisticRegression(C=1 / found["penalty"], max_iter=5000, tol=1e-6)
    accuracy = fitted.fit(kept[600], labels).score(kept[300], held)
    best = max(one["validation"] for one in found["sweep"])
    assert accuracy == pytest.approx(best, abs=2 / 300)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--train", "probe_train.npz", "--validation", "probe_train.npz", "--start", "random"],
            "the same",
        ),
        (
            ["--train", "probe_train.npz", "--validation", "probe_held.npz", "--start", "cold"],
            "unknown start 'cold'",
        ),
        (
            ["--train", "none.npz", "--validation", "probe_held.npz", "--start", "random"],
            "none.npz",
        ),
    ],
)
def test_mistakes_are_said(folder, arguments, said) -> None:  # type: ignore[no-untyped-def]
    done = shiftbed("linear", NET, "probe_test.npz", *arguments, cwd=folder)
    assert done.returncode == 2
    assert said in done.stderr


def test_another_probe_under_the_same_name_is_refused(folder, found) -> None:  # type: ignore[no-untyped-def]
    again = ["linear", NET, "probe_test.npz", *FIT, "--name", found["model"]]
    shown = shiftbed(*again, cwd=folder)
    assert shown.returncode == 0, shown.stderr
    assert f"Chosen: λ = {found['penalty']:.3g}" in shown.stdout
    again[1] = f"{NET}&seed=5"
    done = shiftbed(*again, cwd=folder)
    assert done.returncode == 2
    assert "another name" in done.stderr
