"""``rank`` with a handful of models and few images: intervals hold their own estimates."""

import numpy as np
import polars as pl
import pytest

import shiftbed as sb
from shiftbed.records import Shift


@pytest.mark.parametrize("seed", range(12))
def test_an_interval_has_its_estimate_or_is_withheld(seed, tmp_path):
    """Three to five models on 60 to 1,000 images that share their difficulty."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.choice([60, 200, 1000])), int(rng.choice([3, 4, 5]))
    labels, names = rng.integers(0, 10, n), [f"m{i}" for i in range(m)]
    for setting, factor in (("val", 0.95), ("v2", 0.8)):
        hard = rng.random(n)
        rates = rng.uniform(0.5, 0.9, m) * factor
        right = [0.7 * hard + 0.3 * rng.random(n) < rate for rate in rates]
        top1 = np.where(right, labels, (labels + 1) % 10)
        np.savez(tmp_path / f"{setting}.npz", models=names, top1=top1, labels=labels)
    shift = Shift(name="s", kind="natural-dataset", source=("val",), target="v2")
    files = [tmp_path / "val.npz", tmp_path / "v2.npz"]
    found = sb.rank(sb.import_results(files, shifts=[shift])).frame
    assert len(found) == m
    assert found["effective"].is_finite().all()
    outside = found.filter(
        (pl.col("low") > pl.col("effective") + 1e-12)
        | (pl.col("high") < pl.col("effective") - 1e-12)
    )
    assert not len(outside), outside.select("model", "effective", "low", "high").rows()
    assert not found["trusted"].any()  # three to five models are too few for a line to rely on
