import json

import numpy as np
import pytest

from shiftbed.store import PredictionStore, StoredTestSet, part_from_top
from tests.cli.in_process import shiftbed

NAMES = [f"v{a}/{f:03d}.jpg" for a in range(4) for f in range(5)]


@pytest.fixture
def place(tmp_path):
    """A model with four classes that are two superclasses; one frame is wrong, one missing."""
    store = PredictionStore(tmp_path / "store")
    truth = np.array([int(name[1]) for name in NAMES])
    store.add_test_set(
        StoredTestSet(setting="frames", examples=tuple(NAMES), labels=truth, fingerprint="f")
    )
    answers = np.where(np.arange(20) == 1, 3, truth)
    readable = np.arange(20) != 19
    store.write_part("m", "frames", 0, part_from_top(answers, readable))
    store.write_cell("m", "frames", {"status": "complete"})
    sets = {f"v{a}/002.jpg": [f"v{a}/{f:03d}.jpg" for f in (0, 1, 3, 4)] for a in range(4)}
    (tmp_path / "pmsets.json").write_text(json.dumps(sets))
    (tmp_path / "labels.json").write_text(json.dumps({n: [int(n[1]) // 2] for n in NAMES}))
    (tmp_path / "map.json").write_text(json.dumps({str(c): c // 2 for c in range(4)}))
    return tmp_path


FILES = ["--metadata", "pmsets.json", "--metadata", "labels.json", "--class-map", "map.json"]


def test_pm_k(place):
    done = shiftbed("consistency", "store", *FILES, "--k", "0-2", "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["rule"], found["anchors"], found["frames"]) == ("frame", 4, 20)
    rows = found["consistency"]
    assert [row["k"] for row in rows] == [0, 1, 2]
    assert [row["value"] for row in rows] == pytest.approx([1, 2 / 3, 2 / 3])
    assert all((row["n"], row["left_out"]) == (3, 1) for row in rows)
    assert found["missing_frames"] == {"m": ["v3/004.jpg"]}
    shown = shiftbed("consistency", "store", *FILES, "--rule", "anchor", cwd=place)
    assert "by their anchor's labels" in shown.stdout
    assert "no prediction for v3/004.jpg" in shown.stdout


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--k", "x"], "--k: expected"),
        (["--k", "5-99999999999"], "--k: expected"),
        (["--rule", "frames"], "did you mean 'frame'"),
    ],
)
def test_wrong_input(place, options, why):
    done = shiftbed("consistency", "store", *FILES, *options, cwd=place)
    assert done.returncode == 2
    assert why in done.stderr
