"""``shiftbed store verify`` and ``gc`` on the parts of probes."""

import polars as pl
import pytest

from shiftbed.cli.main import app
from shiftbed.errors import InputError
from shiftbed.store import PredictionStore, collect_garbage, verify
from shiftbed.store.probes import probe_folder, read_probe, write_probe, write_probe_part

KEY = ("m", "val", "phase")
FOLDER = probe_folder(*KEY)


@pytest.fixture
def store(tmp_path):
    """A whole probe of 25 paths in parts of 10."""
    made = PredictionStore(tmp_path / "store")
    write_probe(made, *KEY, {"status": "complete", "paths": 25, "chunk": 10})
    for start in (0, 10, 20):
        rows = range(start, min(start + 10, 25))
        write_probe_part(made, *KEY, start, pl.DataFrame({"cd": list(rows)}))
    return made


def test_a_whole_probe_has_no_problem(store):
    assert verify(store) == []
    assert collect_garbage(store, minimum_age=0) == []


def test_a_damaged_part_is_found_and_removed_so_that_it_is_measured_again(store):
    name = f"{FOLDER}/part-0000000010-0000000020.parquet"
    store.files.write(name, store.files.read(name)[:-20])
    (problem,) = verify(store)
    assert problem.kind == "damaged"
    assert problem.where == "phase probe of m on val, paths 10–19"
    with pytest.raises(InputError, match="cannot be read"):
        read_probe(store, *KEY)
    assert collect_garbage(store, minimum_age=0) == [name]
    assert [(p.kind, p.what) for p in verify(store)] == [("missing", "paths 10–19")]


def test_a_part_shorter_than_its_name_is_damaged(store):
    name = f"{FOLDER}/part-0000000010-0000000020.parquet"
    store.files.write(name, store.files.read(f"{FOLDER}/part-0000000020-0000000025.parquet"))
    (problem,) = verify(store)
    assert problem.what == "holds 5 rows, its name says 10"


def test_paths_missing_at_the_end_and_there_twice(store):
    store.files.remove(f"{FOLDER}/part-0000000020-0000000025.parquet")
    write_probe_part(store, *KEY, 15, pl.DataFrame({"cd": [0] * 5}))
    found = [(p.kind, p.what) for p in verify(store)]
    assert found == [("duplicate", "paths 15–19"), ("missing", "paths 20–24")]


def test_a_damaged_record_and_parts_of_no_record(store):
    store.files.write("probes/model=m/setting=val/probe=amplitude.json", b"{")
    orphan = "probes/model=x/setting=val/probe=phase/part-0000000000-0000000001.parquet"
    store.files.write(orphan, b"")
    found = {(p.kind, p.where) for p in verify(store)}
    assert found == {
        ("damaged", "probes/model=m/setting=val/probe=amplitude.json"),
        ("orphan", orphan),
    }
    assert collect_garbage(store, minimum_age=0) == [orphan]


def test_the_command_says_so(store, capsys):
    name = f"{FOLDER}/part-0000000000-0000000010.parquet"
    store.files.write(name, b"not parquet")
    assert app(["store", "verify", store.files.root], standalone_mode=False) == 1
    assert "phase probe of m on val, paths 0–9" in " ".join(capsys.readouterr().out.split())
