"""The hub's protocol, spoken by a server of the test: a model pulled by revision, then offline."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from shiftbed.evaluation.compat import ensure_torchvision

torch = pytest.importorskip("torch")
pytest.importorskip("huggingface_hub")

COMMIT = hashlib.sha1(b"first").hexdigest()
OPEN = """
import json, sys
from shiftbed.errors import InputError
from shiftbed.evaluation.models import resolve
import numpy as np
try:
    model = resolve(sys.argv[1])
except InputError as error:
    sys.exit(f"refused: {error}")
x = np.full((1, 3, 32, 32), 128, np.uint8)
print(json.dumps({"logits": model.logits(x).tolist(), "id": model.id}))
"""


@contextmanager
def hub(folder, asked):
    """``/OWNER/NAME/resolve/REVISION/FILE`` with the headers that clients need."""

    class Answers(BaseHTTPRequestHandler):
        def do_HEAD(self):
            asked.append(self.path)
            parts = self.path.partition("?")[0].strip("/").split("/")
            known = len(parts) == 5 and parts[:3] == ["owner", "tiny", "resolve"]
            file = folder / parts[-1] if known and parts[3] in ("v1", COMMIT) else None
            found = file is not None and file.is_file()
            data = file.read_bytes() if found else b""
            self.send_response(200 if found else 404)
            if not found:
                self.send_header("X-Error-Code", "EntryNotFound" if file else "RevisionNotFound")
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        do_GET = do_HEAD

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def opened(line, endpoint, home):
    more = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
    return subprocess.run(
        [sys.executable, "-c", OPEN, line],
        capture_output=True,
        text=True,
        env=os.environ | more,
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
    with hub(tmp_path / "served", asked) as endpoint:
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
    assert (tmp_path / "home" / "hub" / "models--owner--tiny" / "snapshots" / COMMIT).is_dir()
