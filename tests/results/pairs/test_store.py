import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.results.pairs import open_pairs, pairs_from_store
from shiftbed.results.scores import scores
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits, part_from_top

SETTINGS = (
    "photo",
    "photo+fog:1",
    "photo+fog:5",
    "photo+snow:3",
    "photo+fog:1@disk",
    "photo+pgd-linf:2/255",
    "photo+apgd-l2:0.02",
    "photo@share-0.1+pgd-l2:0.5",
    "sketch",
    "sketch@share-0.1+pgd-l2:0.5",
    "art",
)


@pytest.fixture
def store(tmp_path):
    rng = np.random.default_rng(0)
    store = PredictionStore(tmp_path / "store")
    for s, setting in enumerate(SETTINGS):
        labels = rng.integers(0, 6, 120)
        examples = tuple(map(str, range(120)))
        store.add_test_set(
            StoredTestSet(setting=setting, examples=examples, labels=labels, fingerprint=setting)
        )
        for m, model in enumerate("abcd"):
            logits = rng.normal(0, 1, (120, 6)).astype(np.float32)
            logits[np.arange(120), labels] += 0.5 + 0.5 * m - 0.05 * s
            store.write_part(model, setting, 0, part_from_logits(logits, labels))
            record = {"status": "complete", "info": {"kind": "standard"}}
            _, plus, done = setting.partition("+")  # as cells of stores without records have it
            if plus and not done.endswith("@disk"):
                kind = "adversarial" if "pgd" in done else "corruption"
                record["perturbation"] = {"id": done, "kind": kind}
            store.write_cell(model, setting, record)
    shifts = [
        {"name": "sketch", "kind": "natural-dataset", "source": ["photo"], "target": "sketch"},
        {"name": "art", "kind": "natural-dataset", "source": ["photo"], "target": "art"},
        {"name": "fog", "kind": "corruption", "source": ["photo"], "target": "photo+fog:1"},
    ]
    shifts[0]["task"] = "PACS"
    shifts[1]["task"] = "PACS"
    models = {
        m: {"augmentation": g, "epochs": i}
        for i, (m, g) in enumerate(zip("abcd", "xyxy", strict=True))
    }
    store.write_about({"name": "mine", "shifts": shifts, "models": models})
    return store


def accuracy(store, setting):
    frame = scores(store, settings=[setting]).sort("model")
    return frame["value"].to_numpy()


def test_every_metric_of_a_store(store):
    pairs = pairs_from_store(store)
    assert [p.name for p in pairs] == ["PACS: photo → sketch", "PACS: photo → art"]
    sketch = pairs[0]
    assert sketch.models == ("a", "b", "c", "d")
    for metric in ("error", "top5_error", "nll", "brier", "ece", "disparity", "worst_class_error"):
        assert np.isfinite(sketch.column(f"id:{metric}")).all()
        assert np.isfinite(sketch.column(f"ood:{metric}")).all()
    assert "id:worst_group_error" not in sketch.metrics  # no groups, so not measured
    assert np.allclose(sketch.column("ood:error"), 1 - accuracy(store, "sketch"))
    assert np.allclose(sketch.column("held-out:error"), 1 - accuracy(store, "art"))
    assert sketch.info["augmentation"] == ["x", "y", "x", "y"]
    assert sketch.info["epochs"] == [0.0, 1.0, 2.0, 3.0]


def test_severities_first_then_corruptions_and_disk_stays_apart(store):
    sketch = pairs_from_store(store)[0]
    fog = (accuracy(store, "photo+fog:1") + accuracy(store, "photo+fog:5")) / 2
    snow = accuracy(store, "photo+snow:3")
    assert np.allclose(sketch.column("corrupted:error"), 1 - (fog + snow) / 2)
    disk = accuracy(store, "photo+fog:1@disk")
    assert np.allclose(sketch.column("corrupted:error@disk"), 1 - disk)
    assert np.isfinite(sketch.column("corrupted:nll")).all()


def test_attacks_on_the_whole_set_before_attacks_on_a_share(store):
    sketch = pairs_from_store(store)[0]
    whole = [accuracy(store, s) for s in ("photo+pgd-linf:2/255", "photo+apgd-l2:0.02")]
    assert np.allclose(sketch.column("id:adversarial"), 1 - np.mean(whole, axis=0))
    share = accuracy(store, "sketch@share-0.1+pgd-l2:0.5")
    assert np.allclose(sketch.column("ood:adversarial"), 1 - share)


def test_open_finds_the_store_and_the_testbeds_name_is_the_task(store):
    about = store.about()
    for shift in about["shifts"]:
        shift.pop("task", None)
    store.write_about(about)
    pairs = open_pairs(store.files.root)
    assert {p.task for p in pairs} == {"mine"}


def test_cells_without_probabilities_stay_missing(store):
    store.remove("a", "sketch")
    store.write_part("a", "sketch", 0, part_from_top(np.zeros(120, dtype=np.int64)))
    store.write_cell("a", "sketch", {"status": "complete"})
    sketch = pairs_from_store(store)[0]
    assert np.isnan(sketch.column("ood:nll")[0])
    assert np.isfinite(sketch.column("ood:nll")[1:]).all()
    assert np.isfinite(sketch.column("ood:error")).all()


def test_a_store_without_shifts_is_refused(store):
    store.write_about({"name": "mine"})
    with pytest.raises(InputError, match="no shift whose settings are complete"):
        pairs_from_store(store)


def test_attacks_of_several_sizes_are_columns_apart(store):
    sizes = {"pgd-linf:2/255", "apgd-l2:0.02"}
    apart, mean = (open_pairs(store, attacks=how)[0] for how in ("apart", "mean"))
    named = {name.partition("@")[2] for name in apart.metrics if name.startswith("id:adversarial")}
    assert named == sizes
    assert "id:adversarial" in mean.metrics
    assert not any("adversarial@" in name for name in mean.metrics)
    each = [apart.column(f"id:adversarial@{size}") for size in sorted(sizes)]
    assert np.allclose(np.mean(each, axis=0), mean.column("id:adversarial"))
    with pytest.raises(InputError, match="unknown attacks"):
        open_pairs(store, attacks="each")
