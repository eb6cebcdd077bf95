"""``shiftbed probe`` and ``predictors``: contracts, pictures, killed and continued."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest
from PIL import Image

from shiftbed.results.plot import gallery, open_source
from shiftbed.store import PredictionStore
from shiftbed.store.probes import probe_parts, read_probe
from shiftbed.testbed import testbed_from_store as from_store
from tests.cli.in_process import shiftbed
from tests.engine.digits import make_digits

NET, PLAIN = "python:digit_nets:net()", "python:digit_nets:plain"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    make_digits(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("digit_nets", None)
    yield tmp_path
    sys.modules.pop("digit_nets", None)


def test_all_probes_as_json_and_as_scores(folder):
    done = shiftbed("probe", NET, "val.npz", "--probe", "all", "--pairs", 30, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["model"], found["setting"], found["not_measured"]) == (NET, "val", {})
    row = {one["metric"]: one for one in found["probes"]}
    assert set(row) == {
        *("amplitude_hff", "amplitude_cd", "phase_hff", "phase_cd"),
        *("pixel_within_hff", "pixel_between_hff", "jacobian_norm"),
    }
    for one in row.values():
        assert one["low"] <= one["value"] <= one["high"]
        assert one["n"] == 30
    assert "w 0.2" in row["phase_hff"]["note"]
    done = shiftbed("score", "store", "--metric", "phase_cd", "--json", cwd=folder)
    assert json.loads(done.stdout)["settings"][0]["value"] == row["phase_cd"]["value"]
    arguments = ("probe", NET, "val.npz", "--variant", "released", "--pairs", 30, "--json")
    released = shiftbed(*arguments, cwd=folder)
    other = {one["metric"]: one for one in json.loads(released.stdout)["probes"]}
    assert 0 < other["phase_hff_released"]["value"] < row["phase_hff"]["value"]


def test_a_model_without_gradients_says_why(folder):
    both = ("--probe", "amplitude", "--probe", "jacobian")
    done = shiftbed("probe", PLAIN, "val.npz", *both, "--pairs", 5, cwd=folder)
    assert done.returncode == 0
    assert "amplitude_hff" in done.stdout
    assert "no gradients" in done.stdout
    done = shiftbed("probe", PLAIN, "val.npz", "--probe", "jacobian", cwd=folder)
    assert done.returncode == 2


def test_an_onnx_model(folder):
    onnx = pytest.importorskip("onnx")
    with np.load(folder / "kept.npz") as arrays:
        weights, bias = arrays["weights"], arrays["bias"]
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["x"], ["flat"]),
            helper.make_node("Gemm", ["flat", "w", "b"], ["y"], transB=1),
        ],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, folder / "linear.onnx")
    options = ("size=[8, 8]", "mode=L", "crop=none", "mean=[0]", "std=[1]")
    given = [part for one in options for part in ("--preprocessing", one)]
    both = {}
    for model in ("onnx:linear.onnx", NET):
        more = list(given) if model.startswith("onnx") else []
        more += ["--probe", "all", "--pairs", "10", "--json"]
        done = shiftbed("probe", model, "val.npz", *more, cwd=folder)
        assert done.returncode == 0, done.stderr
        both[model] = json.loads(done.stdout)
    assert "no gradients" in both["onnx:linear.onnx"]["not_measured"]["jacobian"]
    theirs = {r["metric"]: r["value"] for r in both[NET]["probes"]}
    for row in both["onnx:linear.onnx"]["probes"]:
        assert row["value"] == pytest.approx(theirs[row["metric"]], rel=1e-3)


def test_pictures(folder):
    done = shiftbed(
        *("probe", NET, "val.npz", "--strip", "strip.png", "--heatmap", "heat.html"),
        *("--spectrum", "spectrum.png", "--corruption", "gaussian_noise:3", "--images", 20),
        "--json",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["files"] == ["strip.png", "heat.html", "spectrum.png"]
    assert found["probes"] == []
    with Image.open(folder / "strip.png") as strip:
        assert strip.width > 500
    assert found["heatmap"]["n"] == 20
    assert len(found["heatmap"]["frequencies"]) == 34
    assert [one["name"] for one in found["spectra"]] == ["val", "gaussian_noise:3"]
    assert all(len(one["mean"]) == 5 for one in found["spectra"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--probe", "phases"], "did you mean"),
        (["--window", "0.7"], "at most 0.5"),
        (["--pairs", "400"], "without replacement"),
        (["--variant", "printed"], "paper or released"),
        (["--corruption", "fog:3"], "--spectrum"),
        (["--strip", "strip.jpg"], ".png"),
        (["--strip", "a.png", "--pair", "99999"], "pair must be"),
        (["--level", "2"], "level"),
    ],
)
def test_bad_input_is_one_line(folder, arguments, said):
    done = shiftbed("probe", NET, "val.npz", *arguments, cwd=folder)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_store_with_probes_is_a_testbed_with_predictors(folder):
    """Accuracies by ``eval``, probes by ``probe``, and what predicts what, from one store."""
    for i in range(5):
        (folder / f"net{i}.py").write_text(
            "from digit_nets import *\n"
            f"def dull(pixels):\n    return plain(pixels) * {0.2 + 0.4 * i} + "
            f"{0.8 * i} * np.random.default_rng(0).normal(size=(1, 10)).astype(np.float32)\n"
            "dull.preprocessing = SIZE\n"
        )
        model = f"python:net{i}:dull"
        done = shiftbed("eval", model, "val.npz", "--corruption", "gaussian_noise:3", cwd=folder)
        assert done.returncode == 0, done.stderr
        done = shiftbed("probe", model, "val.npz", "--pairs", 20, cwd=folder)
        assert done.returncode == 0, done.stderr
    bed = from_store(PredictionStore(folder / "store"))
    assert bed.metrics["val:amplitude_cd"] == "amplitude_cd"
    assert (bed.size("val:amplitude_hff") == 20).all()
    each = read_probe(PredictionStore(folder / "store"), "python:net0:dull", "val", "amplitude")
    assert bed.accuracy("val:amplitude_cd")[0] == pytest.approx(each["cd"].to_numpy().mean())
    views, missing = gallery(open_source(str(folder / "store")))
    made = {view.id: view.chart for view in views}["probes"]
    assert "val:phase_hff" in made.columns
    assert not {"severities", "similarity", "reliability"} & {one.id for one in missing}
    done = shiftbed("predictors", "store", "--ood", "val+gaussian_noise:3", "--metric", "val",
                    "--metric", "val:amplitude_hff", "--json", cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)["predictors"]
    assert {row["metric"] for row in table} == {"val", "val:amplitude_hff"}
    assert all(row["n"] == 5 for row in table)


def test_predictors_of_the_published_models(tmp_path):
    done = shiftbed(
        *("predictors", "robustnets-2022", "--by", "architecture", "--models"),
        *("augmentation=clean", "--ood", "cifar10.1", "--best", "best.png", "--bootstrap", 50),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "0.921 **" in done.stdout
    assert "149" in done.stdout
    assert (tmp_path / "best.png").exists()
    done = shiftbed("predictors", "robustnets-2022", "--by", "archi", cwd=tmp_path)
    assert done.returncode == 2


SLOW = """
import time
from digit_nets import *
def slow(pixels):
    time.sleep(0.002)
    return plain(pixels)
slow.preprocessing = SIZE
"""


@pytest.mark.slow
def test_a_killed_probe_continues(folder):
    (folder / "slow_net.py").write_text(SLOW)
    arguments = ["probe", "python:slow_net:slow", "val.npz", "--probe", "phase", "--pairs", "250"]
    run = [sys.executable, "-c", "from shiftbed.cli import main; main()", *arguments]
    env = os.environ | {"PYTHONPATH": str(folder)}
    key = ("python:slow_net:slow", "val", "phase")
    process = subprocess.Popen(run, cwd=folder, env=env)
    store = PredictionStore(folder / "store")
    deadline = time.monotonic() + 60
    while not probe_parts(store, *key) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = probe_parts(store, *key)
    assert there
    assert len(there) < 3
    done = shiftbed(*arguments, "--json", cwd=folder)
    assert json.loads(done.stdout)["probes"][0]["n"] == 250
    clean = shiftbed(*arguments, "--store", "clean", "--json", cwd=folder)
    assert json.loads(done.stdout)["probes"] == json.loads(clean.stdout)["probes"]
    both = [read_probe(PredictionStore(folder / one), *key) for one in ("store", "clean")]
    assert both[0].equals(both[1])
    assert isinstance(both[0], pl.DataFrame)
