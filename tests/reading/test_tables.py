import gzip
import os
import zipfile

import numpy as np
import polars as pl
import pytest

from shiftbed.errors import InputError
from shiftbed.importing import import_results
from shiftbed.testbed import published, write_testbed

FRAME = pl.DataFrame({"model": ["a", "b"], "val": [0.75, None], "v2": [0.5, 0.25]})


def test_parquet(write, tmp_path):
    FRAME.write_parquet(tmp_path / "a.parquet")
    bed = import_results([tmp_path / "a.parquet"])
    assert bed.settings == ("val", "v2")
    assert bed.accuracy("v2").tolist() == [0.5, 0.25]


def test_parquet_by_content_and_names_with_wildcards(tmp_path):
    FRAME.write_parquet(tmp_path / "table[1]*")
    assert import_results([tmp_path / "table[1]*"]).value.shape == (2, 2)


@pytest.mark.parametrize("kind", [pl.Float32, pl.Float64, pl.Decimal(5, 3), pl.String])
def test_parquet_types(tmp_path, kind):
    values = pl.Series("val", ["0.761", "0.693"]).cast(pl.Float64).cast(kind)
    names = pl.Series("model", ["a", "b"], dtype=pl.Categorical)
    pl.DataFrame([names, values]).write_parquet(tmp_path / "a.parquet")
    assert import_results([tmp_path / "a.parquet"]).accuracy("val").tolist() == [0.761, 0.693]


def test_parquet_floats_keep_every_digit(tmp_path):
    values = [1 / 3, 2**-30, 0.1 + 0.2, 5e-324]
    frame = pl.DataFrame({"model": list("abcd"), "val": values})
    frame.write_parquet(tmp_path / "a.parquet")
    assert import_results([tmp_path / "a.parquet"]).accuracy("val").tolist() == values


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (FRAME.drop("model"), ["no column 'model'", "'val'", "'v2'"]),
        (FRAME.clear(), ["no row"]),
        (FRAME.with_columns(pl.col("val") * 100), ["row 1 has 75", "'val'", "--unit v2=fraction"]),
        (FRAME.with_columns(val=float("inf")), ["row 1", "'val'", "'inf'"]),
    ],
)
def test_parquet_that_is_refused(tmp_path, refused, frame, words):
    frame.write_parquet(tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", *words)


def test_parquet_with_missing_values_lists_and_structs(tmp_path):
    about = pl.Series([{"lr": 0.1}, {"lr": 0.2}])
    frame = FRAME.with_columns(val=pl.Series([0.75, float("nan")]), tags=pl.Series([[1], [2]]))
    frame.with_columns(hash=pl.Series([b"x", b"y"]), about=about).write_parquet(tmp_path / "a")
    bed = import_results([tmp_path / "a"])
    assert bed.settings == ("val", "v2")
    assert bed.models["about.lr"].to_list() == [0.1, 0.2]
    assert np.isnan(bed.value[1, 0])
    assert "left out: tags, hash (a list)" in bed.notes[0]
    assert "1 cell with nan" in bed.notes[1]


def test_damaged_parquet(tmp_path, refused, capfd):
    FRAME.write_parquet(tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    for cut in (4, 8, len(data) // 2, len(data) - 1):
        (tmp_path / "a.parquet").write_bytes(data[:cut])
        refused(tmp_path / "a.parquet", "Parquet")
    (tmp_path / "b.parquet").write_text("model,val\na,0.5\n")
    refused(tmp_path / "b.parquet", "not a readable Parquet file")


def test_testbeds_are_testbeds_already(tmp_path, refused):
    write_testbed(published("openclip"), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "already a testbed")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.csv", b"", ["empty"]),
        ("a.csv", b"model,val\na,0.5\nb,\0\n", ["line 3", "NUL"]),
        ("a.csv", b"\x89PNG\r\n\x1a\n\0\0\0", ["NUL"]),
        ("a.csv", "model,val\r\ncafé,0.5\r\n".encode("cp1252"), ["line 2", "0xe9", "UTF-8"]),
        ("a.csv", b"\xef\xbb\xbfmodel,val\rx\xff,0.5", ["line 2", "0xff", "UTF-8"]),
        ("a.csv", b"\xff\xfem\0o", ["UTF-16"]),
        ("a.csv", b"\xff\xfem\0\0\0", ["NUL"]),
        ("a.csv", "model,val\na,0.5\n".encode("utf-16-le"), ["NUL"]),
        ("a.csv.gz", gzip.compress(b"model,val\na,0.5\n", mtime=0), ["gzip"]),
        ("a.npz", b"model,val\na,0.5\n", [".npz"]),
    ],
)
def test_files_that_are_refused(write, refused, name, data, words):
    refused(write(name, data), *words)


def test_spreadsheets_are_refused(tmp_path, refused):
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w") as file:
        file.writestr("xl/workbook.xml", "<x/>")
    refused(tmp_path / "a.xlsx", "'xl/workbook.xml'", "CSV")


def test_what_is_no_file_is_refused(tmp_path, refused):
    refused(tmp_path, "directory")
    refused(tmp_path / "none.csv", "no such file")
    refused("nul\0", "FILELESS", "not the name of a file")
    refused(os.devnull, "not a file")


def test_unreadable_files_are_refused(write, refused):
    path = write("a.csv", "model,val\na,0.5\n")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    refused(path, "cannot be read", "ermission")


def test_files_beyond_the_limit_are_refused(write, monkeypatch):
    path = write("a.csv", "model,val\na,0.5\n")
    monkeypatch.setattr("shiftbed.reading.files.LIMIT", 8)
    with pytest.raises(InputError, match=r"a\.csv: over 0 MiB"):
        import_results([path])


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a", "a.json"])
def test_text_is_told_by_content_where_the_name_does_not_say(write, name):
    text = '{"model": "a", "val": 0.5}' if name == "a.json" else "model,val\na,0.5\n"
    assert import_results([write(name, text)]).value.tolist() == [[0.5]]


def test_csv_may_start_with_a_bracket(write):
    bed = import_results([write("a.csv", "[tag],model,val\nx,a,0.5\n")])
    assert bed.models["[tag]"].to_list() == ["x"]
