"""Tables of similarity: every number with its n and interval, or a reason."""

import numpy as np
import polars as pl
import pytest
from statsmodels.stats.contingency_tables import mcnemar

from shiftbed.analysis.similarity import similarity as count
from shiftbed.errors import InputError
from shiftbed.results.joint_answers import JointAnswers, answers_from_store
from shiftbed.results.similarity import model_table, pair_table, similarity
from tests.results.digits import write_store


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> JointAnswers:
    store = write_store(tmp_path_factory.mktemp("similarity") / "store")
    return answers_from_store(store, "noisy")


def test_pairs(answers):
    frame = pair_table(answers.models, count(answers.right, answers.classes))
    assert len(frame) == 28
    assert (frame["accuracy_a"] >= frame["accuracy_b"]).all()
    at = {name: i for i, name in enumerate(answers.models)}
    for r in frame.iter_rows(named=True):
        a, b = answers.right[at[r["model_a"]]], answers.right[at[r["model_b"]]]
        assert r["dominance"] == pytest.approx((b & ~a).mean())
        table = [[0, (a & ~b).sum()], [(b & ~a).sum(), 0]]
        assert r["p_value"] == pytest.approx(min(1.0, mcnemar(table, exact=True).pvalue))
        assert r["dominance_low"] <= r["dominance"] <= r["dominance_high"]
        assert r["kappa_low"] < r["kappa"] < r["kappa_high"]
        assert r["difference_low"] < r["difference"] < r["difference_high"]
        assert r["p_value"] <= r["q_value"] <= r["p_holm"] + 1e-15
    assert (frame["n"] == answers.n).all()


def test_models_sorted_by_accuracy(answers):
    found = count(answers.right, answers.classes)
    frame = model_table(answers.models, found)
    assert frame["accuracy"].is_sorted(descending=True)
    row = frame.filter(model="model2").row(0, named=True)
    others = np.arange(8) != 2
    assert row["mean_dominance"] == pytest.approx(found.dominance[2, others].mean())
    assert row["mean_kappa"] == pytest.approx(found.kappa[2, others].mean())
    assert frame.null_count().sum_horizontal().item() == 0


def test_always_right_and_identical_models_have_reasons():
    right = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 0], [1, 0, 1, 0]], dtype=bool)
    frame = pair_table("abcd", count(right))
    first, last = frame.row(0, named=True), frame.row(5, named=True)
    assert first["kappa"] is None
    assert "undefined" in first["note"]
    assert last["kappa"] == pytest.approx(1)
    assert last["kappa_low"] is None
    assert "standard error is 0" in last["note"]
    assert frame["agreement"].null_count() == 6
    assert "only right and wrong" in last["note"]
    numbers = frame.select(pl.col(pl.Float64))
    assert not numbers.select(pl.all().is_nan().any()).row(0).count(True)


def test_unsolved_by_model_and_class(answers):
    found = similarity(answers, unsolved=True, baseline=["model[0-3]"])
    frame, by_class = (found.further[name][1] for name in ("unsolved", "unsolved_by_class"))
    assert frame["share"].is_sorted(descending=True)
    nobody = ~answers.right[:4].any(axis=0)
    row = frame.filter(model="model7").row(0, named=True)
    assert (row["solved"], row["n"]) == ((answers.right[7] & nobody).sum(), nobody.sum())
    assert by_class["unsolved"].sum() == nobody.sum()
    assert by_class["n"].sum() == answers.n
    worst = by_class.row(0, named=True)
    here = nobody & (answers.labels == worst["class"])
    solvers = [m for m, r in zip(answers.models, answers.right, strict=True) if (r & here).any()]
    assert worst["solvers"] == ", ".join(solvers)


def test_difficulty_between_groups(answers):
    frame = similarity(answers, difficulty=True).further["difficulty"][1]
    row = frame.row(0, named=True)
    assert (row["models_a"], row["models_b"], row["n"]) == (4, 4, answers.n)
    assert 0.3 < row["low"] < row["spearman"] < row["high"] < 1
    three = {"low": "model[0-3]", "high": "model[4-7]", "first": "model0"}
    assert len(similarity(answers, difficulty=True, group=three).further["difficulty"][1]) == 3


def test_the_result_is_drawn_and_shown(answers):
    found = similarity(answers, pairs=True, most=3)
    assert [len(table.rows) for table in found.tables()] == [3, 3]
    assert "The 3 most accurate of 8 models" in str(found)
    assert found.to_dict()["pairs"] == found.frame.to_dicts()
    assert found.plot().figure.axes


def test_what_cannot_be_compared(answers):
    with pytest.raises(InputError, match="at least two models, got 1"):
        similarity(answers, model=["model1"])
    with pytest.raises(InputError, match="two groups"):
        similarity(answers, difficulty=True, group={"all": "model*"})
    with pytest.raises(InputError, match="--cone goes with --triplets"):
        similarity(answers, cone=2.0)
    with pytest.raises(InputError, match="unknown setting in the answers 'clean'"):
        similarity(answers, setting="clean")
