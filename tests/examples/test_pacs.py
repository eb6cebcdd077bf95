"""The PACS study: its recipes, its rules, its weights, and a miniature of all of it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from examples.pacs import nets, weights
from examples.pacs.__main__ import data_folder, main
from examples.pacs.findings import HOLDS, NOT, OPEN, of_interval
from examples.pacs.recipes import FULL, QUICK, TINY, texts
from examples.pacs.study import prepare
from shiftbed.catalogue import find_task
from shiftbed.catalogue.maps import domain_classes
from shiftbed.errors import InputError
from shiftbed.evaluation.models.checkpoints import cache_folder
from shiftbed.training import read_recipe

ROOT = Path(__file__).parents[2]
VERDICTS = (HOLDS, NOT, OPEN)


@pytest.fixture(scope="module")
def pacs(tmp_path_factory):
    """Forty pictures of each class and domain, brighter with the class, noisier with the domain."""
    root, generator = tmp_path_factory.mktemp("pacs"), np.random.default_rng(0)
    for noise, domain in enumerate(find_task("pacs").domains):
        for label, name in enumerate(domain_classes("pacs")):
            for i in range(20):
                path = root / domain.folders[0] / name / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                plain = np.full((16, 16, 3), 30 * label + 20, float)
                plain[:, :, label % 3] += 30
                drawn = plain + generator.normal(0, 10 + 15 * noise, plain.shape)
                Image.fromarray(drawn.clip(0, 255).astype(np.uint8)).save(path)
    return root


@pytest.fixture
def sized(monkeypatch):
    """What the study sets for its networks goes away again."""
    monkeypatch.setenv("PACS_SIZE", "16")


@pytest.mark.parametrize("profile", [QUICK, FULL], ids=["quick", "full"])
def test_at_least_300_heads_and_12_whole_networks(profile, tmp_path):
    jobs = {}
    for name, text in texts(profile, tmp_path).items():
        (tmp_path / f"{name}.toml").write_text(text)
        jobs[name] = read_recipe(tmp_path / f"{name}.toml").jobs()
    heads = {job.id for job in jobs["heads"]}
    assert len(heads) >= 300
    assert {job.arguments["tune"] for job in jobs["heads"]} == {"head"}
    assert sum(job.grid == "whole" for job in jobs["whole"]) >= 12
    assert {job.id for job in jobs["attacked"]} <= heads
    assert len({job.training_data for job in jobs["heads"]}) == 4


def test_a_folder_is_of_one_profile(tmp_path, pacs, sized):
    prepare(tmp_path, TINY, pacs)
    prepare(tmp_path, TINY, pacs)
    with pytest.raises(InputError, match="other options"):
        prepare(tmp_path, QUICK, pacs)


def test_without_pacs_nothing_is_done(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DATA", str(tmp_path / "none"))
    assert data_folder(None) is None
    main([str(tmp_path / "study")])
    assert "Nothing was done" in capsys.readouterr().out
    assert not (tmp_path / "study").exists()


def test_rules_look_at_intervals():
    assert of_interval(-0.3, -0.1) == HOLDS == of_interval(0.1, 0.3, below=False)
    assert of_interval(0.1, 0.3) == NOT == of_interval(-0.3, -0.1, below=False)
    assert of_interval(-0.1, 0.3) == OPEN == of_interval(None, None)


def test_kerass_arrays_go_where_torch_has_them(sized):
    """Kernels turned, BGR to RGB: a convolution by hand gives what the layer gives."""
    kernel = np.random.default_rng(0).normal(size=(7, 7, 3, 64)).astype(np.float32)
    state = weights.converted({"conv1/kernel": kernel, "bn_conv1/gamma": np.ones(64, np.float32)})
    assert set(state) == {"conv1.weight", "bn_conv1.weight"}
    rgb = torch.rand(1, 3, 7, 7)
    found = torch.nn.functional.conv2d(rgb, state["conv1.weight"])[0, :, 0, 0]
    bgr = rgb[0].flip(0).permute(1, 2, 0).numpy()
    np.testing.assert_allclose(found, np.einsum("hwc,hwco->o", bgr, kernel), rtol=1e-4, atol=1e-4)
    names = nets.KerasResNet50().state_dict()
    assert sum(name.endswith("weight") for name in names) == 107  # 53 + 53 + the last layer


@pytest.mark.slow
def test_the_converted_network_knows_dogs_and_guitars(monkeypatch):
    """Real weights on real photographs: of 1,000 classes, mostly the right kind."""
    folder = data_folder(None)
    if folder is None or not (cache_folder() / "keras-resnet50.pth").exists():
        pytest.skip("skipped: PACS or the weights are not there")
    from shiftbed.evaluation.models import model

    monkeypatch.setenv("PACS_SIZE", "160")
    network, names = model(nets.resnet50(), name="resnet50"), weights.labels()
    kinds = {
        "guitar": ("acoustic_guitar", "electric_guitar"),
        "elephant": ("African_elephant", "Indian_elephant", "tusker"),
    }
    for kind, known in kinds.items():
        files = sorted((folder / "photo" / kind).iterdir())[:10]
        seen = [network.preprocessing.pixels(Image.open(file).convert("RGB")) for file in files]
        best = network.logits(np.stack(seen).transpose(0, 3, 1, 2)).argmax(axis=1)
        assert sum(names[one] in known for one in best) >= 7


@pytest.mark.slow
def test_a_miniature_twice_and_killed(tmp_path, pacs):
    """The same tables from two runs, and from one that was killed and run again."""
    command = [sys.executable, "-m", "examples.pacs", "--profile", "tiny", "--bootstrap", "100"]
    command += ["--data", str(pacs)]
    given = {"cwd": ROOT, "env": os.environ | {"OMP_NUM_THREADS": "1"}, "text": True}
    given |= {"timeout": 900, "capture_output": True}
    whole = subprocess.run([*command, str(tmp_path / "a")], **given)
    assert whole.returncode == 0, whole.stderr
    assert "report.html" in whole.stdout
    begun = subprocess.Popen(
        [*command, str(tmp_path / "b")], stdout=subprocess.DEVNULL, cwd=ROOT, env=given["env"]
    )
    runs = tmp_path / "b" / "runs"
    while begun.poll() is None and len(list(runs.glob("*/done.json"))) < 20:
        time.sleep(0.05)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    assert len(list(runs.glob("*/done.json"))) < 108
    again = subprocess.run([*command, str(tmp_path / "b")], **given)
    assert again.returncode == 0, again.stderr

    def said(text: str) -> str:
        lines = [line for line in text.splitlines() if "examples in" not in line]
        lines = [line for line in lines if "checkpoints" not in line or "networks" in line]
        return "\n".join(lines).replace(str(tmp_path / "a"), "F").replace(str(tmp_path / "b"), "F")

    assert said(again.stdout) == said(whole.stdout)
    assert any(verdict in whole.stdout for verdict in VERDICTS)
