import json
import math

import polars as pl
import pytest

from shiftbed.cli.output import write_table
from shiftbed.errors import InputError

FRAME = pl.DataFrame({"name": ["a", "é,\n"], "value": [1.5, math.nan], "nothing": [None, None]})


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json"])
def test_what_is_written_is_read_back_with_nan_as_null(tmp_path, suffix):
    path = tmp_path / "new" / f"table.{suffix}"
    write_table(FRAME, path)
    readers = {"parquet": pl.read_parquet, "csv": pl.read_csv}
    if suffix == "json":
        found = json.loads(path.read_text())
        assert found[1] == {"name": "é,\n", "value": None, "nothing": None}
    else:
        found = readers[suffix](path)
        assert found["name"].to_list() == ["a", "é,\n"]
        assert found["value"].to_list() == [1.5, None]
        assert found["nothing"].null_count() == 2
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_refused(tmp_path):
    with pytest.raises(InputError, match=r"\.parquet, \.csv, \.json, not '\.txt'"):
        write_table(FRAME, tmp_path / "table.txt")
    nested = pl.DataFrame({"lists": [[1, 2]]})
    with pytest.raises(InputError, match="'lists' holds lists"):
        write_table(nested, tmp_path / "table.csv")
    write_table(nested, tmp_path / "table.json")
    assert json.loads((tmp_path / "table.json").read_text()) == [{"lists": [1, 2]}]
    assert not (tmp_path / "table.csv").exists()
