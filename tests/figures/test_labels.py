"""Labels keep off each other, off their points, and in the box."""

from itertools import combinations

import numpy as np
import pytest

from shiftbed.figures.labels import place_labels, rim, shorten

BOX = np.array([0.0, 0.0, 500.0, 400.0])


@pytest.mark.parametrize("seed", range(5))
def test_labels_do_not_overlap_and_stay_inside(seed: int) -> None:
    rng = np.random.default_rng(seed)
    anchors = rng.uniform(200, 300, size=(8, 2))
    sizes = np.column_stack([rng.uniform(60, 120, 8), np.full(8, 10.0)])
    cloud = rng.uniform(150, 350, size=(200, 2))
    centres = place_labels(anchors, sizes, np.vstack([anchors, cloud]), BOX)
    assert (centres - sizes / 2 >= BOX[:2]).all()
    assert (centres + sizes / 2 <= BOX[2:]).all()
    for i, j in combinations(range(8), 2):
        assert (np.abs(centres[i] - centres[j]) >= (sizes[i] + sizes[j]) / 2).any()
    assert (np.hypot(*(rim(anchors, centres, sizes) - anchors).T) > 0).all()
    np.testing.assert_array_equal(
        centres, place_labels(anchors, sizes, np.vstack([anchors, cloud]), BOX)
    )


def test_nothing_to_place() -> None:
    assert place_labels(np.empty((0, 2)), np.empty((0, 2)), np.empty((0, 2)), BOX).shape == (0, 2)


def test_long_names_lose_their_middle() -> None:
    short = shorten("a" * 60 + "_" + "z" * 60)
    assert len(short) <= 2 * 28
    assert "…" in short
    assert short.count("\n") == 1
    assert shorten("two\nlines") == "two lines"
