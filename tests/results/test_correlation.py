from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import shiftbed as sb
from shiftbed.results.correlation import correlate


def test_45_synthetic_shifts_by_hand(imagenet):
    table = correlate(imagenet, natural=["imagenet-v2", "ytbb-pm10"]).frame
    assert table["synthetic"].n_unique() == 45
    rho = {
        s: imagenet.judge(imagenet.fit(s, bootstrap=0)).effective
        for s in ("imagenet-v2", "avg_pgd")
    }
    others = (imagenet.models["kind"] != "standard").to_numpy()
    both = others & np.isfinite(rho["imagenet-v2"]) & np.isfinite(rho["avg_pgd"])
    row = table.filter(pl.col("synthetic") == "avg_pgd", pl.col("natural") == "imagenet-v2")
    assert row["r"][0] == pytest.approx(np.corrcoef(*(r[both] for r in rho.values()))[0, 1])
    assert row["n"][0] == both.sum()
    assert (table["low"] <= table["r"]).all()
    assert (table["r"] <= table["high"]).all()


def test_testbeds_without_synthetic_shifts_say_so():
    with pytest.raises(sb.InputError, match="has no synthetic shifts"):
        correlate(sb.published("openclip"), models="all")


def test_the_workflow_gives_a_table(imagenet):
    found = correlate(imagenet, synthetic=["avg_pgd", "greyscale"], natural=["imagenet-v2"])
    rows = found.to_dict()["correlations"]
    (table,) = found.tables()
    assert table.columns == ("synthetic", "imagenet-v2")
    assert [row[1] for row in table.rows] == [f"{row['r']:.2f}" for row in rows]


def test_checkpoints_of_a_run_are_one_unit(imagenet):
    """Every model twice, as two checkpoints: the interval is as wide as with each once."""
    names = {"synthetic": ["avg_pgd"], "natural": ["imagenet-v2"]}
    once = correlate(imagenet, **names)
    runs = pl.concat([imagenet.models["model"]] * 2)
    models = pl.concat([imagenet.models, imagenet.models.with_columns(pl.col("model") + "@2")])
    twice = replace(
        imagenet,
        models=models.with_columns(runs.alias("run"), in_fit_set=models["in_fit_set"]),
        value=np.tile(imagenet.value, (2, 1)),
        n=np.tile(imagenet.n, (2, 1)),
        results={},
    )
    by_run, by_model = correlate(twice, **names), correlate(twice, **names, unit="model")
    width = [float((f.frame["high"] - f.frame["low"])[0]) for f in (once, by_run, by_model)]
    assert by_run.frame["r"][0] == pytest.approx(once.frame["r"][0], abs=1e-6)
    n = once.frame["n"][0]
    assert by_run.frame.select("n", "units").row(0) == (2 * n, n)
    assert width[2] < 0.8 * width[0]
    assert width[1] > 0.8 * width[0]
    assert "too narrow" in by_model.notes[0]
    with pytest.raises(sb.InputError, match="unit"):
        correlate(imagenet, **names, unit="image")
