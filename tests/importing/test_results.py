import json

import numpy as np
import polars as pl
import pytest

from shiftbed.errors import InputError
from shiftbed.importing import LAYOUTS, import_results
from shiftbed.records import Shift
from shiftbed.testbed import read_testbed, write_testbed

WIDE = "model,kind,depth,val,v2\na,standard,50,76.1,63.0\nb,own,18,69.8,\n"
SHIFT = Shift(name="v2", kind="natural-dataset", source=("val",), target="v2")


def same(a, b):
    assert a.settings == b.settings
    assert a.models.equals(b.models)
    assert np.array_equal(a.value, b.value, equal_nan=True)
    assert np.array_equal(a.n, b.n)
    assert a.shifts == b.shifts
    assert dict(a.metrics) == dict(b.metrics)
    for setting, one in a.results.items():
        other = b.results[setting]
        assert other.images == one.images
        assert np.array_equal(other.right, one.right)
        assert np.array_equal(other.known, one.known)


def test_a_round_trip_through_a_testbed_file(write, tmp_path):
    labels = np.array([0, 1, 2, 1])
    top1 = np.array([[0, 1, 2, 2], [0, 0, 0, 0]])
    files = [
        write("table.csv", WIDE),
        write("v3.npz", models=np.array(["a", "c"]), top1=top1, labels=labels),
    ]
    bed = import_results(
        files,
        name="mine",
        unit="percent",
        sizes={"val": 50_000},
        shifts=[SHIFT],
        fit="kind=standard",
        info=["depth"],
        citation="C",
        licence="L",
        source="S",
    )
    assert (bed.name, bed.citation, bed.licence, bed.source) == ("mine", "C", "L", "S")
    write_testbed(bed, tmp_path / "out.parquet")
    back = read_testbed(tmp_path / "out.parquet")
    same(back, bed)
    assert (back.name, back.citation, back.licence, back.source) == ("mine", "C", "L", "S")


def test_percent(write):
    path = write("a.csv", WIDE)
    bed = import_results([path], unit="percent", info=["depth"])
    assert bed.accuracy("val").tolist() == [76.1 / 100, 69.8 / 100]


def test_fractions_called_percent_are_refused(write, refused):
    path = write("a.csv", "model,val,v2\na,0.761,0.6\nb,1,0.5\n")
    refused(path, "no value is above 1", "--unit percent", unit="percent")
    counts = write("b.csv", "model,setting,correct,n\na,val,1,200\n")
    assert import_results([counts], unit="percent").value.tolist() == [[0.005]]
    hard = write("c.csv", "model,imagenet-a\na,0.4\nb,0.9\n")
    easy = write("d.csv", "model,val\na,76\nb,80\n")
    bed = import_results([hard, easy], unit="percent", units={"imagenet-a": "percent"})
    assert bed.accuracy("imagenet-a")[0] == 0.4 / 100


def test_a_single_path_will_do(write):
    path = write("a.csv", "model,val\na,0.5\n")
    assert import_results(path).value.tolist() == [[0.5]]
    assert import_results(str(path)).name == "a"


def test_settings_get_other_names(write):
    path = write("a.csv", "model,val,v2,n:val\na,0.5,0.4,7\n")
    bed = import_results([path], setting_names={"val": "imagenet"})
    assert bed.settings == ("imagenet", "v2")
    assert bed.usual_size("imagenet") == 7


def test_settings_that_get_one_name(write, refused):
    path = write("a.csv", "model,val,v2\na,0.5,\nb,,0.4\n")
    bed = import_results([path], setting_names={"val": "x", "v2": "x"})
    assert bed.accuracy("x").tolist() == [0.5, 0.4]
    path = write("a.csv", "model,val,v2\na,0.5,0.4\n")
    refused(path, "'a'", "'x'", setting_names={"val": "x", "v2": "x"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"setting_names": {"vall": "x"}}, "unknown setting or file 'vall'; did you mean 'val'"),
        ({"info": ["dept"]}, "unknown column 'dept'; did you mean 'depth'"),
        ({"ignore": ["dept"]}, "unknown column 'dept'; did you mean 'depth'"),
        ({"setting_names": {"val": " "}}, "the new name of 'val' is empty"),
        ({"unit": "per cent"}, "unknown unit 'per cent'; did you mean 'percent'"),
        ({"layout": "broad"}, "unknown layout 'broad'"),
    ],
)
def test_unknown_names(write, options, words):
    path = write("a.csv", WIDE)
    with pytest.raises(InputError, match=words):
        import_results([path], **{"unit": "percent", "info": ["depth"]} | options)


def test_no_files():
    with pytest.raises(InputError, match="no file"):
        import_results([])


def test_layouts_can_be_forced(write, refused):
    long = write("a.csv", "model,setting,value\na,x,0.5\n")
    refused(long, "'setting'", layout="wide")
    wide = write("b.csv", "model,val\na,0.5\n")
    refused(wide, "no column 'setting'", layout="long")
    refused(wide, "no column 'top1'", layout="timm", setting_names={"b": "imagenet"})
    refused(wide, "no column 'name'", layout="open_clip")
    refused(wide, "not an .npz file", layout="predictions")
    npz = write("c.npz", models=["a"], top1=[[0]], labels=[0])
    refused(npz, "predictions", "'wide'", layout="wide")
    assert import_results([npz], layout="predictions").value.tolist() == [[1.0]]
    assert set(LAYOUTS) == {"wide", "long", "timm", "open_clip", "predictions"}


def test_everything_imported_can_be_fitted(write):
    rng = np.random.default_rng(1)
    x = rng.uniform(0.4, 0.9, 30)
    rows = [f"m{i};{a:.4f};{a * 0.8:.4f}".replace(".", ",") for i, a in enumerate(x)]
    path = write("a.csv", "\r\n".join(["model;val;v2", *rows]))
    bed = import_results([path], shifts=[SHIFT], sizes={"val": 50_000, "v2": 10_000})
    assert bed.fit("v2").r2 > 0.9
    assert len(bed.effective_robustness()) == 30


MILLION = 10**6


MORE = [pytest.param(form, marks=pytest.mark.slow) for form in ("quoted", "json lines", "wide")]


@pytest.mark.parametrize("form", ["plain", "parquet", *MORE])
def test_a_million_rows(write, tmp_path, form):
    models = [f"m{i // 200}" for i in range(MILLION)]
    settings = [f"s{i % 200}" for i in range(MILLION)]
    values = [f"{(i % 977) / 977:.4f}" for i in range(MILLION)]
    rows = zip(models, settings, values, strict=True)
    if form == "plain":
        path = write("a.csv", "model,setting,value\n" + "\n".join(map(",".join, rows)))
    elif form == "quoted":
        lines = (f'"{m}",{s},{v}' for m, s, v in rows)
        path = write("a.csv", "model,setting,value\n" + "\n".join(lines))
    elif form == "json lines":
        lines = (json.dumps({"model": m, "setting": s, "value": float(v)}) for m, s, v in rows)
        path = write("a.jsonl", "\n".join(lines))
    elif form == "wide":
        lines = (f"m{i},standard,{v},0.5" for i, v in enumerate(values))
        path = write("a.csv", "model,kind,val,v2\n" + "\n".join(lines))
    else:
        path = tmp_path / "a.parquet"
        frame = pl.DataFrame({"model": models, "setting": settings, "value": values})
        frame.cast({"value": pl.Float64}).write_parquet(path)
    bed = import_results([path])
    assert bed.value.shape == ((MILLION, 2) if form == "wide" else (5_000, 200))
    assert bed.value.flat[1] == (0.5 if form == "wide" else float(values[1]))


def test_frames_are_imported_as_files_are(write, tmp_path):
    frame = pl.DataFrame({"model": ["a", "b", "c"], "val": [0.7, 0.8, 0.1 + 0.2]})
    other = write("v2.csv", "model,v2\na,0.6\nb,0.7\n")
    assert import_results(frame).value.tolist() == [[0.7], [0.8], [0.1 + 0.2]]
    bed = import_results([frame, other], name="mine")
    assert (bed.name, bed.settings) == ("mine", ("val", "v2"))
    with pytest.raises(
        InputError, match=r"^frame 1, row 2, column 'val': '-1.0' is not a fraction"
    ):
        import_results(frame.with_columns(val=pl.Series([0.5, -1.0, 0.5])))
    with pytest.raises(InputError, match="frame 1: no column holds numbers"):
        import_results([pl.DataFrame({"model": ["a"], "val": [[0.5]]})])
