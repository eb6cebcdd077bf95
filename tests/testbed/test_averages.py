"""Means of settings: as the shipped testbed has them, and on stores of one's own."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import shiftbed as sb
from shiftbed.catalogue.test_sets import CORRUPTIONS
from shiftbed.evaluation.attacks import PRESET_GROUPS, PRESETS
from shiftbed.evaluation.perturbations import spelled_out
from shiftbed.records import Perturbation, Setting, Shift
from shiftbed.results.correlation import correlate
from shiftbed.store import PredictionStore, StoredTestSet, part_from_top
from shiftbed.testbed import read_testbed, write_testbed
from shiftbed.testbed import testbed_from_store as from_store
from shiftbed.testbed.averages import PGD, with_averages


def corrupted(name, severity=None, *, disk=False, clean=None):
    id = name if severity is None else f"{name}:{severity}"
    what = Perturbation(
        kind="adversarial" if name.startswith("pgd") else "corruption",
        name=name.partition(":")[0],
        id=id,
        severity=severity,
        on_disk=disk,
    )
    return (clean or Setting(test_set="val")).perturbed(what)


def bed_of(settings, models=12, seed=0):
    rng = np.random.default_rng(seed)
    records = {one.id: one for one in settings}
    names = ("val", *records)
    return sb.Testbed(
        name="own",
        models=pl.DataFrame(
            {
                "model": [f"m{i}" for i in range(models)],
                "kind": ["standard"] * models,
                "in_fit_set": [True] * models,
                "parent": pl.Series([None] * models, dtype=pl.String),
            }
        ),
        settings=names,
        value=rng.uniform(0.1, 0.9, (models, len(names))),
        n=np.tile(1000 + np.arange(len(names)), (models, 1)),
        records=records,
    )


def test_the_shipped_averages_come_out_of_their_parts(imagenet):
    """taori2020's testbed without its means, and with those that its records give."""
    base = [s for s in imagenet.settings if s not in imagenet.derived]
    at = [imagenet.setting_index(s) for s in base]
    names = ("pgd.linf.eps0.5", "pgd.linf.eps2", "pgd.l2.eps0.1", "pgd.l2.eps0.5")
    attacks = {
        old: replace(corrupted(f"{new}?keep=last"), name=old)
        for old, new in zip(names, PGD, strict=True)
    }
    plain = replace(
        imagenet,
        settings=tuple(base),
        value=imagenet.value[:, at],
        n=imagenet.n[:, at],
        derived={},
        records={**imagenet.records, **attacks},
        shifts=tuple(s for s in imagenet.shifts if s.target in base),
    )
    found = with_averages(plain)
    pairs = {
        "val+fog": "fog_in-memory",
        "val+glass_blur@disk": "glass_blur_on-disk",
        "val+avg_38_corruptions": "avg_corruptions",
        "val+avg_pgd": "avg_pgd",
    }
    for own, shipped in pairs.items():
        np.testing.assert_allclose(found.accuracy(own), imagenet.accuracy(shipped), rtol=1e-12)
        ours, theirs = found.fit(own, bootstrap=0), imagenet.fit(shipped, bootstrap=0)
        assert ours.lines[0].weights == pytest.approx(theirs.lines[0].weights)
        assert (ours.r2, ours.n) == (pytest.approx(theirs.r2), theirs.n)
        assert found.shift(own).kind == imagenet.shift(shipped).kind
    assert len(found.derived["val+avg_corruptions"]) == 19
    assert len(found.derived["val+avg_corruptions@disk"]) == 19
    assert len(found.derived["val+avg_39_corruptions"]) == 39
    both = [found.accuracy(f"val+avg_corruptions{place}") for place in ("", "@disk")]
    whole = found.accuracy("val+avg_38_corruptions")
    np.testing.assert_allclose(np.mean(both, axis=0), whole, rtol=1e-12)
    r = correlate(found, synthetic=["val+avg_pgd"], natural=["imagenet-v2"]).frame["r"][0]
    assert r == pytest.approx(
        correlate(imagenet, synthetic=["avg_pgd"], natural=["imagenet-v2"]).frame["r"][0]
    )


def test_the_papers_set_alone_has_its_name():
    """A type or a severity short, and the average says how many it is of."""
    types = [name for name in CORRUPTIONS if name != "glass_blur"]
    whole = [corrupted(name, s) for name in types for s in range(1, 6)] + [
        corrupted("greyscale", 1)
    ]
    bed = with_averages(bed_of(whole))
    parts = [np.mean([bed.accuracy(f"val+{n}:{s}") for s in range(1, 6)], axis=0) for n in types]
    parts.append(bed.accuracy("val+greyscale:1"))
    np.testing.assert_allclose(bed.accuracy("avg_corruptions"), np.mean(parts, axis=0))
    assert bed.records["val+avg_corruptions"].kind == "corruption"
    assert len(bed.records["val+avg_corruptions"].mean_of) == 19
    assert bed.usual_size("val+fog") == min(bed.usual_size(f"val+fog:{s}") for s in range(1, 6))
    fewer = with_averages(bed_of([one for one in whole if one.perturbation.id != "fog:2"]))
    assert "val+avg_corruptions" not in fewer.settings
    assert len(fewer.derived["val+avg_17_corruptions"]) == 17
    assert fewer.derived["val+fog:1,3,4,5"] == ("val+fog:1", "val+fog:3", "val+fog:4", "val+fog:5")


def test_the_short_name_of_a_run_gives_the_papers_set():
    asked = [one.rpartition(":") for one in spelled_out(["taori2020"])]
    bed = with_averages(bed_of([corrupted(name, int(severity)) for name, _, severity in asked]))
    assert len(bed.derived["val+avg_corruptions"]) == 19


def test_memory_and_disk_never_meet_in_a_corruption():
    both = [corrupted("fog", s, disk=disk) for s in range(1, 6) for disk in (False, True)]
    bed = with_averages(bed_of(both))
    assert set(bed.derived) == {"val+fog", "val+fog@disk"}
    assert all("@disk" not in part for part in bed.derived["val+fog"])
    assert bed.title_of("val+fog@disk").endswith("fog, on disk")


def test_single_severities_and_unknown_corruptions():
    bed = with_averages(bed_of([corrupted("fog", 3), corrupted("snow", 3), corrupted("mine")]))
    assert bed.derived == {"val+avg_2_corruptions:3": ("val+fog:3", "val+snow:3")}
    assert with_averages(bed_of([corrupted("mine"), corrupted("yours")])).derived == {}


def test_attacks_are_averaged_with_the_options_they_share():
    as_run = [corrupted(PRESETS[name].id) for name in PRESET_GROUPS["taori2020"]]
    fewer = [corrupted(f"{name}?steps=9") for name in PGD[:3]]
    bed = with_averages(bed_of([*as_run, *(corrupted(name) for name in PGD), *fewer]))
    assert set(bed.derived) == {"val+avg_pgd", "val+avg_pgd?keep=worst"}
    parts = [bed.accuracy(f"val+{PRESETS[name].id}") for name in PRESET_GROUPS["taori2020"]]
    np.testing.assert_allclose(bed.accuracy("avg_pgd"), np.mean(parts, axis=0))
    assert bed.shift("avg_pgd").kind == "adversarial"
    share = Setting(test_set="val", share=0.1)
    assert "val@share-0.1" not in bed.settings
    assert with_averages(bed_of([corrupted(name, clean=share) for name in PGD])).derived == {}


def test_files_keep_them(tmp_path):
    bed = with_averages(bed_of([corrupted("fog", s) for s in range(1, 6)]))
    write_testbed(bed, tmp_path / "own.parquet")
    again = read_testbed(tmp_path / "own.parquet")
    assert again.derived == bed.derived
    np.testing.assert_allclose(again.accuracy("val+fog"), bed.accuracy("val+fog"))
    assert again.records["val+fog"] == bed.records["val+fog"]
    assert with_averages(again).settings == again.settings


@pytest.fixture
def store(tmp_path):
    """Six models, 200 images, two corruptions at five severities."""
    rng = np.random.default_rng(3)
    store = PredictionStore(tmp_path / "store")
    labels = rng.integers(0, 4, 200)
    names = [Setting(test_set="val")]
    names += [corrupted(name, s) for name in ("fog", "snow") for s in range(1, 6)]
    names += [Setting(test_set="other")]
    for record in names:
        store.add_test_set(
            StoredTestSet(
                setting=record.id,
                record=record,
                examples=tuple(map(str, range(200))),
                labels=labels,
                fingerprint=record.id,
                label_policy="all 4 classes",
                classes=4,
                details={"images": "val"} if record.test_set == "val" else {},
            )
        )
        for model in range(6):
            severity = 0 if record.perturbation is None else record.perturbation.severity
            wrong = rng.uniform(size=200) < 0.1 + 0.05 * model + 0.04 * severity
            best = np.where(wrong, (labels + 1) % 4, labels)
            store.write_part(f"m{model}", record.id, 0, part_from_top(best))
            info = {"kind": "standard" if model < 3 else "intervention"}
            info |= {"in_fit_set": model < 3}
            store.write_cell(f"m{model}", record.id, {"status": "complete", "info": info})
    shift = {"name": "other", "kind": "natural-dataset", "source": ["val"], "target": "other"}
    store.write_about({"name": "own", "shifts": [shift]})
    return store


def test_a_store_of_ones_own_has_them(store):
    bed = from_store(store)
    for name in ("fog", "snow"):
        parts = [bed.accuracy(f"val+{name}:{s}") for s in range(1, 6)]
        np.testing.assert_allclose(bed.accuracy(f"val+{name}"), np.mean(parts, axis=0))
    both = np.mean([bed.accuracy("val+fog"), bed.accuracy("val+snow")], axis=0)
    np.testing.assert_allclose(bed.accuracy("avg_2_corruptions"), both)
    line = bed.fit("avg_2_corruptions", bootstrap=0)
    assert (line.id_settings, line.n) == (("val",), 3)
    found = correlate(store, synthetic=["avg_2_corruptions"], natural=["other"]).frame
    assert found["n"].to_list() == [3]
    chart = sb.plot(store, "other", chart="synthetic", against="fog", ax=None)
    assert chart.get_xlabel() == f"ρ on {bed.title_of('val+fog')} (points)"


def test_a_mean_is_about_the_models_that_its_id_sets_shifts_are_about():
    """The corruptions of a domain are asked of the networks trained on it, as its OOD sets are."""
    bed = bed_of([corrupted("fog", 3), corrupted("snow", 3)])
    about = {"kind": "natural-dataset", "source": ("val",), "task": "t", "validation": "checked"}
    one, two = (
        Shift(name=f"to-{i}", target=f"ood-{i}", fit_on="training_data=t/val", **about)
        for i in range(2)
    )
    (mean,) = with_averages(replace(bed, shifts=(one, two))).shifts[2:]
    assert mean.target == "val+avg_2_corruptions:3"
    assert (mean.trained_on, mean.task, mean.validation) == ("t/val", "t", "checked")
    other = replace(two, fit_on="training_data=t/other")
    (mean,) = with_averages(replace(bed, shifts=(one, other))).shifts[2:]
    assert (mean.trained_on, mean.task, mean.validation) == (None, "", "")
