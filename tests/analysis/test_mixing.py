"""Mixed classifiers lie on the chord; votes equal a count; ρ is that of the spine."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.analysis.baseline import fit_baseline
from shiftbed.analysis.mixing import (
    majority_vote,
    mixed,
    robustness_of,
)
from shiftbed.analysis.robustness import effective_robustness
from shiftbed.errors import InputError


def test_drawn_mixtures_scatter_about_the_chord():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 2000)
    a = np.where(rng.random(2000) < 0.9, labels, 11)
    b = np.where(rng.random(2000) < 0.5, labels, 12)
    for alpha in (0.0, 0.3, 1.0):
        takes_a = rng.random((200, 2000)) < alpha
        drawn = (np.where(takes_a, a, b) == labels).mean(axis=1)
        expected = mixed((a == labels).mean(), (b == labels).mean(), [alpha])[0]
        assert np.mean(drawn) == pytest.approx(expected, abs=4 * 0.012 / 200**0.5 + 1e-12)


def test_mixed_per_example_averages_to_the_chord():
    right = np.random.default_rng(0).random((2, 500)) < 0.7
    each = mixed(right[0], right[1], [0.25, 0.5])
    assert each.shape == (500, 2)
    assert each.mean(axis=0) == pytest.approx(mixed(*right.mean(axis=1), [0.25, 0.5]))


@given(m=st.integers(1, 7), seed=st.integers(0, 99))
def test_vote_equals_a_count(m, seed):
    classes = np.random.default_rng(seed).integers(0, 3, (m, 40))
    found = majority_vote(classes)
    for column, winner in zip(classes.T, found, strict=True):
        count = Counter(column.tolist())
        most = max(count.values())
        assert winner == next(c for c in column if count[int(c)] == most)  # earliest of the tied


def test_rho_of_made_classifiers():
    rng = np.random.default_rng(0)
    hard, harder = rng.standard_normal(4000), rng.standard_normal(3000) + 0.5
    ability = np.linspace(-0.3, 1.5, 15)[:, None]
    sides = [ability - h + 0.7 * rng.standard_normal((15, len(h))) > 0 for h in (hard, harder)]
    line = fit_baseline(*(side.mean(axis=1) for side in sides), sizes=np.full((15, 2), 4000))
    rows = [mixed(side[0], side[14], [0.0, 0.5, 1.0]).T for side in sides]
    paired = robustness_of(line, *rows, *sides)
    alone = effective_robustness(line, *(row.mean(axis=1) for row in rows), n_id=4000, n_ood=3000)
    ids, oods = (row.mean(axis=1) for row in rows)
    assert paired.effective == pytest.approx(oods - line.predict(ids))
    assert paired.effective == pytest.approx(alone.effective)
    assert paired.effective[1] > max(paired.effective[[0, 2]])  # the chord lies above the curve
    assert paired.paired.all()
    assert not alone.paired.any()
    assert (paired.high - paired.low < alone.high - alone.low).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mixed(0.5, 0.6, [1.2]), "α must be a fraction"),
        (lambda: majority_vote(np.zeros((0, 3), int)), "a vote needs"),
    ],
)
def test_what_cannot_be_made(call, message):
    with pytest.raises(InputError, match=message):
        call()
