import numpy as np
import pytest
from scipy.stats import binomtest

from shiftbed.labels import subset
from shiftbed.results.scores import score
from shiftbed.results.twins import twin_table
from shiftbed.store import PredictionStore, StoredTestSet, part_from_top


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
    table = twin_table(store, "val", subset([1, 2]), level=0.9)
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
    scored = score(store, settings=[first["setting"]])
    assert scored["model"].to_list() == ["sure"]  # no accuracy from the decided images alone
    assert scored["value"].to_list() == [70 / 80]
