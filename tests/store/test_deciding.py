from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.errors import InputError
from shiftbed.labels import class_map, full, subset
from shiftbed.store import UNDECIDED, UNREADABLE, part_from_logits, part_from_top
from shiftbed.store.relabel import decide

CLASSES = 12


@st.composite
def policies(draw):
    """A subset, a map, or a composition of both, of 12 classes."""
    order = draw(st.permutations(range(CLASSES)))
    kind = draw(st.sampled_from(["subset", "max", "max-logit", "mean", "sum", "both", "after"]))
    some = order[: draw(st.integers(1, CLASSES))]
    if kind == "subset":
        return subset(some)
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(some) - 1)), max_size=4)))
    edges = [0, *(cut for cut in cuts if cut < len(some)), len(some)]
    groups = {
        f"t{i}": list(range(a, b) if kind in ("both", "after") else some[a:b])
        for i, (a, b) in enumerate(pairwise(edges))
    }
    how = draw(st.sampled_from(["max", "mean", "sum"])) if kind in ("both", "after") else kind
    mapped = class_map(groups, how=how)
    if kind == "both":
        return subset(some).then(mapped)
    if kind == "after":
        return mapped.then(subset(draw(st.permutations(range(len(groups))))[:1]))
    return mapped


def logits_of(seed, n=40):
    return np.random.default_rng(seed).normal(0, 2, (n, CLASSES)).astype(np.float32)


def expected_of(policy, logits):
    return policy.apply(logits).argmax(axis=1)


@given(policies(), st.integers(0, 10_000))
def test_logits_decide_everything(policy, seed):
    logits = logits_of(seed).astype(np.float16).astype(np.float32)
    part = part_from_logits(logits, np.zeros(len(logits), int), keep_logits=True)
    assert decide(part, policy).tolist() == expected_of(policy, logits).tolist()


@given(policies(), st.integers(0, 10_000), st.integers(1, CLASSES))
def test_best_classes_decide_rightly_or_not_at_all(policy, seed, top):
    logits = logits_of(seed)
    part = part_from_logits(logits, np.zeros(len(logits), int), top=top)
    got = decide(part, policy)
    sure = got != UNDECIDED
    assert (got[sure] == expected_of(policy, logits)[sure]).all()
    if top == CLASSES:
        assert sure.mean() > 0.9


@given(st.sets(st.integers(0, CLASSES - 1), min_size=1), st.integers(0, 1000), st.integers(1, 6))
def test_a_subset_is_undecided_only_if_none_of_the_best_is_inside(inside, seed, top):
    logits = logits_of(seed)
    part = part_from_logits(logits, np.zeros(len(logits), int), top=top)
    best = np.argsort(-logits, axis=1)[:, :top]
    got = decide(part.select(pl.col("^class_.*$")), subset(sorted(inside)))
    assert ((got == UNDECIDED) == ~np.isin(best, list(inside)).any(axis=1)).all()


def test_a_sum_is_decided_by_what_is_left_over():
    """0.5 against 0.3 + at most 0.1 is sure; 0.5 against 0.3 + at most 0.2 is not."""
    groups = class_map({"a": [0], "b": [1, 2, 3]}, how="sum")
    part = pl.DataFrame(
        {
            "class_1": [0, 0, 4],
            "class_2": [1, 1, 5],
            "prob_1": [0.5, 0.5, 0.9],
            "prob_2": [0.4, 0.3, 0.05],
        },
        schema_overrides={"class_1": pl.UInt16, "class_2": pl.UInt16},
    )
    assert decide(part, groups).tolist() == [UNDECIDED, UNDECIDED, UNDECIDED]
    sure = part.with_columns(prob_1=pl.Series([0.6, 0.5, 0.9]), prob_2=pl.Series([0.3, 0.3, 0.05]))
    assert decide(sure, groups).tolist() == [0, UNDECIDED, UNDECIDED]
    mean = class_map({"a": [0], "b": [1, 2, 3]}, how="mean")
    assert decide(part, mean).tolist() == [0, 0, UNDECIDED]


def test_unreadable_examples_stay_unreadable():
    readable = np.array([True, False, True])
    top = part_from_top(np.array([[1, 2], [1, 2], [3, 4]]), readable)
    assert decide(top, subset([2, 9])).tolist() == [0, UNREADABLE, UNDECIDED]
    logits = part_from_logits(
        logits_of(0, 3), np.zeros(3, int), keep_logits=True, readable=readable
    )
    assert decide(logits, full(CLASSES))[1] == UNREADABLE


def test_what_is_missing_is_said():
    top = part_from_top(np.array([[1, 2]]))
    with pytest.raises(InputError, match="logits, or probabilities"):
        decide(top, class_map({"a": [0, 1]}, how="sum"))
    twice = class_map({"a": [0, 1], "b": [2]}, how="sum").then(class_map({"c": [0, 1]}, how="sum"))
    with pytest.raises(InputError, match=r"would need logits$"):
        decide(top, twice)
