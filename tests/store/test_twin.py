import json

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.labels import class_map, full, multi_label, subset
from shiftbed.records import older_setting
from shiftbed.store import (
    PredictionStore,
    StoredTestSet,
    make_twin,
    part_from_logits,
    part_from_top,
    read_answers,
    verify,
)

N, K = 300, 20
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, K, N)
LOGITS = (RNG.normal(0, 1, (N, K)) + 2.0 * np.eye(K)[LABELS]).astype(np.float16).astype(np.float32)


@pytest.fixture
def store(tmp_path):
    """A model with logits in three parts, one with the best five, one with the best only."""
    store = PredictionStore(tmp_path / "store")
    store.add_test_set(
        StoredTestSet(
            setting="val",
            examples=tuple(f"e{i}" for i in range(N)),
            labels=LABELS,
            fingerprint="sha256:a",
            label_policy=f"all {K} classes",
            classes=K,
            groups=tuple("ab"[i % 2] for i in range(N)),
        )
    )
    for start in range(0, N, 100):
        rows = slice(start, start + 100)
        for model, keep in (("logits", True), ("top", False)):
            part = part_from_logits(LOGITS[rows], LABELS[rows], keep_logits=keep)
            store.write_part(model, "val", start, part)
    store.write_part("one", "val", 0, part_from_top(LOGITS.argmax(axis=1)))
    for model in ("logits", "top", "one"):
        info = {"status": "complete", "info": {"kind": "standard"}, "spec": f"timm:{model}"}
        store.write_cell(model, "val", info)
    store.write_cell("broken", "val", {"status": "failed", "error": "x"})
    return store


INSIDE = [3, 1, 7, 12, 19]


def test_logits_give_what_evaluating_would(store):
    policy = subset(INSIDE, of=K)
    made = {one.model: one for one in make_twin(store, "val", policy)}
    assert set(made) == {"logits", "top", "one"}
    twin = made["logits"]
    rows = np.flatnonzero(np.isin(LABELS, INSIDE))
    scores, labels = policy.apply(LOGITS[rows]), policy.relabel(LABELS[rows])
    assert (twin.n, twin.undecided, twin.computed_from) == (len(rows), 0, "logits")
    assert twin.right == (scores.argmax(axis=1) == labels).sum()
    test_set = store.test_set(twin.setting)
    assert test_set.examples == tuple(f"e{i}" for i in rows)
    assert test_set.labels.tolist() == labels.tolist()
    assert test_set.label_policy == "subset of 5 of 20 classes, logits sliced before argmax"
    assert test_set.groups == tuple("ab"[i % 2] for i in rows)
    read = read_answers(store, "logits", test_set, ["prob_1", "label_prob"])
    assert read.right.mean() == twin.right / twin.n
    assert read.frame["prob_1"].to_numpy() == pytest.approx(
        (np.exp(scores).max(axis=1) / np.exp(scores).sum(axis=1)), rel=1e-5
    )
    assert verify(store) == [p for p in verify(store) if p.kind == "failed"]


def test_undecided_images_are_counted_and_leave_the_cell_open(store):
    policy = subset(INSIDE, of=K)
    made = {one.model: one for one in make_twin(store, "val", policy)}
    rows = np.isin(LABELS, INSIDE)
    for model, k in (("top", 5), ("one", 1)):
        best = np.argsort(-LOGITS, axis=1, kind="stable")[rows, :k]
        open_ = ~np.isin(best, INSIDE).any(axis=1)
        twin = made[model]
        assert twin.undecided == open_.sum() > 0
        assert twin.computed_from == f"top-{k}"
        record = store.cell(model, twin.setting)
        assert record["status"] == "undecided"
        assert "not decided by the top-" in record["error"]
        answers = store.read(model, twin.setting)["class_1"]
        assert (answers.is_null().to_numpy() == open_).all()
        truth = policy.apply(LOGITS[rows]).argmax(axis=1)
        assert (answers.drop_nulls().to_numpy() == truth[~open_]).all()
    exact = made["logits"].right
    assert made["top"].right <= exact <= made["top"].right + made["top"].undecided


def test_provenance(store):
    policy = class_map({"a": [0, 1], "b": [2, 3]}, how="max")
    setting = make_twin(store, "val", policy, models=["logits"])[0].setting
    record = store.cell("logits", setting)
    assert record["twin_of"] == "val"
    assert record["spec"] == "timm:logits"
    assert record["info"] == {"kind": "standard"}
    assert record["computed_from"] == "logits"
    assert json.loads(record["policy"])["steps"][0]["how"] == "max"
    assert store.cell("top", setting) is None


def test_the_same_call_again_leaves_the_same_files(store):
    policy = subset(INSIDE)
    make_twin(store, "val", policy)
    before = {name: store.files.read(name) for name in store.files.below(".")}
    make_twin(store, "val", policy)
    assert {name: store.files.read(name) for name in store.files.below(".")} == before


def test_a_twin_of_a_twin(store):
    first = make_twin(store, "val", subset(INSIDE), models=["logits"])[0].setting
    logits = make_twin(store, first, subset([2, 0]), models=["logits"])[0]
    assert logits.setting == f"{first}.classes-2-0"
    direct = make_twin(store, "val", subset([7, 3]), models=["logits"])[0]
    assert logits.n == direct.n
    assert logits.right == direct.right  # top-5 of five classes are all of them
    assert logits.label_policy.endswith("; subset of 2 classes, logits sliced before argmax")


def test_cells_that_were_evaluated_are_left_alone(store):
    policy = subset(INSIDE)
    setting = make_twin(store, "val", policy, models=["one"])[0].setting
    store.write_cell("logits", setting, {"status": "complete", "spec": "timm:x"})
    twin = make_twin(store, "val", policy, models=["logits"])[0]
    assert not twin.written
    assert "left as it is" in twin.note
    assert store.cell("logits", setting) == {
        "model": "logits",
        "setting": setting,
        "status": "complete",
        "spec": "timm:x",
    }


def test_what_cannot_be_computed_is_said_and_the_others_go_on(store):
    policy = class_map({"a": [0, 1], "b": [2, 3, 4]}, how="sum")
    made = {one.model: one for one in make_twin(store, "val", policy)}
    assert "the store would need logits, or probabilities" in made["one"].note
    assert not made["one"].written
    assert made["logits"].written
    assert made["top"].written


def test_sets_of_labels(tmp_path):
    store = PredictionStore(tmp_path)
    store.add_test_set(
        StoredTestSet(
            setting="real",
            examples=("a", "b", "c"),
            labels=np.full(3, -1),
            label_sets=((1, 2), (5,), (3,)),
            fingerprint="f",
        )
    )
    store.write_part("m", "real", 0, part_from_top(np.array([[5, 2], [5, 0], [1, 0]])))
    store.write_cell("m", "real", {"status": "complete"})
    twin = make_twin(store, "real", subset([1, 2, 3]).then(multi_label()))[0]
    assert (twin.n, twin.right, twin.undecided) == (2, 1, 0)
    assert store.test_set(twin.setting).label_sets == ((0, 1), (2,))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"setting": "vall"}, "did you mean 'val'"),
        ({"models": ["tops"]}, "did you mean 'top'"),
        ({"models": ["broken"]}, "unknown model"),
        ({"policy": subset([K])}, "out of range"),
        ({"policy": full(K), "name": "val"}, "another name"),
    ],
)
def test_bad_input(store, options, why):
    given = {"setting": "val", "policy": subset(INSIDE)} | options
    with pytest.raises(InputError, match=why):
        make_twin(store, **given)


def test_a_policy_that_leaves_nothing(store, tmp_path):
    other = PredictionStore(tmp_path / "other")
    other.add_test_set(
        StoredTestSet(setting="s", examples=("a",), labels=np.array([0]), fingerprint="f")
    )
    with pytest.raises(InputError, match="no image of 's' has a label"):
        make_twin(other, "s", subset([4]))


def test_names():
    assert older_setting("val").under(subset([1])).id == "val@classes-1"
    assert older_setting("val@a+fog:2").under(subset([1])).id == "val@a.classes-1+fog:2"
