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

from examples.inputs import inputs_hash
from examples.pacs import nets, weights
from examples.pacs.__main__ import data_folder, main
from examples.pacs.findings import HOLDS, NOT, OPEN, of_interval, of_sets
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
    for name, text in texts(profile, tmp_path, tmp_path / "features").items():
        (tmp_path / f"{name}.toml").write_text(text)
        jobs[name] = read_recipe(tmp_path / f"{name}.toml").jobs()
    heads = [job for name in jobs if name.startswith("heads-") for job in jobs[name]]
    assert len({job.id for job in heads}) == len(heads) >= 300
    assert {job.arguments["tune"] for job in heads} == {"head"}
    assert {job.architecture for job in heads} == {"lite0", "lite1", "lite2", "resnet50"}
    assert {job.data_size for job in heads} == {"full", "few-shot-100", "few-shot-10"}
    assert len(jobs["whole"]) >= 12
    assert {job.id for job in jobs["attacked"]} <= {job.id for job in heads}
    assert len({job.training_data for job in heads}) == 4
    for job in (heads[0], jobs["whole"][0], jobs["scratch"][0]):  # their ID test part, 17 ways
        corrupted = [one for one in job.evaluate if "held-out+" in one and ":3" in one]
        assert len(corrupted) == 17
        assert {one.partition("+")[0] for one in corrupted} == {f"{job.training_data}/held-out"}


def test_the_quick_profile_needs_no_features_that_the_full_one_has_not(tmp_path):
    """Heads train on the same examples and views: what names their files is the same."""
    seen = {}
    for name, profile in {"quick": QUICK, "full": FULL}.items():
        folder = tmp_path / name
        sweeps = prepare(folder, profile, tmp_path, tmp_path / "features")
        recipes = [read_recipe(one.recipe) for one in sweeps if "heads" in one.recipe.stem]
        assert {Path(one.features) for one in recipes} == {tmp_path / "features"}
        seen[name] = {
            (job.architecture, str(job.arguments["data"]), job.arguments["seed"], str(augmented))
            for one in recipes
            for job in one.jobs()
            for augmented in [job.arguments["augmentation"]]
        }
    assert profile.size == QUICK.size
    assert seen["quick"] <= seen["full"]


def test_a_folder_is_of_one_profile(tmp_path, pacs):
    prepare(tmp_path, TINY, pacs, tmp_path)
    prepare(tmp_path, TINY, pacs, tmp_path)
    with pytest.raises(InputError, match="other options"):
        prepare(tmp_path, QUICK, pacs, tmp_path)


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


@pytest.mark.parametrize("below", [True, False])
def test_what_a_recipe_does_is_decided_where_all_id_sets_agree(below):
    """The verdict is that of matched networks, unless an ID set says otherwise."""
    side = -1.0 if below else 1.0
    networks = {"low": min(side, 3 * side), "high": max(side, 3 * side)}
    other = {"low": -networks["high"], "high": -networks["low"]}
    every, most = {"rank_biserial": side, "zeros": 0}, {"rank_biserial": 0.8 * side, "zeros": 0}
    against = {"rank_biserial": -side, "zeros": 0}
    assert of_sets(every, networks, below=below) == HOLDS
    assert of_sets(against, other, below=below) == NOT
    for sets, found in ((most, networks), (against, networks), (every, other)):
        assert of_sets(sets, found, below=below) == OPEN
    assert of_sets(every, {"low": -1.0, "high": 1.0}, below=below) == OPEN
    assert of_sets(every | {"zeros": 1}, networks, below=below) == OPEN


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
def test_the_converted_network_names_photographs_of_imagenet(monkeypatch):
    """Of foolbox's 20 sample photographs with labels, 19 by the best answer, all by the best 5."""
    foolbox = pytest.importorskip("foolbox")
    if not (cache_folder() / "keras-resnet50.pth").exists():
        pytest.skip("skipped: the weights are not there")
    from shiftbed.evaluation.models import model

    monkeypatch.setenv("PACS_SIZE", "224")
    network = model(nets.resnet50(), name="resnet50")
    files = sorted((Path(foolbox.__file__).parent / "data").glob("imagenet_*"))
    labels = np.array([int(file.stem.split("_")[2]) for file in files])
    seen = [network.preprocessing.pixels(Image.open(file).convert("RGB")) for file in files]
    ranked = np.argsort(-network.logits(np.stack(seen).transpose(0, 3, 1, 2)), axis=1)
    assert len(files) == 20
    assert (ranked[:, 0] == labels).sum() >= 19
    assert (ranked[:, :5] == labels[:, None]).any(axis=1).all()


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
    runs = tmp_path / "b" / "tiny" / "runs"
    while begun.poll() is None and len(list(runs.glob("*/done.json"))) < 20:
        time.sleep(0.05)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    assert len(list(runs.glob("*/done.json"))) < 64
    again = subprocess.run([*command, str(tmp_path / "b")], **given)
    assert again.returncode == 0, again.stderr

    tables = [(tmp_path / one / "tiny" / "tables.txt").read_text() for one in ("a", "b")]
    first, second = (
        text.replace(str(tmp_path / one), "F") for one, text in zip("ab", tables, strict=True)
    )
    assert first == second
    assert f"Inputs: {inputs_hash('pacs')}" in first
    assert any(verdict in first for verdict in VERDICTS)
    for one in "ab":
        assert (tmp_path / one / "tiny" / "report.html").stat().st_size > 100_000
