"""The CIFAR-10 study: its 24 models, its data, its tables, and (slow) all of it, reduced."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.cifar_data import cifar10_file
from examples.cifar10 import data
from examples.cifar10.__main__ import prepare
from examples.cifar10.net import plain, residual
from examples.cifar10.probing import Trained, arguments, trained
from examples.cifar10.tables import PROBED, _means
from shiftbed.errors import InputError
from shiftbed.evaluation.models import resolve
from shiftbed.store import PredictionStore, StoredTestSet, part_from_top, verify
from shiftbed.training import read_recipe
from shiftbed.training.train import train

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "examples" / "cifar10" / "recipe.toml"
SPARSITIES = (0.5, 0.8, 0.95)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """An .npz like CIFAR-10's: ten faint patterns in much noise, 40 images of each and part."""
    rng = np.random.default_rng(0)
    patterns = rng.normal(0, 14, (10, 32, 32, 3))
    arrays = {}
    for part in ("train", "test"):
        labels = rng.permutation(np.arange(400) % 10)
        pixels = 128 + patterns[labels] + rng.normal(0, 45, (400, 32, 32, 3))
        arrays[f"{part}_images"] = pixels.clip(0, 255).astype(np.uint8)
        arrays[f"{part}_labels"] = labels
    path = tmp_path_factory.mktemp("copy") / "cifar.npz"
    np.savez(path, **arrays)
    return path


class TestRecipe:
    def test_two_nets_three_augmentations_four_sparsities(self):
        jobs = read_recipe(RECIPE, allow_code=True).jobs()
        found = Counter(
            (
                job.architecture,
                "+".join(step["name"] for step in job.arguments["augmentation"]),
                job.arguments.get("hooks", {}).get("prune", {}).get("sparsity", 0.0),
            )
            for job in jobs
        )
        assert len(jobs) == 24
        assert found == {
            (net, augmentation, sparsity): 1
            for net in ("residual", "plain")
            for augmentation in ("crop-flip", "crop-flip+augmix", "crop-flip+gaussian-noise")
            for sparsity in (0.0, *SPARSITIES)
        }

    def test_a_pruned_run_starts_from_the_dense_one_of_its_net_and_augmentation(self):
        jobs = read_recipe(RECIPE, allow_code=True).jobs()
        by_run = {job.run: job for job in jobs}
        pruned = [job for job in jobs if job.parent is not None]
        assert len(pruned) == 18
        for job in pruned:
            dense = by_run[job.parent]
            assert dense.parent is None
            for key in ("model", "augmentation", "data"):
                assert job.arguments[key] == dense.arguments[key]

    def test_every_corruption_at_severity_3_and_one_attack(self):
        settings = [one.setting for one in read_recipe(RECIPE, allow_code=True).sources.settings]
        corrupted = [one.perturbation for one in settings if one.kind == "corruption"]
        assert len({one.name for one in corrupted}) == 19
        assert {one.severity for one in corrupted} == {3}
        assert [one.share for one in settings if one.kind == "adversarial"] == [0.1]


def test_pruned_runs_have_exactly_their_share_of_zeros(copy, tmp_path):
    recipe = prepare(tmp_path, {"train": 6, "cifar10": 2}, copy)
    text = recipe.read_text().replace('corruptions = ["all:3"]\n', "")
    text = text.replace('attacks = ["pgd-linf:1/255"]\nattack_options = {steps = 10}\n', "")
    recipe.write_text(text.replace('"python:net.py:residual()", ', ""))
    assert train(read_recipe(recipe, allow_code=True), grids=["noise"]).failed == {}
    shares = []
    for one in trained(tmp_path):
        zeros, total = zeros_of(one)
        shares.append(zeros / total)
        assert zeros in [round(s * total) for s in (0.0, *SPARSITIES)]
        check_probed(tmp_path, one)
    assert sorted(round(share, 2) for share in shares) == [0.0, *SPARSITIES]


def check_probed(folder: Path, one: Trained) -> None:
    """A probe is the command a user would type, of the network that was trained."""
    words = arguments(folder, one, 500)
    assert words[0] == "probe"
    assert words[-7:-1] == ["--probe", "all", "--pairs", "500", "--normalisation", "model"]
    assert words[-1] == "--allow-code"
    model = resolve(words[1], allow_code=True)
    assert model.id == one.name
    net = plain().eval()
    net.load_state_dict(torch.load(one.weights, weights_only=True))
    pixels = np.random.default_rng(0).random((3, 3, 32, 32), np.float32)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (model.preprocessing.mean,
                                                            model.preprocessing.std))  # fmt: skip
    with torch.inference_mode():
        wanted = net((torch.from_numpy(pixels) - mean) / std).numpy()
    assert np.allclose(model.logits(pixels), wanted, atol=1e-5)


def zeros_of(one: Trained) -> tuple[int, int]:
    """Zeros among the weights of convolutions and the linear layer, and how many there are."""
    state = torch.load(one.weights, weights_only=True)
    weights = [v.flatten() for name, v in state.items() if name.endswith("weight") and v.ndim > 1]
    return int((torch.cat(weights) == 0).sum()), sum(map(len, weights))


def test_both_nets_are_about_as_large():
    sizes = [sum(p.numel() for p in net().parameters()) for net in (residual, plain)]
    assert sizes == [75290, 61338]
    for net in (residual, plain):
        assert net()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


class TestData:
    def test_balanced_keeps_as_many_of_each_class(self):
        given = np.arange(100).reshape(100, 1, 1, 1).astype(np.uint8), np.arange(100) % 10
        images, labels = data.balanced(given, 3)
        assert np.bincount(labels).tolist() == [3] * 10
        assert (given[1][images.ravel()] == labels).all()

    def test_train_and_test_come_from_their_own_parts(self, copy, tmp_path):
        data.make(tmp_path, {"train": 5, "cifar10": 4}, copy)
        whole = cifar10_file(copy)
        for name, part, n in (("train", "train", 50), ("cifar10", "test", 40)):
            with np.load(tmp_path / f"{name}.npz") as found:
                there = {image.tobytes() for image in whole[part][0]}
                assert len(found["images"]) == n
                assert {image.tobytes() for image in found["images"]} <= there

    def test_what_is_there_is_kept(self, copy, tmp_path):
        data.make(tmp_path, {"train": 2, "cifar10": 1}, copy)
        before = (tmp_path / "train.npz").read_bytes()
        data.make(tmp_path, {"train": 9, "cifar10": 9}, tmp_path / "nowhere.npz")
        assert (tmp_path / "train.npz").read_bytes() == before

    def test_a_copy_of_something_else_is_refused(self, tmp_path):
        (tmp_path / "a.npz").write_bytes(b"nothing")
        np.savez(tmp_path / "b.npz", images=np.zeros(3))
        for name in ("a.npz", "b.npz", "missing.npz"):
            with pytest.raises(InputError, match=r"expected an \.npz with train_images"):
                cifar10_file(tmp_path / name)


def test_the_mean_over_corruptions_counts_an_image_once(tmp_path):
    """Two corruptions with equal answers are no more certain than one."""
    store = PredictionStore(tmp_path)
    n, labels = 50, np.zeros(50, np.int64)
    for setting in ("cifar10+a:3", "cifar10+b:3"):
        store.add_test_set(
            StoredTestSet(
                setting=setting,
                examples=tuple(map(str, range(n))),
                labels=labels,
                fingerprint="sha256:x",
                label_policy="all",
            )
        )
        store.write_part("m", setting, 0, part_from_top(np.arange(n) % 2))
        store.write_cell("m", setting, {"status": "complete"})
    (one,) = _means(store, ["m"], ["cifar10+a:3"])
    (two,) = _means(store, ["m"], ["cifar10+a:3", "cifar10+b:3"])
    assert one["value"] == two["value"] == 0.5
    assert two["high"] - two["low"] == pytest.approx(one["high"] - one["low"])
    assert one["high"] - 0.5 == pytest.approx(1.96 * np.sqrt(0.25 / 49), rel=1e-3)


@pytest.fixture(scope="module")
def whole(copy, tmp_path_factory):
    """The study at its quick size, run once to its end."""
    folder = tmp_path_factory.mktemp("whole")
    assert "24 runs finished, 0 of them before" in quick(folder, copy)
    return folder


def words(folder, copy):
    return [sys.executable, "-m", "examples.cifar10", str(folder), "--quick", "--data", str(copy)]


def quick(folder, copy):
    done = subprocess.run(
        words(folder, copy), cwd=ROOT, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_every_model_has_its_sparsity_and_every_probe_its_interval(whole):
    found = json.loads((whole / "results.json").read_text())
    assert Counter(round(m["sparsity"], 2) for m in found["models"]) == dict.fromkeys(
        (0.0, *SPARSITIES), 6
    )
    models = trained(whole)
    assert len(models) == 24
    for one in models:
        zeros, total = zeros_of(one)
        assert zeros in [round(s * total) for s in (0.0, *SPARSITIES)]
    assert len(found["probes"]) == 24 * len(PROBED)
    for row in found["probes"]:
        assert row["low"] <= row["value"] <= row["high"]
        assert row["n"] == 10
    for rows in found["predictors"].values():
        assert all(row["n"] for row in rows if row["r2"] is not None)
    assert verify(PredictionStore(whole / "store")) == []


@pytest.mark.slow
def test_a_study_killed_twice_ends_with_the_same_tables(whole, copy, tmp_path):
    for count, folder in ((100, "cells"), (30, "probes")):
        start = subprocess.Popen(
            words(tmp_path, copy),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while len(list((tmp_path / "store" / folder).rglob("*.json"))) < count:
            assert start.poll() is None
            time.sleep(0.2)
        os.killpg(start.pid, signal.SIGKILL)
        start.wait()
    assert "24 of them before" in quick(tmp_path, copy)
    assert (tmp_path / "tables.md").read_bytes() == (whole / "tables.md").read_bytes()
