"""A run that others look at, share and take over."""

import json
import os
import re
import shlex
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import shiftbed as sb
from shiftbed.page.document import data_of
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


WATCHED = """
import time
import numpy as np

def _logits(pixels, skill):
    time.sleep(0.004)
    labels = (pixels[:, 0, 0, 0] * 255).round().astype(int)
    noise = np.random.default_rng(labels.sum()).normal(size=(len(pixels), 10))
    return (noise + skill * np.eye(10)[labels]).astype("float32")
"""


@pytest.fixture
def six(tmp_path, monkeypatch):
    """Six networks of growing skill on two test sets, whose first pixel is the label."""
    rng = np.random.default_rng(0)
    lines = ['store = "store"', "[defaults]", "batch_size = 32"]
    lines += ['preprocessing = {size = [8, 8], crop = "none"}']
    code = WATCHED
    for i in range(6):
        code += f"\ndef net{i}(pixels):\n    return _logits(pixels, 1 + {i} / 4)\n"
        lines += ["[[models]]", f'id = "python:watched_models:net{i}"', "classes = 10"]
    for name in ("a", "b"):
        images = rng.integers(0, 256, (2100, 8, 8, 3), dtype=np.uint8)
        labels = rng.integers(0, 10, 2100)
        images[:, 0, 0, 0] = labels
        np.savez(tmp_path / f"{name}.npz", images=images, labels=labels)
        lines += ["[[test_sets]]", f'name = "{name}"', f'path = "{name}.npz"']
    lines += ["[[shifts]]", 'name = "b"', 'kind = "natural-dataset"', 'id = "a"', 'ood = "b"']
    (tmp_path / "watched_models.py").write_text(code)
    (tmp_path / "testbed.toml").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "testbed.toml"


def test_score_fit_report_and_serve_see_what_is_complete(six):
    store = six.parent / "store"

    def both():
        """Models that are complete on both test sets."""
        done = complete(store)
        return {model for model, _ in done if {(model, "a"), (model, "b")} <= done}

    def seen_by_all():
        """What each command shows, asked while nobody writes."""
        rows = sb.score(store).frame.drop_nulls("value")
        assert set(zip(rows["model"], rows["setting"], strict=True)) == complete(store)
        assert set(sb.fit(store, "b").to_dict()["models"]) == both()
        page = sb.report(store).page
        assert shown(page) == both()
        return page

    def shown(page):
        """Models that a page has with both accuracies."""
        data = data_of(page)
        values = [data["value"][data["settings"].index(name)] for name in ("a", "b")]
        cells = zip(data["models"]["name"], *values, strict=True)
        return {model for model, *own in cells if None not in own}

    process = begin(six)
    site = sb.serve(store, port=0)
    site.start()
    try:
        until(lambda: len(both()) >= 4, process)
        process.send_signal(signal.SIGSTOP)
        assert 4 <= len(both()) < 6
        seen_by_all()
        assert shown(fetched(site)) == both()
        process.kill()
        process.communicate()
        seen_by_all()
        assert json.loads(begin(six).communicate(timeout=120)[0])["failed"] == []
        assert len(both()) == 6
        seen_by_all()
        assert shown(fetched(site)) == both()
    finally:
        site.close()


def fetched(site):
    with urllib.request.urlopen(site.address, timeout=60) as answer:
        return answer.read().decode()


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


@pytest.mark.slow
def test_the_array_of_the_how_to_does_it_all_once(bed, tmp_path):
    """Its script as it stands, in as many processes at once as the array has tasks."""
    page = (Path(__file__).parents[2] / "docs/howto/ray.md").read_text()
    (script,) = [one for one in page.split("```") if "#SBATCH" in one]
    count = int(re.search(r"--array=1-(\d+)", script)[1])
    program = tmp_path / "bin" / "shiftbed"
    program.parent.mkdir()
    words = " ".join(map(shlex.quote, COMMAND[:-2]))
    program.write_text(f'#!/bin/sh\nexec {words} "$@" --allow-code\n')
    program.chmod(0o755)
    given = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    given["PYTHONPATH"] = f"{bed.parent}:{os.environ.get('PYTHONPATH', '')}"
    tasks = [
        subprocess.Popen(
            ["bash", "-c", script.removeprefix("text\n")],
            env=given | {"SLURM_ARRAY_TASK_ID": str(i)},
            cwd=bed.parent,
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(1, count + 1)
    ]
    said = [task.communicate(timeout=300)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [0] * count, said
    images = [re.search(r"([\d,]+) images", one) for one in said]
    assert sum(int(one[1].replace(",", "")) for one in images if one) == CELLS * 2100, said
    assert len(complete(bed.parent / "store")) == CELLS
    assert verify(PredictionStore(bed.parent / "store")) == []
    apart = make_testbed(tmp_path / "alone", images=2100)
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
