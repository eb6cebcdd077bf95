"""The pipeline check: its interval is that of the images used."""

import numpy as np
import pytest

import shiftbed as sb


def set_of(n, right):
    """Images that say their class, and labels of which ``right`` agree."""
    classes = np.arange(n) % 2
    images = np.where(classes, 200, 50).astype(np.uint8)[:, None, None, None]
    labels = classes.copy()
    labels[right:] = 1 - labels[right:]
    return sb.TestSet(np.broadcast_to(images, (n, 8, 8, 3)).copy(), labels, name="set")


@pytest.fixture
def bright():
    def logits(x):
        mean = x.mean(axis=(1, 2, 3))
        return np.stack([0.5 - mean, mean - 0.5], axis=1)

    return sb.model(logits, name="bright", size=8)


def test_a_subset_is_a_sample_of_its_own(bright):
    """200 photographs of 50,000: ±6 points, not ±0.7 (√(p(1−p)/n) by hand)."""
    found = sb.check(bright, set_of(200, 150), published=0.80, published_n=50_000)
    half = 1.96 * np.sqrt(0.8 * 0.2 / 200) + 0.5 / 200
    assert found.n == 200
    assert found.measured == 0.75
    assert (found.low, found.high) == pytest.approx((-0.05 - half, -0.05 + half), abs=1e-4)
    assert 0.05 < half < 0.06
    assert found.agrees
    assert found.likely.startswith("none needed")


def test_a_draw_from_the_published_set_itself_is_surer(bright):
    """Half of the set: variance times 1 − n/N; all of it: only rounding is left."""
    whole = set_of(1000, 800)
    half = sb.check(bright, whole, published=0.8, published_n=1000, images=500)
    width = (half.high - half.low) / 2
    assert width == pytest.approx(1.96 * np.sqrt(0.16 / 500 * 0.5) + 0.001, abs=1e-4)
    all_of_it = sb.check(bright, whole, published=0.8, published_n=1000)
    assert all_of_it.discrepancy == pytest.approx(0)
    assert all_of_it.high < 0.003
