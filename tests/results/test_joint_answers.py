"""Answers of several models to the same examples, from a store."""

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import entropy

from shiftbed.errors import InputError
from shiftbed.results.joint_answers import (
    MAX_PROBABILITY,
    NEGATIVE_ENTROPY,
    answers_from_store,
    matched,
)
from shiftbed.store import PredictionStore, StoredTestSet, part_from_top
from tests.results.digits import predictions, write_store


def small(path, labels, *, readable=None, label_sets=None, n_models=2) -> PredictionStore:
    store = PredictionStore(path)
    n = len(labels)
    store.add_test_set(
        StoredTestSet(
            setting="val",
            examples=tuple(map(str, range(n))),
            labels=np.asarray(labels),
            fingerprint="f",
            label_sets=label_sets,
        )
    )
    for i in range(n_models):
        mask = None if readable is None or i else readable
        store.write_part(f"m{i}", "val", 0, part_from_top((np.arange(n) + i) % 3, mask))
        store.write_cell(f"m{i}", "val", {"status": "complete"})
    return store


def test_classes_right_and_scores(tmp_path):
    logits, labels = predictions()
    found = answers_from_store(write_store(tmp_path / "s"), "clean", scores=True)
    for row, model in enumerate(found.models):
        values = logits["clean"][model]
        assert np.array_equal(found.classes[row], values.argmax(axis=1))
        assert np.array_equal(found.right[row], values.argmax(axis=1) == labels["clean"])
        p = softmax(values.astype(np.float64), axis=1)
        assert found.scores[MAX_PROBABILITY][row] == pytest.approx(p.max(axis=1), abs=1e-6)
        # logits are kept as 16-bit numbers
        assert found.scores[NEGATIVE_ENTROPY][row] == pytest.approx(-entropy(p, axis=1), abs=0.02)


def test_without_logits_there_is_no_entropy(tmp_path):
    found = answers_from_store(write_store(tmp_path / "s", keep_logits=False), "clean", scores=True)
    assert set(found.scores) == {MAX_PROBABILITY}


def test_examples_not_read_by_all_or_without_label_are_left_out(tmp_path):
    readable = np.array([True, False, True, True, True])
    store = small(tmp_path / "s", [0, 1, 2, -1, 0], readable=readable)
    found = answers_from_store(store)
    assert (found.n, found.left_out) == (3, 2)
    assert found.labels.tolist() == [0, 2, 0]
    bare = answers_from_store(store, unlabelled=True)
    assert (bare.n, bare.left_out) == (4, 1)
    assert bare.right is None
    with pytest.raises(InputError, match="no labels"):
        bare.judged()


def test_several_labels_per_example(tmp_path):
    sets = ((0, 1), (), (1,), (0,))
    store = small(tmp_path / "s", [-1, -1, -1, -1], label_sets=sets)
    found = answers_from_store(store)
    assert found.left_out == 1
    assert found.right.tolist() == [[True, False, True], [True, False, False]]


def test_some_models_in_an_order(tmp_path):
    found = answers_from_store(write_store(tmp_path / "s"), "clean")
    two = found.of(["model3", "model1"])
    assert np.array_equal(two.right[1], found.right[1])
    first, second = matched(two, found.of(["model0", "model1"]))
    assert first.models == second.models == ("model1",)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: answers_from_store(s), "has 2 settings, name one: clean, noisy"),
        (lambda s: answers_from_store(s, "clan"), "did you mean 'clean'"),
        (lambda s: answers_from_store(s, "clean", ["model"]), "did you mean 'model"),
        (lambda s: answers_from_store(s, "clean").of(["model1", "model1"]), "named twice"),
        (lambda s: answers_from_store(s, "clean").of(["x"]), "unknown model"),
    ],
)
def test_names_that_are_not_there(tmp_path, call, message):
    with pytest.raises(InputError, match=message):
        call(write_store(tmp_path / "s"))


def test_stores_with_nothing_to_compare(tmp_path):
    with pytest.raises(InputError, match="has no labels"):
        answers_from_store(small(tmp_path / "a", [-1, -1]))
    with pytest.raises(InputError, match="no complete predictions"):
        answers_from_store(small(tmp_path / "b", [0, 1], n_models=0))
    nobody = small(tmp_path / "c", [0, 1], readable=np.zeros(2, dtype=bool))
    with pytest.raises(InputError, match="was read by all of its 2 models"):
        answers_from_store(nobody)
    with pytest.raises(InputError, match="share no model"):
        matched(
            answers_from_store(write_store(tmp_path / "d"), "clean"),
            answers_from_store(small(tmp_path / "e", [0, 1])),
        )
