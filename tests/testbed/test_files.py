import json
import os
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

import shiftbed as sb
from shiftbed.atomic import write_atomically
from tests.testbed.test_record import paired_testbed


def same(a: sb.Testbed, b: sb.Testbed) -> None:
    assert a.settings == b.settings
    assert a.models.equals(b.models)
    assert np.array_equal(a.value, b.value, equal_nan=True)
    assert np.array_equal(a.n, b.n)
    assert a.shifts == b.shifts
    assert dict(a.metrics) == dict(b.metrics)


@pytest.mark.parametrize("name", ["imagenet-testbed-2020", "robustnets-2022", "timm", "openclip"])
def test_what_is_written_is_read(tmp_path, name):
    bed = sb.published(name)
    sb.write_testbed(bed, tmp_path / "copy.parquet")
    same(sb.read_testbed(tmp_path / "copy.parquet"), bed)


def test_per_image_results_survive(tmp_path):
    bed = paired_testbed().with_model("mine", {"id": 0.5, "ood": 0.4})
    sb.write_testbed(bed, tmp_path / "paired.parquet")
    back = sb.read_testbed(tmp_path / "paired.parquet")
    same(back, bed)
    for setting, results in bed.results.items():
        assert np.array_equal(back.results[setting].right, results.right)
        assert np.array_equal(back.results[setting].known, results.known)
        assert back.results[setting].images == results.images


def test_any_tool_can_read_it(tmp_path):
    sb.write_testbed(sb.published("imagenet-testbed-2020"), tmp_path / "t.parquet")
    frame = pl.read_parquet(tmp_path / "t.parquet")
    row = frame.filter(pl.col("model") == "resnet50", pl.col("setting") == "val")
    assert row.select("value", "n", "in_fit_set").row(0) == (0.7613, 50_000, True)


def damaged(tmp_path, **changes):
    path = tmp_path / "bad.parquet"
    sb.write_testbed(paired_testbed(), path)
    frame, text = pl.read_parquet(path), pl.read_parquet_metadata(path)["shiftbed"]
    meta = json.loads(text) | changes.pop("meta", {})
    frame = changes.pop("frame", lambda f: f)(frame)
    frame.write_parquet(path, metadata={"shiftbed": json.dumps(meta)})
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"meta": {"format": 99}}, "format 99 is not known"),
        ({"meta": {"shifts": [{"name": "x"}]}}, "damaged testbed file"),
        ({"meta": {"settings": ["id"]}}, "damaged testbed file"),
        ({"meta": {"shifts": "no"}}, "damaged testbed file"),
        ({"frame": lambda f: f.drop("kind")}, "column 'kind' must be String"),
        ({"frame": lambda f: pl.concat([f, f[:1]])}, "two values in one setting"),
        ({"frame": lambda f: f.with_columns(pl.lit(b"x").alias("right"))}, "damaged"),
    ],
)
def test_damaged_files_are_refused_in_one_line(tmp_path, changes, message):
    path = damaged(tmp_path, **changes)
    with pytest.raises(sb.InputError, match=message) as caught:
        sb.read_testbed(path)
    assert str(path) in str(caught.value)


def test_names_are_not_patterns(tmp_path):
    bed = sb.published("openclip")
    sb.write_testbed(bed, tmp_path / "a[1]*.parquet")
    same(sb.read_testbed(tmp_path / "a[1]*.parquet"), bed)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text.parquet").write_text("hello")
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "other.parquet")
    for name, message in [
        ("text.parquet", "cannot be read as a testbed file"),
        ("other.parquet", "not a testbed file"),
        ("none.parquet", "no such file"),
    ]:
        with pytest.raises(sb.InputError, match=message):
            sb.read_testbed(tmp_path / name)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail_half_way() -> None:
        with write_atomically(path) as file:
            file.write(b"half")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail_half_way()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_killed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    code = (
        "import sys, time\nfrom shiftbed.atomic import write_atomically\n"
        "with write_atomically(sys.argv[1]) as file:\n"
        "    file.write(b'half'); file.flush(); print('ready', flush=True); time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    child.kill()
    child.wait()
    child.stdout.close()
    assert path.read_bytes() == b"old"


def test_writers_at_once_each_write_a_whole_file(tmp_path):
    path = tmp_path / "t.parquet"
    code = (
        "import sys, shiftbed as sb\n"
        "for _ in range(5): sb.write_testbed(sb.published(sys.argv[2]), sys.argv[1])\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(path), name])
        for name in ("openclip", "robustnets-2022")
    ]
    seen = set()
    while any(child.poll() is None for child in children):
        if path.exists():
            seen.add(sb.read_testbed(path).name)
        time.sleep(0.01)
    assert all(child.returncode == 0 for child in children)
    assert seen <= {"openclip", "robustnets-2022"}
    assert os.listdir(tmp_path) == ["t.parquet"]


def test_unwritable_places_are_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(sb.InputError, match="cannot write"):
        sb.write_testbed(sb.published("openclip"), tmp_path / "file" / "t.parquet")
