"""The generator: known answers, agreement of three implementations, distributions."""

import numpy as np
import pytest
import torch
from scipy import stats

from shiftbed.evaluation.corruptions import on_device, philox

# Philox4x32-10 known answers distributed with Random123 (Salmon et al. 2011)
KNOWN = [
    ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        0xFFFFFFFFFFFFFFFF,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        0x299F31D0A4093822,
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
KEYS = np.array([0, 1, 0x299F31D0A4093822, 2**64 - 1], np.uint64)


def words(key, stream, count):
    out = np.empty(count, np.uint32)
    philox.fill_words(np.uint64(key), stream, out)
    return out


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers(counter, key, answer):
    assert philox.block(key, counter) == answer


@pytest.mark.parametrize("key", KEYS.tolist())
def test_kernel_equals_the_definition(key):
    got = words(key, 7, 3000)
    for at in (0, 1, 255, 256, 1023, 1024, 2999):
        tile, lane, word = at // 1024, at % 256, at % 1024 // 256
        assert got[at] == philox.block(key, (256 * tile + lane, 7, 0, 0))[word]


def test_a_shorter_draw_is_the_start_of_a_longer_one():
    assert np.array_equal(words(5, 0, 100), words(5, 0, 5000)[:100])


def test_torch_draws_the_same_words_and_normals():
    drawn = on_device.words(KEYS, 3, 20_001, torch.device("cpu"))
    z = on_device.normals(drawn).numpy()
    for n, key in enumerate(KEYS):
        assert np.array_equal(drawn[n].numpy(), words(int(key), 3, 20_001))
        ours = np.empty(20_001, np.float32)
        philox.fill_normals(key, 3, ours)
        assert np.array_equal(ours.view(np.uint32), z[n].view(np.uint32))


def test_normals_are_the_inverse_distribution_function():
    word = np.concatenate([np.arange(0, 2**31, 99_991), np.arange(4000)])
    expected = stats.norm.isf((word + 0.5) / 2**32)
    z = on_device.normals(torch.from_numpy(word)).numpy()
    error = np.abs(z - expected)
    assert error[expected < 5.5].max() < 3e-6
    assert error.max() < 0.003
    mirrored = on_device.normals(torch.from_numpy(word + 2**31)).numpy()
    assert np.array_equal(mirrored, -z)


def test_words_and_normals_are_distributed_as_they_should():
    drawn = words(11, 0, 200_000)
    assert stats.kstest(drawn / 2**32, "uniform").pvalue > 1e-3
    z = np.empty(200_000, np.float32)
    philox.fill_normals(np.uint64(11), 1, z)
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.01


def test_keys_differ_in_every_part():
    keys = [
        int(philox.image_keys([i], seed, name, severity)[0])
        for i in ("a", "b")
        for seed in (0, 1)
        for name in ("fog", "snow")
        for severity in (1, 2)
    ]
    assert len(set(keys)) == len(keys)
    assert philox.image_keys(["1|a"], 0, "fog", 1) != philox.image_keys(["a"], 0, "fog", 1)
