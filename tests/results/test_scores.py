import numpy as np
import polars as pl
import pytest

from shiftbed.errors import InputError
from shiftbed.results.scores import METRICS, scores
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits, part_from_top


@pytest.fixture
def store(tmp_path):
    rng = np.random.default_rng(0)
    store = PredictionStore(tmp_path / "store")
    labels = rng.integers(0, 10, 500)
    store.add_test_set(
        StoredTestSet(
            setting="val",
            examples=tuple(map(str, range(500))),
            labels=labels,
            fingerprint="f",
            label_policy="all 10 classes",
            groups=tuple(np.where(np.arange(500) < 100, "few", "many")),
        )
    )
    logits = rng.normal(0, 1, (500, 10)).astype(np.float32)
    logits[np.arange(500), labels] += 2
    readable = np.ones(500, bool)
    readable[3] = False
    store.write_part(
        "whole", "val", 0, part_from_logits(logits[:300], labels[:300], readable=readable[:300])
    )
    store.write_part("whole", "val", 300, part_from_logits(logits[300:], labels[300:]))
    store.write_cell("whole", "val", {"status": "complete"})
    store.write_part("bare", "val", 0, part_from_top(logits.argmax(axis=1)))
    store.write_cell("bare", "val", {"status": "complete"})
    store.write_cell("broken", "val", {"status": "failed", "error": "x"})
    return store, logits, labels, readable


def test_every_metric_has_a_value_or_a_reason(store):
    bed, logits, labels, readable = store
    table = scores(bed, metrics=METRICS)
    assert set(table["model"]) == {"whole", "bare"}
    missing = table.filter(pl.col("value").is_null())
    assert (missing["note"].str.len_chars() > 0).all()
    assert set(missing["model"]) == {"bare"}
    top1 = table.filter(model="whole", metric="top1").row(0, named=True)
    assert top1["value"] == pytest.approx((logits.argmax(axis=1) == labels)[readable].mean())
    assert (top1["n"], top1["unreadable"]) == (499, 1)
    assert top1["low"] < top1["value"] < top1["high"]
    assert top1["label_policy"] == "all 10 classes"
    bare = table.filter(model="bare", metric="top1").row(0, named=True)
    assert (bare["n"], bare["unreadable"]) == (500, 0)


def test_worst_class_and_group(store):
    bed, logits, labels, readable = store
    table = scores(bed, metrics=["worst_class", "worst_group"], models=["whole"])
    right = (logits.argmax(axis=1) == labels)[readable]
    worst = min(right[labels[readable] == c].mean() for c in range(10))
    assert table["value"][0] == pytest.approx(worst)
    assert table["note"][1].startswith("group ")


def test_multi_label_targets(tmp_path):
    store = PredictionStore(tmp_path)
    store.add_test_set(
        StoredTestSet(
            setting="real",
            examples=("a", "b", "c"),
            labels=np.array([-1, -1, -1]),
            label_sets=((1, 2), (), (0,)),
            fingerprint="f",
        )
    )
    store.write_part("m", "real", 0, part_from_top(np.array([2, 0, 1])))
    store.write_cell("m", "real", {"status": "complete"})
    row = scores(store).row(0, named=True)
    assert (row["value"], row["n"]) == (0.5, 2)


def test_unknown_names(store):
    with pytest.raises(InputError, match="'top1'"):
        scores(store[0], metrics=["top"])
    with pytest.raises(InputError, match="unknown model in the store"):
        scores(store[0], models=["nothing"])
