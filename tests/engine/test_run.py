"""Runs: nothing lost, nothing twice, continued where they stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

import shiftbed as sb
from shiftbed.engine.identity import identity
from shiftbed.engine.plan import PART, ModelSpec, ranges, tasks
from shiftbed.engine.run import plan, run_spec
from shiftbed.engine.runners import in_processes
from shiftbed.engine.testbed_file import read_testbed_toml
from shiftbed.errors import InputError
from shiftbed.store import PredictionStore, verify
from shiftbed.store.compact import expand
from shiftbed.store.names import cell_folder, part_name
from shiftbed.store.object_store import RemoteFiles
from tests.clusters import PATIENT
from tools.kill_fifty import kill_and_compare, make_testbed, predictions, start


@pytest.fixture
def testbed(tmp_path, monkeypatch):
    path = make_testbed(tmp_path / "bed", images=2500)
    monkeypatch.syspath_prepend(str(path.parent))
    return path


def store_of(testbed):
    return testbed.parent / "store"


def test_every_cell_is_predicted_once(testbed):
    spec = read_testbed_toml(testbed, allow_code=True)
    summary = run_spec(spec)
    assert len(summary.complete) == 4
    assert summary.images == 4 * 2500
    store = PredictionStore(spec.store)
    assert verify(store) == []
    assert store.parts("python:plain_models:bright", "a") == [(0, 2500)]


def test_the_second_run_has_nothing_to_do(testbed):
    spec = read_testbed_toml(testbed, allow_code=True)
    run_spec(spec)
    before = predictions(testbed.parent)
    again = run_spec(spec)
    assert again.images == 0
    assert len(again.complete) == 4
    assert predictions(testbed.parent) == before


def test_a_run_asks_an_object_store_for_little(tmp_path, monkeypatch):
    """Per cell: its claim, its record, its predictions, a list (S3 removes many at once)."""
    asked = []
    do = RemoteFiles._do
    monkeypatch.setattr(
        RemoteFiles, "_do", lambda self, work, name: asked.append(name) or do(self, work, name)
    )
    rng = np.random.default_rng(0)
    sets = [
        sb.TestSet(
            rng.integers(0, 256, (20, 8, 8, 3), np.uint8), rng.integers(0, 3, 20), name=f"s{i}"
        )
        for i in range(4)
    ]
    made = {}
    for count in (2, 12):
        nets = [
            sb.model(
                lambda pixels, i=i: pixels.mean((2, 3)) * i,
                name=f"m{i}",
                size=8,
                mean=(0, 0, 0),
                std=(1, 1, 1),
            )
            for i in range(1, count + 1)
        ]
        asked.clear()
        found = sb.evaluate(nets, sets, store=f"memory://{tmp_path.name}/{count}")
        assert len(found.frame) == 4 * count
        made[count] = len(asked)
    assert made[12] - made[2] <= 10 * 40, made


def test_a_worker_is_at_work_while_what_it_did_is_recorded(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(make_testbed(tmp_path / "bed").parent))
    spec = read_testbed_toml(tmp_path / "bed" / "testbed.toml", allow_code=True)
    done, _ = plan(spec, PredictionStore(spec.store))
    todo = [
        task
        for cell in done
        for task in tasks(replace(cell, missing=cell.missing[:1]), spec.store, spec.options)
    ]
    asked = []

    def given():
        for task in todo:
            asked.append(task.key)
            yield task

    seen = []
    for one in in_processes(given(), lambda _: None, workers=1, threads=1):
        seen.append((one.key, one.error, len(asked)))
    assert [key for key, _, _ in seen] == [task.key for task in todo]
    assert [error for _, error, _ in seen] == [""] * len(todo)
    assert [count for _, _, count in seen[:-1]] == list(range(2, len(todo) + 1))


def test_only_what_is_missing_is_made_again(testbed):
    spec = read_testbed_toml(testbed, allow_code=True)
    run_spec(spec)
    before = predictions(testbed.parent)
    store = PredictionStore(spec.store)
    key = ("python:plain_models:dark", "b")
    expand(store, *key, ranges(2500))  # as it was before it was complete
    store.files.remove(f"{cell_folder(*key)}/{part_name(PART, 2 * PART)}")
    assert {p.kind for p in verify(store)} == {"missing"}
    cells, _ = plan(spec, store)
    assert [cell.missing for cell in cells if cell.missing] == [((PART, 2 * PART),)]
    assert run_spec(spec).images == PART
    assert predictions(testbed.parent) == before
    store.files.remove(f"{cell_folder(*key)}/{part_name(0, 2500)}")
    assert run_spec(spec).images == 2500
    assert predictions(testbed.parent) == before
    assert verify(store) == []


def test_predictions_are_those_of_the_model(testbed):
    spec = read_testbed_toml(testbed, allow_code=True)
    run_spec(spec)
    sys.modules.pop("plain_models", None)
    import plain_models

    with np.load(testbed.parent / "a.npz") as arrays:
        images = arrays["images"]
    logits = plain_models.bright(images.transpose(0, 3, 1, 2).astype(np.float32) / 255)
    kept = PredictionStore(spec.store).read("python:plain_models:bright", "a")
    assert kept["class_1"].to_list() == logits.argmax(axis=1).tolist()


@pytest.mark.parametrize("runner", ["processes", pytest.param("ray", marks=pytest.mark.slow)])
def test_runners_agree_to_the_byte(tmp_path, monkeypatch, runner):
    alone, shared = (make_testbed(tmp_path / name, images=5000) for name in ("alone", "shared"))
    assert start(alone, "local").wait(timeout=120) == 0
    assert start(shared, runner).wait(timeout=180) == 0
    assert predictions(alone.parent) == predictions(shared.parent)


def test_a_failing_cell_is_recorded_and_the_rest_goes_on(testbed):
    text = testbed.read_text().replace("plain_models:dark", "plain_models:gone")
    testbed.write_text(text)
    spec = read_testbed_toml(testbed, allow_code=True)
    summary = run_spec(spec)
    assert len(summary.complete) == 2
    assert {key[0] for key in summary.failed} == {"python:plain_models:gone"}
    store = PredictionStore(spec.store)
    assert store.cell("python:plain_models:gone", "a")["status"] == "failed"
    assert "gone" in store.cell("python:plain_models:gone", "a")["error"]


def test_a_model_that_cannot_be_opened_is_tried_once(testbed, monkeypatch):
    from shiftbed.engine import cell

    tried = []
    opened = cell.open_model

    def noting(model, *given):
        tried.append(model.name)
        return opened(model, *given)

    monkeypatch.setattr(cell, "open_model", noting)
    spec = read_testbed_toml(testbed, allow_code=True)
    gone = ModelSpec(name="gone", source="onnx:gone.onnx")
    summary = run_spec(replace(spec, models=[gone, spec.models[0]]))
    assert tried.count("gone") == 1
    assert set(summary.failed) == {("gone", "a"), ("gone", "b")}
    assert len(set(summary.failed.values())) == 1
    assert len(summary.complete) == 2
    records = [PredictionStore(spec.store).cell("gone", setting) for setting in ("a", "b")]
    assert [record["status"] for record in records] == ["failed"] * 2


def test_backends_are_chosen_by_the_workers(testbed, monkeypatch):
    from shiftbed.engine import cell

    def never(*_, **__):
        raise AssertionError("in the process that starts the run")

    monkeypatch.setattr(cell, "begin", never)
    monkeypatch.setattr(cell, "choose_backend", never)
    spec = read_testbed_toml(testbed, allow_code=True)
    summary = run_spec(spec, runner="processes")
    assert not summary.failed
    assert len(summary.complete) == 4
    record = PredictionStore(spec.store).cell("python:plain_models:dark", "b")
    assert record["backend_report"]["chosen"] == record["backend"]
    again = run_spec(spec, runner="processes", fresh=True)
    assert not again.failed
    assert again.images == 4 * 2500


def test_a_model_that_raises_in_the_middle(testbed):
    (testbed.parent / "plain_models.py").write_text(
        "def bright(x):\n    raise FloatingPointError('no light')\n"
        "def dark(x):\n    import numpy as np\n    return np.zeros((len(x), 10), 'float32')\n"
    )
    assert start(testbed, "local").wait(timeout=120) == 1
    states = {r["model"].rpartition(":")[2]: r for r in PredictionStore(store_of(testbed)).cells()}
    assert states["dark"]["status"] == "complete"
    assert states["bright"]["status"] == "failed"
    assert "no light" in states["bright"]["error"]


def test_the_command_exits_with_1_and_names_the_failure(testbed):
    testbed.write_text(testbed.read_text().replace('path = "b.npz"', 'path = "gone.npz"'))
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from shiftbed.cli import main; main()",
            "run",
            str(testbed),
            "--allow-code",
        ],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(testbed.parent)},
        timeout=120,
    )
    assert done.returncode == 1
    assert "2 cells complete" in done.stdout
    assert "failed: python:plain_models:bright on b:" in done.stdout
    assert "gone.npz" in done.stdout


def test_another_model_under_the_same_name_is_refused(testbed):
    run_spec(read_testbed_toml(testbed, allow_code=True))
    before = predictions(testbed.parent)
    testbed.write_text(testbed.read_text().replace("size = [8, 8]", "size = [6, 6]"))
    summary = run_spec(read_testbed_toml(testbed, allow_code=True))
    assert len(summary.failed) == 4
    assert all("give this one another name" in why for why in summary.failed.values())
    assert predictions(testbed.parent) == before
    cells = PredictionStore(store_of(testbed)).cells()
    assert {record["status"] for record in cells} == {"complete"}


def test_identity_is_of_contents_not_of_places(tmp_path):
    def model(folder, text, **options):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "net.onnx").write_text(text)
        spec = f"onnx:{tmp_path / folder / 'net.onnx'}"
        return identity(ModelSpec(source=spec, name="net", options=options), {})

    assert model("a", "1") == model("b", "1")
    assert model("a", "1") != model("a", "2")
    assert model("a", "1") != model("a", "1", preprocessing={"size": [9, 9]})


def test_a_dry_run_lists_the_jobs(testbed):
    command = [
        sys.executable,
        "-c",
        "from shiftbed.cli import main; main()",
        "run",
        str(testbed),
        "--allow-code",
    ]
    done = subprocess.run(
        [*command, "--dry-run", "--json"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(testbed.parent)},
        timeout=120,
    )
    found = json.loads(done.stdout)
    assert [job["images"] for job in found["jobs"]] == [2500] * 4
    assert predictions(testbed.parent) == {}


@pytest.mark.parametrize(
    "runner", ["local", *(pytest.param(r, marks=pytest.mark.slow) for r in ("processes", "ray"))]
)
def test_killed_runs_lose_nothing(tmp_path, monkeypatch, runner):
    for key, value in PATIENT.items():  # a busy machine is slow, not dead
        monkeypatch.setenv(key, value)
    killed, _, different = kill_and_compare(tmp_path, runner=runner, times=2, seed=1)
    assert killed == 2
    assert different == 0


def test_a_killed_worker_is_replaced(tmp_path):
    path = make_testbed(tmp_path / "bed", images=6000)
    slow = (path.parent / "plain_models.py").read_text().replace("0.003", "0.015")
    (path.parent / "plain_models.py").write_text(slow)
    parent = start(path, "processes")
    deadline, killed = time.time() + 60, 0
    while parent.poll() is None and time.time() < deadline and not killed:
        listed = subprocess.run(
            ["pgrep", "-P", str(parent.pid), "-f", "spawn_main"], capture_output=True, text=True
        )
        for pid in listed.stdout.split()[:1]:
            if predictions(path.parent):
                os.kill(int(pid), signal.SIGKILL)
                killed += 1
        time.sleep(0.05)
    assert parent.wait(timeout=120) == 0
    assert killed
    assert verify(PredictionStore(path.parent / "store")) == []


def test_shards_without_a_coordinator_do_it_all_once(testbed):
    spec = read_testbed_toml(testbed, allow_code=True)
    done = [run_spec(spec, shard=f"{i}/3") for i in (3, 1, 2)]
    assert sorted(len(one.complete) for one in done) == [1, 1, 2]
    assert sum(one.images for one in done) == 4 * 2500
    assert verify(PredictionStore(spec.store)) == []
    assert run_spec(spec).images == 0
    for bad in ("0/3", "4/3", "1", "a/b", "-1/3"):
        with pytest.raises(InputError, match="expected i/n"):
            run_spec(spec, shard=bad)
