"""Pruning by recipe: from the table to the weights others read, and the store's record of them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from shiftbed.errors import InputError
from shiftbed.evaluation.models import resolve
from shiftbed.store import PredictionStore
from shiftbed.training import read_recipe
from shiftbed.training.prune import METHODS
from shiftbed.training.train import train
from tests.training.minimal import one_thread

__all__ = ["one_thread"]

RECIPE = """
name = "pruned"
[data.digits]
path = "train.npz"
[[test_sets]]
name = "val"
path = "val.npz"
[[grid]]
model = "nets:resnet8?size=8&mode=L"
data = "digits"
optimiser = {name = "SGD", lr = 0.05, momentum = 0.9}
schedule = {name = "CosineAnnealingLR", per = "PER"}
epochs = 2
batch_size = 50
checkpoints = {every = 1, keep = "all"}
prune = PRUNE
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):  # type: ignore[no-untyped-def]
    place = tmp_path_factory.mktemp("pruned")
    images, labels = load_digits(return_X_y=True)
    pixels = (images * 15.9375).round().astype(np.uint8).reshape(-1, 8, 8)
    np.savez(place / "train.npz", images=pixels[:150], labels=labels[:150])
    np.savez(place / "val.npz", images=pixels[1500:], labels=labels[1500:])
    return place


def write(folder: Path, name: str, prune: str, per: str = "step") -> Path:
    path = folder / f"{name}.toml"
    text = RECIPE.replace("PRUNE", prune).replace("PER", per)
    path.write_text(f'store = "{name}-store"\nruns = "{name}-runs"\n' + text)
    return path


@pytest.mark.parametrize("method", METHODS)
def test_weights_on_disk_have_exactly_the_zeros(folder: Path, method: str) -> None:
    rounds = ", rounds = 1" if method in ("lottery-ticket", "lr-rewinding") else ""
    per = "epoch" if method == "lr-rewinding" else "step"
    table = f'{{method = "{method}", scope = ["global", "layerwise"], sparsity = 0.8{rounds}}}'
    recipe = read_recipe(write(folder, method, table, per))
    summary = train(recipe)
    assert not summary.failed
    store = PredictionStore(folder / f"{method}-store")
    finals = [cell for cell in store.cells() if cell["info"]["final"]]
    assert {cell["info"]["scope"] for cell in finals} == {"global", "layerwise"}
    for cell in finals:
        info = cell["info"]
        jobs = folder.glob(f"{method}-runs/*/job.json")
        (job,) = (
            file.parent
            for file in jobs
            if json.loads(file.read_text())["hooks"]["prune"]["scope"] == info["scope"]
        )
        file = job / f"step-{info['step']:08d}.pt"
        state = torch.load(file, weights_only=True)
        layers = [t for name, t in state.items() if name.endswith("weight") and t.ndim > 1]
        sizes = [t.numel() for t in layers]
        zeros = [int((t == 0).sum()) for t in layers]
        wanted = [round(0.8 * size) for size in sizes]
        if info["scope"] == "global":
            assert sum(zeros) == round(0.8 * sum(sizes))
        else:
            assert zeros == wanted
        assert info["sparsity"] == sum(zeros) / sum(sizes)
        assert info["pruning"] == method
        model = resolve(f"nets:resnet8?weights={file}&size=8&mode=L")
        with np.load(folder / "val.npz") as arrays:
            answered = model.logits(arrays["images"][:, None]).argmax(axis=1)
        assert np.array_equal(answered, store.read(cell["model"], "val")["class_1"].to_numpy())


def test_a_wrong_table_is_said(folder: Path) -> None:
    recipe = read_recipe(write(folder, "wrong", '{method = "magnitude", sparsity = 80}'))
    with pytest.raises(InputError, match=r"write 0\.8"):
        train(recipe)
