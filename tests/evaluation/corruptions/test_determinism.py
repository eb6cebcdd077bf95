"""Bit for bit the same, however images are batched, ordered and spread over threads."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shiftbed.evaluation.corruptions import NAMES, Corruption
from tests.evaluation.corruptions.images import batch, names

COUNT = 64


@pytest.mark.parametrize("name", NAMES)
def test_batches_order_and_threads(name):
    x, ids = batch(COUNT, 32, 40), names(COUNT)
    whole = Corruption(name=name, severity=1, threads=2)(x, ids)
    single = Corruption(name=name, severity=1, threads=1)
    assert np.array_equal(whole, single(x, ids))
    for size in (1, 7):
        parts = [single(x[i : i + size], ids[i : i + size]) for i in range(0, COUNT, size)]
        assert np.array_equal(whole, np.concatenate(parts))
    order = np.random.default_rng(0).permutation(COUNT)
    shuffled = Corruption(name=name, severity=1, threads=3)(x[order], [ids[i] for i in order])
    assert np.array_equal(whole[order], shuffled)


PROGRAM = """
import hashlib
from shiftbed.evaluation.corruptions import Corruption
from tests.evaluation.corruptions.images import batch, names
x = batch(2, 32, 32)
drawn = ("shot_noise", "snow", "elastic_transform")
done = [Corruption(name, 1)(x, names(2)).tobytes() for name in drawn]
digest = hashlib.sha256(b"".join(done)).hexdigest()
"""


def test_another_process_draws_the_same():
    other = subprocess.run(
        [sys.executable, "-c", PROGRAM + "print(digest)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    here: dict[str, str] = {}
    exec(PROGRAM, here)
    assert other.stdout.strip() == here["digest"]
