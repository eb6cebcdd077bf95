"""Generated results: import, export, import again, and it is the same testbed."""

import io
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiftbed.importing import import_results, save_testbed
from shiftbed.testbed import open_testbed

NAMES = st.text('abZ0 ,;"é中-_.()|', min_size=1, max_size=8).map(lambda s: "x" + s.strip())
FRACTIONS = st.integers(0, 10_000).map(lambda i: i / 10_000)


@st.composite
def results(draw):
    """A long table: some models on some settings, with sizes and what describes a model."""
    models = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    tested = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    sizes = {s: draw(st.integers(1, 50_000)) for s in tested}
    rows = []
    for model in models:
        own = draw(st.lists(st.sampled_from(tested), min_size=1, unique=True))
        kind = draw(st.sampled_from(["standard", "more data", 'a "new" one']))
        fit = model == models[0] or draw(st.booleans())
        rows += [(model, kind, fit, s, draw(FRACTIONS), sizes[s]) for s in own]
    columns = ["model", "kind", "in_fit_set", "setting", "value", "n"]
    return pl.DataFrame(rows, schema=columns, orient="row")


def written(frame, kind):
    if kind == "jsonl":
        return frame.write_ndjson().encode()
    file = io.BytesIO()
    if kind == "parquet":
        frame.write_parquet(file)
    else:
        frame.write_csv(file, separator={"csv": ",", "txt": ";", "tsv": "\t"}[kind])
    return file.getvalue()


def cells(bed):
    """Value and size by name: order is no part of what a testbed says."""
    return {
        (model, setting): (bed.value[i, j], bed.n[i, j])
        for i, model in enumerate(bed.model_names)
        for j, setting in enumerate(bed.settings)
        if np.isfinite(bed.value[i, j])
    }


@pytest.mark.parametrize("kind", ["csv", "txt", "tsv", "jsonl", "parquet"])
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frame=results())
def test_what_was_exported_is_imported_again(tmp_path, kind, frame):
    path = tmp_path / f"results.{kind}"
    path.write_bytes(written(frame, kind))
    bed = import_results([path], name="mine")
    given = {(r["model"], r["setting"]): (r["value"], r["n"]) for r in frame.iter_rows(named=True)}
    assert cells(bed) == given
    saved = save_testbed(bed, tmp_path / "saved.parquet")
    back = open_testbed(saved.file)
    assert cells(back) == given
    assert back.models.equals(bed.models)
    assert saved.frame["models"].sum() == len(given)
    again = tmp_path / f"again.{kind}"
    again.write_bytes(written(back.scores().join(back.models, on="model"), kind))
    third = import_results([again], name="mine")
    assert cells(third) == given
    assert third.models.select(bed.models.columns).equals(bed.models)


# --- the same results in the forms people have them in --------------------------------------------

WORDS = st.sampled_from(["alpha set", "beta-set", "Omega", "delta.set", "ε", "photos of cats"])
HEADS = {
    "model": st.sampled_from(["model", "model_name", "Estimator", "arch", "checkpoint", "name"]),
    "setting": st.sampled_from(["setting", "dataset", "Test set", "benchmark", "task"]),
    "value": st.sampled_from(["value", "accuracy", "acc1", "Top-1", "acc"]),
    "n": st.sampled_from(["n", "num_examples", "n_samples"]),
}


@st.composite
def studies(draw):
    """Models that all have been tested on all settings, with a hyper-parameter each."""
    models = draw(st.lists(NAMES, min_size=2, max_size=5, unique=True))
    tested = draw(st.lists(WORDS, min_size=2, max_size=4, unique=True))
    numbers = st.integers(200, 9_900).map(lambda i: i / 10_000)
    return pl.DataFrame(
        [
            (model, draw(st.sampled_from([0.1, 0.01, 1e-5])), *(draw(numbers) for _ in tested))
            for model in models
        ],
        schema=["model", "lr", *tested],
        orient="row",
    )


def same(bed, study):
    """Whether a testbed has the study's numbers, to what a percentage rounds away."""
    assert sorted(bed.model_names) == sorted(study["model"])
    assert set(bed.settings) == set(study.columns[2:])
    for setting in bed.settings:
        found = dict(zip(bed.model_names, bed.accuracy(setting), strict=True))
        wanted = dict(zip(study["model"], study[setting], strict=True))
        assert found == pytest.approx(wanted)
    rates = [c for c in bed.models.columns if c.endswith("lr")]
    found = dict(zip(bed.models["model"], bed.models[rates[0]], strict=True))
    assert found == dict(zip(study["model"], study["lr"], strict=True))


def long_of(study):
    return study.unpivot(index=["model", "lr"], variable_name="setting", value_name="value")


FORMS = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("percent", [False, True])
@FORMS
@given(study=studies(), data=st.data())
def test_wide_and_long_under_any_usual_names(tmp_path, percent, kind, study, data):
    names = {role: data.draw(some) for role, some in HEADS.items()}
    scaled = study.with_columns(pl.col(study.columns[2:]) * 100) if percent else study
    for form in ("wide", "long"):
        frame = scaled if form == "wide" else long_of(scaled).with_columns(n=pl.lit(777))
        path = tmp_path / f"{form}.{kind}"
        path.write_bytes(written(frame.rename(names, strict=False), kind))
        bed = import_results([path])
        same(bed, study)
        assert set(bed.n.flat) == ({0} if form == "wide" else {777})
        saved = save_testbed(bed, tmp_path / "saved.parquet")
        back = open_testbed(saved.file)
        same(back, study)
        again = tmp_path / f"again.{kind}"
        again.write_bytes(written(back.scores().join(back.models, on="model"), kind))
        third = import_results([again])
        assert cells(third) == cells(bed)
        assert third.models.select(bed.models.columns).equals(bed.models)


@FORMS
@given(study=studies())
def test_nested_objects_say_the_same(tmp_path, study):
    rows = [
        {
            "name": row["model"],
            "config": {"lr": row["lr"], "layers": [1, 2]},
            "results": {s: {"acc1": row[s], "n": 777} for s in study.columns[2:]},
        }
        for row in study.iter_rows(named=True)
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    bed = import_results([path])
    same(bed, study)
    assert set(bed.n.flat) == {777}
    assert "left out: config.layers (a list)" in bed.notes[0]


@FORMS
@given(study=studies())
def test_two_files_in_two_units_are_one_study(tmp_path, study):
    first, second = study.head(1), study.tail(-1)
    first.with_columns(pl.col(study.columns[2:]) * 100).write_csv(tmp_path / "a.csv")
    second.write_csv(tmp_path / "b.csv")
    bed = import_results([tmp_path / "a.csv", tmp_path / "b.csv"])
    same(bed, study)
    assert " in percent" in bed.notes[0]
    assert " in fractions" in bed.notes[1]
