"""Ray clusters made here: too few processors, nodes that die or lack files, fractions of GPUs."""

import os
import socket
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import shiftbed as sb
from shiftbed.engine import cell
from shiftbed.engine.on_ray import on_ray
from shiftbed.engine.plan import Done
from shiftbed.engine.run import _runner
from shiftbed.errors import InputError
from shiftbed.store import PredictionStore
from tests.blocks import blocks, run_command
from tests.clusters import PATIENT, QUIET, two_nodes
from tests.objects import BUCKET, Faults, before, environment, s3_server
from tools.kill_fifty import make_testbed, predictions

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
HOW_TO = Path(__file__).parents[2] / "docs" / "howto" / "ray.md"


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    for key, value in PATIENT.items():
        monkeypatch.setenv(key, value)


@pytest.fixture
def beds(tmp_path, monkeypatch):
    """Two equal testbeds, and their models importable here and in workers."""
    paths = [make_testbed(tmp_path / name, images=4200) for name in ("one", "two")]
    slow = (paths[0].parent / "plain_models.py").read_text().replace("0.003", "0.02")
    for path in paths:
        (path.parent / "plain_models.py").write_text(slow)
    monkeypatch.setenv("PYTHONPATH", f"{paths[0].parent}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(str(paths[0].parent))
    monkeypatch.chdir(paths[0].parent)
    return paths


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A server of objects where half of the answers are slow, so that runs take a while."""
    pytest.importorskip("moto")
    s3fs = pytest.importorskip("s3fs")
    with s3_server() as port, before(port, Faults(slow=0.5)) as slow:
        for key, value in environment(slow).items():
            monkeypatch.setenv(key, value)
        monkeypatch.setenv("SHIFTBED_CACHE", str(tmp_path / "driver" / "cache"))
        s3fs.S3FileSystem.clear_instance_cache()
        yield f"s3://{BUCKET}"


def killed_when(cluster, condition):
    """A thread that kills the second node as soon as a condition holds."""

    def watch():
        while not condition():
            time.sleep(0.1)
        cluster.kill()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def assert_equal_stores(one, other):
    for folder in ("predictions", "test_sets"):
        names = one.files.below(folder)
        assert names
        assert names == other.files.below(folder)
        assert all(one.files.read(name) == other.files.read(name) for name in names)


def test_more_workers_than_processors_do_not_hang(beds):
    ray = pytest.importorskip("ray")
    ray.init(address="local", num_cpus=1, include_dashboard=False, **QUIET)
    try:
        done = sb.run("testbed.toml", runner="ray", workers=2, allow_code=True)
    finally:
        ray.shutdown()
    assert len(done.summary.complete) == 4
    sb.run(beds[1], allow_code=True)
    assert predictions(beds[0].parent) == predictions(beds[1].parent)


class TestNodesThatShareNoDirectory:
    """Store, test sets, weights, code by URL; a node is killed; equal to a run on this machine."""

    def test_the_commands_of_the_how_to(self, bucket, tmp_path, monkeypatch):
        driver = tmp_path / "driver"
        driver.mkdir()
        made, *_ = (one.code for one in blocks(HOW_TO) if one.kind == "python" and not one.title)
        monkeypatch.chdir(driver)
        exec(compile(made, str(HOW_TO), "exec"), {})
        for one in blocks(HOW_TO):
            if one.title:
                (driver / one.title).write_text(one.code)
        upload, run, score = next(
            one.code for one in blocks(HOW_TO) if "python upload.py" in one.code
        ).splitlines()
        assert run_command(upload, driver).returncode == 0
        (tmp_path / "empty").mkdir()
        with two_nodes(tmp_path, driver) as cluster:
            monkeypatch.setenv("RAY_ADDRESS", cluster.address)
            killer = killed_when(cluster, lambda: cluster.fetched(1))
            ran = run_command(run, tmp_path / "empty")
            killer.join(timeout=20)
            assert not killer.is_alive(), "nobody was killed"
            assert cluster.fetched(0)
        assert ran.returncode == 0, ran.stdout
        said = [line for line in ran.stdout.splitlines() if not line.startswith("4 cells: ")]
        assert said == [
            *(line for line in said if "4 cells complete, 3,588 images" in line),
            f"Scores: shiftbed score {bucket}/digits/store",
        ]
        scored = run_command(score, tmp_path / "empty")
        assert scored.returncode == 0
        assert all(name in scored.stdout for name in ("n80", "n900", "noisy"))
        sb.run(driver / "testbed.toml")
        here = PredictionStore(driver / "store")
        assert_equal_stores(here, PredictionStore(f"{bucket}/digits/store"))

    def test_code_is_fetched(self, beds, bucket, tmp_path, monkeypatch):
        text = beds[0].read_text().replace("python:plain_models:", "python:plain_models.py:")
        beds[1].write_text(text)
        files = PredictionStore(f"{bucket}/ray").files
        for name in ("testbed.toml", "plain_models.py", "a.npz", "b.npz"):
            files.write(name, (beds[1].parent / name).read_bytes())
        (tmp_path / "driver").mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / "driver")
        ray = pytest.importorskip("ray")
        away = (beds[0].parent, beds[1].parent, tmp_path / "driver")
        with two_nodes(tmp_path, *away) as cluster:
            ray.init(address=cluster.address, **QUIET)
            store = PredictionStore(f"{bucket}/ray/store")
            killer = killed_when(
                cluster, lambda: cluster.fetched(1) and store.files.below("predictions")
            )
            try:
                done = sb.run(
                    f"{bucket}/ray/testbed.toml", runner="ray", workers=2, allow_code=True
                )
            finally:
                ray.shutdown()
            killer.join(timeout=20)
            assert not killer.is_alive(), f"nobody was killed: {done}"
        assert not done.failed
        assert not any(one.get("identity_unknown") for one in store.cells())
        sb.run(beds[1], allow_code=True)
        assert_equal_stores(PredictionStore(beds[1].parent / "store"), store)


def test_a_node_that_lacks_files_gets_no_more_tasks(beds, tmp_path):
    """The second node cannot read the test sets: it fails at once, and swallows nothing."""
    ray = pytest.importorskip("ray")
    files = tuple(beds[0].parent / name for name in ("a.npz", "b.npz"))
    with two_nodes(tmp_path, lacks=files) as cluster:
        ray.init(address=cluster.address, **QUIET)
        try:
            done = sb.run("testbed.toml", runner="ray", workers=2, allow_code=True)
        finally:
            ray.shutdown()
    assert len(done.summary.complete) == 4
    assert not done.failed
    (note,) = done.to_dict()["notes"]
    assert "a node of the cluster could not do this and is left out" in note
    assert ".npz" in note
    sb.run(beds[1], allow_code=True)
    assert predictions(beds[0].parent) == predictions(beds[1].parent)


@dataclass(frozen=True)
class Try:
    """A task that says what it was given, or fails wherever it is tried."""

    work: ClassVar[str] = "tests.engine.test_on_ray:tried"
    name: str
    fails: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.name, ""


def tried(task, report):
    import ray

    if task.fails:
        raise InputError("no such thing anywhere")
    time.sleep(2)  # so that nobody does the other's task
    given = ray.get_runtime_context().get_assigned_resources()
    return Done(key=task.key, notes=(f"{given['CPU']:g} {given.get('GPU', 0):g}", str(os.getpid())))


def test_tasks_that_fail_everywhere_end(tmp_path):
    ray = pytest.importorskip("ray")
    with two_nodes(tmp_path) as cluster:
        ray.init(address=cluster.address, **QUIET)
        try:
            tasks = [Try(f"t{i}", fails=i != 4) for i in range(6)]
            done = list(on_ray(iter(tasks), lambda done: None, workers=2))
        finally:
            ray.shutdown()
    assert {one.key[0]: one.error for one in done} == {
        task.name: "no such thing anywhere" if task.fails else "" for task in tasks
    }


def test_workers_share_a_gpu_by_fraction():
    """One GPU that is only said to be there, two workers: half of it each, at the same time."""
    ray = pytest.importorskip("ray")
    ray.init(address="local", num_cpus=2, num_gpus=1, include_dashboard=False, **QUIET)
    try:
        run = _runner("ray", 2, None, gpus=True)  # as in ``run`` with a device that is no cpu
        done = list(run([Try("a"), Try("b")], lambda done: None))
        assert [one.error for one in done] == ["", ""]
        assert [one.notes[0] for one in done] == ["1 0.5"] * 2
        assert len({one.notes[1] for one in done}) == 2
    finally:
        ray.shutdown()


@pytest.mark.parametrize("gpus", [1, 0])
def test_a_run_on_gpus_asks_for_them_and_opens_no_model_where_it_is_started(
    beds, gpus, monkeypatch
):
    """The GPU is only said to be there: a worker that has been given it finds no such device."""
    ray = pytest.importorskip("ray")
    opened = cell.open_model

    def here(model, options, *rest):
        assert options["device"] == "cpu"  # to see which models share a backbone
        return opened(model, options, *rest)

    monkeypatch.setattr(cell, "open_model", here)
    ray.init(address="local", num_cpus=2, num_gpus=gpus, include_dashboard=False, **QUIET)
    try:
        if not gpus:
            with pytest.raises(InputError, match="has no GPU; give device = 'cpu'"):
                sb.run(beds[0], runner="ray", workers=2, device="cuda", allow_code=True)
            return
        found = sb.run(beds[0], runner="ray", workers=2, device="cuda", allow_code=True)
    finally:
        ray.shutdown()
    assert len(found.failed) == 4
    assert all("device is an option of torch models" in why for why in found.failed.values())


def test_a_cluster_without_gpus_is_one_line():
    ray = pytest.importorskip("ray")
    ray.init(address="local", num_cpus=1, include_dashboard=False, **QUIET)
    try:
        with pytest.raises(InputError, match="has no GPU; give device = 'cpu'"):
            list(on_ray([Try("a")], lambda done: None, gpus=True))
    finally:
        ray.shutdown()


class TestClustersThatAreNoMore:
    @pytest.fixture
    def stale(self, monkeypatch):
        """What ``ray start`` leaves behind, with the address of a port that listens and is mute."""
        pytest.importorskip("ray")
        with (
            tempfile.TemporaryDirectory(dir="/tmp", prefix="r") as folder,
            socket.create_server(("127.0.0.1", 0)) as mute,
        ):
            Path(folder, "ray").mkdir()
            address = f"127.0.0.1:{mute.getsockname()[1]}"
            Path(folder, "ray", "ray_current_cluster").write_text(address)
            monkeypatch.setenv("RAY_TMPDIR", folder)
            monkeypatch.delenv("RAY_ADDRESS", raising=False)
            yield address

    def test_without_an_address_they_are_not_followed(self, stale):
        clock = time.process_time()
        (done,) = on_ray([Try("a")], lambda done: None, workers=1)
        assert not done.error
        assert time.process_time() - clock < 30

    def test_with_one_they_are_a_line(self, stale):
        for address in ("auto", stale):
            with pytest.raises(InputError, match=rf"no Ray cluster at '{address}': .+"):
                list(on_ray([Try("a")], lambda done: None, address=address))

    def test_where_nothing_listens(self):
        pytest.importorskip("ray")
        with pytest.raises(InputError, match=r"no Ray cluster at '127\.0\.0\.1:9'"):
            list(on_ray([], lambda done: None, address="127.0.0.1:9"))
