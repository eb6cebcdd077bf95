"""Whatever a file holds, it is either a testbed or one line of complaint."""

import json
from io import BytesIO

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiftbed.errors import InputError
from shiftbed.importing import import_results
from shiftbed.testbed import Testbed, read_testbed, write_testbed

CSV = "model,kind,in_fit_set,val,v2,n:val\na,standard,true,0.75,0.5,100\nb,own,false,,0.25,\n"
LONG = "model;setting;correct;n\na;val;3;4\na;v2;1;4\n"
TIMM = "model,top1,top1_err,img_size,crop_pct\nx.y,80,20,224,0.9\n"
JSONL = '{"model": "a", "val": 0.5, "kind": null}\n{"model": "b", "val": 0.25, "fit": true}\n'
NAMES = ("a.csv", "a.jsonl", "a.json", "a", "results-imagenet.csv")
many = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def npz() -> bytes:
    out = BytesIO()
    labels = np.arange(4)
    np.savez(out, models=np.array(["a", "b"]), top1=np.stack([labels, labels[::-1]]), labels=labels)
    return out.getvalue()


def parquet() -> bytes:
    out = BytesIO()
    pl.DataFrame({"model": ["a", "b"], "val": [0.5, 0.25]}).write_parquet(out)
    return out.getvalue()


def judge(path, data: bytes, **options) -> None:
    path.write_bytes(data)
    bed, complaint = None, "none"
    try:
        bed = import_results([path], **options)
    except InputError as error:
        complaint = str(error)
    assert complaint
    assert "\n" not in complaint
    if bed is not None:
        assert isinstance(bed, Testbed)
        there = bed.value[np.isfinite(bed.value)]
        assert there.size
        assert bed.metrics or ((there >= 0) & (there <= 1)).all()
        write_testbed(bed, path.with_suffix(".out"))
        back = read_testbed(path.with_suffix(".out"))
        assert np.array_equal(back.value, bed.value, equal_nan=True)
        assert back.models.equals(bed.models)


@st.composite
def mutated(draw: st.DrawFn, whole: bytes) -> bytes:
    """A valid file with some stretches replaced, dropped or repeated."""
    data = whole
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        stop = min(len(data), start + draw(st.integers(0, 6)))
        new = draw(
            st.one_of(
                st.binary(max_size=4),
                st.sampled_from(
                    [b"", b",", b";", b"\t", b'"', b"\n", b"\r", b"nan", b"1e9", b"-1", b"%"]
                ),
                st.just(data[start:stop] * 2),
            )
        )
        data = data[:start] + new + data[stop:]
    return data


@many
@given(st.binary(max_size=200), st.sampled_from((*NAMES, "a.npz", "a.parquet")))
def test_random_bytes(tmp_path, data, name):
    judge(tmp_path / name, data)


@many
@given(st.text(max_size=200), st.sampled_from(NAMES))
def test_random_text(tmp_path, text, name):
    judge(tmp_path / name, text.encode("utf-8", "surrogatepass"))


CELLS = st.one_of(
    st.sampled_from(["0.5", "76.1", "1", "", "nan", "x", "0,5", "true", "100", " "]),
    st.text(max_size=4),
)
HEADERS = st.one_of(
    st.sampled_from(
        [
            *("model", "name", "setting", "value", "accuracy", "correct", "n", "metric", "kind"),
            *("in_fit_set", "parent", "val", "v2", "n:val", "top1", "top1_err", "img_size"),
            *("crop_pct", "pretrained", "ImageNet 1k", "right", "line", "param_count", "low"),
            *("high", "ci", "val_low", "val_high", "run", "step", "dataset", "acc1", "lr", "seed"),
        ]
    ),
    st.text(max_size=3),
)


@many
@given(st.data(), st.sampled_from([",", ";", "\t"]), st.sampled_from(NAMES))
@pytest.mark.parametrize("unit", [None, "percent"])
def test_random_tables(tmp_path, unit, data, delimiter, name):
    header = data.draw(st.lists(HEADERS, min_size=1, max_size=6))
    width = st.just(len(header)) if data.draw(st.booleans()) else st.integers(0, 7)
    rows = [
        data.draw(st.lists(CELLS, min_size=w, max_size=w))
        for w in data.draw(st.lists(width, max_size=4))
    ]
    text = "\n".join(delimiter.join(row) for row in [header, *rows])
    judge(tmp_path / name, text.encode("utf-8", "replace"), unit=unit)


@many
@given(st.data())
@pytest.mark.parametrize("whole", [CSV, LONG, TIMM, JSONL], ids=["wide", "long", "timm", "jsonl"])
def test_mutated_text(tmp_path, whole, data):
    name = {TIMM: "results-imagenet.csv", JSONL: "a.jsonl"}.get(whole, "a.csv")
    judge(tmp_path / name, data.draw(mutated(whole.encode())))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["model", "val", "setting", "value", ""]), inner)
    ),
    max_leaves=12,
)


@many
@given(st.lists(JSON, max_size=4), st.booleans())
def test_random_json(tmp_path, items, lines):
    if lines:
        judge(tmp_path / "a.jsonl", "\n".join(map(json.dumps, items)).encode())
    else:
        judge(tmp_path / "a.json", json.dumps(items).encode())


@many
@given(mutated(npz()))
def test_mutated_predictions(tmp_path, data):
    judge(tmp_path / "a.npz", data)


@settings(many, derandomize=True)  # about one damaged page in 40,000 makes polars abort
@given(mutated(parquet()))
def test_mutated_parquet(tmp_path, capfd, data):
    judge(tmp_path / "a.parquet", data)
    capfd.readouterr()  # the reader may report a panic
