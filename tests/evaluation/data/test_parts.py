"""Parts of a data set: disjoint, exact, and everything together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.catalogue.entries import PARTS
from shiftbed.errors import InputError
from shiftbed.evaluation.data import open_test_set
from shiftbed.evaluation.data.parts import exact, part_rows
from tests import trees

SETS = st.lists(st.integers(0, 4), min_size=1, max_size=60)
SHARES = st.decimals("0.01", "0.45", places=2).map(float)


@given(SETS, SHARES, SHARES)
def test_parts_are_disjoint_exact_and_everything(labels, held_out, validation):
    examples, y = [f"image-{i}" for i in range(len(labels))], np.array(labels)
    found = {part: part_rows(examples, y, part, held_out, validation) for part in PARTS}
    assert sorted(np.concatenate(list(found.values())).tolist()) == list(range(len(labels)))
    for label in set(labels):
        n = labels.count(label)
        assert (y[found["held-out"]] == label).sum() == exact(held_out, n)
        left = n - exact(held_out, n)
        assert (y[found["validation"]] == label).sum() == min(exact(validation, n), left)
    alone = part_rows(examples, y, "held-out", held_out)
    assert alone.tolist() == found["held-out"].tolist()


def test_parts_of_a_domain_by_their_names(tmp_path):
    trees.domain(tmp_path, "pacs")
    names = {part: set(open_test_set(f"pacs/sketch/{part}@{tmp_path}").examples) for part in PARTS}
    every = open_test_set(f"pacs/sketch@{tmp_path}").examples
    assert set().union(*names.values()) == set(every)
    assert sum(map(len, names.values())) == len(every)
    with pytest.raises(InputError, match="did you mean 'held-out'"):
        open_test_set(f"pacs/sketch/heldout@{tmp_path}")
