"""Damage is found before anything is computed from it, and cleaning up loses nothing good."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import shiftbed as sb
from shiftbed.errors import InputError
from shiftbed.importing.exchange import import_predictions
from shiftbed.results.stores import clean_store, scrub_store, verify_store
from shiftbed.store import PredictionStore, collect_garbage, part_from_top, verify
from shiftbed.store.files import LocalFiles
from shiftbed.store.sealing import Damaged
from tools.bitflip import flip, look, make_store


@pytest.fixture
def path(tmp_path):
    return make_store(tmp_path)


def damage(path, pattern, at=40):
    file = sorted(path.rglob(pattern))[0]
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)
    return file


def test_no_flipped_bit_is_silent(path):
    found = flip(path, flips=160, seed=1)
    assert found["flips"] == 160
    assert found["silent"] == found["crashed"] == 0, found["cases"]
    assert found["harmless"] <= 8


def test_a_damaged_part_is_named_and_other_cells_go_on(path):
    file = damage(path / "predictions" / "model=a", "part-*.parquet")
    rows = {(r["model"], r["metric"]): r for r in sb.score(path).frame.iter_rows(named=True)}
    assert rows["a", "top1"]["value"] is None
    assert file.name in rows["a", "top1"]["note"]
    assert rows["b", "top1"]["value"] is not None
    testbed = sb.open_testbed(path)
    assert np.isnan(testbed.accuracy("val")[testbed.model_index("a")])
    assert np.isfinite(testbed.accuracy("val")[testbed.model_index("b")])
    assert any(file.name in note for note in testbed.notes)


def test_a_damaged_record_is_named_and_other_cells_go_on(path):
    file = damage(path / "cells" / "model=a", "*.json")
    found = sb.score(path)
    assert set(found.frame["model"]) == {"b", "c"}
    assert file.name in found.notes[0]
    assert file.name in str(found)


def test_damaged_labels_are_refused(path):
    damage(path / "test_sets", "setting=val.parquet")
    with pytest.raises(Damaged, match=r"setting=val\.parquet is damaged"):
        sb.score(path, settings=["val"])


def unseal(path):
    for file in path.rglob("*.json"):
        about = json.loads(file.read_text())
        if isinstance(about, dict):
            for key in ("sha256", "sums", "examples"):
                about.pop(key, None)
            file.write_text(json.dumps(about))


def test_older_stores_are_read_and_can_be_sealed(path):
    before, _ = look(path)
    unseal(path)
    assert look(path) == (before, [])
    assert verify_store(path).unsealed == 7  # store, testbed, two test sets, two cells, a probe
    sealed = verify_store(path, seal=True)
    assert (sealed.sealed, sealed.unsealed) == (7, 0)
    damage(path / "predictions" / "model=a", "part-*.parquet")
    assert [p.kind for p in verify(PredictionStore(path))] == ["damaged"]


def test_verifying_reads_each_record_once(path, monkeypatch):
    names = []
    read = LocalFiles.read
    monkeypatch.setattr(
        LocalFiles, "read", lambda self, name: names.append(name) or read(self, name)
    )
    assert verify_store(path).whole
    cells = [name for name in names if name.startswith("cells/")]
    assert len(cells) == len(set(cells)) == len(list((path / "cells").rglob("*.json")))


def test_a_store_with_damage_is_not_sealed(path):
    unseal(path)
    file = next((path / "predictions" / "model=a").rglob("part-*.parquet"))
    file.write_bytes(file.read_bytes()[:-9])
    assert verify_store(path, seal=True).sealed == 0


def leave_a_temporary_file(path):
    """As a writer does that is killed: named by its process, which is dead."""
    code = "from shiftbed.atomic import temporary_name; print(temporary_name('record.json'))"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    left = path / "cells" / made.stdout.strip()
    left.write_bytes(b"{")
    return left


def test_sealing_goes_on_after_a_writer_was_killed(path):
    unseal(path)
    left = leave_a_temporary_file(path)
    found = verify_store(path, seal=True)
    assert (found.sealed, found.unsealed, found.whole) == (7, 0, True)
    assert not left.exists()


def test_scrubbing_goes_on_after_it_was_killed(path):
    file = damage(path / "predictions" / "model=a", "part-*.parquet")
    file.unlink()  # put aside, and killed before the cell was opened again
    left = leave_a_temporary_file(path)
    assert scrub_store(path, rebuild=True).aside == ()
    assert not left.exists()
    store = PredictionStore(path)
    assert store.cell("a", "val")["status"] == "running"
    assert store.cell("b", "val")["status"] == "complete"


def test_a_temporary_file_of_another_machine_stays_while_it_is_new(path):
    left = path / "cells" / ".record.json.elsewhere-1-0123abcd.part"
    left.write_bytes(b"{")
    assert [one["kind"] for one in verify_store(path, seal=True).to_dict()["problems"]] == [
        "leftover"
    ]
    scrub_store(path, rebuild=True)
    assert left.exists()


def test_scrub_puts_damage_aside_and_opens_the_cell_again(path):
    file = damage(path / "predictions" / "model=a", "part-*.parquet")
    assert scrub_store(path).aside == ()
    found = scrub_store(path, rebuild=True)
    assert found.aside == (file.relative_to(path).as_posix(),)
    assert (path / "quarantine" / found.aside[0]).exists()
    store = PredictionStore(path)
    assert store.cell("a", "val")["status"] == "running"
    assert store.missing("a", "val", [(0, 30), (30, 60)]) == [(0, 30)]
    assert set(sb.score(path).frame["model"]) == {"b", "c"}


def test_a_part_made_anew_by_another_writer_is_no_damage(path):
    reader, writer = PredictionStore(path), PredictionStore(path)
    before = reader.read("a", "val")
    for start in (0, 30):
        writer.write_part("a", "val", start, part_from_top(np.zeros(30, int)))
    writer.write_cell("a", "val", {"status": "complete"})
    assert before.shape == (60, 13)
    assert reader.read("a", "val")["class_1"].to_list() == [0] * 60


def around(method, before):
    def called(*given, **options):
        before(*given, **options)
        return method(*given, **options)

    return called


def cleaned_by_another_process(root):
    """What ``clean_store`` says to somebody else."""
    code = "import sys, shiftbed.results.stores as s; s.clean_store(sys.argv[1], minimum_age=0)"
    command = [sys.executable, "-c", code, str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


class TestCleaningUp:
    def test_only_what_is_old_enough_and_into_quarantine(self, path):
        file = damage(path / "predictions" / "model=a", "part-*.parquet")
        assert clean_store(path).frame["file"].to_list() == []
        os.utime(file, (0, 0))
        name = file.relative_to(path).as_posix()
        assert clean_store(path, dry_run=True).frame["file"].to_list() == [name]
        assert file.exists()
        assert clean_store(path).frame["file"].to_list() == [name]
        assert not file.exists()
        assert (path / "quarantine" / name).exists()

    def test_what_cannot_be_read_stays(self, path, monkeypatch):
        store = PredictionStore(path)
        real = store.files.read

        def read(name):
            if name.startswith(("predictions/model=a", "cells/model=b")):
                raise PermissionError(13, "Permission denied")
            return real(name)

        monkeypatch.setattr(store.files, "read", read)
        assert collect_garbage(store, minimum_age=0) == []
        kinds = {(p.kind, "model=b" in p.where) for p in verify(store)}
        assert kinds == {("unreadable", False), ("unreadable", True)}
        monkeypatch.undo()
        assert verify(store) == []

    def test_a_folder_that_cannot_be_listed_is_not_empty(self, path, monkeypatch):
        real = os.scandir

        def scandir(where="."):
            if str(where).endswith("cells/model=b"):
                raise PermissionError(13, "Permission denied", str(where))
            return real(where)

        monkeypatch.setattr(os, "scandir", scandir)
        with pytest.raises(InputError, match=r"model=b: cannot be listed: Permission denied"):
            clean_store(path, minimum_age=0)
        monkeypatch.undo()
        assert not (path / "quarantine").exists()
        assert verify(PredictionStore(path)) == []

    def test_not_during_an_import_or_an_evaluation(self, path, monkeypatch):
        """A clean-up that begins after parts are written and before their records are."""
        refused = []

        def clean_up(store, *_, **__):
            if not refused:
                refused.append(cleaned_by_another_process(store.files.root))

        for name in ("write_cells", "write_cell"):
            real = getattr(PredictionStore, name)
            monkeypatch.setattr(PredictionStore, name, around(real, clean_up))
        answers = path.parent / "late.npz"
        ones = np.ones((1, 60), int)
        np.savez(answers, models=np.array(["d"]), top1=ones, labels=ones[0])
        import_predictions(path, [answers], setting="late")
        assert "being written to" in refused.pop()
        images = sb.TestSet(np.zeros((4, 8, 8, 3), np.uint8), np.zeros(4, int), name="own")
        bright = sb.model(lambda pixels: pixels.mean((2, 3)), name="e", size=8, classes=3)
        sb.evaluate(bright, images, store=path)
        assert "being written to" in refused.pop()
        monkeypatch.undo()
        assert verify(PredictionStore(path)) == []

    def test_not_while_another_process_writes(self, path):
        code = (
            "import sys; from shiftbed.store import PredictionStore\n"
            "with PredictionStore(sys.argv[1]).files.lock(alone=False):\n"
            "    print('ready', flush=True); sys.stdin.readline()"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout.readline() == "ready\n"
        with pytest.raises(InputError, match="being written to"):
            clean_store(path)
        child.kill()  # the lock goes with its owner
        child.wait()
        child.stdin.close()
        child.stdout.close()
        assert clean_store(path).frame["file"].to_list() == []

    def test_parts_of_a_broken_record_are_no_orphans(self, path):
        damage(path / "cells" / "model=a", "*.json")
        assert collect_garbage(PredictionStore(path), minimum_age=0) == []
        assert (path / "predictions" / "model=a").exists()


def test_what_is_in_quarantine_is_not_replaced_by_another_file_of_its_name(tmp_path):
    store = PredictionStore(tmp_path / "store")
    store.begin()
    name = "predictions/model=m/setting=s/part-0000000000-0000000002.parquet"
    for content in (b"first", b"second", b"third"):
        store.files.write(name, content)
        assert collect_garbage(store, minimum_age=0.0) == [name]
    kept = store.files.below("quarantine")
    assert sorted(map(store.files.read, kept)) == [b"first", b"second", b"third"]


def test_a_link_that_leads_nowhere_is_no_absence(tmp_path):
    store = PredictionStore(tmp_path / "s")
    store.write_about({"shifts": []})
    (tmp_path / "s" / "testbed.json").unlink()
    assert verify(store) == []
    (tmp_path / "s" / "testbed.json").symlink_to(tmp_path / "nowhere")
    (problem,) = verify(store)
    assert (problem.kind, problem.where) == ("unreadable", "testbed.json")
