import numpy as np
import pytest
from scipy.stats import binomtest

from shiftbed.labels import subset
from shiftbed.results.scores import score
from shiftbed.results.stores import clean_store, twins, verify_store
from shiftbed.store import PredictionStore, StoredTestSet, part_from_top


@pytest.fixture
def store(tmp_path):
    made = PredictionStore(tmp_path / "store")
    labels = np.repeat([1, 2], 10)
    made.add_test_set(
        StoredTestSet(
            setting="val",
            examples=tuple(map(str, range(20))),
            labels=labels,
            fingerprint="f",
            label_policy="all 10 classes",
            classes=10,
        )
    )
    made.write_part("m", "val", 0, part_from_top(np.stack([labels, labels % 2 + 1], axis=1)))
    made.write_cell("m", "val", {"status": "complete"})
    return made


def test_a_store_is_checked_and_cleaned(store, tmp_path):
    assert verify_store(store).whole
    (orphan,) = [p for p in (tmp_path / "store").rglob("*.parquet") if "predictions" in str(p)]
    stray = orphan.parents[1] / "of-no-cell" / orphan.name
    stray.parent.mkdir()
    stray.write_bytes(orphan.read_bytes())
    found = verify_store(str(tmp_path / "store"))
    assert not found.whole
    assert found.to_dict()["problems"][0]["kind"] == "orphan"
    assert "1 problem" in str(found)
    assert len(clean_store(store, minimum_age=0).frame) == 1
    assert verify_store(store).whole


def test_twins_of_a_setting(store):
    found = twins(store, "val", subset([1, 3]))
    assert found.decided
    assert found.frame["value"].to_list() == [1.0]
    assert found.frame["n"].to_list() == [10]
    assert found.to_dict()["policy"] == "subset of 2 classes, logits sliced before argmax"


def test_bounds_and_intervals(tmp_path):
    store = PredictionStore(tmp_path)
    labels = np.repeat([1, 2, 5], 40)
    store.add_test_set(
        StoredTestSet(
            setting="val", examples=tuple(map(str, range(120))), labels=labels, fingerprint="f"
        )
    )
    sure = np.stack([labels, labels], axis=1)
    sure[:10] = [2, 1]
    unsure = sure.copy()
    unsure[:15] = [7, 8]
    for model, best in (("sure", sure), ("unsure", unsure)):
        store.write_part(model, "val", 0, part_from_top(best))
        store.write_cell(model, "val", {"status": "complete"})
    table = twins(store, "val", subset([1, 2]), level=0.9).frame
    first, second = table.iter_rows(named=True)
    assert first["value"] == first["at_least"] == first["at_most"] == 70 / 80
    exact = binomtest(70, 80).proportion_ci(0.9, "exact")
    assert (first["low"], first["high"]) == pytest.approx((exact.low, exact.high))
    assert second["value"] is None
    assert (second["at_least"], second["at_most"]) == (65 / 80, 80 / 80)
    assert (second["undecided"], second["n"]) == (15, 80)
    assert second["low"] == pytest.approx(binomtest(65, 80).proportion_ci(0.9, "exact").low)
    assert second["high"] == 1.0
    assert "15 of 80 examples are not decided by the top-2" in second["note"]
    scored = score(store, settings=[first["setting"]]).frame
    assert scored["model"].to_list() == ["sure"]  # no accuracy from the decided images alone
    assert scored["value"].to_list() == [70 / 80]
