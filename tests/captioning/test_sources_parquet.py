import polars as pl
import pytest

from shiftbed.captioning.sources import Asked, Problems, read_parquet
from shiftbed.errors import InputError


def read(path, **asked):
    problems = Problems()
    frames = list(read_parquet(path, Asked(**asked), problems))
    return pl.concat(frames), dict(problems)


def test_rows_in_slices(tmp_path, monkeypatch):
    monkeypatch.setattr("shiftbed.captioning.sources.BATCH", 100)
    frame = pl.DataFrame({"id": range(250), "TEXT": [f"t{i}" for i in range(250)]})
    frame.write_parquet(tmp_path / "c.parquet", row_group_size=64)
    found, problems = read(tmp_path / "c.parquet")
    assert found["row"].to_list() == list(range(250))
    assert found["id"].to_list() == [str(i) for i in range(250)]
    assert found["text"].to_list() == frame["TEXT"].to_list()
    assert problems == {}


def test_lists_of_tags_and_bytes(tmp_path):
    pl.DataFrame(
        {
            "url": ["a", "b", None],
            "caption": [b"fine", b"d\xffg", None],
            "tags": [["golden", "retriever"], [], None],
        }
    ).write_parquet(tmp_path / "c.parquet")
    found, problems = read(tmp_path / "c.parquet")
    assert found["text"].to_list() == ["fine", "d\ufffdg", None]
    assert found["tags"].to_list() == ["golden | retriever", "", None]
    assert problems == {"invalid_utf8": 1}


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (pl.DataFrame({"id": [1], "caption": [{"a": 1}]}), "expected text"),
        (pl.DataFrame({"id": [1], "tags": [[1, 2]]}), "list of texts"),
        (pl.DataFrame({"id": [1], "words": ["x"]}), "--text-column"),
    ],
)
def test_columns_of_the_wrong_kind(tmp_path, frame, why):
    frame.write_parquet(tmp_path / "c.parquet")
    with pytest.raises(InputError, match=why):
        read(tmp_path / "c.parquet")


def test_damaged_files(tmp_path):
    (tmp_path / "c.parquet").write_bytes(b"PAR1 no PAR1")
    with pytest.raises(InputError, match="not a readable Parquet file") as raised:
        read(tmp_path / "c.parquet")
    assert "\n" not in str(raised.value)
