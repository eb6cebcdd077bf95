"""Single-ID against multi-ID (shi2023) on generated studies, beside plain numpy."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, logit
from scipy.stats import kendalltau

import shiftbed as sb
from shiftbed.results.groups import groups
from shiftbed.results.single_and_multi import (
    _jackknife,
    id_groups,
    rank_agreement,
    single_and_multi,
    without_mixed,
)
from tests.cli.in_process import shiftbed
from tests.results.test_groups import mixes

__all__ = ["mixes"]


def test_fit_quality(mixes):
    table = single_and_multi(mixes, ["a", "b"], ["ood", "other"])
    assert table["evaluation"].to_list() == ["single-ID", "single-ID", "multi-ID"] * 2
    for target in ("ood", "other"):
        rows = table.filter(pl.col("ood") == target)
        multi = rows.filter(pl.col("evaluation") == "multi-ID")
        assert multi["r2"][0] == rows["r2"].max()
        assert multi["mae"][0] == rows["mae"].min()
        assert multi["r2"][0] > 0.99


def test_rank_agreement_by_hand(mixes):
    table = rank_agreement(mixes, {"A": "a", "B": "b"}, ["ood"])
    multi = mixes.judge(mixes.fit("plane", bootstrap=0)).effective[:30]
    single = mixes.judge(mixes.fit("line", bootstrap=0)).effective[:30]
    assert table["group"].to_list() == ["A", "B"]
    assert table["tau"][0] == pytest.approx(kendalltau(single, multi).statistic)
    assert table["n"].to_list() == [30, 30]


def test_perfect_agreement_has_no_interval():
    for without in ([0.5, 0.6, 1.0], [1.0, 1.0, 1.0], [0.5, float("nan"), 0.6]):
        assert np.isnan(_jackknife(0.9, without, 0.95)).all()
    low, high = _jackknife(0.5, [0.45, 0.5, 0.55], 0.95)
    assert -1 < low < 0.5 < high < 1


def test_leaving_the_mixed_models_out(mixes):
    table = without_mixed(mixes, ["a", "b"], ["ood"], "training_data=A+B")
    row = table.row(0, named=True)
    assert (row["n_fitted"], row["n_mixed"]) == (60, 30)
    assert row["mae_fitted"] < row["mae_left_out"] * 1.05
    assert row["mae_left_out"] < 0.02


@pytest.fixture(scope="module")
def study(mixes) -> sb.Testbed:
    """The same with models that are not fitted: downloaded ones, and half of the mixed."""
    rng = np.random.default_rng(1)
    names = [f"d{i}" for i in range(12)]
    x = rng.normal(0.4, 0.5, (12, 2))
    y = np.column_stack([x @ w - b for w, b in (((0.5, 0.4), 0.1), ((0.3, 0.6), 0.9))])
    more = pl.DataFrame(
        {
            "model": names,
            "kind": ["downloaded"] * 12,
            "in_fit_set": [False] * 12,
            "parent": pl.Series([None] * 12, dtype=pl.String),
            "training_data": ["C"] * 12,
        }
    )
    fitted = pl.Series([True] * 75 + [False] * 15)
    return replace(
        mixes,
        models=pl.concat([mixes.models.with_columns(in_fit_set=fitted), more]),
        value=np.vstack([mixes.value, expit(np.column_stack([x, y]))]),
        n=np.full((102, 4), 10_000),
    )


def reference(value, fitted, columns, target):
    """ρ and R² by least squares on logits, with nothing but numpy."""
    x = np.column_stack([np.ones(len(value)), logit(value[:, columns])])
    y = logit(value[:, target])
    w = np.linalg.lstsq(x[fitted], y[fitted], rcond=None)[0]
    left = y[fitted] - x[fitted] @ w
    r2 = 1 - (left @ left) / ((y[fitted] - y[fitted].mean()) ** 2).sum()
    return value[:, target] - expit(x @ w), r2


def test_groups_are_those_of_plain_numpy(study):
    found = groups(study, id=["a", "b"], ood=["ood", "other"], by="training_data")
    table = found.parts["groups"]
    fitted = study.models["in_fit_set"].to_numpy()
    data = study.models["training_data"].to_numpy()
    places = {"a": [0], "b": [1], "a + b": [0, 1]}
    seen = 0
    for id, columns in places.items():
        rho, r2 = zip(*(reference(study.value, fitted, columns, t) for t in (2, 3)), strict=True)
        rho = np.stack([*rho, np.mean(rho, axis=0)])
        size = np.stack([*np.abs(rho[:2]), np.mean(np.abs(rho[:2]), axis=0)])
        for at, ood in enumerate(("ood", "other", "Average")):
            for group in ("A", "B", "A+B", "C"):
                for used in (True, False):
                    own = (data == group) & (fitted == used)
                    row = table.filter(id=id, ood=ood, group=group, fitted=used)
                    assert len(row) == int(own.any())
                    if not own.any():
                        continue
                    seen += 1
                    one = row.row(0, named=True)
                    assert one["mean"] == pytest.approx(rho[at][own].mean(), abs=1e-12)
                    assert one["sd"] == pytest.approx(rho[at][own].std(ddof=1), abs=1e-12)
                    assert one["mae"] == pytest.approx(size[at][own].mean(), abs=1e-12)
                    assert one["n"] == own.sum()
                    if used and ood != "Average":
                        assert one["r2"] == pytest.approx(r2[at])
                    else:
                        assert one["r2"] is None
                    assert one["low"] < one["mean"] < one["high"]
    assert seen == len(table) == 3 * 3 * 5
    for row in found.parts["fits"].iter_rows(named=True):
        target = {"ood": 2, "other": 3}[row["ood"]]
        rho, r2 = reference(study.value, fitted, places[row["id"]], target)
        assert row["r2"] == pytest.approx(r2)
        assert row["mae"] == pytest.approx(np.abs(rho[fitted]).mean())
        assert row["n"] == 75


def test_one_ood_setting_has_no_average(study):
    assert set(id_groups(study, ["a", "b"], ["ood"])["ood"]) == {"ood"}


def test_models_below_the_threshold_are_nowhere(study):
    """shi2023 discards models below 5 % on ImageNet: the first ID setting, in every fit."""
    least = float(np.quantile(study.accuracy("a"), 0.2))
    found = groups(study, id=["a", "b"], ood=["ood"], by="training_data", threshold=least)
    kept = study.where(study.accuracy("a") >= least)
    assert found.parts["groups"].equals(id_groups(kept, ["a", "b"], ["ood"]))
    assert found.parts["fits"].equals(single_and_multi(kept, ["a", "b"], ["ood"]))
    below = int((study.accuracy("a") < least).sum())
    assert found.notes == (f"{below} models below {least:g} on a are left out.",)


def test_all_fits_are_of_the_same_models(study):
    value = study.value.copy()
    value[:3, 1] = np.nan
    found = groups(replace(study, value=value), id=["a", "b"], ood=["ood"])
    assert found.parts["fits"]["n"].to_list() == [72] * 3
    assert "3 models lack an accuracy on an ID setting" in found.notes[0]


def test_json_of_the_command(study, tmp_path):
    from shiftbed.testbed import write_testbed

    write_testbed(study, tmp_path / "study.parquet")
    done = shiftbed("groups", "--testbed", "study.parquet", "--by", "training_data",
               "--id", "a", "--id", "b", "--ood", "ood", "--threshold", "0.05",
               "--own-id", "A=a", "--own-id", "B=b", "--mixed", "training_data=A+B",
               "--json", cwd=tmp_path)  # fmt: skip
    found = json.loads(done.stdout)
    assert found.keys() == {"fits", "groups", "rank_agreement", "without_mixed"}
    assert {"group", "id", "fitted", "mean", "sd", "mae", "n"} <= found["groups"][0].keys()
    assert len(found["groups"]) == 15
