"""Few, large files: the same predictions, whenever it is interrupted, and read while it happens."""

import errno
import itertools
import json

import numpy as np
import polars as pl
import pytest

import shiftbed as sb
from shiftbed.errors import InputError
from shiftbed.results.stores import compact_store, scrub_store
from shiftbed.store import PredictionStore, StoredTestSet, collect_garbage, part_from_logits, verify
from shiftbed.store.compact import compact, expand, finish_cell, merge, settle
from shiftbed.store.files import LocalFiles
from shiftbed.store.names import cell_folder

N, STEP = 90, 32


def ranges(n=N):
    return [(a, min(a + STEP, n)) for a in range(0, n, STEP)]


def logits(seed, n=N, classes=7):
    return np.random.default_rng(seed).normal(size=(n, classes)).astype(np.float32)


def begin(store, settings=("val",), n=N):
    for setting in settings:
        store.add_test_set(
            StoredTestSet(
                setting=setting,
                examples=tuple(map(str, range(n))),
                labels=np.arange(n) % 7,
                fingerprint=f"sha256:{setting}",
                label_policy="all 7 classes",
            )
        )


def write_parts(store, model, setting="val", seed=0, unread=None, **how):
    scores, labels = logits(seed), np.arange(N) % 7
    for a, b in ranges():
        readable = np.arange(a, b) != (-1 if unread is None else unread)
        frame = part_from_logits(scores[a:b], labels[a:b], readable=readable, **how)
        store.write_part(model, setting, a, frame)


def fill(store, models, settings=("val",), finish=True):
    begin(store, settings)
    for i, (model, setting) in enumerate(itertools.product(models, settings)):
        write_parts(store, model, setting, seed=i)
        write = finish_cell if finish else PredictionStore.write_cell
        write(store, model, setting, {"status": "complete", "n": N})


def contents(path):
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*.parquet")}


def everything(store):
    """What is in a store, whatever files it is in."""
    records = store.cells()
    keys = [(r["model"], r["setting"]) for r in records]
    return records, [store.read(*key).to_dicts() for key in keys]


def test_a_complete_cell_is_one_file_with_the_same_predictions(tmp_path):
    small, large = PredictionStore(tmp_path / "a"), PredictionStore(tmp_path / "b")
    fill(small, ["m"], finish=False)
    fill(large, ["m"])
    assert small.parts("m", "val") == ranges()
    assert large.parts("m", "val") == [(0, N)]
    assert len(large.files.below("predictions")) == 1
    assert large.read("m", "val").equals(small.read("m", "val"))
    assert verify(large) == verify(small) == []
    before = contents(tmp_path / "a")
    expand(large, "m", "val", ranges())
    assert contents(tmp_path / "b") == before


def test_logits_stay_in_parts_that_fit_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("shiftbed.store.compact.LOGITS", 7 * 1024)
    store = PredictionStore(tmp_path)
    n = 2600
    begin(store, n=n)
    for a in range(0, n, 512):
        b = min(a + 512, n)
        frame = part_from_logits(logits(a, b - a), np.zeros(b - a, int), keep_logits=True)
        store.write_part("m", "val", a, frame)
    finish_cell(store, "m", "val", {"status": "complete"})
    assert store.parts("m", "val") == [(0, 1024), (1024, 2048), (2048, 2600)]
    assert verify(store) == []


class Killed(Exception):
    pass


def killed_after(monkeypatch, count, work):
    """Whether the work was stopped before its ``count``-th change of the files."""
    left = [count]

    def counting(method):
        def called(self, *given, **options):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return method(self, *given, **options)

        return called

    with monkeypatch.context() as patch:
        for name in ("write", "create", "remove", "move"):
            patch.setattr(LocalFiles, name, counting(getattr(LocalFiles, name)))
        try:
            work()
        except Killed:
            return True
    return False


def test_finishing_a_cell_may_be_killed_anywhere(tmp_path, monkeypatch):
    whole = PredictionStore(tmp_path / "whole")
    fill(whole, ["m"])
    wanted, frame = contents(tmp_path / "whole"), whole.read("m", "val")
    for count in itertools.count():
        path = tmp_path / f"killed{count}"
        store = PredictionStore(path)
        begin(store)
        write_parts(store, "m")
        store.write_cell("m", "val", {"status": "running"})

        def finish(path=path):
            finish_cell(PredictionStore(path), "m", "val", {"status": "complete", "n": N})

        stopped = killed_after(monkeypatch, count, finish)
        assert PredictionStore(path).read("m", "val").equals(frame)
        assert not {p.kind for p in verify(PredictionStore(path))} - {"leftover"}
        finish()
        assert contents(path) == wanted
        assert verify(PredictionStore(path)) == []
        if not stopped:
            break
    assert count >= 5


def test_compacting_a_store_may_be_killed_anywhere(tmp_path, monkeypatch):
    models, settings = [f"m{i}" for i in range(3)], ("val", "ood")
    fill(PredictionStore(tmp_path / "before"), models, settings, finish=False)
    records, frames = everything(PredictionStore(tmp_path / "before"))
    whole = PredictionStore(tmp_path / "whole")
    fill(whole, models, settings, finish=False)
    compact(whole)
    assert everything(PredictionStore(tmp_path / "whole")) == (records, frames)
    wanted = contents(tmp_path / "whole")
    assert len(wanted) == 4  # a pack and a test set for each setting
    assert len(whole.files.below("cells")) == 1
    stops = range(0, 60, 3)
    for count in stops:
        path = tmp_path / f"killed{count}"
        fill(PredictionStore(path), models, settings, finish=False)
        stopped = killed_after(monkeypatch, count, lambda path=path: compact(PredictionStore(path)))
        assert everything(PredictionStore(path)) == (records, frames)
        assert not {p.kind for p in verify(PredictionStore(path))} - {"leftover", "orphan"}
        compact(PredictionStore(path))
        collect_garbage(PredictionStore(path), minimum_age=0)
        left = {n: data for n, data in contents(path).items() if not n.startswith("quarantine/")}
        assert left == wanted
        assert everything(PredictionStore(path)) == (records, frames)
        assert verify(PredictionStore(path)) == []
        if not stopped:
            break
    assert not stopped


def test_a_reader_that_was_open_before_reads_on(tmp_path):
    store = PredictionStore(tmp_path)
    fill(store, ["a", "b", "c"], finish=False)
    reader = PredictionStore(tmp_path)
    before = everything(reader)
    compact(store)
    assert not store.files.below("predictions")
    assert [reader.read(m, "val").to_dicts() for m in "abc"] == before[1]
    assert everything(reader) == before


def test_packing_leaves_no_empty_folders(tmp_path):
    store = PredictionStore(tmp_path / "store")
    fill(store, [f"m{i}" for i in range(12)], ("val", "other"))
    compact(store)
    assert not (tmp_path / "store/predictions").exists()
    write_parts(store, "m99")  # and whoever writes finds its place again
    finish_cell(store, "m99", "val", {"status": "complete", "n": N})
    assert PredictionStore(tmp_path / "store").read("m99", "val").height == N
    assert verify(PredictionStore(tmp_path / "store")) == []


def test_packed_cells_in_their_neighbours(tmp_path):
    fill(PredictionStore(tmp_path / "a"), [f"m{i}" for i in range(9)], ("val", "ood"))
    fill(PredictionStore(tmp_path / "b"), [f"m{i}" for i in range(9)], ("val", "ood"))
    done = compact_store(tmp_path / "b")
    assert (done.packed, done.gathered, done.files) == (18, 18, 2 + 1 + 4)
    assert compact_store(tmp_path / "b").packed == 0
    assert json.loads(json.dumps(done.to_dict()))["skipped"] == []
    for metrics in (["top1"], ["top1", "top5", "nll", "brier", "ece"]):
        ours, theirs = (sb.score(tmp_path / p, metrics=metrics).frame for p in "ab")
        assert ours.equals(theirs)
    beds = [sb.open_testbed(tmp_path / place) for place in "ab"]
    assert np.array_equal(beds[0].value, beds[1].value)
    similar = [sb.similarity(tmp_path / p, setting="val").counts.dominance for p in "ab"]
    assert np.array_equal(*similar)
    pattern = str(tmp_path / "b" / "packs" / "**" / "*.parquet")
    frame = pl.scan_parquet(pattern, hive_partitioning=True).collect()
    assert frame.group_by("model", "setting").len()["len"].to_list() == [N] * 18
    store = PredictionStore(tmp_path / "b")
    expected = store.read("m2", "val")
    store.remove("m1", "val")
    assert store.read("m2", "val").equals(expected)
    assert (len(store.cells()), verify(store)) == (17, [])


def test_a_damaged_pack_is_found_and_computed_again(tmp_path):
    store = PredictionStore(tmp_path)
    fill(store, ["a", "b", "c"])
    compact(store)
    (name,) = store.files.below("packs")
    data = bytearray(store.files.read(name))
    data[len(data) // 2] ^= 1
    store.files.write(name, bytes(data))
    assert [p.kind for p in verify(PredictionStore(tmp_path))] == ["damaged"] * 3
    rows = sb.score(tmp_path).frame
    assert rows["value"].null_count() == 3
    assert scrub_store(tmp_path, rebuild=True).aside == (name,)
    again = PredictionStore(tmp_path)
    assert {one["status"] for one in again.cells()} == {"running"}
    assert again.missing("a", "val", ranges()) == ranges()


def test_two_who_compact_and_one_who_writes(tmp_path):
    store = PredictionStore(tmp_path)
    fill(store, ["a", "b"])
    with (
        PredictionStore(tmp_path).files.lock(alone=False),
        pytest.raises(InputError, match="being written to"),
    ):
        compact(store)
    compact(store)
    fill(PredictionStore(tmp_path), ["c", "d"])
    compact(store)
    assert [one["model"] for one in PredictionStore(tmp_path).cells()] == list("abcd")
    assert len(store.files.below("packs")) == len(store.files.below("cells")) == 1
    assert verify(store) == []


def test_many_records_are_gathered_by_themselves_and_few_are_not(tmp_path):
    store = PredictionStore(tmp_path)
    fill(store, [f"m{i}" for i in range(20)])
    settle(store)
    assert len(store.files.below("cells")) == 20
    fill(store, [f"m{i}" for i in range(70)])
    before = everything(store)
    settle(store)
    assert len(store.files.below("cells")) == len(store.files.below("packs")) == 1
    assert everything(PredictionStore(tmp_path)) == before
    store.write_cell("m3", "val", {"status": "running"})
    assert PredictionStore(tmp_path).cell("m3", "val")["status"] == "running"
    compact(store)
    assert PredictionStore(tmp_path).cell("m3", "val")["status"] == "running"
    assert len(PredictionStore(tmp_path).cells()) == 70


def test_parts_with_an_unread_image_are_split_again(tmp_path):
    store = PredictionStore(tmp_path)
    begin(store)
    write_parts(store, "m", unread=40)
    kept = contents(tmp_path)
    finish_cell(store, "m", "val", {"status": "complete", "unreadable": ["40"]})
    assert store.read("m", "val")["class_1"].null_count() == 1
    expand(store, "m", "val", ranges())
    assert contents(tmp_path) == kept
    write_parts(store, "m")
    assert merge(store, "m", "val")
    finish_cell(store, "m", "val", {"status": "complete"})
    assert store.read("m", "val")["class_1"].null_count() == 0
    assert len(store.files.below(cell_folder("m", "val"))) == 1


@pytest.mark.parametrize("kind", ["batch", "record"])
def test_a_damaged_record_keeps_all_that_it_may_name(tmp_path, kind):
    """A flipped bit in a batch or a record: nothing it could name is removed or put elsewhere."""
    fill(store := PredictionStore(tmp_path), [f"m{i:02d}" for i in range(12)])
    compact(store)
    fill(store, [f"n{i:02d}" for i in range(12)])
    before = everything(PredictionStore(tmp_path))
    cells = store.files.below("cells")
    name = next(one for one in cells if ("batch-" in one) == (kind == "batch"))
    good = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(good.replace(b'"complete"', b'"complote"', 1))
    there = set(contents(tmp_path))
    found = compact_store(tmp_path)
    settle(PredictionStore(tmp_path))
    assert collect_garbage(PredictionStore(tmp_path), minimum_age=0) == []
    assert name in str(found)
    assert set(contents(tmp_path)) == there
    (tmp_path / name).write_bytes(good)
    again = PredictionStore(tmp_path)
    assert verify(again) == []
    assert everything(again) == before
    assert not compact(again).skipped
    assert everything(PredictionStore(tmp_path)) == before


def every_file(path):
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_compacting_again_changes_no_file(tmp_path):
    store = PredictionStore(tmp_path / "s")
    fill(store, [f"m{i}" for i in range(9)])
    write_parts(store, "logits", seed=9, keep_logits=True)  # of other columns: in no pack
    finish_cell(store, "logits", "val", {"status": "complete", "n": N})
    compact(store)
    before = every_file(tmp_path)
    again = compact(PredictionStore(tmp_path / "s"))
    assert (again.cells, again.packed, again.gathered) == (0, 0, 0)
    assert every_file(tmp_path) == before


def test_compacting_goes_on_after_a_kill_before_old_batches_were_removed(tmp_path):
    store = PredictionStore(tmp_path / "s")
    fill(store, [f"m{i}" for i in range(9)])
    settled = store.manifest.write_batch(list(store.manifest.all({}).values())[:3])
    data = store.files.read(settled)
    compact(store)
    before = every_file(tmp_path)
    store.files.write(settled, data)
    compact(PredictionStore(tmp_path / "s"))
    assert every_file(tmp_path) == before


def test_a_disk_that_is_full_ends_compacting(tmp_path, monkeypatch):
    """It is an error, not a cell that is left as it is: the same command again goes on."""
    fill(PredictionStore(tmp_path), ["a", "b"], finish=False)
    before = everything(PredictionStore(tmp_path))

    def full(self, name, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(LocalFiles, "write", full)
        with pytest.raises(OSError, match="No space left"):
            compact_store(tmp_path)
    assert everything(PredictionStore(tmp_path)) == before
    assert compact_store(tmp_path).cells == 2
    assert everything(PredictionStore(tmp_path)) == before
