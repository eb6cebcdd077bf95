"""Claims: one holder at a time, taken over from the dead and the silent."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from shiftbed.store import PredictionStore
from shiftbed.store.claims import TOGETHER, Claims


@pytest.fixture(params=["local", "memory", "object store"])
def files(request, tmp_path):
    place = {"local": tmp_path / "s", "memory": None, "object store": f"memory://{tmp_path.name}"}
    return PredictionStore(place[request.param]).files


def test_one_of_two_holds_a_claim_until_it_gives_it_up(files):
    first, second = Claims(files), Claims(files)
    assert first.take("m/1 on val")
    assert first.take("m/1 on val")
    assert not second.take("m/1 on val")
    assert second.others
    assert not first.others
    assert second.take("m/1 on other")
    first.release("m/1 on val")
    assert second.take("m/1 on val")
    second.release("m/1 on val")
    second.release("m/1 on other")
    assert files.below("claims") == []


def test_nobody_waits_for_the_disk(tmp_path, monkeypatch):
    """A claim need not outlive the machine: a run of many small cells takes thousands."""
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    claims = Claims(PredictionStore(tmp_path / "s").files)
    assert claims.take("a")
    claims.release("a")
    assert synced == []


def test_one_of_many_threads_wins(files):
    claims, won = [Claims(files) for _ in range(8)], []
    begin = threading.Barrier(8)

    def work(one):
        begin.wait()
        if one.take("cell"):
            won.append(one.owner)

    threads = [threading.Thread(target=work, args=[one]) for one in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


def test_claims_of_the_dead_and_the_silent_are_taken_over(files):
    code = "import os; print(os.getpid())"
    dead = int(subprocess.run([sys.executable, "-c", code], capture_output=True).stdout)
    here = json.loads(Claims(files)._said())
    files.write("claims/a.0000.json", json.dumps(here | {"process": dead}).encode())
    files.write("claims/b.0004.json", json.dumps(here | {"time": time.time() - 200}).encode())
    files.write("claims/c.0000.json", b"{half")
    elsewhere = here | {"host": "another", "process": 1}
    files.write("claims/d.0000.json", json.dumps(elsewhere).encode())
    mine = Claims(files)
    assert [mine.take(name) for name in "abcd"] == [True, True, True, False]
    assert [one for one in files.below("claims") if "/b." in one] == ["claims/b.0005.json"]
    assert json.loads(files.read("claims/a.0001.json"))["process"] == os.getpid()


def test_a_run_removes_claims_of_the_dead_and_no_others(files):
    here = json.loads(Claims(files)._said())
    files.write("claims/a.0000.json", json.dumps(here | {"time": time.time() - 200}).encode())
    files.write("claims/b.0000.json", json.dumps(here).encode())
    with Claims(files).kept():
        pass
    assert files.below("claims") == ["claims/b.0000.json"]


def test_many_claims_leave_nothing_behind_that_later_ones_would_list(tmp_path):
    mine = Claims(PredictionStore(tmp_path / "s").files)
    with mine.kept():
        for number in range(20):
            assert mine.take(f"cell {number}")
            mine.release(f"cell {number}")
    assert list((tmp_path / "s" / "claims").iterdir()) == []


def test_a_claim_half_made_by_the_dead_is_removed_by_the_next_run(tmp_path):
    folder = tmp_path / "s" / "claims"
    folder.mkdir(parents=True)
    code = "from shiftbed.atomic import temporary_name; print(temporary_name('run.0000.json'))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (folder / run.stdout.strip()).write_bytes(b"{")
    with Claims(PredictionStore(tmp_path / "s").files).held("another"):
        assert [path.name for path in folder.iterdir()] == ["another.0000.json"]


def test_a_claim_that_cannot_be_removed_is_no_failure(tmp_path, monkeypatch):
    mine = Claims(PredictionStore(tmp_path / "s").files)
    remove = mine.files.remove

    def fail_once(name):
        monkeypatch.setattr(mine.files, "remove", remove)
        raise OSError(5, "Input/output error", name)

    monkeypatch.setattr(mine.files, "remove", fail_once)
    with mine.kept():
        assert mine.take("a")
    assert mine.files.below("claims") == []


def test_claims_are_renewed_while_they_are_held(files):
    mine, other = Claims(files, lease=0.6), Claims(files, lease=0.6)
    with mine.kept():
        assert mine.take("cell")
        time.sleep(1.5)
        assert not other.take("cell")
    assert other.take("cell")
    time.sleep(0.7)
    assert Claims(files, lease=0.6).take("cell")


def test_claims_of_what_is_done_are_given_up_together(tmp_path):
    """Where each would be a request; whoever looks at the claims takes them for over."""
    files = PredictionStore(f"memory://{tmp_path.name}").files
    first, second = Claims(files), Claims(files)
    with first.kept():
        for i in range(TOGETHER):
            assert first.take(f"cell {i}")
            first.release(f"cell {i}", at_once=False)
            assert not first.others
            assert len(files.below("claims")) == (i + 1) % TOGETHER
        assert first.take("last")
        first.release("last", at_once=False)
        assert first.take("last")  # its own, and over
        first.release("last", at_once=False)
        assert second.take("other")
    assert len(files.below("claims")) == 1
    second.release("other")
    assert files.below("claims") == []
