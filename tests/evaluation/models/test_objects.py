"""Models from objects: modules, functions, estimators; and weights, which are never ignored."""

import copy
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import nn

from shiftbed.errors import InputError
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.models import FunctionModel, Model, TorchModel, model, resolve
from shiftbed.evaluation.preprocessing import Preprocessing

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 3, 8, 8), dtype=np.uint8)
MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.2, 0.1)


def network(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 6)
        )


def by_hand(module: nn.Module) -> np.ndarray:
    x = torch.from_numpy(PIXELS).float() / 255
    shape = (1, 3, 1, 1)
    x = (x - torch.tensor(MEAN).view(shape)) / torch.tensor(STD).view(shape)
    with torch.no_grad():
        return copy.deepcopy(module).eval()(x).numpy()


def refusal(make, *words):
    with pytest.raises(InputError) as caught:
        make()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, f"{word!r} is not in {message!r}"


def test_a_module():
    module = network()
    found = model(module, name="mine", size=8, mean=MEAN, std=STD)
    assert isinstance(found, TorchModel)
    assert (found.id, found.classes, found.spec) == ("mine", 6, None)
    assert found.describe()["architecture"] == "Sequential"
    np.testing.assert_allclose(found.logits(PIXELS), by_hand(module), atol=1e-5)
    assert model(module, size=(8, 8)).id == "Sequential"


def test_a_module_in_training_is_left_alone():
    module = network().train()
    module[2].eval()
    module(torch.rand(4, 3, 8, 8)).sum().backward()
    before = copy.deepcopy(module.state_dict())
    found = model(module, size=8, precision="bfloat16")
    found.logits(PIXELS)
    assert [part.training for part in module] == [True, True, False, True, True]
    assert all(one.requires_grad and one.grad is not None for one in module.parameters())
    for name, value in module.state_dict().items():
        assert value.dtype == before[name].dtype
        assert torch.equal(value, before[name])
    assert not found.module.training


def test_a_model_is_the_module_as_it_was():
    module = network()
    found = model(module, size=8)
    before = found.logits(PIXELS)
    with torch.no_grad():
        module[4].bias += 1
    assert np.array_equal(found.logits(PIXELS), before)
    assert not np.allclose(model(module, size=8).logits(PIXELS), before)


def test_fingerprints_of_modules():
    first = model(network(), name="a", size=8)
    assert first.fingerprint.startswith("sha256:")
    assert first.fingerprint == model(network(), name="b", size=8).fingerprint
    others = [
        model(network(1), size=8),
        model(network(), size=8, mean=0.5),
        model(network(), size=8, precision="bfloat16"),
        model(nn.Sequential(network(), nn.Identity()), size=8),
        model(nn.Sequential(*network()[:4], nn.ReLU(), network()[4]), size=8),
    ]
    assert len({first.fingerprint, *(one.fingerprint for one in others)}) == 6
    wrapped = model(nn.DataParallel(network()), size=8)
    assert wrapped.fingerprint == first.fingerprint


def test_channels_follow_the_mean():
    grey = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    assert model(grey, size=8, mean=(0.5,), std=(0.25,)).preprocessing.mode == "L"
    assert model(grey, size=8, mode="L").preprocessing.channels == 1
    refusal(lambda: model(grey, size=8, mean=0.5), "does not take an image of shape (1, 3, 8, 8)")


def test_classes_and_names():
    assert model(network(), size=8, classes=list("abcdef")).class_names == tuple("abcdef")
    refusal(lambda: model(network(), size=8, classes=7), "6 classes, not 7")


def test_a_transformers_module():
    ensure_torchvision()
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        image_size=8,
        patch_size=4,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        id2label={0: "cat", 1: "dog"},
        label2id={"cat": 0, "dog": 1},
    )
    module = transformers.ViTForImageClassification(config)
    found = model(module, size=8)
    assert (found.classes, found.class_names) == (2, ("cat", "dog"))
    with torch.no_grad():
        want = module.eval()(torch.from_numpy(PIXELS).float() / 255).logits
    np.testing.assert_allclose(found.logits(PIXELS), want, atol=1e-5)


def test_a_function():
    found = model(lambda x: x.mean(axis=(2, 3)), size=8)
    assert isinstance(found, FunctionModel)
    assert (found.id, found.classes, found.fingerprint) == ("function", 3, None)
    np.testing.assert_allclose(found.logits(PIXELS), PIXELS.mean(axis=(2, 3)) / 255, atol=1e-6)

    def darkness(x):
        return -x.mean(axis=(2, 3))

    darkness.preprocessing = {"size": 4}
    assert model(darkness).id == "darkness"


def test_a_model_is_returned_as_it_is():
    found = model(network(), size=8)
    assert model(found) is found
    renamed = model(found, name="other")
    assert (renamed.id, renamed.fingerprint) == ("other", found.fingerprint)
    refusal(lambda: model(found, size=16), "size cannot change")
    refusal(lambda: model(found, weights="w.pt"), "weights cannot change")


def test_text():
    line = "timm:resnet10t?pretrained=false&num_classes=7&size=32"
    found = model(line)
    assert isinstance(found, Model)
    assert (found.id, found.spec) == (resolve(line).id, line)
    assert found.fingerprint == model(line, name="other").fingerprint
    assert model(line, name="other").id == "other"
    assert model("timm:resnet10t?pretrained=false", size=48).preprocessing.size == (48, 48)


@pytest.fixture(scope="module")
def digits():
    images, labels = load_digits(return_X_y=True)
    return images[:300], labels[:300]


@pytest.mark.parametrize(
    "make",
    [
        lambda: LogisticRegression(max_iter=5000),
        lambda: RandomForestClassifier(5, random_state=0),
        lambda: make_pipeline(StandardScaler(), SVC()),
    ],
    ids=["logistic", "forest", "pipeline"],
)
def test_an_estimator(make, digits):
    images, labels = digits
    fitted = make().fit(images, labels)
    found = model(fitted, name="digits", size=8, std=1 / 16)
    assert (found.classes, found.preprocessing.mode) == (10, "L")
    pixels = (images.reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    assert np.array_equal(found.logits(pixels).argmax(axis=1), fitted.predict(images))
    again = model(make().fit(images, labels), size=8, std=1 / 16)
    other = model(make().fit(images[:200], labels[:200]), size=8, std=1 / 16)
    assert found.fingerprint == again.fingerprint
    assert found.fingerprint not in (None, other.fingerprint)
    refusal(lambda: model(fitted, size=8), "std")
    refusal(lambda: model(fitted, size=9, std=1), "64 features")
    refusal(lambda: model(make(), size=8, std=1), "not a fitted classifier")


def test_an_estimator_with_strange_parts_has_no_fingerprint(digits):
    fitted = LogisticRegression(max_iter=5000).fit(*digits)
    fitted.note = lambda: 0
    assert model(fitted, size=8, std=1 / 16).fingerprint is None


def test_what_cannot_be_a_model():
    refusal(lambda: model(3, size=8), "not a function but int")
    refusal(lambda: model(network()), "image size")
    refusal(lambda: model(network(), size=8, sise=3), "unknown option of a model 'sise'", "size")
    refusal(lambda: model(lambda x: x, size=8, device="cuda"), "device")
    refusal(lambda: model(lambda x: x, size=8, precision="float16"), "precision")
    refusal(lambda: model(network(), size=8, name=" "), "name")


NET = """
import torch
from torch import nn

class Tiny(nn.Sequential):
    preprocessing = {"size": 1}

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(3, 2))

def build():
    return Tiny()

def fixed():
    net = Tiny()
    for one in net.parameters():
        nn.init.zeros_(one)
    return net

def mean(x):
    return x.mean(axis=(2, 3))

mean.preprocessing = {"size": 1}
"""
WHITE = np.full((1, 3, 1, 1), 255, np.uint8)


@pytest.fixture
def own(tmp_path):
    """A network of one's own, and two files of weights with known answers for a white pixel."""
    (tmp_path / "net.py").write_text(NET)
    for name, weight, bias in (("a", 1.0, 0.0), ("b", 2.0, 0.5)):
        state = {"1.weight": torch.full((2, 3), weight), "1.bias": torch.full((2,), bias)}
        torch.save(state, tmp_path / f"{name}.pt")
    return tmp_path


@pytest.mark.parametrize("what", ["build()", "build", "Tiny", "Tiny()", "fixed()"])
@pytest.mark.parametrize("way", ["key", "option", "torch"])
def test_two_files_of_weights_give_their_two_answers(own, what, way):
    line = f"python:{own}/net.py:{what}"
    for name, answer in (("a", 3.0), ("b", 6.5)):
        file = own / f"{name}.pt"
        if way == "key":
            found = model(f"{line}?weights={file}")
        elif way == "option":
            found = model(line, weights=file)
        else:
            found = model(f"torch:{file}?arch={line}")
        assert found.logits(WHITE).tolist() == [[answer, answer]]
        assert found.describe()["weights"]["file"] == file.name
        assert f"{name}.pt@" in found.id


def test_weights_of_a_module(own):
    module = nn.Sequential(nn.Flatten(), nn.Linear(3, 2))
    found = model(module, size=1, weights=own / "b.pt")
    assert found.logits(WHITE).tolist() == [[6.5, 6.5]]
    assert found.id.startswith("Sequential?weights=b.pt@")
    assert not np.allclose(model(module, size=1).logits(WHITE), 6.5)


def test_weights_that_do_not_fit_are_listed(own):
    torch.save({"1.weight": torch.zeros(2, 3), "head.bias": torch.zeros(2)}, own / "c.pt")
    line = f"python:{own}/net.py:build()?weights={own}/c.pt"
    refusal(lambda: model(line), "1 missing (1.bias)", "1 not in the architecture (head.bias)")
    refusal(lambda: model(network(), size=8, weights=own / "a.pt"), "missing", "0.weight")
    refusal(lambda: model(f"python:{own}/net.py:build()?weights={own}/no.pt"), "no such file")


def test_weights_are_refused_where_they_cannot_be_loaded(own, digits):
    file = own / "a.pt"
    line = f"python:{own}/net.py:mean"
    refusal(lambda: model(line, weights=file), "without arguments")
    refusal(lambda: model(lambda x: x, size=8, weights=file), "weights are for a torch module")
    fitted = LogisticRegression(max_iter=5000).fit(*digits)
    refusal(lambda: model(fitted, size=8, std=1, weights=file), "weights are for a torch module")
    for other in ("onnx:net.onnx", "sklearn:net.skops", "torch:net.pt2", "run:runs/1", "hf:a/b"):
        refusal(lambda other=other: model(other, weights=file), "takes no weights", other)
    twice = f"python:{own}/net.py:build()?weights={file}"
    refusal(lambda: model(twice, weights=file), "given twice")


def test_random_weights_have_a_seed_and_say_so(own):
    line = f"python:{own}/net.py:build()"
    first, again, other = model(line), model(line), model(f"{line}?seed=1")
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert first.describe()["weights"] == {"random": True, "seed": 0}
    assert other.describe()["weights"] == {"random": True, "seed": 1}
    assert first.id == "python:net.py:build()"
    assert other.id == "python:net.py:build()?seed=1"
    fixed = model(f"python:{own}/net.py:fixed()")
    assert fixed.describe()["weights"] == {"made_by": "net.py:fixed()"}
    refusal(lambda: model(f"python:{own}/net.py:mean?seed=1"), "takes no seed")


def test_torch_is_not_imported_for_a_function():
    code = (
        "import sys; from shiftbed.evaluation.models import model; "
        "model(lambda x: x.mean(axis=(2, 3)), size=2); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_preprocessing_by_name():
    given = {"size": 16, "crop": "none"}
    found = model(network(), size=8, preprocessing=given, interpolation="bicubic")
    assert found.preprocessing == Preprocessing(size=(8, 8), crop="none", interpolation="bicubic")
