import pytest

from shiftbed.captioning.sources import Asked, Problems, batches, expand
from shiftbed.errors import InputError


def test_globs_and_ranges(tmp_path):
    for name in ("a-00.csv", "a-01.csv", "a-02.csv", "b.parquet"):
        (tmp_path / name).touch()
    assert [p.name for p in expand([f"{tmp_path}/a-*.csv"])] == ["a-00.csv", "a-01.csv", "a-02.csv"]
    ranged = expand([f"{tmp_path}/a-{{01..02}}.csv", tmp_path / "b.parquet"])
    assert [p.name for p in ranged] == ["a-01.csv", "a-02.csv", "b.parquet"]
    assert len(expand([tmp_path / "a-00.csv"] * 2)) == 1


@pytest.mark.parametrize(
    ("specs", "why"),
    [
        (["none.csv"], "no such file"),
        (["*.nothing"], "no such file"),
        (["x.gz"], "expected .csv"),
        (["x.tar", "x.csv"], "cannot be mixed"),
        (["x-{9..1}.csv"], "upwards"),
        ([], "no source"),
    ],
)
def test_wrong_sources(tmp_path, monkeypatch, specs, why):
    monkeypatch.chdir(tmp_path)
    for name in ("x.gz", "x.tar", "x.csv"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=why):
        expand(specs)


def rows_of(tmp_path, text, **asked):
    (tmp_path / "c.csv").write_text(text)
    problems = Problems()
    frames = list(batches(tmp_path / "c.csv", Asked(**asked), problems))
    return frames[0], {k: n for k, n in problems.items() if n}


def test_tags_come_before_text(tmp_path):
    frame, _ = rows_of(tmp_path, "id,caption,tags\n1,dog,fox\n2,dog,\n3,, \n")
    assert frame["words"].to_list() == ["fox", "dog", None]


def test_what_an_image_is(tmp_path):
    text = "id,path,url,caption\n1,a.jpg,u,x\n2,,u,x\n3,,,x\n,,,x\n"
    frame, problems = rows_of(tmp_path, text)
    assert frame["identity"].to_list() == ["path:a.jpg", "url:u", "id:3"]
    assert problems == {"unidentified": 1}
    frame, _ = rows_of(tmp_path, text, id="id")
    assert frame["identity"].to_list() == ["id:1", "id:2", "id:3"]


@pytest.mark.parametrize("path", ["../x.jpg", "a/../../x", "..", "a\tb.jpg", "a\0b", "..\\x"])
def test_unsafe_paths_never_reach_a_test_set(tmp_path, path):
    frame, problems = rows_of(tmp_path, f"path,caption\n{path},dog\nfine..jpg,dog\n")
    assert frame["path"].to_list() == ["fine..jpg"]
    assert problems == {"unsafe_path": 1}
