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
