"""Whatever a file holds, it is either a test set or one line of complaint."""

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.evaluation.data import open_test_set
from tests.evaluation.data.conftest import check, members_of, to_dataset, write_tar

FILES = ("a.tar", "a.parquet", "stored.npz", "packed.npz", "a.npy", "a.csv")


def write(folder, name, photos):
    """A small test set of one format."""
    path = folder / name
    arrays = {"images": np.zeros((2, 4, 4), np.uint8), "labels": [0, 1]}
    if name == "a.tar":
        write_tar(path, [one for photo in photos for one in members_of(photo)])
    elif name == "a.parquet":
        to_dataset(photos).to_parquet(path)
    elif name == "stored.npz":
        np.savez(path, **arrays)
    elif name == "packed.npz":
        np.savez_compressed(path, **arrays)
    elif name == "a.npy":
        np.save(path, arrays["images"])
        np.save(folder / "labels.npy", arrays["labels"])
    else:
        (folder / "1.jpg").write_bytes(photos[0].data)
        path.write_text("path,label\n1.jpg,0\n2.jpg,cat\n")
    return path


def mutated(data, rng):
    """With some bytes changed, dropped or put in, half of the time near the start."""
    new = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(min(len(new), 600) if rng.random() < 0.5 else len(new)))
        what = rng.integers(4)
        if what == 0:
            new[at] ^= 1 << int(rng.integers(8))
        elif what == 1:
            new[at : at + int(rng.integers(1, 9))] = b""
        elif what == 2:
            new[at:at] = rng.bytes(int(rng.integers(1, 5)))
        elif rng.random() < 0.2:
            del new[max(at, 1) :]
    return bytes(new)


@pytest.mark.parametrize("name", FILES)
def test_mutated_files(tmp_path, photos, name):
    path = write(tmp_path, name, photos[:2])
    whole = path.read_bytes()
    rng = np.random.default_rng(FILES.index(name))
    refusals = []
    for _ in range(150):
        path.write_bytes(mutated(whole, rng))
        try:
            test_set = open_test_set(path)
        except InputError as error:
            refusals.append(str(error))
        else:
            assert test_set.fingerprint
            assert len(check(test_set)) <= len(test_set)
    assert 20 < len(refusals) < 150
    assert not any("\n" in message for message in refusals)
