"""Estimates without labels, judged where labels exist, from a store with probabilities."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from shiftbed.errors import InputError
from shiftbed.results.estimate import METHODS, estimate
from shiftbed.results.joint_answers import answers_from_store
from shiftbed.results.label_free import rehearsal
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits
from tests.results.digits import write_store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return write_store(tmp_path_factory.mktemp("label_free") / "store")


@pytest.fixture(scope="module")
def sides(store):
    return [answers_from_store(store, name, scores=True) for name in ("clean", "noisy")]


def test_every_method_is_judged_beside_the_others(sides):
    found = estimate(*sides)
    assert found.not_computable == {}
    assert found.errors["method"].to_list() == list(METHODS)
    assert (found.errors["models"] == 8).all()
    for method, mae in found.errors.select("method", "mae").iter_rows():
        off = found.frame.filter(method=method).select("estimate", "truth").to_numpy()
        assert mae == pytest.approx(np.abs(off[:, 0] - off[:, 1]).mean())
        assert mae < 0.2
    truth = dict(zip(sides[1].models, sides[1].right.mean(axis=1), strict=True))
    for r in found.frame.iter_rows(named=True):
        assert r["truth"] == pytest.approx(truth[r["model"]])
        assert r["error"] == pytest.approx(r["estimate"] - r["truth"])
        assert (r["n_id"], r["n_ood"]) == (sides[0].n, sides[1].n)
        withheld = r["method"] in ("ID", "ALine-S", "ALine-D")
        assert r["low"] is None if withheld else r["low"] < r["estimate"] < r["high"]
        assert r["interval"] == (None if withheld else "independent")
        assert r["method"] != "ID" or "no interval" in r["note"]
    assert "agreement-on-the-line has no interval" in found.flags[0]
    assert found.to_dict()["flags"] == list(found.flags)


def test_the_estimates_do_not_see_the_labels(store, sides, tmp_path):
    bare = write_store(tmp_path / "bare", labelled=False)
    unlabelled = answers_from_store(bare, "noisy", scores=True, unlabelled=True)
    assert unlabelled.right is None
    blind, seeing = estimate(sides[0], unlabelled), estimate(*sides)
    assert blind.frame["estimate"].equals(seeing.frame["estimate"])
    assert blind.frame["truth"].null_count() == len(blind.frame)
    assert len(blind.errors) == 0
    assert blind.accuracy_line is None


def test_predicted_classes_alone_say_what_they_lack(sides):
    bare = [replace(side, scores={}) for side in sides]
    found = estimate(*bare)
    assert set(found.not_computable) == {"ATC-MC", "ATC-NE", "DoC", "AC"}
    assert "only predicted classes" in found.not_computable["ATC-MC"]
    assert set(found.frame["method"]) == {"ALine-S", "ALine-D", "ID"}


def test_probabilities_of_some_models_only(sides):
    scores = {name: score.copy() for name, score in sides[0].scores.items()}
    for score in scores.values():
        score[2:] = np.nan
    found = estimate(replace(sides[0], scores=scores), sides[1])
    assert found.not_computable["ATC-MC"].startswith("for 6 models: needs probabilities")
    assert len(found.frame.filter(method="ATC-MC")) == 2


def test_two_models_are_too_few_for_a_line_but_not_for_confidence(sides):
    two = [side.of(["model0", "model5"]) for side in sides]
    found = estimate(*two)
    assert found.line is None
    assert "at least three models" in found.not_computable["ALine-S"]
    assert len(found.frame.filter(method="ATC-MC")) == 2


def test_right_and_wrong_alone(sides):
    bare = [replace(side, classes=None, scores={}) for side in sides]
    found = estimate(*bare)
    assert "only right and wrong" in found.not_computable["ALine-D"]
    assert found.frame["method"].unique().to_list() == ["ID"]


def test_the_lines_of_agreement_and_accuracy(sides):
    from scipy.special import ndtri
    from scipy.stats import linregress

    found = estimate(*sides)
    x, y = (ndtri(side.right.mean(axis=1)) for side in sides)
    line = linregress(x, y)
    assert found.accuracy_line == pytest.approx((line.slope, line.intercept))


def test_rehearsal(sides, predictions):
    mae, r2, models = rehearsal(sides[0])
    assert 0 < mae < 0.1
    assert r2 <= 1
    assert models == 8
    few = replace(sides[0], labels=sides[0].labels % 3)
    assert rehearsal(few) == "needs at least four classes, there are 3"
    assert "needs labels" in rehearsal(replace(sides[0], labels=None))


def test_v2_without_labels(predictions):
    """The figure of the issue: mean absolute error per method, and why there is no ATC."""
    names = ("imagenet-validation-original", "imagenetv2-b-33")
    files = [str(predictions / f"imagenetv2_67models_{name}.npz") for name in names]
    found = estimate(*files)
    errors = {r["method"]: r for r in found.errors.iter_rows(named=True)}
    assert errors["ALine-S"]["mae"] == pytest.approx(0.0201, abs=5e-5)
    assert errors["ALine-D"]["mae"] == pytest.approx(0.0201, abs=5e-5)
    assert errors["ID"]["mae"] == pytest.approx(0.1183, abs=5e-5)
    assert len(found.frame.filter(pl.col("method") == "ALine-S")) == 67
    assert "needs probabilities" in found.not_computable["ATC-MC"]


def test_labelled_shifts_give_agreement_on_the_line_an_interval(predictions):
    """Each ImageNetV2 set from the two others: all models of a shift are off together."""
    files = {
        name: str(predictions / f"imagenetv2_67models_{name}.npz")
        for name in ("imagenet-validation-original", "imagenetv2-a-44", "imagenetv2-b-33",
                     "imagenetv2-c-12")
    }  # fmt: skip
    source, *shifts = files.values()
    for target in shifts[:2]:
        found = estimate(source, target, labelled=shifts)  # the target itself is left out
        line = found.frame.filter(pl.col("method") == "ALine-S")
        assert set(line["interval"]) == {"modelled"}
        assert line.select(pl.col("truth").is_between("low", "high").mean()).item() > 0.95
        assert "on 2 labelled shifts" in found.flags[0]
    alone = estimate(source, shifts[0], labelled=shifts[:2])
    assert "two other labelled shifts, got 1" in alone.flags[0]
    assert alone.frame.filter(pl.col("method") == "ALine-D")["low"].null_count() == 67


def test_a_few_labels(predictions):
    """300 labels of ImageNetV2: narrower than the labels alone, and the accuracy is inside."""
    names = ("imagenet-validation-original", "imagenetv2-b-33")
    files = [str(predictions / f"imagenetv2_67models_{name}.npz") for name in names]
    found = estimate(*files, labels=300, seed=3)
    width = found.frame.group_by("method").agg((pl.col("high") - pl.col("low")).mean())
    width = dict(width.iter_rows())
    assert width["PPI"] == pytest.approx(0.077, abs=0.006)
    assert width["labels"] == pytest.approx(0.110, abs=0.004)
    rows = found.frame.filter(pl.col("method") == "PPI")
    assert set(rows["interval"]) == {"paired"}
    assert found.to_dict()["labels"] == 300


def test_which_images_are_labelled(sides):
    places = np.arange(5, 105)
    mask = np.isin(np.arange(sides[1].n), places)
    found = [estimate(*sides, labels=one).frame for one in (places, mask, list(map(int, places)))]
    assert found[0].equals(found[1])
    assert found[0].equals(found[2])
    alone = found[0].filter(pl.col("method") == "labels")
    wanted = sides[1].right[:, places].mean(axis=1)
    assert alone["estimate"].to_list() == pytest.approx(wanted.tolist())
    for wrong in (2, 10**6, [0, 0, 1, 2], [-1, 2, 3, 4], [0.5, 1.5]):
        with pytest.raises(InputError, match="labels must be"):
            estimate(*sides, labels=wrong)


def test_some_images_have_labels(sides):
    """As a store gives it where 200 of the images are labelled: the same as if all were."""
    whole = sides[1]
    some = np.zeros(whole.n, dtype=bool)
    some[np.random.default_rng(0).permutation(whole.n)[:200]] = True
    partly = replace(whole, right=None, labels=None, partly=(whole.right & some, some))
    found = estimate(sides[0], partly, labels=200).frame
    wanted = estimate(*sides, labels=some).frame
    for name in ("estimate", "low", "high"):
        assert found[name].equals(wanted[name])
    assert found["truth"].null_count() == len(found)
    with pytest.raises(InputError, match=r"200 of .* images of 'noisy' have one"):
        estimate(sides[0], partly, labels=201)
    with pytest.raises(InputError, match="places of labelled images"):
        estimate(sides[0], partly, labels=np.flatnonzero(~some)[:9])
    with pytest.raises(InputError, match="has no labels"):
        estimate(sides[0], replace(partly, partly=None), labels=50)


def test_a_partly_labelled_store_keeps_what_it_knows(store, tmp_path):
    kept = answers_from_store(store, "noisy")
    labels = kept.labels.copy()
    labels[100:] = -1
    other = PredictionStore(tmp_path / "partly")
    names = tuple(map(str, range(len(labels))))
    about = StoredTestSet(setting="noisy", examples=names, labels=labels, fingerprint="partly")
    other.add_test_set(about)
    for model, row in zip(kept.models, kept.classes, strict=True):
        logits = np.eye(10, dtype=np.float32)[row]
        other.write_part(model, "noisy", 0, part_from_logits(logits, labels, keep_logits=True))
        other.write_cell(model, "noisy", {"status": "complete"})
    found = answers_from_store(other, "noisy", unlabelled=True)
    assert found.right is None
    right, known = found.of(found.models[:2]).partly
    assert known.sum() == 100
    np.testing.assert_array_equal(right[:, known], kept.right[:2, :100])
