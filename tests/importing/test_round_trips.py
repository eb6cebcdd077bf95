"""Generated results: import, export, import again, and it is the same testbed."""

import io

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
