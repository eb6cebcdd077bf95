"""Predictions into a store and out of it, as .npz and as CSV."""

import json

import numpy as np
import polars as pl
import pytest

from shiftbed.errors import InputError
from shiftbed.importing.exchange import export_predictions, import_predictions
from shiftbed.store import PredictionStore, part_from_top, verify

LABELS = np.array([0, 1, 2, 1])


@pytest.fixture
def store(tmp_path):
    top1 = np.array([[0, 1, 2, 2], [0, 0, 0, 0]])
    np.savez(tmp_path / "val.npz", models=["a", "b"], top1=top1, labels=LABELS)
    assert import_predictions(tmp_path / "store", [tmp_path / "val.npz"]) == 2
    return PredictionStore(tmp_path / "store")


def test_csv_goes_out_and_comes_back(store, tmp_path):
    (tmp_path / "val.csv").write_text(
        "file,class,probability,model\n1,2,0.5,c\n0,0,,c\n3,1,1.0,c\n2,1,,\n"
    )
    assert import_predictions(store, [tmp_path / "val.csv"]) == 2
    assert store.read("c", "val")["class_1"].to_list() == [0, 2, None, 1]
    assert store.read("c", "val")["prob_1"].to_list() == [None, 0.5, None, 1.0]
    assert store.read("val", "val")["class_1"].to_list() == [None, None, 1, None]
    assert export_predictions(tmp_path / "store", tmp_path / "out.csv", setting="val") == 16
    again = PredictionStore(tmp_path / "again")
    import_predictions(again, [tmp_path / "val.npz"])
    text = (tmp_path / "out.csv").read_text().splitlines()
    kept = [text[0], *(line for line in text if line.startswith("c,"))]
    (tmp_path / "kept.csv").write_text("\n".join(kept))
    import_predictions(again, [tmp_path / "kept.csv"], setting="val")
    assert again.read("c", "val").equals(store.read("c", "val"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name,class\n0,1\n", "no column 'file'"),
        ("file,class\n9,1\n", "line 2, column 'file': '9' is no example of 'val'"),
        ("file,class\n0,-1\n", "line 2, column 'class': '-1' is not a whole number"),
        ("file,class\n0,\n", "the class is missing"),
        ("file,class\n0,1\n0,1\n", "line 3, column 'file': '0' has a prediction of 'val' already"),
        ("file,class,probability\n0,1,1.5\n", "not a probability"),
        (b"file,class\n\xff,1\n", "is not UTF-8"),
    ],
)
def test_wrong_csv_is_refused_in_one_line(store, tmp_path, text, why):
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "val.csv").write_bytes(data)
    with pytest.raises(InputError, match=why) as raised:
        import_predictions(store, [tmp_path / "val.csv"])
    assert "\n" not in str(raised.value)


def test_the_same_import_again_is_no_other_one(tmp_path):
    """As after a kill at its end."""
    store, first = tmp_path / "store", tmp_path / "a.npz"
    top1, labels = np.array([[0, 1, 2], [0, 0, 1]]), np.array([0, 1, 2])
    np.savez(first, models=np.array(["m", "n"]), top1=top1, labels=labels)
    assert import_predictions(store, [first], setting="val") == 2
    before = PredictionStore(store).read("n", "val")
    assert import_predictions(store, [first], setting="val") == 0
    assert PredictionStore(store).read("n", "val").equals(before)
    np.savez(first, models=np.array(["m", "k"]), top1=top1[::-1], labels=labels)
    with pytest.raises(InputError, match="'m' on 'val' is in the store already, with other"):
        import_predictions(store, [first], setting="val")
    assert PredictionStore(store).models() == ["m", "n"]


def test_what_was_not_evaluated_to_the_end_is_not_exported(tmp_path):
    store = tmp_path / "store"
    np.savez(
        tmp_path / "a.npz", models=np.array(["m"]), top1=np.zeros((1, 3), int), labels=[0, 1, 2]
    )
    import_predictions(store, [tmp_path / "a.npz"], setting="val")
    (part,) = (store / "predictions").rglob("*.parquet")
    pl.read_parquet(part).head(2).write_parquet(part)
    for record in (store / "cells").rglob("*.json"):  # as of a store made before there were sums
        text = json.loads(record.read_text())
        for one in text if isinstance(text, list) else [text]:
            one.pop("sums", None)
        record.write_text(json.dumps(text))
    for suffix in ("csv", "npz"):
        with pytest.raises(InputError):
            export_predictions(store, tmp_path / f"out.{suffix}", setting="val")
        assert not (tmp_path / f"out.{suffix}").exists()


def scored(tmp_path, **arrays):
    path = tmp_path / "val.npz"
    np.savez(path, models=np.array(["a", "b"]), **arrays)
    return path


@pytest.fixture
def logits():
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 50, 4)).astype(np.float32), rng.integers(0, 4, 50)


def test_logits_and_probabilities_are_the_same_predictions(tmp_path, logits):
    """Metrics of both against scipy and scikit-learn; ``import`` has the same accuracies."""
    from scipy.special import softmax
    from sklearn.metrics import accuracy_score, log_loss

    import shiftbed as sb

    values, labels = logits
    chances = softmax(values, axis=2)
    files = {
        "logits": scored(tmp_path, logits=values, labels=labels),
        "probabilities": tmp_path / "p.npz",
    }
    np.savez(files["probabilities"], models=["a", "b"], probabilities=chances, labels=labels)
    bare = tmp_path / "bare.npz"
    np.savez(bare, models=["a", "b"], top1=values.argmax(axis=2), labels=labels)
    import_predictions(tmp_path / "bare", [bare], setting="val")
    with pytest.raises(InputError, match="in the store already, with other answers"):
        import_predictions(tmp_path / "bare", [files["logits"]], setting="val")
    for kind, file in files.items():
        store = tmp_path / kind
        assert import_predictions(store, [file], setting="val") == 2
        assert import_predictions(store, [file], setting="val") == 0
        found = sb.score(store, metrics=["top1", "nll"]).frame
        for at, model in enumerate("ab"):
            rows = found.filter(model=model)
            top1 = accuracy_score(labels, values[at].argmax(axis=1))
            loss = log_loss(labels, chances[at], labels=range(4))
            assert rows.filter(metric="top1")["value"].item() == pytest.approx(top1)
            assert rows.filter(metric="nll")["value"].item() == pytest.approx(loss, rel=1e-5)
        bed = sb.import_results([file])
        want = [accuracy_score(labels, one.argmax(axis=1)) for one in values]
        assert bed.value[:, 0].tolist() == pytest.approx(want)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            lambda z, y: {"logits": z * np.nan, "labels": y},
            "image 0 of 'a' has a logit",
        ),
        (lambda z, y: {"probabilities": z, "labels": y}, "save logits as 'logits'"),
        (lambda z, y: {"logits": z[:, :, :2], "labels": y}, "there are scores of 2 classes"),
        (lambda z, y: {"logits": z[0], "labels": y}, "2 models × images × classes"),
        (lambda z, y: {"logits": z, "top1": z.argmax(2), "labels": y}, "given twice"),
        (lambda z, y: {"logits": z, "labels": y[:-1]}, "must be 2 models × 49 images"),
    ],
)
def test_scores_that_are_none_are_refused(tmp_path, logits, arrays, message):
    path = scored(tmp_path, **arrays(*logits))
    with pytest.raises(InputError, match=message):
        import_predictions(tmp_path / "store", [path])


def test_a_shift_makes_an_imported_store_a_testbed(tmp_path, logits):
    """Its line can be drawn and its report written; a second import keeps the shift."""
    import shiftbed as sb
    from shiftbed.records import Shift

    rng = np.random.default_rng(1)
    labels = rng.integers(0, 4, 400)
    names = [f"m{i}" for i in range(12)]
    for setting, noise in (("val", 1.0), ("v2", 1.6), ("v3", 2.0)):
        scores = rng.normal(scale=noise, size=(12, 400, 4))
        scores[:, np.arange(400), labels] += np.linspace(1, 3, 12)[:, None]
        np.savez(tmp_path / f"{setting}.npz", models=names, logits=scores, labels=labels)
    store = tmp_path / "store"
    shift = Shift(name="s", kind="natural-dataset", source=("val",), target="v2")
    import_predictions(store, [tmp_path / "val.npz", tmp_path / "v2.npz"], shifts=[shift])
    assert [one.name for one in sb.rank(store).shifts] == ["s"]
    other = Shift(name="t", kind="natural-dataset", source=("val",), target="v3")
    import_predictions(store, [tmp_path / "v3.npz"], shifts=[other])
    assert [one.name for one in sb.rank(store).shifts] == ["s", "t"]
    sb.report(store, tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 10_000
    wrong = Shift(name="u", kind="natural-dataset", source=("vl",), target="v3")
    with pytest.raises(InputError, match="did you mean 'val'"):
        import_predictions(store, [], shifts=[wrong])


def many_small(folder, models, seed=0):
    """Answers of many models to a few examples of two settings."""
    rng, made = np.random.default_rng(seed), []
    for setting in ("s", "t"):
        made.append(folder / f"{setting}.npz")
        labels = np.random.default_rng(1).integers(0, 5, 30)
        top1 = rng.integers(0, 5, (models, 30))
        np.savez(made[-1], models=[f"m{i}" for i in range(models)], top1=top1, labels=labels)
    return made


def test_small_cells_that_are_imported_are_in_packs(tmp_path):
    files = many_small(tmp_path, 300)
    store = PredictionStore(tmp_path / "store")
    assert import_predictions(store, files) == 600
    there = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert len(there) < 12
    assert verify(PredictionStore(tmp_path / "store")) == []
    for path in files:
        with np.load(path) as arrays:
            for model, row in list(zip(arrays["models"], arrays["top1"], strict=True))[::50]:
                found = PredictionStore(tmp_path / "store").read(str(model), path.stem)
                assert found["class_1"].to_list() == row.tolist()
    assert import_predictions(tmp_path / "store", files) == 0
    alone = tmp_path / "alone"
    alone.mkdir()
    assert import_predictions(tmp_path / "few", many_small(alone, 3)) == 6
    assert not (tmp_path / "few/packs").exists()


def test_what_a_killed_writer_left_is_not_taken_for_what_is_imported(tmp_path):
    store = PredictionStore(tmp_path / "store")
    store.write_part("m7", "s", 0, part_from_top(np.full(30, 4)))  # and no record
    files = many_small(tmp_path, 20)
    import_predictions(store, files)
    with np.load(files[0]) as arrays:
        expected = arrays["top1"][7].tolist()
    found = PredictionStore(tmp_path / "store").read("m7", "s")
    assert found["class_1"].to_list() == expected
