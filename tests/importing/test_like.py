"""What another testbed gives to imported results, and what files of metadata add."""

import numpy as np
import polars as pl
import pytest

from shiftbed.errors import InputError
from shiftbed.importing import import_results
from shiftbed.testbed import open_testbed, published

TESTBED = "imagenet-testbed-2020"
V2 = "imagenetv2-matched-frequency-format-val"


def grid(settings, models=None):
    """Some cells of the published grid, in percent, as a frame."""
    bed = published(TESTBED)
    values = {name: 100 * bed.accuracy(s) for name, s in settings.items()}
    frame = pl.DataFrame({"model": bed.model_names, **values}, nan_to_null=True)
    frame = frame.drop_nulls()
    return frame if models is None else frame.head(models)


@pytest.mark.parametrize(
    "names", [("val", V2), ("ImageNet 1k", "ImageNet V2"), ("imagenet", "imagenetv2_mf")]
)
def test_the_line_of_the_published_testbed_comes_back(names):
    bed = import_results(grid(dict(zip(names, ("val", V2), strict=True))), like=TESTBED)
    theirs, ours = published(TESTBED).fit("imagenet-v2"), bed.fit("imagenet-v2")
    assert bed.settings == ("val", V2)
    assert sorted(ours.models) == sorted(theirs.models)
    assert ours.lines[0].weights == pytest.approx(theirs.lines[0].weights)
    assert set(bed.size("val")) == {50_000}
    assert set(bed.size(V2)) == {10_000}


def test_only_shifts_whose_settings_are_there():
    bed = import_results(grid({"val": "val", "imagenet-r": "imagenet-r"}), like=TESTBED)
    assert all({*s.source, s.target} <= set(bed.settings) for s in bed.shifts)
    assert "imagenet-v2" not in {s.name for s in bed.shifts}


def test_own_models_have_no_fit_set_to_inherit(write):
    path = write("a.csv", f"model,val,{V2}\nmine,0.7,0.6\nyours,0.8,0.7\n")
    bed = import_results([path], like=TESTBED)
    assert bed.models["in_fit_set"].all()
    assert any("all are baseline models here" in one for one in bed.notes)


def test_what_is_said_comes_before_what_is_inherited(write):
    text = f"model,in_fit_set,val,{V2},n:val\nresnet50,no,0.7,0.6,500\nmine,yes,0.8,0.7,500\n"
    bed = import_results([write("a.csv", text)], like=TESTBED, sizes={V2: 100})
    assert bed.models["in_fit_set"].to_list() == [False, True]
    assert (bed.usual_size("val"), bed.usual_size(V2)) == (500, 100)


def test_nothing_in_common(write):
    path = write("a.csv", "model,mine\na,0.5\n")
    with pytest.raises(InputError, match=f"none of the settings is in {TESTBED}: mine"):
        import_results([path], like=TESTBED)
    with pytest.raises(InputError, match="did you mean 'openclip'"):
        import_results([path], like="openclips")


def test_like_a_file(write, tmp_path):
    from shiftbed.importing import save_testbed
    from shiftbed.records import Shift

    shift = Shift(name="s", kind="natural-dataset", source=("a",), target="b")
    old = import_results(
        [write("o.csv", "model,a,b\nx,0.5,0.4\ny,0.6,0.5\n")], shifts=[shift], sizes={"a": 9}
    )
    save_testbed(old, tmp_path / "old.parquet")
    new = import_results([write("n.csv", "model,a,b\nz,0.5,0.4\n")], like=tmp_path / "old.parquet")
    assert new.shifts == open_testbed(tmp_path / "old.parquet").shifts == (shift,)
    assert new.usual_size("a") == 9


# --- files of metadata ----------------------------------------------------------------------------

RESULTS = "model,val,v2\na,0.7,0.6\nb,0.6,0.5\nc,0.5,0.4\n"


@pytest.mark.parametrize("name", ["kinds.csv", "kinds.jsonl", "kinds.parquet"])
def test_metadata_is_joined_by_model(write, tmp_path, name):
    rows = {"Model": ["b", "a", "z"], "kind": ["robust", "standard", "standard"]}
    about = pl.DataFrame(rows | {"lr": [0.1, 0.2, 0.3], "in_fit_set": [False, True, True]})
    if name.endswith("csv"):
        about.write_csv(tmp_path / name)
    elif name.endswith("jsonl"):
        about.write_ndjson(tmp_path / name)
    else:
        about.write_parquet(tmp_path / name)
    bed = import_results([write("a.csv", RESULTS)], models=tmp_path / name)
    assert bed.model_names == ["a", "b", "c"]
    assert bed.models["kind"].to_list() == ["standard", "robust", "unspecified"]
    assert bed.models["lr"].to_list() == [0.2, 0.1, None]
    assert bed.models["in_fit_set"].to_list() == [True, False, False]
    assert f"{name}: metadata of 2 of 3 models; 1 more have no results" in bed.notes[1]
    assert np.array_equal(bed.accuracy("val"), [0.7, 0.6, 0.5])


def test_metadata_that_contradicts_or_misses(write, refused):
    path = write("a.csv", "model,kind,val\na,x,0.5\n")
    refused(path, "FILELESS", "b.csv, line 2", "'y'", models=write("b.csv", "model,kind\na,y\n"))
    other = write("c.csv", "model,kind\nq,y\n")
    refused(path, "FILELESS", "no model of it has results", models=other)
    refused(path, "FILELESS", "no column 'model'", models=write("d.csv", "who,kind\na,y\n"))
    refused(path, "FILELESS", "describes the models", models=write("e.csv", "model\na\n"))
