import numpy as np
import polars as pl
import pytest
from scipy.special import expit

import shiftbed as sb
from shiftbed.results.groups import group_table, groups, scale_table


@pytest.fixture(scope="module")
def mixes() -> sb.Testbed:
    """Models trained on A, on B and on mixes: OOD depends on both ID accuracies (shi2023)."""
    rng = np.random.default_rng(0)
    share = np.concatenate([np.zeros(30), np.ones(30), rng.uniform(0.1, 0.9, 30)])
    skill = rng.normal(0, 0.6, 90)
    a, b = skill + 1.2 * (1 - share), skill + 1.2 * share
    ood = 0.5 * a + 0.4 * b - 0.3 + rng.normal(0, 0.03, 90)
    other = 0.3 * a + 0.6 * b - 0.6 + rng.normal(0, 0.03, 90)
    return sb.Testbed(
        name="mixes",
        models=pl.DataFrame(
            {
                "model": [f"m{i}" for i in range(90)],
                "kind": ["standard"] * 90,
                "in_fit_set": [True] * 90,
                "parent": pl.Series([None] * 90, dtype=pl.String),
                "training_data": ["A"] * 30 + ["B"] * 30 + ["A+B"] * 30,
            }
        ),
        settings=("a", "b", "ood", "other"),
        value=expit(np.column_stack([a, b, ood, other])),
        n=np.full((90, 4), 10_000),
        shifts=(
            sb.Shift(name="plane", kind="natural-dataset", source=("a", "b"), target="ood"),
            sb.Shift(name="line", kind="natural-dataset", source=("a",), target="ood"),
        ),
    )


def test_one_id_set_misleads_and_two_do_not(mixes):
    line = group_table(mixes, ["line"], by="training_data")
    plane = group_table(mixes, ["plane"], by="training_data")
    means = {
        name: dict(zip(table["group"], table["mean"], strict=True))
        for name, table in (("line", line), ("plane", plane))
    }
    assert means["line"]["B"] > 0.02
    assert means["line"]["A"] < -0.02
    assert all(abs(value) < 0.005 for value in means["plane"].values())


def test_the_average_row_averages_per_model_first(imagenet):
    table = group_table(imagenet, ["imagenet-v2", "objectnet"])
    rho = imagenet.effective_robustness(["imagenet-v2", "objectnet"])
    per_model = (
        rho.filter(pl.col("kind") == "more-data")
        .group_by("model")
        .agg(pl.col("effective").mean(), pl.len())
        .filter(pl.col("len") == 2)["effective"]
    )
    row = table.filter(pl.col("shift") == "Average", pl.col("group") == "more-data")
    assert row["mean"][0] == pytest.approx(per_model.mean())
    assert row["std"][0] == pytest.approx(per_model.std())
    assert row["n"][0] == len(per_model)


def test_scales(imagenet):
    table = scale_table(imagenet, ["imagenet-v2"], models="all")
    assert table["r2"].round(3).to_list() == [0.984, 0.995, 0.996]
    assert table["n"].to_list() == [201] * 3


def test_unknown_columns_and_too_few_ids(imagenet):
    with pytest.raises(sb.InputError, match="did you mean 'kind'"):
        group_table(imagenet, ["imagenet-v2"], by="knd")
    with pytest.raises(sb.InputError, match="at least two ID settings"):
        groups(imagenet, id=["val"], ood=["greyscale"])


def test_the_workflow_gives_tables_and_json(imagenet, mixes):
    found = groups(imagenet, shift=["imagenet-v2", "objectnet"])
    assert found.to_dict().keys() == {"groups", "scales"}
    table = group_table(imagenet, ["imagenet-v2", "objectnet"])
    assert found.frame.select(table.columns).equals(table)
    own = {"A": "a", "B": "b"}
    both = groups(mixes, id=["a", "b"], ood=["ood"], by="training_data", own_id=own,
                  mixed="training_data=A+B")  # fmt: skip
    assert both.to_dict().keys() == {"fits", "groups", "rank_agreement", "without_mixed"}
    assert [table.rows[0][0] for table in both.tables()] == ["ood"] * 4


def test_a_threshold_is_one_of_the_fit(imagenet):
    """taori2020's figures keep models above 55 %."""
    found = groups(imagenet, shift=["imagenet-v2"], threshold=0.55)
    line = imagenet.fit("imagenet-v2", threshold=0.55, bootstrap=0)
    assert found.frame["r2"][0] == pytest.approx(line.r2)
    assert found.parts["scales"]["n"].to_list() == [line.n] * 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id": ["a", "b"]}, "id and ood go together"),
        ({"own_id": {"A": "a", "B": "b"}}, "need id and ood"),
        ({"id": ["a", "b"], "ood": ["ood"], "shift": ["line"]}, "take no shift"),
        ({"id": ["a", "b"], "ood": ["ood"], "by": "knd"}, "did you mean 'kind'"),
        ({"id": ["a", "b"], "ood": ["ood"], "threshold": 5.0}, "threshold must be a fraction"),
        ({"id": ["a", "b"], "ood": ["ood"], "own_id": {"A": "a"}, "by": "training_data"}, "two or"),
        ({"id": ["a", "b"], "ood": ["ood"], "mixed": "kind!=standard"}, "no mixed model"),
    ],
)
def test_what_cannot_be_honoured_is_refused(mixes, given, message):
    with pytest.raises(sb.InputError, match=message):
        groups(mixes, **given)
