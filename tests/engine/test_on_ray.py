"""Runs on Ray clusters made here: too few processors, and a node that dies."""

import os
import threading
import time

import pytest

import shiftbed as sb
from shiftbed.engine.on_ray import on_ray
from shiftbed.errors import InputError
from shiftbed.store import PredictionStore
from tests.objects import BUCKET, environment, s3_server
from tools.kill_fifty import make_testbed, predictions

pytestmark = pytest.mark.slow
QUIET = {"log_to_driver": False, "logging_level": "error"}


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


@pytest.mark.filterwarnings("ignore")
def test_more_workers_than_processors_do_not_hang(beds):
    ray = pytest.importorskip("ray")
    ray.init(address="local", num_cpus=1, include_dashboard=False, **QUIET)
    try:
        done = sb.run("testbed.toml", runner="ray", workers=2)
    finally:
        ray.shutdown()
    assert len(done.summary.complete) == 4
    sb.run(beds[1])
    assert predictions(beds[0].parent) == predictions(beds[1].parent)


@pytest.mark.filterwarnings("ignore")
def test_a_node_that_dies_is_taken_over(beds):
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    second = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, **QUIET)
    killed = []

    def kill():
        while not predictions(beds[0].parent):
            time.sleep(0.05)
        cluster.remove_node(second, allow_graceful=False)
        killed.append(time.monotonic())

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    try:
        done = sb.run("testbed.toml", runner="ray", workers=2)
    finally:
        ray.shutdown()
        cluster.shutdown()
    killer.join(timeout=10)
    assert killed
    assert not done.failed
    sb.run(beds[1])
    assert predictions(beds[0].parent) == predictions(beds[1].parent)


def test_an_address_where_nothing_answers_is_refused_at_once(monkeypatch):
    pytest.importorskip("ray")
    with pytest.raises(InputError, match=r"no Ray cluster at '127\.0\.0\.1:9'"):
        list(on_ray([], lambda done: None, address="127.0.0.1:9"))


@pytest.mark.filterwarnings("ignore")
def test_nodes_that_share_no_directory(beds, tmp_path, monkeypatch):
    """Code, test sets and store by URL; a node is killed; equal to a run on this machine."""
    ray = pytest.importorskip("ray")
    pytest.importorskip("moto")
    from ray.cluster_utils import Cluster

    text = beds[0].read_text().replace("python:plain_models:", "python:plain_models.py:")
    beds[1].write_text(text)
    with s3_server() as port:
        for key, value in environment(port).items():
            monkeypatch.setenv(key, value)
        monkeypatch.setenv("SHIFTBED_CACHE", str(tmp_path / "cache"))
        url = f"s3://{BUCKET}/ray"
        files = PredictionStore(url).files
        for name in ("testbed.toml", "plain_models.py", "a.npz", "b.npz"):
            files.write(name, (beds[1].parent / name).read_bytes())
        (tmp_path / "empty").mkdir()
        monkeypatch.chdir(tmp_path / "empty")
        head = {"num_cpus": 1, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        second = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, **QUIET)
        store = PredictionStore(f"{url}/store")

        def kill():
            while not store.files.below("predictions"):
                time.sleep(0.2)
            cluster.remove_node(second, allow_graceful=False)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        try:
            done = sb.run(f"{url}/testbed.toml", runner="ray", workers=2)
        finally:
            ray.shutdown()
            cluster.shutdown()
        killer.join(timeout=20)
        assert not done.failed
        sb.run(beds[1])
        here = PredictionStore(beds[1].parent / "store").files
        pairs = zip(here.below("predictions"), store.files.below("predictions"), strict=True)
        assert all(here.read(one) == store.files.read(other) for one, other in pairs)
