"""What every result keeps to: a frame, JSON, tables, HTML and a chart, from objects or names."""

import json

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes

import shiftbed as sb
from shiftbed.display import Result
from tests.analysis.test_effects import study as augmented
from tests.results.digits import write_store

PUBLISHED = "imagenet-testbed-2020"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return write_store(tmp_path_factory.mktemp("results") / "store")


@pytest.fixture(scope="module")
def pairs():
    return augmented(np.random.default_rng(0), effect=0.04, sets=8)


CALLS = {
    "similarity": lambda store, pairs: sb.similarity(store, setting="noisy"),
    "estimate": lambda store, pairs: sb.estimate(store, id="clean", ood="noisy"),
    "mix": lambda store, pairs: sb.mix(store, id="clean", ood="noisy"),
    "predictiveness": lambda store, pairs: sb.predictiveness(pairs, bootstrap=100),
    "matrix": lambda store, pairs: sb.predictiveness(
        sb.published(PUBLISHED), show="matrix", bootstrap=100
    ),
    "predictors": lambda store, pairs: sb.predictors(ood=["cifar10.1"], bootstrap=0),
    "factors": lambda store, pairs: sb.factors(
        PUBLISHED, columns="settings", metric=["ood:error"], bootstrap=40
    ),
    "patterns": lambda store, pairs: sb.patterns(pairs, bootstrap=40),
    "effects": lambda store, pairs: sb.effects(
        pairs, column="augmentation", of=["AugMix"], against=["none"]
    ),
    "difficulty": lambda store, pairs: sb.effects(pairs, show="difficulty", bootstrap=100),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_result(name, store, pairs):
    found = CALLS[name](store, pairs)
    assert isinstance(found, Result)
    assert isinstance(found.frame, pl.DataFrame)
    assert len(found.frame)
    assert json.loads(found.to_json()).keys() == found.to_dict().keys()
    shown = str(found)
    for table in found.tables():
        assert table.title in shown
        assert all(len(row) == len(table.columns) for row in table.rows)
    assert found._repr_html_().count("<table") == sum(bool(t.columns) for t in found.tables())
    figure, ax = plt.subplots()
    assert found.plot(ax) is ax
    plt.close(figure)
    alone = found.plot()
    assert isinstance(alone, Axes)
    plt.close(alone.figure)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: sb.effects([], show="head", metric=["x"]), "--metric does not go with"),
        (lambda: sb.effects([], show="heads"), "did you mean 'head'"),
        (lambda: sb.effects([], show="head"), "needs --column with --of and --against"),
        (lambda: sb.predictiveness(PUBLISHED, show="score"), "did you mean 'scores'"),
        (lambda: sb.predictiveness(PUBLISHED, bootstrap=10), "at least 100 resamples"),
        (lambda: sb.predictiveness(PUBLISHED, given="ood:error"), "for itself"),
        (lambda: sb.factors(PUBLISHED, columns="rows"), "unknown kind of columns"),
        (lambda: sb.mix("x.npz", "y.npz", model=["a"]), "needs two --model, got 1"),
        (lambda: sb.estimate("x.npz"), "give an ID and an OOD file"),
    ],
)
def test_what_cannot_be_honoured_is_refused(call, why):
    with pytest.raises(sb.InputError, match=why):
        call()
