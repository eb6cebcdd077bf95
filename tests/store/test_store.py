import json
import os
import subprocess
import sys
from urllib.parse import unquote

import duckdb
import numpy as np
import polars as pl
import pytest

from shiftbed.errors import InputError
from shiftbed.store import (
    PredictionStore,
    StoredTestSet,
    collect_garbage,
    part_from_top,
    verify,
)
from shiftbed.store.names import encode, part_range


def a_test_set(setting="val", n=100, fingerprint="sha256:a"):
    return StoredTestSet(
        setting=setting,
        examples=tuple(f"e{i}" for i in range(n)),
        labels=np.arange(n) % 7,
        fingerprint=fingerprint,
        label_policy="all 7 classes",
    )


def fill(store, model="timm:resnet18", setting="val", n=100, step=40):
    store.add_test_set(a_test_set(setting, n))
    for start in range(0, n, step):
        stop = min(start + step, n)
        store.write_part(model, setting, start, part_from_top(np.arange(start, stop) % 5))
    store.write_cell(model, setting, {"status": "complete"})


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    if request.param == "local":
        return PredictionStore(tmp_path / "store")
    return PredictionStore(f"memory://{tmp_path.name}-{os.getpid()}")


class TestEveryPlace:
    """One suite for a directory and for an object store."""

    def test_what_is_written_is_read(self, store):
        fill(store)
        assert store.models() == ["timm:resnet18"]
        assert store.settings() == ["val"]
        assert store.parts("timm:resnet18", "val") == [(0, 40), (40, 80), (80, 100)]
        assert store.complete("timm:resnet18", "val")
        frame = store.read("timm:resnet18", "val")
        assert frame["class_1"].to_list() == [i % 5 for i in range(100)]
        back = store.test_set("val")
        assert back.examples == a_test_set().examples
        assert back.labels.tolist() == a_test_set().labels.tolist()

    def test_missing_ranges(self, store):
        fill(store)
        assert store.missing("timm:resnet18", "val", [(0, 40), (40, 60), (40, 90)]) == [(40, 90)]
        assert not store.complete("other", "val")

    def test_other_examples_under_the_same_name_are_refused(self, store):
        store.add_test_set(a_test_set())
        store.add_test_set(a_test_set())
        with pytest.raises(InputError, match="other examples or labels"):
            store.add_test_set(a_test_set(fingerprint="sha256:b"))

    def test_forgetting_a_cell(self, store):
        fill(store)
        store.remove("timm:resnet18", "val")
        assert store.models() == []
        assert store.parts("timm:resnet18", "val") == []

    def test_many_records_at_once(self, store):
        store.add_test_set(a_test_set())
        store.write_parts((f"m{i}", "val", 0, part_from_top(np.zeros(100, int))) for i in range(5))
        store.write_cells((f"m{i}", "val", {"status": "complete", "at": i}) for i in range(5))
        store.write_cell("m3", "val", {"status": "failed"})
        assert store.models() == [f"m{i}" for i in range(5)]
        assert store.cell("m2", "val")["at"] == 2
        assert store.cell("m3", "val")["status"] == "failed"
        store.remove("m2", "val")
        assert store.cell("m2", "val") is None
        assert store.models() == ["m0", "m1", "m3", "m4"]

    def test_verify_finds_nothing_in_a_whole_store(self, store):
        fill(store)
        assert verify(store) == []

    def test_verify_finds_missing_and_duplicate_rows(self, store):
        fill(store)
        store.files.remove(
            "predictions/model=timm%3Aresnet18/setting=val/part-0000000040-0000000080.parquet"
        )
        store.write_part("timm:resnet18", "val", 30, part_from_top(np.zeros(20, int)))
        kinds = [(p.kind, p.what) for p in verify(store)]
        assert ("duplicate", "examples 30–39") in kinds
        assert ("missing", "examples 50–79") in kinds

    def test_verify_finds_damage_and_gc_removes_it(self, store):
        fill(store)
        name = "predictions/model=timm%3Aresnet18/setting=val/part-0000000080-0000000100.parquet"
        store.files.write(name, store.files.read(name)[:-20])
        store.files.write("predictions/model=x/setting=val/part-0-1.parquet", b"")
        assert {p.kind for p in verify(store)} == {"damaged", "orphan"}
        assert len(collect_garbage(store, minimum_age=0)) == 2
        assert {p.kind for p in verify(store)} == {"missing"}

    def test_unknown_settings(self, store):
        fill(store)
        with pytest.raises(InputError, match="did you mean 'val'"):
            store.test_set("vall")


def test_other_tools_read_it_directly(tmp_path):
    store = PredictionStore(tmp_path / "store")
    fill(store, "timm:a/b c")
    pattern = str(tmp_path / "store" / "predictions" / "**" / "*.parquet")
    frame = pl.scan_parquet(pattern, hive_partitioning=True).collect()
    assert len(frame) == 100
    assert frame["setting"].unique().to_list() == ["val"]
    assert frame["model"].unique().to_list() == ["timm:a/b c"]
    count = duckdb.sql(
        f"select model, count(*) from read_parquet('{pattern}', hive_partitioning=true) group by 1"
    ).fetchall()
    assert count == [("timm:a/b c", 100)]


def test_two_processes_write_one_store(tmp_path):
    code = """
import sys, numpy as np
from tests.store.test_store import fill
from shiftbed.store import PredictionStore
store = PredictionStore(sys.argv[1])
for i in range(10): fill(store, f"m{i}", n=60)
"""
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "store")]) for _ in range(2)
    ]
    assert [child.wait() for child in children] == [0, 0]
    store = PredictionStore(tmp_path / "store")
    assert verify(store) == []
    assert store.models() == [f"m{i}" for i in range(10)]


def test_a_killed_writer_leaves_whole_parts_and_leftovers_are_found(tmp_path):
    store = PredictionStore(tmp_path / "store")
    fill(store)
    (tmp_path / "store" / "predictions" / ".abc.part").write_bytes(b"half")
    assert [p.kind for p in verify(store)] == ["leftover"]
    collect_garbage(store, minimum_age=0)
    assert verify(store) == []


@pytest.mark.parametrize("name", ["a", "a/b", "..", "a b%", "é:?*", "x" * 500, "m=1/setting=2"])
def test_names_are_safe(name):
    encoded = encode(name)
    assert "/" not in encoded
    assert encoded not in (".", "..")
    assert len(encoded) <= 200
    if len(name) < 100:
        assert unquote(encoded) == name
    assert encode(name) != encode(name + "x")


def test_part_names():
    assert part_range("a/b/part-0000000000-0000000010.parquet") == (0, 10)
    assert part_range("a/b/part-x-1.parquet") is None
    assert part_range("other.parquet") is None


def test_other_formats_are_refused(tmp_path):
    (tmp_path / "store.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(InputError, match="store format 99"):
        PredictionStore(tmp_path)
    (tmp_path / "store.json").write_text("no")
    with pytest.raises(InputError, match="damaged"):
        PredictionStore(tmp_path)
    with pytest.raises(InputError, match="no prediction store there"):
        PredictionStore.existing(tmp_path / "none")
