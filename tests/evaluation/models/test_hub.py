"""The hub's protocol, spoken by a server of the test: models pulled by revision, then offline."""

import json
import os
import subprocess
import sys

import pytest

from shiftbed.evaluation.compat import ensure_torchvision
from tests.hubs import COMMIT, hub

torch = pytest.importorskip("torch")
pytest.importorskip("huggingface_hub")

OPEN = """
import json, sys
from shiftbed.errors import InputError
from shiftbed.evaluation.models import resolve
import numpy as np
try:
    model = resolve(sys.argv[1])
except InputError as error:
    sys.exit(f"refused: {error}")
x = np.full((1, 3, *model.preprocessing.size), 128, np.uint8)
logits = model.logits(x).tolist()
print(json.dumps({"logits": logits, "id": model.id, "commit": model.facts.get("commit")}))
"""


def opened(line, endpoint, home):
    given = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
    given |= {"SHIFTBED_CACHE": str(home / "shiftbed"), "TORCH_HOME": str(home / "torch")}
    return subprocess.run(
        [sys.executable, "-c", OPEN, line],
        capture_output=True,
        text=True,
        env=os.environ | given,
        timeout=170,
    )


def test_a_model_by_revision_and_again_offline(tmp_path):
    ensure_torchvision()
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        image_size=32, patch_size=8, num_labels=4,
    )  # fmt: skip
    torch.manual_seed(0)
    network = transformers.ViTForImageClassification(config).eval()
    network.save_pretrained(tmp_path / "served")
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(
        tmp_path / "served"
    )
    asked = []
    with hub({"owner/tiny": tmp_path / "served"}, asked) as endpoint:
        first = opened("hf:owner/tiny?revision=v1", endpoint, tmp_path / "home")
        assert first.returncode == 0, first.stderr[-2000:]
        other = opened("hf:owner/tiny?revision=v9", endpoint, tmp_path / "home")
        assert other.returncode == 1
        assert other.stderr.startswith("refused: hf:owner/tiny?revision=v9: its files are not on")
    assert any(path.endswith(f"/resolve/{COMMIT}/model.safetensors") for path in asked)
    again = opened("hf:owner/tiny?revision=v1", endpoint, tmp_path / "home")  # nobody answers
    assert again.stdout == first.stdout
    grey = torch.full((1, 3, 32, 32), (128 / 255 - 0.5) / 0.5)
    with torch.inference_mode():
        expected = network(grey).logits[0].tolist()
    assert json.loads(first.stdout)["logits"][0] == pytest.approx(expected, abs=1e-4)
    assert json.loads(first.stdout)["commit"] == COMMIT
    assert (tmp_path / "home" / "hub" / "models--owner--tiny" / "snapshots" / COMMIT).is_dir()


@pytest.mark.slow
def test_a_pre_trained_model_of_timm_and_again_offline(tmp_path):
    """Its name leads to the hub: no weights are given."""
    ensure_torchvision()
    timm = pytest.importorskip("timm")
    from safetensors.torch import save_file

    torch.manual_seed(1)
    network = timm.create_model("test_vit").eval()
    (tmp_path / "served").mkdir()
    save_file(network.state_dict(), tmp_path / "served" / "model.safetensors")
    line = "timm:test_vit.r160_in1k"
    with hub({"timm/test_vit.r160_in1k": tmp_path / "served"}, []) as endpoint:
        first = opened(line, endpoint, tmp_path / "home")
        assert first.returncode == 0, first.stderr[-2000:]
    again = opened(line, endpoint, tmp_path / "home")
    assert again.stdout == first.stdout
    config = network.pretrained_cfg
    mean, std = (torch.tensor(config[key]).view(1, 3, 1, 1) for key in ("mean", "std"))
    with torch.inference_mode():
        expected = network((torch.full((1, 3, 160, 160), 128 / 255) - mean) / std)[0].tolist()
    assert json.loads(first.stdout)["logits"][0] == pytest.approx(expected, abs=1e-3)
    never = opened(line, endpoint, tmp_path / "elsewhere")
    assert never.stderr.startswith(f"refused: {line}: its files are not on this machine")
    assert never.stderr.count("\n") == 1


def test_weights_of_open_clip_by_url(tmp_path, monkeypatch):
    ensure_torchvision()
    open_clip = pytest.importorskip("open_clip")
    from shiftbed.evaluation.models import resolve
    from tests.evaluation.models.test_clip import ARCH, CONFIG, NAMES, X

    monkeypatch.setenv("SHIFTBED_CACHE", str(tmp_path / "cache"))
    config = tmp_path / f"{ARCH}.json"
    config.write_text(CONFIG)
    open_clip.add_model_config(config)
    torch.manual_seed(9)
    network = open_clip.create_model(ARCH, pretrained_text=False)
    (tmp_path / "served").mkdir()
    torch.save(network.state_dict(), tmp_path / "served" / "clip.pt")
    with hub({"": tmp_path / "served"}, []) as endpoint:
        remote = resolve(f"open_clip:{ARCH}?weights={endpoint}/clip.pt", classes=NAMES)
    here = resolve(f"open_clip:{ARCH}?weights={tmp_path / 'served' / 'clip.pt'}", classes=NAMES)
    assert remote.logits(X).tolist() == here.logits(X).tolist()
    assert remote.id == here.id
