import json

import numpy as np
import polars as pl
import pytest

from shiftbed.cli.output import write_table
from shiftbed.errors import InputError
from shiftbed.results.pairs import long_table, open_pairs, read_pairs

LONG = """task,id,ood,model,where,metric,value,kind,architecture,epochs
PACS,photo,sketch,a,id,error,0.1,real,ViT,3
PACS,photo,sketch,a,ood,accuracy,0.6,real,ViT,3
PACS,photo,sketch,b,id,error,0.2,real,ResNet,10
PACS,photo,sketch,b,ood,accuracy,,real,ResNet,10
PACS,photo,art,a,id,error,0.1,real,ViT,3
PACS,photo,art,a,ood,error,0.3,real,ViT,3
PACS,photo,art,b,id,error,0.2,real,ResNet,10
PACS,photo,art,b,ood,error,0.5,real,ResNet,10
"""
WIDE = """task,id,ood,model,architecture,id:error,ood:error,held-out:error
PACS,photo,sketch,a,ViT,0.1,0.4,0.25
PACS,photo,sketch,b,ResNet,0.2,,0.35
"""


def put(tmp_path, text, name="study.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_long_file(tmp_path):
    sketch, art = read_pairs(put(tmp_path, LONG))
    assert (sketch.task, sketch.source, sketch.target, sketch.kind) == (
        "PACS",
        "photo",
        "sketch",
        "real",
    )
    assert sketch.models == ("a", "b")
    assert sketch.metrics == ("id:error", "ood:error")
    assert sketch.column("ood:error")[0] == pytest.approx(0.4)  # 1 − accuracy
    assert np.isnan(sketch.column("ood:error")[1])  # an empty cell stays missing
    assert sketch.info == {"architecture": ["ViT", "ResNet"], "epochs": [3.0, 10.0]}
    assert art.column("ood:error").tolist() == [0.3, 0.5]


def test_open_adds_held_out_over_the_other_ood_sets(tmp_path):
    sketch, art = open_pairs(str(put(tmp_path, LONG)))
    assert sketch.column("held-out:error").tolist() == [0.3, 0.5]
    assert art.column("held-out:error")[0] == pytest.approx(0.4)
    assert np.isnan(art.column("held-out:error")[1])


def test_a_wide_file_keeps_its_own_held_out(tmp_path):
    (pair,) = open_pairs(str(put(tmp_path, WIDE)))
    assert pair.metrics == ("id:error", "held-out:error", "ood:error")
    assert pair.column("held-out:error").tolist() == [0.25, 0.35]
    assert np.isnan(pair.column("ood:error")[1])
    assert pair.info == {"architecture": ["ViT", "ResNet"]}


@pytest.mark.parametrize("suffix", ["csv", "parquet", "json"])
def test_every_kind_of_file_brings_the_same_back(tmp_path, suffix):
    pairs = open_pairs("openclip")
    path = tmp_path / f"study.{suffix}"
    write_table(long_table(pairs), path)
    again = open_pairs(str(path))
    assert [p.name for p in again] == [p.name for p in pairs]
    for old, new in zip(pairs, again, strict=True):
        assert new.models == old.models
        assert new.kind == old.kind
        assert set(new.metrics) == set(old.metrics)
        for metric in old.metrics:
            assert np.array_equal(new.column(metric), old.column(metric))
        assert new.info["architecture"] == list(old.info["architecture"])
        assert new.info["gflops"] == pytest.approx(list(old.info["gflops"]))


def test_json_columns(tmp_path):
    frame = pl.read_csv(put(tmp_path, WIDE))
    path = tmp_path / "columns.json"
    path.write_text(json.dumps(frame.to_dict(as_series=False)))
    assert read_pairs(path)[0].models == ("a", "b")


def changed(old, new):
    return LONG.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "empty"),
        ("task,id\n", "no row below"),
        (LONG.replace("task,", "job,", 1), "no column 'task'"),
        (LONG.replace(",where,", ",place,", 1), "no column 'where'"),
        (changed(",id,error,0.1,", ",idd,error,0.1,"), "row 1: unknown place of a metric 'idd'"),
        (changed(",error,0.1,", ",error,ten,"), "row 1, 'value': 'ten' is not a number"),
        (changed(",error,0.1,", ",error,inf,"), "not a finite number"),
        (changed(",error,0.1,", ",error,10,"), "is not a fraction; is that a percentage"),
        (changed("PACS,photo,sketch,a,id", "PACS,,sketch,a,id"), "row 1: 'id' is empty"),
        (changed("accuracy,0.6,real", "accuracy,0.6,fake"), "several values of 'kind'"),
        (LONG + "PACS,photo,art,b,ood,error,0.5,real,ResNet,10\n", "two values for task 'PACS'"),
        (LONG + "PACS,photo,art,b,ood,accuracy,0.5,real,ResNet,10\n", "given twice"),
        (LONG + "PACS,photo\n", "line 10: 2 fields"),
        (LONG + "a,b,c,d,e,f,g,h,i,j,k,l\n", "12 fields, the header has 10"),
        (WIDE + "PACS,photo,sketch,b,ResNet,0.2,,0.35\n", "model 'b' twice"),
        (WIDE.replace("architecture", "where", 1), "both a column 'where'"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(tmp_path, text, match):
    path = put(tmp_path, text)
    with pytest.raises(InputError, match=match) as error:
        read_pairs(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.parquet", b"PAR1 but not really"),
        ("x.json", b'{"task": 3}'),
        ("x.json", b"[1, 2]"),
        ("x.json", b"[" * 100_000),
        ("x.csv", b"\xff\xfe\x00garbage"),
    ],
)
def test_hostile_files(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError) as error:
        open_pairs(str(path))
    assert "\n" not in str(error.value)


def test_nested_columns(tmp_path):
    path = tmp_path / "x.parquet"
    pl.DataFrame({"task": [["a"]], "id": ["b"]}).write_parquet(path)
    with pytest.raises(InputError, match="not numbers or text"):
        read_pairs(path)


def test_a_large_study_is_read_in_moments(tmp_path):
    """172 pairs × 216 networks × 25 metrics: nearly a million values."""
    rng = np.random.default_rng(0)
    names = [f"id:m{i}" for i in range(12)] + [f"ood:m{i}" for i in range(13)]
    pairs = [(f"t{i % 10}", f"s{i}", "o") for i in range(172)]
    rows = [(t, s, o, f"m{j}") for t, s, o in pairs for j in range(216)]
    frame = pl.DataFrame(rows, schema=["task", "id", "ood", "model"], orient="row")
    values = rng.random((len(rows), 25))
    frame = frame.with_columns(*(pl.Series(n, values[:, i]) for i, n in enumerate(names)))
    tall = frame.unpivot(names, index=["task", "id", "ood", "model"])
    tall = tall.with_columns(
        pl.col("variable").str.split(":").list.first().alias("where"),
        pl.col("variable").str.split(":").list.last().alias("metric"),
    ).drop("variable")
    path = tmp_path / "study.parquet"
    tall.write_parquet(path)
    found = read_pairs(path)
    assert len(found) == 172
    assert np.array_equal(found[3].column("ood:m5"), values[3 * 216 : 4 * 216, 17])
