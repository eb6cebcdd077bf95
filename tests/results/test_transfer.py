"""The transfer grid: means in the stated order, intervals that cover, reasons where none."""

import numpy as np
import polars as pl
import pytest

from shiftbed.errors import InputError
from shiftbed.records import Bits, ImageResults, older_setting
from shiftbed.results.transfer import CLEAN, transfer
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits
from shiftbed.testbed import Testbed
from shiftbed.testbed import testbed_from_store as from_store

SETTINGS = ("test", "test+fog:1", "test+fog:3", "test+snow:2", "test+fog:1@disk")


def bed(right, augmentations, **columns):
    """From right (models, settings, images)."""
    right = np.asarray(right, dtype=bool)
    m = len(right)
    results = {
        setting: ImageResults(
            images="same", bits=Bits.of(right[:, k]), known=np.ones(m, dtype=bool)
        )
        for k, setting in enumerate(SETTINGS)
    }
    names = [f"m{i}" for i in range(m)]
    models = {"model": names, "kind": "standard", "in_fit_set": True, "parent": None}
    return Testbed(
        name="made",
        models=pl.DataFrame(models | {"augmentation": augmentations} | columns),
        settings=SETTINGS,
        value=right.mean(axis=2),
        n=np.full((m, len(SETTINGS)), right.shape[2]),
        shifts=(),
        records={setting: older_setting(setting) for setting in SETTINGS},
        results=results,
    )


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    return rng.random((5, len(SETTINGS), 400)) < rng.uniform(0.3, 0.9, (5, len(SETTINGS), 1))


def cell(grid, trained, tested):
    (row,) = grid.filter(trained_on=trained, tested_on=tested).iter_rows(named=True)
    return row


def test_severities_are_averaged_first_then_models(drawn):
    grid = transfer(bed(drawn, ["none", "fog", "fog", "snow", "none"])).frame
    assert grid["tested_on"].unique(maintain_order=True).to_list() == [CLEAN, "fog", "snow"]
    accuracy = drawn.mean(axis=2)
    row = cell(grid, "fog", "fog")
    assert row["accuracy"] == pytest.approx(accuracy[1:3, 1:3].mean())
    assert row["std"] == pytest.approx(accuracy[1:3, 1:3].mean(axis=1).std(ddof=1))
    assert (row["models"], row["severities"], row["n"]) == (2, 2, 400)
    assert row["note"] == "paired over images"
    gain = accuracy[1:3, 1:3].mean() - accuracy[[0, 4], 1:3].mean()
    assert row["gain"] == pytest.approx(gain)
    assert row["gain_low"] < gain < row["gain_high"]
    assert cell(grid, "none", "fog")["gain"] is None
    assert cell(grid, "snow", CLEAN)["std"] is None


def test_the_interval_is_that_of_a_mean_over_images(drawn):
    grid = transfer(bed(drawn, ["none", "fog", "fog", "snow", "none"]), level=0.9).frame
    per_image = drawn[1:3][:, 1:3].mean(axis=(0, 1))
    half = 1.6448536 * per_image.std(ddof=1) / 20
    row = cell(grid, "fog", "fog")
    assert row["low"] == pytest.approx(per_image.mean() - half)
    assert row["high"] == pytest.approx(per_image.mean() + half)


def test_memory_and_disk_are_not_mixed(drawn):
    made = bed(drawn, ["none", "fog", "fog", "snow", "none"])
    disk = transfer(made, where="disk").frame
    assert disk["tested_on"].unique().sort().to_list() == [CLEAN, "fog"]
    assert cell(disk, "snow", "fog")["accuracy"] == pytest.approx(drawn[3, 4].mean())


def test_only_last_checkpoints_count_where_they_are_known(drawn):
    final = [True, False, True, True, True]
    grid = transfer(bed(drawn, ["none", "fog", "fog", "snow", "none"], final=final)).frame
    assert cell(grid, "fog", "snow")["models"] == 1
    assert cell(grid, "fog", "snow")["accuracy"] == pytest.approx(drawn[2, 3].mean())


def test_from_accuracies_alone_it_is_conservative_and_says_so(drawn):
    made = bed(drawn, ["none", "fog", "fog", "snow", "none"])
    paired = cell(transfer(made).frame, "fog", "fog")
    from dataclasses import replace

    alone = cell(transfer(replace(made, results={})).frame, "fog", "fog")
    assert alone["note"].startswith("conservative")
    assert alone["accuracy"] == pytest.approx(paired["accuracy"])
    assert alone["high"] - alone["low"] > paired["high"] - paired["low"]
    assert alone["gain"] == pytest.approx(paired["gain"])
    assert alone["gain_low"] is None
    unknown = cell(transfer(replace(made, results={}, n=0 * made.n)).frame, "fog", "fog")
    assert unknown["low"] is None
    assert "not known" in unknown["note"]


def test_a_missing_cell_has_a_reason(drawn):
    made = bed(drawn, ["none", "fog", "fog", "snow", "none"])
    value = made.value.copy()
    value[3, 3] = np.nan
    from dataclasses import replace

    grid = transfer(replace(made, value=value)).frame
    row = cell(grid, "snow", "snow")
    assert row["accuracy"] is None
    assert row["models"] == 0
    assert "not computable" in row["note"]
    assert cell(grid, "snow", "fog")["accuracy"] is not None


def test_what_cannot_be_asked(drawn):
    made = bed(drawn, ["none", "fog", "fog", "snow", "none"])
    with pytest.raises(InputError, match="column of models"):
        transfer(made, by="augmentations")
    with pytest.raises(InputError, match="place of corruptions"):
        transfer(made, where="disc")
    with pytest.raises(InputError, match="corrupted test set"):
        transfer(made, clean="tests")
    with pytest.raises(InputError, match="augmentation written down"):
        transfer(bed(drawn, [None] * 5))


def test_from_a_store(tmp_path):
    store = PredictionStore(tmp_path)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 50)
    for setting in ("digits", "digits+fog:2"):
        store.add_test_set(
            StoredTestSet(
                setting=setting,
                examples=tuple(map(str, range(50))),
                labels=labels,
                fingerprint=setting,
                details={"images": "the same"},
            )
        )
        for model in ("none", "fog:2"):
            logits = rng.normal(size=(50, 3)).astype(np.float32)
            store.write_part(model, setting, 0, part_from_logits(logits, labels))
            info = {"augmentation": model, "final": True}
            store.write_cell(model, setting, {"status": "complete", "info": info})
    grid = transfer(from_store(store)).frame
    assert len(grid) == 4
    assert set(grid["n"]) == {50}
    assert cell(grid, "fog:2", "fog")["gain_low"] is not None
