"""Exported graphs are kept between processes, and used only while they answer as the network."""

import numpy as np
import pytest

from shiftbed.evaluation import kept_graphs
from shiftbed.evaluation.backends import exported
from shiftbed.evaluation.models import model as opened

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*deprecated:FutureWarning")
X = np.random.default_rng(0).random((3, 3, 8, 8), np.float32)


class Net(torch.nn.Module):
    """Its factor is neither a weight nor a setting that can be seen."""

    def __init__(self, factor):
        super().__init__()
        self.line = torch.nn.Linear(192, 4)
        self.factor = [factor]
        self.preprocessing = {"size": (8, 8), "crop": "none"}

    def forward(self, x):
        return torch.relu(self.line(x.flatten(1) * self.factor[0]))  # no head of its own


def model(seed=0, factor=1.0):
    torch.manual_seed(seed)
    return opened(Net(factor).eval(), name="net")


@pytest.fixture
def exports(tmp_path, monkeypatch):
    """How often a graph was exported, with an empty cache."""
    monkeypatch.setenv("SHIFTBED_CACHE", str(tmp_path))
    calls, export = [], torch.onnx.export
    monkeypatch.setattr(torch.onnx, "export", lambda *a, **k: calls.append(1) or export(*a, **k))
    return calls


def assert_same(one):
    assert np.allclose(exported(one)(X), one.logits(X), atol=1e-4)


def test_a_graph_is_exported_once(exports, tmp_path):
    assert_same(model())
    assert_same(model())
    assert len(exports) == 1
    assert_same(model(seed=1))  # other weights
    assert len(exports) == 2
    folders = list((tmp_path / "graphs").iterdir())
    assert len(folders) == 2
    assert all((one / "model.onnx").is_file() for one in folders)


def test_one_that_answers_otherwise_or_is_damaged_is_exported_anew(exports, tmp_path):
    assert_same(model())
    assert_same(model(factor=2.0))  # the same weights and names
    assert len(exports) == 2
    (file,) = (tmp_path / "graphs").glob("*/model.onnx")
    file.write_bytes(file.read_bytes()[:100])
    assert_same(model(factor=2.0))
    assert len(exports) == 3


def test_the_oldest_go_when_there_is_no_room(exports, tmp_path, monkeypatch):
    assert_same(model())
    monkeypatch.setattr(kept_graphs, "ROOM", 1)
    assert_same(model(seed=1))
    assert list((tmp_path / "graphs").iterdir()) == []


def test_without_a_place_to_keep_it_nothing_is_kept(exports, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SHIFTBED_CACHE", str(tmp_path / "file"))
    assert_same(model())
    assert_same(model())
    assert len(exports) == 2
