import numpy as np
import pytest

from shiftbed.labels import subset
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
    assert len(clean_store(store).frame) == 1
    assert verify_store(store).whole


def test_twins_of_a_setting(store):
    found = twins(store, "val", subset([1, 3]))
    assert found.decided
    assert found.frame["value"].to_list() == [1.0]
    assert found.frame["n"].to_list() == [10]
    assert found.to_dict()["policy"] == "subset of 2 classes, logits sliced before argmax"
