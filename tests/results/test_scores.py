import numpy as np
import polars as pl
import pytest

from shiftbed.errors import InputError
from shiftbed.results.cell_metrics import METRICS
from shiftbed.results.scores import scores
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits, part_from_top
from shiftbed.store.compact import compact


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


@pytest.mark.parametrize("odd", [False, True], ids=["every image counts", "some do not"])
def test_the_same_of_a_store_in_packs(tmp_path, odd):
    """Cells read and scored together, alone, and out of packs."""
    rng, n = np.random.default_rng(0), 300
    store = PredictionStore(tmp_path)
    for setting in ("val", "ood"):
        labels = rng.integers(-1 if odd else 0, 10, n)
        kept = StoredTestSet(
            setting=setting,
            examples=tuple(map(str, range(n))),
            labels=labels,
            fingerprint=setting,
            classes=10,
            groups=tuple(rng.choice(["a", "b", "c"], n).tolist()),
        )
        store.add_test_set(kept)
        for i in range(12):
            logits = rng.normal(0, 1, (n, 10)).astype(np.float32)
            logits[np.arange(n), labels] += 0.1 * i
            readable = rng.random(n) < 0.9 if odd and i % 2 else None
            part = part_from_logits(logits, labels, readable=readable)
            store.write_part(f"m{i}", setting, 0, part[:200])
            store.write_part(f"m{i}", setting, 200, part[200:])
            store.write_cell(f"m{i}", setting, {"status": "complete"})
    alone = [scores(store, metrics=METRICS, models=[f"m{i}"]) for i in range(12)]
    together = scores(store, metrics=METRICS)
    assert together.sort("model", "setting", "metric").equals(
        pl.concat(alone).sort("model", "setting", "metric")
    )
    assert compact(store).packed == 24
    assert scores(PredictionStore(tmp_path), metrics=METRICS).equals(together)
    assert together.filter(metric="top1")["value"].null_count() == 0
