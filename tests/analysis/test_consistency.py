import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.analysis.consistency import frame_sets, pm_k
from shiftbed.errors import InputError
from shiftbed.labels import class_map
from tests.conftest import SHARED

MAPS = SHARED / "class_maps"
needs_maps = pytest.mark.skipif(
    not (MAPS / "vid_robust_pmsets.json").is_file(),
    reason="the authors' metadata is not beside the checkout",
)


@st.composite
def worlds(draw):
    """Anchors with frames, labels of all frames, and predictions."""
    count = draw(st.integers(1, 6))
    near, labels = {}, {}
    for a in range(count):
        own = draw(st.sets(st.integers(-6, 6).filter(bool), max_size=6))
        near[f"v{a}/0"] = {f"v{a}/{d}": abs(d) for d in sorted(own)}
    frames = [f for anchor, own in near.items() for f in (anchor, *own)]
    for frame in frames:
        labels[frame] = sorted(draw(st.sets(st.integers(0, 3), min_size=1, max_size=2)))
    predicted = {f: draw(st.integers(-1, 3)) for f in frames}
    return near, labels, predicted


def slowly(near, labels, predicted, k, reach, rule):
    """pm-k as it is defined, over anchors that lack no frame within reach."""
    right = counted = 0
    for anchor, own in near.items():
        frames = {anchor: 0, **own}
        if any(predicted[f] < 0 for f, d in frames.items() if d <= reach):
            continue
        counted += 1
        judged = [
            predicted[f] in labels[anchor if rule == "anchor" else f]
            for f, d in frames.items()
            if d <= k
        ]
        right += all(judged)
    return right, counted


@given(worlds(), st.sampled_from(["frame", "anchor"]), st.lists(st.integers(0, 7), min_size=1))
def test_the_definition(world, rule, ks):
    near, labels, predicted = world
    sets = frame_sets(near, labels, rule=rule)
    found = pm_k(sets, [predicted[f] for f in sets.frames], ks)
    for i, k in enumerate(ks):
        right, counted = slowly(near, labels, predicted, k, max(ks), rule)
        assert found.n == counted
        assert found.left_out == len(near) - counted
        if counted:
            assert found.value[i] == right / counted
            assert found.low[i] <= found.value[i] <= found.high[i]
        else:
            assert np.isnan(found.value[i])
    lacking = {f for own in near.items() for f in _within(own, max(ks)) if predicted[f] < 0}
    assert set(found.missing) == lacking


def _within(item, reach):
    anchor, own = item
    return [anchor, *(f for f, d in own.items() if d <= reach)]


@given(worlds(), st.sampled_from(["frame", "anchor"]))
def test_it_only_falls_with_k_and_begins_at_the_anchors(world, rule):
    near, labels, predicted = world
    sets = frame_sets(near, labels, rule=rule)
    guess = np.array([max(0, predicted[f]) for f in sets.frames])
    found = pm_k(sets, guess, range(8))
    assert (np.diff(found.value) <= 0).all()
    anchors = np.mean([max(0, predicted[a]) in labels[a] for a in near])
    assert found.value[0] == anchors
    assert found.n == len(near)


def real():
    frames = json.loads((MAPS / "vid_robust_pmsets.json").read_text())
    labels = json.loads((MAPS / "vid_robust_labels.json").read_text())

    def number(name):
        return int(name[-11:-5])

    near = {a: {f: abs(number(f) - number(a)) for f in own} for a, own in frames.items()}
    return near, labels


def answers(sets, labels):
    """A right and a wrong answer for every frame."""
    wrong = [next(c for c in range(30) if c not in labels[f]) for f in sets.frames]
    return np.array([labels[f][0] for f in sets.frames]), np.array(wrong)


@needs_maps
@pytest.mark.parametrize("p", [0.9, 0.98])
def test_the_closed_form_on_the_real_frames(p):
    """Independent frames of accuracy p: E pm-k is the mean over anchors of p^(frames within k)."""
    near, labels = real()
    sets = frame_sets(near, labels)
    assert (len(sets.anchors), len(sets.frames), int(sets.distance.max())) == (1109, 22179, 10)
    ks = tuple(range(11))
    sizes = np.array([[1 + sum(d <= k for d in own.values()) for k in ks] for own in near.values()])
    expected = (p**sizes).mean(axis=0)
    rng = np.random.default_rng(0)
    right, wrong = answers(sets, labels)
    draws = (np.where(rng.random(len(right)) < p, right, wrong) for _ in range(60))
    found = [pm_k(sets, drawn, ks) for drawn in draws]
    values = np.stack([one.value for one in found])
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    assert np.abs(values.mean(axis=0) - expected).max() < 4 * error.max()
    assert (np.diff(values, axis=1) <= 0).all()
    cover = [(f.low <= expected) & (expected <= f.high) for f in found]
    assert np.mean(cover) > 0.92
    assert all(one.n == 1109 for one in found)


@needs_maps
def test_both_rules_on_the_real_frames():
    """Perfect by the frames' own labels; by the anchor's only where it shares a label."""
    near, labels = real()
    perfect = {f: own[-1] for f, own in labels.items()}
    by_frame = frame_sets(near, labels, rule="frame")
    assert pm_k(by_frame, [perfect[f] for f in by_frame.frames], (0, 10)).value.tolist() == [1, 1]
    by_anchor = frame_sets(near, labels, rule="anchor")
    got = pm_k(by_anchor, [perfect[f] for f in by_anchor.frames], (0, 10)).value
    same = np.mean([all(perfect[f] in labels[a] for f in own) for a, own in near.items()])
    assert got.tolist() == [1, same]
    assert same < 1


@needs_maps
def test_logits_are_merged_by_their_maximum():
    for name, classes, count in (("vid", 288, 30), ("ytbb", 231, 24)):
        mapping = json.loads((MAPS / f"{name}_robust_class_idx_map.json").read_text())
        groups = {
            target: [int(one) for one, t in mapping.items() if t == target]
            for target in mapping.values()
        }
        policy = class_map(groups, "max-logit", targets=count)
        assert (len(mapping), policy.width) == (classes, count)
        logits = np.random.default_rng(0).normal(size=(50, 1000))
        merged = policy.apply(logits)
        for target in range(count):
            own = [int(one) for one, t in mapping.items() if t == target]
            best = logits[:, own].max(axis=1) if own else np.full(50, -np.inf)
            assert np.array_equal(merged[:, target], best)


@pytest.mark.parametrize(
    ("near", "labels", "rule", "why"),
    [
        ({}, {}, "frame", "no anchor"),
        ({"a": {}}, {}, "frame", "'a' has no label"),
        ({"a": {"b": 1}}, {"a": [1]}, "frame", "judge by the anchor's"),
        ({"a": {"b": 0}}, {"a": [1], "b": [1]}, "frame", "is 0 from its anchor"),
        ({"a": {}}, {"a": [1]}, "frames", "did you mean 'frame'"),
    ],
)
def test_wrong_frame_sets(near, labels, rule, why):
    with pytest.raises(InputError, match=why):
        frame_sets(near, labels, rule=rule)


def test_wrong_predictions():
    sets = frame_sets({"a": {}}, {"a": [1]})
    with pytest.raises(InputError, match="1 frames need as many"):
        pm_k(sets, [1, 2])
    for ks in ([], [-1]):
        with pytest.raises(InputError, match="k must be"):
            pm_k(sets, [1], ks)
