"""Large blocks are used again, unless the environment says how memory is to be kept."""

import json
import os
import subprocess
import sys

import pytest

from shiftbed.evaluation.memory import _glibc, reused_memory

TRIED = """
import json, resource
import numpy as np
from shiftbed.evaluation.memory import reused_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def resident():
    return int(open("/proc/self/statm").read().split()[1])

def taken():
    before = faults()
    for _ in range(8):
        np.ones(1 << 24)
    return faults() - before

with reused_memory():
    with reused_memory():
        np.ones(1 << 24)
    within, whole = taken(), resident()
print(json.dumps({"within": within, "returned": whole - resident(), "after": taken()}))
"""
PAGES = (8 << 24) * 8 // os.sysconf("SC_PAGESIZE")
"""Pages of the eight arrays."""
glibc = pytest.mark.skipif(_glibc() is None, reason="needs glibc's malloc, as it comes")


def tried(**environment: str) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", TRIED], env=os.environ | environment, capture_output=True, check=True
    )
    found: dict[str, int] = json.loads(done.stdout)
    return found


@glibc
def test_a_block_as_large_as_one_before_takes_no_new_pages_and_is_returned_at_the_end() -> None:
    found = tried()
    assert found["within"] < PAGES / 1000
    assert found["returned"] > PAGES / 8 / 2
    assert found["after"] > found["within"]  # as it was


@glibc
@pytest.mark.parametrize(
    "given", [{"MALLOC_MMAP_THRESHOLD_": "131072"}, {"GLIBC_TUNABLES": "glibc.malloc.top_pad=0"}]
)
def test_what_the_environment_says_holds(given: dict[str, str]) -> None:
    assert tried(**given)["returned"] < PAGES / 8 / 2


def test_nothing_is_set_where_the_c_library_is_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert _glibc.__wrapped__() is None
    monkeypatch.setattr("shiftbed.evaluation.memory._glibc", lambda: None)
    with reused_memory():
        pass
