"""Phasing out and switching: exact numbers, the right examples, the same after a kill."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.errors import InputError
from shiftbed.training.curriculum import PhaseOut, Switch, examples_left, hardest_first, parse_phase
from shiftbed.training.loop import train
from shiftbed.training.objective import CrossEntropy
from tests.training.digit_runs import digits, make_run, trained


@pytest.fixture
def scored(tmp_path):
    """Three hundred digits, each as hard as its place in the order of ids."""
    data = digits(slice(0, 300))
    lines = [f"{example.partition('/')[2]},{int(example[-3:])}" for example in data.examples]
    (tmp_path / "scores.csv").write_text("example,score\n" + "\n".join(lines))
    hard = np.array([int(example[-3:]) for example in data.examples])
    return data, hard, str(tmp_path)


@given(
    total=st.integers(1, 5000),
    part=st.floats(0, 1),
    until=st.floats(0.01, 1),
    share=st.floats(0, 1),
)
def test_numbers_fall_from_all_to_what_is_left(total, part, until, share):
    left = max(1, int(part * total))
    assert examples_left(total, left, 0.0, until) == total
    assert examples_left(total, left, until, until) == left
    now = examples_left(total, left, share, until)
    assert left <= now <= total
    assert now >= examples_left(total, left, min(1.0, share + 0.1), until)


def followed(run, stops=()):
    """The rows of each epoch while the run is trained."""
    seen: dict[int, np.ndarray] = {}
    original = run.stream.epoch

    def epoch(number, skip=0):
        seen[number] = run.stream.kept.copy()
        return original(number, skip)

    run.stream.epoch = epoch
    train(run, [*stops, run.steps], lambda one: None)
    return seen


@pytest.mark.parametrize("until", [0.8, 1.0])
@pytest.mark.parametrize("per_class", [False, True])
def test_easy_examples_go_first_until_so_many_are_left(scored, per_class, until):
    data, hard, base = scored
    hook = PhaseOut("scores.csv", left=40, until=until, per_class=per_class)
    run = make_run(CrossEntropy(), data=data, hooks=(hook,), steps=30, base=base)
    seen = followed(run)
    sizes = [len(rows) for rows in seen.values()]
    assert sizes[0] == 300
    assert sizes[-1] == 40
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 4
    assert run.step == 30
    assert hook.facts() == {"examples_left": 40}
    for rows in seen.values():
        gone = np.setdiff1d(np.arange(300), rows)
        if not len(gone):
            continue
        if per_class:
            counts = np.bincount(data.labels[rows], minlength=10)
            assert np.abs(counts - len(rows) * np.bincount(data.labels) / 300).max() <= 1
        else:
            assert hard[rows].min() > hard[gone].max()


def test_equal_scores_do_not_depend_on_the_order_of_rows(scored):
    data, _, _ = scored
    same = np.ones(300)
    order = hardest_first(data, same)
    assert sorted(order.tolist()) == list(range(300))
    from dataclasses import replace

    turned = replace(data, rows=data.rows[::-1].copy(), labels=data.labels[::-1].copy())
    ids = [data.examples[row] for row in order]
    assert ids == [turned.examples[row] for row in hardest_first(turned, same)]


def test_switches_take_the_right_examples_at_the_right_time(scored):
    data, hard, base = scored
    hook = Switch(["easiest:4", "all@0.3", "random:5@0.6", "hardest:3@0.8"], "scores.csv")
    run = make_run(CrossEntropy(), data=data, hooks=(hook,), steps=40, base=base)
    kept: list[tuple[int, np.ndarray]] = []
    before = hook.before_epoch

    def noting(run):
        before(run)
        kept.append((run.step, run.stream.kept.copy()))

    hook.before_epoch = noting
    trained(run)
    for step, rows in kept:
        counts = np.bincount(data.labels[rows], minlength=10)
        if step < 12:
            assert (counts == 4).all()
            wanted = [hard[data.labels == c] for c in range(10)]
            limit = [np.sort(own)[3] for own in wanted]
            assert (hard[rows] <= np.array(limit)[data.labels[rows]]).all()
        elif step < 24:
            assert len(rows) == 300
        elif step < 32:
            assert (counts == 5).all()
        else:
            assert (counts == 3).all()
            limit = [np.sort(hard[data.labels == c])[-3] for c in range(10)]
            assert (hard[rows] >= np.array(limit)[data.labels[rows]]).all()
    assert hook.facts() == {"phase": "hardest"}
    assert {len(rows) for _, rows in kept} == {40, 300, 50, 30}


@pytest.mark.parametrize(
    "make",
    [
        lambda: PhaseOut("scores.csv", left=50),
        lambda: Switch(["random:8", "hardest:6@0.5"], "scores.csv"),
    ],
    ids=["phase out", "switch"],
)
def test_a_killed_run_goes_on_with_the_same_examples(scored, make):
    import torch

    data, _, base = scored
    whole = make_run(CrossEntropy(), data=data, hooks=(make(),), steps=24, base=base)
    states = {}
    train(whole, [11, 24], lambda run: states.setdefault(run.step, _copied(run.state())))
    again = make_run(CrossEntropy(), data=data, hooks=(make(),), steps=24, base=base)
    again.begin(states[11])
    train(again, [24], lambda run: None)
    ends = whole.network.state_dict(), again.network.state_dict()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    assert np.array_equal(whole.stream.kept, again.stream.kept)
    assert whole.hooks[0].facts() == again.hooks[0].facts()


def _copied(state):
    from copy import deepcopy

    return deepcopy(state)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PhaseOut("s.csv", left=0), "left must be a whole number from 1"),
        (lambda: PhaseOut("s.csv", left=5, until=0), "until must be a number in"),
        (lambda: Switch(["hardest"]), "need a count"),
        (lambda: Switch(["hard:3"]), "did you mean 'hardest'"),
        (lambda: Switch(["random:3@0.5"]), "must begin at 0"),
        (lambda: Switch(["random:3", "all@0.5", "random:2@0.5"]), "begin at 0 and grow"),
        (lambda: Switch(["easiest:3"]), "need scores"),
        (lambda: parse_phase("random:3@1"), "must be a number in"),
        (lambda: parse_phase("3"), "KEEP:COUNT@SHARE"),
        (lambda: parse_phase("all@0.5.1"), "KEEP:COUNT@SHARE"),
    ],
)
def test_schedules_that_cannot_be_followed(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_scores_must_cover_the_data(scored, tmp_path):
    data, _, base = scored
    (tmp_path / "few.csv").write_text("example,score\n000,1\n")
    hook = PhaseOut("few.csv", left=5)
    with pytest.raises(InputError, match="no finite difficulty score for example"):
        make_run(CrossEntropy(), data=data, hooks=(hook,), base=base)
    with pytest.raises(InputError, match="cannot leave 301 of 300"):
        make_run(CrossEntropy(), data=data, hooks=(PhaseOut("scores.csv", left=301),), base=base)
