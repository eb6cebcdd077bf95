"""The study of 24 models: what it trains, and that pruning is exact."""

import tomllib

import numpy as np
import pytest
import torch

from examples.probes import train
from examples.probes.__main__ import balanced, write_testbed


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return rng.integers(0, 255, (64, 32, 32, 3), dtype=np.uint8), np.arange(64) % 10


@pytest.mark.parametrize("augmentation", ["clean", "gaussian"])
def test_pruning_keeps_its_zeros_through_training(data, augmentation):
    torch.manual_seed(0)
    dense = train.plain6(4)
    before = [p.clone() for p in dense.parameters()]
    recipe = train.Recipe(epochs=1, more=1, batch=32)
    sparse = train._pruned(dense, data, augmentation, 0.8, recipe)
    kinds = (torch.nn.Conv2d, torch.nn.Linear)
    weights = torch.cat([m.weight.flatten() for m in sparse.modules() if isinstance(m, kinds)])
    assert float((weights == 0).float().mean()) == pytest.approx(0.8, abs=1e-3)
    assert all((a == b).all() for a, b in zip(before, dense.parameters(), strict=True))
    kept = dense.state_dict()["0.weight"] != sparse.state_dict()["0.weight"]
    assert bool((kept & (sparse.state_dict()["0.weight"] != 0)).any())  # what is left was trained


def test_augmented_images_are_normalised(data):
    images = torch.from_numpy(data[0]).permute(0, 3, 1, 2)
    clean = train._augmented(images, "clean")
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (train.MEAN, train.STD))
    assert torch.allclose(clean * std + mean, images / 255, atol=1e-5)
    noisy = train._augmented(images, "gaussian")
    assert 0.01 < float(((noisy - clean) * std).std()) < 0.1


def test_the_testbed_has_24_models_and_six_corruptions(tmp_path):
    models = [
        train.Made(name=f"{net}-{a}-{s:g}", net=net, augmentation=a, sparsity=s,
                   path=tmp_path / f"{net}-{a}-{s:g}.pt2", anew=False)
        for net in train.NETS for a in train.AUGMENTATIONS for s in train.SPARSITIES
    ]  # fmt: skip
    table = tomllib.loads(write_testbed(tmp_path, models).read_text())
    assert len(table["models"]) == 24
    assert len(table["settings"][0]["corruptions"]) == 6


def test_balanced_keeps_as_many_of_each_class():
    data = np.arange(100).reshape(100, 1, 1, 1).astype(np.uint8), np.arange(100) % 10
    images, labels = balanced(data, 3)
    assert np.bincount(labels).tolist() == [3] * 10
    assert (data[1][images.ravel()] == labels).all()
