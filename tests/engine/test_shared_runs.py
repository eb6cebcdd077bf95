"""A run that others look at, share and take over."""

import json
import os
import signal
import subprocess
import time

import pytest

import shiftbed as sb
from shiftbed.store import PredictionStore, verify
from tools.kill_fifty import COMMAND, make_testbed, predictions

CELLS = 4


@pytest.fixture
def bed(tmp_path, monkeypatch):
    path = make_testbed(tmp_path / "bed", images=2100)
    code = path.parent / "plain_models.py"
    code.write_text(code.read_text().replace("0.003", "0.01"))
    (path.parent / "testbed.toml").write_text(
        path.read_text() + '[[shifts]]\nname = "b"\nkind = "natural-dataset"\nid = "a"\nood = "b"\n'
    )
    monkeypatch.syspath_prepend(str(path.parent))
    return path


def begin(path, *words):
    variables = os.environ | {"PYTHONPATH": f"{path.parent}:{os.environ.get('PYTHONPATH', '')}"}
    command = [*COMMAND, str(path), "--json", *words]
    return subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def complete(store):
    return {
        (one["model"], one["setting"])
        for one in PredictionStore(store).cells()
        if one.get("status") == "complete"
    }


def until(condition, process, seconds=120):
    deadline = time.time() + seconds
    while not condition() and time.time() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def test_what_is_complete_is_seen_during_a_run_and_after_a_kill(bed):
    store = bed.parent / "store"
    process = begin(bed)
    until(lambda: complete(store), process)
    process.send_signal(signal.SIGSTOP)  # in the middle, for as long as somebody looks
    seen = complete(store)
    assert 0 < len(seen) < CELLS

    def scored():
        rows = sb.score(store).frame
        assert rows["value"].null_count() == 0
        return set(zip(rows["model"], rows["setting"], strict=True))

    assert scored() == seen
    shown = sb.open_testbed(store)
    assert set(shown.models["model"]) == {model for model, _ in seen}
    process.kill()
    process.communicate()
    assert scored() == complete(store) == seen
    told = json.loads(begin(bed).communicate(timeout=120)[0])
    assert not told["failed"]
    assert len(scored()) == CELLS
    assert verify(PredictionStore(store)) == []


@pytest.mark.parametrize(
    "second", [(), pytest.param(("--runner", "processes"), marks=pytest.mark.slow)]
)
def test_two_runs_share_the_work(bed, second):
    store = bed.parent / "store"
    runs = [begin(bed), begin(bed, *second)]
    told = [json.loads(one.communicate(timeout=200)[0]) for one in runs]
    assert [one.returncode for one in runs] == [0, 0]
    assert [one["complete"] for one in told] == [CELLS, CELLS]
    images = [one["images"] for one in told]
    assert sum(images) == CELLS * 2100, images
    assert PredictionStore(store).files.below("claims") == []
    assert verify(PredictionStore(store)) == []
    apart = make_testbed(bed.parent.parent / "alone", images=2100)
    assert json.loads(begin(apart).communicate(timeout=120)[0])["complete"] == CELLS
    assert predictions(bed.parent) == predictions(apart.parent)


def test_the_cells_of_a_killed_run_are_taken_over(bed):
    store = bed.parent / "store"
    first = begin(bed)
    until(lambda: PredictionStore(store).files.below("predictions"), first)
    second = begin(bed)
    time.sleep(0.5)
    first.kill()
    first.communicate()
    told = json.loads(second.communicate(timeout=120)[0])
    assert told["complete"] == CELLS
    assert not told["failed"]
    assert verify(PredictionStore(store)) == []
