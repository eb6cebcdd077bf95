import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.captioning.selection import ranks, select
from shiftbed.errors import InputError

SPREAD = (1 << 64) // 41
ROWS = st.lists(st.tuples(st.integers(0, 40), st.integers(-2, 3).filter(lambda c: c != -1)))


def of(rows, **options):
    """Ranks are spread over all 64 bits, and the rows over two pieces."""
    rank = np.array([r * SPREAD for r, _ in rows], dtype=np.uint64)
    code = np.array([c for _, c in rows], dtype=np.int32)
    half = len(rows) // 2
    return select([(rank[:half], code[:half]), (rank[half:], code[half:])], 4, **options)


@given(ROWS, st.integers(1, 4), st.integers(0, 4), st.randoms())
def test_threshold_balance_and_order(rows, per_class, more, shuffle):
    """Against counting in plain Python."""
    found = of(rows, per_class=per_class, min_matches=per_class + more)
    images = {}
    for rank, code in rows:
        images.setdefault(rank, set()).add(code)
    of_class = [sorted(r for r, c in images.items() if c == {k}) for k in range(4)]
    assert found.matches.tolist() == [len(one) for one in of_class]
    assert found.kept.tolist() == [len(one) >= per_class + more for one in of_class]
    drawn = {(r, k) for k in range(4) if found.kept[k] for r in of_class[k][:per_class]}
    ranked = [rank // SPREAD for rank in found.ranks.tolist()]
    assert set(zip(ranked, found.labels.tolist(), strict=True)) == drawn
    assert ranked == sorted(ranked)
    assert found.duplicates == len(rows) - len(images)
    assert found.conflicts == sum(len(one) > 1 for one in images.values())
    counts = np.bincount(found.labels, minlength=4)
    assert set(counts[found.kept].tolist()) <= {per_class}
    mixed = list(rows)
    shuffle.shuffle(mixed)
    again = of(mixed, per_class=per_class, min_matches=per_class + more)
    assert again.ranks.tolist() == found.ranks.tolist()
    assert again.labels.tolist() == found.labels.tolist()


def test_ranks_depend_on_the_seed_and_nothing_else():
    names = [f"id:{i}" for i in range(1000)]
    once = ranks(names, 0)
    assert (ranks(names[::-1], 0)[::-1] == once).all()
    assert not (ranks(names, 1) == once).any()
    assert len(np.unique(once)) == 1000
    assert abs(np.corrcoef(once.astype(float), ranks(names, 1).astype(float))[0, 1]) < 0.15
    assert ranks(["\ud800"], 0).shape == (1,)


def test_draws_are_uniform():
    """Every image is as likely to be drawn: the first half of the ids gets half of the places."""
    names = [f"id:{i}" for i in range(200)]
    first = [int((ranks(names, s).argsort()[:50] < 100).sum()) for s in range(200)]
    assert np.mean(first) == pytest.approx(25, abs=4 * 3.1 / np.sqrt(200))


@pytest.mark.parametrize(("least", "each"), [(10, 11), (0, 0), (5, -1)])
def test_sizes_must_fit(least, each):
    with pytest.raises(InputError, match="--"):
        of([], min_matches=least, per_class=each)
