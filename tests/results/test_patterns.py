"""Patterns of a whole study as a table, and their counts."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import binomtest

from shiftbed.analysis.pairs import PairTable
from shiftbed.errors import InputError
from shiftbed.results.pairs import open_pairs
from shiftbed.results.patterns import accuracy_of, pattern_counts, pattern_table, patterns


def pair(task: str, target: str, y: np.ndarray, metric: str = "error") -> PairTable:
    x = np.linspace(0.1, 0.5, len(y))
    return PairTable(
        task=task,
        source="a",
        target=target,
        models=tuple(f"m{i}" for i in range(len(y))),
        metrics=(f"id:{metric}", f"ood:{metric}"),
        values=np.column_stack([x, y]),
        info={"family": ["cnn", "vit"] * (len(y) // 2), "depth": list(range(len(y)))},
    )


LINE = pair("one", "b", np.linspace(0.3, 0.8, 40) + 0.01 * np.sin(np.arange(40)))
LOST = pair("two", "c", 0.9 - 0.005 * np.cos(np.arange(40)))
FEW = pair("two", "d", np.array([0.5, np.nan]))


def test_a_row_per_pair_and_no_number_is_missing_without_a_reason() -> None:
    found = pattern_table(
        [LINE, LOST, FEW], classes={"two": 10}, images={"a": 5000, "b": 5000}, scale="linear"
    )
    assert found["pattern"].to_list() == ["increasing", "horizontal", "undecided"]
    assert found["chance"].to_list() == [None, 0.1, 0.1]
    assert "chance is unknown" in found["note"][0]
    assert "sizes are unknown" not in found["note"][0]
    assert "sizes are unknown" in found["note"][1]
    assert found["trusted"].to_list() == [True, False, False]
    few = found.row(2, named=True)
    assert few["reason"] == "1 network with both accuracies, at least 10 are needed"
    assert "nothing can be measured" in few["note"]
    assert not any(found.select(pl.col(pl.Float64).is_nan().any()).row(0))


def test_counts_have_exact_intervals() -> None:
    table = pattern_table([LINE, LOST, FEW], bootstrap=0, classes={"": 10}, scale="linear")
    found = pattern_counts(table, 0.9)
    rows = {(r["task"], r["pattern"]): r for r in found.iter_rows(named=True)}
    assert rows["all", "increasing"]["pairs"] == rows["one", "increasing"]["trusted"] == 1
    assert rows["two", "undecided"]["of"] == 2
    exact = binomtest(1, 3).proportion_ci(0.9, "exact")
    assert rows["all", "increasing"]["low"] == pytest.approx(exact.low)
    assert rows["all", "increasing"]["high"] == pytest.approx(exact.high)
    alone = pattern_counts(pattern_table([LINE], bootstrap=0))
    assert alone["task"].unique().to_list() == ["one"]


def test_accuracies_and_errors_are_the_same() -> None:
    right = pair("one", "b", np.linspace(0.2, 0.7, 40), metric="accuracy")
    wrong = PairTable(
        task="one",
        source="a",
        target="b",
        models=right.models,
        metrics=("id:error", "ood:error"),
        values=1 - right.values,
    )
    np.testing.assert_allclose(accuracy_of(right, "ood"), accuracy_of(wrong, "ood"))


def test_networks_are_chosen_by_recipe() -> None:
    (some,) = open_pairs([LINE], only=["family=vit", "depth!=1"])
    assert some.models[:2] == ("m3", "m5")
    assert len(some.models) == 19
    np.testing.assert_array_equal(some.values, LINE.values[3::2])
    assert open_pairs([LINE])[0].models == LINE.models
    with pytest.raises(InputError, match="say COLUMN=PATTERN"):
        open_pairs([LINE], only=["all"])
    with pytest.raises(InputError, match="no network has model=q"):
        open_pairs([LINE], only=["model=q*"])


def test_what_cannot_be_classified() -> None:
    with pytest.raises(InputError, match=r"no .ID, OOD. pair"):
        pattern_table([])
    with pytest.raises(InputError, match="unknown recipe column"):
        pattern_table([LINE], groups="width")
    with pytest.raises(InputError, match="unknown metric"):
        pattern_table([pair("t", "b", np.linspace(0.2, 0.7, 12), metric="nll")])


def test_a_study_of_pairs_in_memory() -> None:
    found = patterns([LINE, LOST], classes={"two": 10}, images={"a": 5000, "b": 5000}, bootstrap=40)
    assert found.frame["pattern"].to_list() == ["increasing", "horizontal"]
    assert found.to_dict()["counts"] == found.counts.to_dicts()
    assert [len(table.rows) for table in found.tables()] == [2, len(found.counts), 2]
    counts = found.chart("counts")
    assert counts.values.sum() == 2
    assert found.plot(draw="counts").get_ylabel() == "(ID, OOD) pairs"
    for wrong, why in (
        ({"classes": 1}, "classes: expected a whole number of at least 2"),
        ({"classes": {"three": 5}}, "unknown task 'three'"),
        ({"images": {"b": 0}}, "images: expected a whole number of at least 1"),
    ):
        with pytest.raises(InputError, match=why):
            patterns([LINE, LOST], **wrong)
