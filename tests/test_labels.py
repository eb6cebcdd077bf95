"""Label policies against brute force, image by image."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import log_softmax, softmax

from shiftbed.errors import InputError
from shiftbed.labels import HOW, LabelPolicy, class_map, full, judge, multi_label, subset
from tests.conftest import SHARED

CLASSES = 12
logits = arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.just(CLASSES)),
    elements=st.floats(-30, 30, width=32),
)
chosen = st.lists(st.integers(0, CLASSES - 1), min_size=1, unique=True)


@st.composite
def groups(draw: st.DrawFn, classes: int = CLASSES) -> dict[str, list[int]]:
    """Some classes, each in one of some groups."""
    order = draw(st.permutations(range(classes)))
    cuts = sorted(draw(st.sets(st.integers(1, classes), min_size=1, max_size=5)))
    parts = [order[a:b] for a, b in zip([0, *cuts], cuts, strict=False)]
    return {f"group {at}": list(part) for at, part in enumerate(parts)}


@st.composite
def policies(draw: st.DrawFn, classes: int) -> LabelPolicy:
    """A policy that fits on so many classes."""
    kind = draw(st.sampled_from(("full", "subset", "map", "multi")))
    if kind == "full":
        return full(classes)
    if kind == "subset":
        indices = st.lists(st.integers(0, classes - 1), min_size=1, unique=True)
        return subset(draw(indices), of=draw(st.sampled_from((None, classes))))
    if kind == "map":
        return class_map(draw(groups(classes)), draw(st.sampled_from(sorted(HOW))))
    return multi_label()


@st.composite
def chains(draw: st.DrawFn) -> list[LabelPolicy]:
    """Three policies, each fitting on the one before."""
    chain, width = [], CLASSES
    for _ in range(3):
        chain.append(draw(policies(width)))
        width = chain[-1].width or width
    return chain


@given(logits, chosen)
def test_a_subset_is_taken_before_the_argmax(scores, indices):
    policy = subset(indices, of=CLASSES)
    sliced = policy.apply(scores)
    for row, own in zip(scores, sliced, strict=True):
        best = max(row[index] for index in indices)
        assert own.tolist() == [row[index] for index in indices]
        assert row[indices[int(own.argmax())]] == best


@given(logits, groups(), st.sampled_from(("max", "mean", "sum")))
def test_maps_of_softmax(scores, mapping, how):
    combine = {"max": max, "mean": lambda p: math.fsum(p) / len(p), "sum": math.fsum}[how]
    found = class_map(mapping, how).apply(scores)
    for row, own in zip(softmax(scores, axis=1), found, strict=True):
        expected = [combine([row[index] for index in group]) for group in mapping.values()]
        assert np.exp(own) == pytest.approx(expected, rel=1e-9)
        # after normalisation these are probabilities of the targets
        assert softmax(own) == pytest.approx(np.array(expected) / sum(expected), rel=1e-9)


@given(logits, groups())
def test_maps_by_the_greatest_logit(scores, mapping):
    found = class_map(mapping, "max-logit").apply(scores)
    for row, own in zip(scores, found, strict=True):
        assert own.tolist() == [max(row[index] for index in group) for group in mapping.values()]
    by_softmax = class_map(mapping, "max").apply(scores)
    assert log_softmax(by_softmax, axis=1) == pytest.approx(log_softmax(found, axis=1), abs=1e-9)


@given(logits, chains())
def test_composition(scores, chain):
    a, b, c = chain
    left, right = a.then(b).then(c), a.then(b.then(c))
    assert left == right
    assert left.key == right.key
    step_by_step = c.apply(b.apply(a.apply(scores)))
    assert np.array_equal(left.apply(scores), step_by_step)
    assert full(CLASSES).then(left).key == left.key
    if left.width is not None:
        assert left.apply(scores).shape == (len(scores), left.width)


@given(chains())
def test_json_and_back(chain):
    policy = chain[0].then(chain[1]).then(chain[2])
    again = LabelPolicy.from_json(policy.to_json())
    assert again == policy
    assert (again.key, again.describe()) == (policy.key, policy.describe())
    assert "\n" not in policy.describe()
    assert set(policy.key) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")


@given(chains(), st.lists(st.integers(-1, CLASSES - 1)))
def test_labels_go_where_their_logit_goes(chain, labels):
    """A picture on which the model is sure of the label is right after the policy, if it counts."""
    policy = full(CLASSES).then(chain[0]).then(chain[1]).then(chain[2])
    sure = np.full((len(labels), CLASSES), -20.0)
    sure[np.arange(len(labels)), labels] = 20.0
    new = policy.relabel(np.array(labels, dtype=np.int64))
    judged = judge(policy.apply(sure).argmax(axis=1), new)
    assert np.array_equal(judged.right, new >= 0)
    assert judged.left_out == (new < 0).sum()
    sets = policy.relabel_sets([(label,) if label >= 0 else () for label in labels])
    assert [one[0] if one else -1 for one in sets] == new.tolist()


@given(st.lists(st.tuples(st.integers(0, 9), st.sets(st.integers(0, 9)))))
def test_real_labels(cases):
    predicted = np.array([guess for guess, _ in cases], dtype=np.int64)
    judged = judge(predicted, [sorted(labels) for _, labels in cases])
    assert judged.right.tolist() == [guess in labels for guess, labels in cases]
    assert judged.counted.tolist() == [bool(labels) for _, labels in cases]
    assert judged.left_out == sum(not labels for _, labels in cases)


def test_the_pitfall_of_imagenet_a():
    """The model's favourite is none of the 200 classes: slicing later would call this wrong."""
    rng = np.random.default_rng(0)
    a_classes = np.sort(rng.choice(1000, 200, replace=False))
    labels = rng.integers(0, 200, size=500)
    scores = rng.normal(size=(500, 1000))
    scores[np.arange(500), a_classes[labels]] += 4  # the best of the 200, nearly always
    others = np.setdiff1d(np.arange(1000), a_classes)
    scores[np.arange(500), rng.choice(others, 500)] += 12  # and something else is better still
    policy = subset(a_classes.tolist(), of=1000)
    right = judge(policy.apply(scores).argmax(axis=1), labels).right.mean()
    late = (scores.argmax(axis=1) == a_classes[labels]).mean()
    assert right > 0.7
    assert late < 0.01
    assert policy.describe() == "subset of 200 of 1000 classes, logits sliced before argmax"
    assert policy.key.startswith("200-classes-")


def test_half_precision_logits_are_combined_in_single():
    scores = np.array([[10, 9.5, -60, 3]], dtype=np.float16)
    policy = class_map({"a": [0, 2], "b": [1, 3]}, "sum")
    found = policy.apply(scores)
    assert found.dtype == np.float32
    exact = policy.apply(scores.astype(np.float64))
    assert found == pytest.approx(exact, rel=1e-5)
    assert subset([2, 0]).apply(scores).dtype == np.float16


def test_many_images_are_combined_like_few():
    scores = np.random.default_rng(0).normal(size=(2500, 6))
    policy = class_map({0: [5, 1], 2: [0, 2]}, "mean", targets=3)
    whole = policy.apply(scores)
    assert np.array_equal(whole, np.concatenate([policy.apply(row[None]) for row in scores]))


def test_no_underflow_far_from_the_favourite():
    found = class_map({"a": [0], "b": [1, 2]}, "sum").apply(np.array([[0.0, -2000.0, -2000.0]]))
    assert found[0].tolist() == pytest.approx([0.0, -2000 + math.log(2)])


def test_impossible_classes_stay_impossible():
    scores = np.array([[0.0, -np.inf, -np.inf]])
    for how in HOW:
        found = class_map({"a": [0], "b": [1, 2]}, how).apply(scores)
        assert found.tolist() == [[0.0, -np.inf]]


def test_targets_without_a_class_are_never_predicted():
    policy = class_map({2: [4], 0: [1, 0]}, "max-logit", targets=4, of=6)
    found = policy.apply(np.arange(12.0).reshape(2, 6))
    assert found.tolist() == [[1, -np.inf, 4, -np.inf], [7, -np.inf, 10, -np.inf]]
    assert policy.describe() == (
        "3 of 6 classes mapped to 4 (2 of them never predicted) by max of logits"
    )
    named = class_map({"c": [4], "a": [1, 0]}, "max-logit", targets=["a", "b", "c", "d"])
    assert named.key == policy.key


def test_superclasses_of_videos():
    folder = SHARED / "class_maps"
    if not folder.is_dir():
        pytest.skip("public class maps are not beside the checkout")
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(20, 1000))
    for name, size in (("vid_robust", 30), ("ytbb_robust", 24)):
        pairs = json.loads((folder / f"{name}_class_idx_map.json").read_text())
        mapping: dict[int, list[int]] = {}
        for source, target in pairs.items():
            mapping.setdefault(target, []).append(int(source))
        policy = class_map(mapping, "max-logit", targets=size, of=1000)
        found = policy.apply(scores).argmax(axis=1)
        for row, own in zip(scores, found, strict=True):
            best = max(pairs, key=lambda source: row[int(source)])
            assert own == pairs[best]
        assert f"{len(pairs)} of 1000 classes mapped to {size}" in policy.describe()


def test_what_is_printed():
    assert full(1000).describe() == "all 1000 classes"
    assert multi_label().describe() == (
        "all classes; right if in the image's label set, images without labels left out"
    )
    chain = full(10).then(subset([1, 2, 3])).then(class_map({"a": [0, 1]}, "mean"))
    assert chain.describe() == (
        "subset of 3 of 10 classes, logits sliced before argmax; "
        "2 of 3 classes mapped to 1 by mean of softmax"
    )


def test_keys_tell_policies_apart():
    mapping = {"a": [0, 1], "b": [2]}
    different = [
        full(10),
        subset([1, 2]),
        subset([2, 1]),
        subset(range(8)),
        subset([*range(7), 8]),
        *(class_map(mapping, how) for how in HOW),
        class_map({"a": [0], "b": [1, 2]}),
        multi_label(),
        subset([1, 2]).then(multi_label()),
    ]
    assert len({policy.key for policy in different}) == len(different)
    assert class_map({"x": [1, 0], "y": [2]}).key == class_map(mapping).key
    assert subset([1, 2], of=10).key == subset([1, 2]).key


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: subset([]), "at least one class"),
        (lambda: subset([1, 1]), "class 1 is given twice"),
        (lambda: subset([-1]), "negative"),
        (lambda: subset([1.5]), "whole number"),
        (lambda: subset([True]), "whole number"),
        (lambda: subset([10], of=10), r"index 10 is out of range, there are 10"),
        (lambda: full(0), "at least 1"),
        (lambda: class_map({}), "at least one class"),
        (lambda: class_map({"a": []}), "no class is mapped to 'a'"),
        (lambda: class_map({"a": [1], "b": [1]}), "class 1 is given twice"),
        (lambda: class_map({"a": [1]}, "median"), "unknown way to combine classes 'median'"),
        (lambda: class_map({"a": [1]}, of=1), "out of range"),
        (lambda: class_map({0: [1], 2: [0]}), "labels 0 to 1, got 2"),
        (lambda: class_map({0: [1], "b": [0]}), "all names or all numbers"),
        (lambda: class_map({"a": [1]}, targets=["b"]), "unknown target"),
        (lambda: class_map({"a": [1]}, targets=3), "must list them"),
        (lambda: class_map({0: [1]}, targets=["a"]), "must be their number"),
        (lambda: full(10).then(full(9)), "10 classes cannot go into a policy for 9"),
        (lambda: subset([1, 2]).then(subset([2])), "index 2 is out of range, there are 2"),
        (lambda: full(3).apply(np.zeros((2, 4))), "logits of 4 classes"),
        (lambda: subset([5]).apply(np.zeros((2, 4))), "index 5 is out of range"),
        (lambda: full(3).apply(np.zeros(3)), r"shape \(images, classes\)"),
        (lambda: full(3).apply([["a"]]), "numbers"),
        (lambda: full(3).relabel([3]), "label 3 is no class"),
        (lambda: judge([0, 1], np.array([0])), "1 labels"),
        (lambda: LabelPolicy.from_json("{"), "not a label policy"),
        (lambda: LabelPolicy.from_json("[]"), "not a label policy"),
        (lambda: LabelPolicy.from_json('{"classes": 0, "steps": []}'), "not a label policy"),
        (
            lambda: LabelPolicy.from_json(
                '{"classes": 2, "steps": [{"subset": [2]}], "multi_label": false}'
            ),
            "out of range",
        ),
        (
            lambda: LabelPolicy.from_json('{"classes": 2, "steps": [], "multi_label": 1}'),
            "true or false",
        ),
    ],
)
def test_refused_in_one_line(make, words):
    with pytest.raises(InputError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


class TestManyToMany:
    """A class may belong to several targets, and a target to several classes."""

    policy = class_map({"car": [0, 1], "truck": [1, 2]}, how="sum", overlapping=True)

    def test_scores_count_a_shared_class_in_each_target(self):
        p = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])
        found = np.exp(self.policy.apply(np.log(p)))
        np.testing.assert_allclose(found, [[0.7, 0.8], [0.7, 0.4]], rtol=1e-6)

    def test_labels_of_a_shared_class_are_sets(self):
        assert self.policy.relabel_sets([(0,), (1,), (2, 0), (7,)]) == ((0,), (0, 1), (0, 1), ())
        assert self.policy.relabel([0, 2, 5]).tolist() == [0, 1, -1]
        with pytest.raises(InputError, match="class 1 belongs to several targets"):
            self.policy.relabel([0, 1])

    def test_it_composes_and_travels(self):
        both = subset([3, 4, 5]).then(self.policy)
        assert both.relabel_sets([(4,)]) == ((0, 1),)
        assert LabelPolicy.from_json(both.to_json()) == both
        assert "1 of them to several" in self.policy.describe()

    def test_only_where_it_is_meant(self):
        with pytest.raises(InputError, match="given twice"):
            class_map({"car": [0, 1], "truck": [1, 2]})
        with pytest.raises(InputError, match="given twice"):
            class_map({"car": [1, 1]}, overlapping=True)
