"""Data sets of the hub by revision, from a server that speaks its protocol; then offline."""

import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.hub import address_of
from tests.hubs import COMMIT, hub

pytest.importorskip("huggingface_hub")
datasets = pytest.importorskip("datasets")
PROGRAM = [sys.executable, "-c", "from shiftbed.cli import main; main()"]
MODEL = """
import numpy as np

def bright(pixels):
    level = pixels.mean(axis=(1, 2, 3))
    return np.stack([-level, level - 1.0], axis=1).astype("float32") + np.array([[0.5, 0.5]], "f4")
"""


@pytest.fixture
def served(tmp_path):
    """Two shards of a test set as ``push_to_hub`` writes them: dark or bright pictures."""
    from PIL import Image

    (tmp_path / "served" / "data").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for shard in range(2):
        labels = rng.integers(0, 2, 20)
        pictures = []
        for label in labels:
            file = io.BytesIO()
            level = 200 * label + rng.integers(0, 50, (8, 8, 3))
            Image.fromarray(level.astype(np.uint8)).save(file, "PNG")
            pictures.append({"bytes": file.getvalue(), "path": None})
        features = datasets.Features(
            {"image": datasets.Image(), "label": datasets.ClassLabel(names=["dark", "bright"])}
        )
        made = datasets.Dataset.from_dict({"image": pictures, "label": labels}, features=features)
        made.to_parquet(tmp_path / "served" / "data" / f"test-0000{shard}-of-00002.parquet")
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path / "served"


def evaluated(url, endpoint, folder, store):
    given = {"HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "home")}
    return subprocess.run(
        [
            *(*PROGRAM, "eval", "python:model.py:bright", url, "--store", store, "--json"),
            *("--preprocessing", "size=8", "--preprocessing", "crop=none"),
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | given | {"HF_HUB_DISABLE_TELEMETRY": "1"},
        timeout=170,
    )


OPEN = """
import sys
from shiftbed.errors import InputError
from shiftbed.evaluation.data import open_test_set
try:
    found = open_test_set(sys.argv[1])
except InputError as error:
    sys.exit(str(error))
print(found.fingerprint)
"""


def opened(url, endpoint, folder):
    given = {"HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "home")}
    command = [sys.executable, "-c", OPEN, url]
    return subprocess.run(
        command, capture_output=True, text=True, env=os.environ | given, timeout=170
    )


def test_a_data_set_by_revision_and_again_offline(served, tmp_path):
    asked = []
    url = "hf://datasets/owner/pictures@{}/data/test-*.parquet"
    with hub({"datasets/owner/pictures": served}, asked) as endpoint:
        first = evaluated(url.format("v1"), endpoint, tmp_path, "one")
        assert first.returncode == 0, first.stderr[-2000:]
        assert first.stderr == ""
        whole = opened(url.format("v1"), endpoint, tmp_path)
        other = opened(url.format("v9"), endpoint, tmp_path)
        assert "could not be fetched" in other.stderr
        assert other.stderr.count("\n") == 1
    assert f"datasets/owner/pictures/resolve/{COMMIT}/data/test-00001-of-00002.parquet" in asked
    told = json.loads(first.stdout)
    assert (told["settings"][0]["metric"], told["settings"][0]["n"]) == ("top1", 40)
    assert told["settings"][0]["value"] == 1.0
    assert [COMMIT in note for notes in told["notes"].values() for note in notes] == [True]
    again = evaluated(url.format("v1"), endpoint, tmp_path, "again")  # nobody answers
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["settings"] == told["settings"]
    pinned = opened(url.format(COMMIT), endpoint, tmp_path)
    assert pinned.stdout == whole.stdout != ""
    for missing in ("v2", "0" * 40):
        never = opened(url.format(missing), endpoint, tmp_path)
        assert "not in the hub's cache and could not be fetched" in never.stderr
        assert never.stderr.count("\n") == 1


def test_addresses():
    assert address_of("s3://bucket/a") is None
    assert address_of("hf://owner/net@refs%2Fpr%2F1/a.onnx").revision == "refs/pr/1"
    assert address_of("hf://datasets/a/b").url == "hf://datasets/a/b@main/"
    with pytest.raises(InputError, match=r"expected hf://datasets/OWNER/NAME"):
        address_of("hf://owner")
