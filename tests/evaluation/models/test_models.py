"""Lines that name models, and what every model has in common."""

import json
import os
import pickle

import numpy as np
import pytest

from shiftbed import hub
from shiftbed.errors import InputError
from shiftbed.evaluation.models import PREFIXES, FunctionModel, resolve
from shiftbed.evaluation.models.checkpoints import (
    cache_folder,
    digest,
    fit,
    hub_file,
    read_state,
    remembered,
    url_file,
)
from shiftbed.evaluation.models.spec import Spec
from shiftbed.evaluation.preprocessing import Preprocessing

torch = pytest.importorskip("torch")


def mean_colour(x):
    return x.mean(axis=(2, 3))


def model(**preprocessing):
    return FunctionModel(
        id="python:test",
        classes=3,
        preprocessing=Preprocessing(size=(4, 4), **preprocessing),
        function=mean_colour,
    )


# Specifications


def test_a_specification_in_parts():
    spec = Spec.parse("onnx:C:/nets/a b.onnx?mean=0.5,0.5,0.5&weights=x%26y+z.pth")
    assert (spec.prefix, spec.name) == ("onnx", "C:/nets/a b.onnx")
    assert spec.query == {"mean": "0.5,0.5,0.5", "weights": "x&y+z.pth"}


@pytest.mark.parametrize("text", ["resnet18", "timm:", "timm:a?b", "timm:a?b=", "timm:a?b=1&b=2"])
def test_specifications_that_are_none(text):
    with pytest.raises(InputError):
        resolve(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tim:resnet18", "unknown kind of model 'tim'; did you mean 'timm'"),
        ("openclip:ViT-B-32", "did you mean 'open_clip'"),
        ("timm:resnet81", "unknown timm model 'resnet81'; did you mean .*'resnet18'"),
        ("timm:resnet18.a1_in1", "unknown weights of timm .*did you mean 'resnet18.a1_in1k'"),
        ("timm:resnet18?pretraned=false", "did you mean 'pretrained'"),
        ("timm:resnet18?pretrained=maybe", "must be true or false"),
        ("timm:resnet18?pretrained=false&num_classes=ten", "must be a whole number"),
        ("timm:resnet18?pretrained=false&interpolation=bicubik", "did you mean 'bicubic'"),
        ("timm:resnet18?pretrained=false&size=big", "size cannot be 'big'"),
        ("timm:resnet18?weights=nowhere.pth", "nowhere.pth: no such file"),
        ("torchvision:resnet81", "did you mean .*'resnet18'"),
        ("torchvision:resnet18/IMAGENET1K_V9", "did you mean 'IMAGENET1K_V1'"),
        ("open_clip:ViT-B-23", "did you mean .*'ViT-B-32'"),
        ("open_clip:ViT-B-32/laion2b_s34b", "did you mean .*'laion2b_s34b_b79k'"),
        ("open_clip:ViT-B-32", "name the weights as open_clip:ViT-B-32/PRETRAINED"),
        ("hf:./nowhere", "no such folder"),
        ("onnx:nowhere.onnx", "nowhere.onnx: no such file"),
        ("torch:nowhere.pt2", "nowhere.pt2: no such file"),
        ("sklearn:nowhere.skops", "nowhere.skops: no such file"),
        ("python:nowhere:f", "no module 'nowhere'"),
        ("python:math:sqroot", "unknown name in math 'sqroot'; did you mean 'sqrt'"),
        ("python:math", "must be python:MODULE:FUNCTION"),
    ],
)
def test_names_that_are_unknown(text, message):
    with pytest.raises(InputError, match=message) as caught:
        resolve(text)
    assert "\n" not in str(caught.value)


def test_options_that_are_unknown():
    with pytest.raises(InputError, match=r"did you mean .*float16"):
        resolve("timm:resnet18", precision="float8")
    with pytest.raises(InputError, match="device 'abacus' cannot be used"):
        resolve("timm:resnet10t?pretrained=false&size=32", device="abacus")
    assert set(PREFIXES) == {
        "timm", "torchvision", "open_clip", "hf", "onnx", "torch", "sklearn", "python",
    }  # fmt: skip


# Pixels


def test_pixels_are_fractions_or_bytes():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3, 4, 4), dtype=np.uint8)
    as_bytes = model().logits(pixels)
    as_floats = model().logits((pixels / np.float32(255)).astype(np.float32))
    assert as_bytes.dtype == np.float32
    assert np.allclose(as_bytes, as_floats, atol=1e-7)
    assert np.allclose(as_bytes, pixels.mean(axis=(2, 3)) / 255, atol=1e-6)


def test_normalisation_happens_inside():
    x = np.random.default_rng(0).random((2, 3, 4, 4), np.float32)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    expected = (x.mean(axis=(2, 3)) - np.array(mean)) / np.array(std)
    assert np.allclose(model(mean=mean, std=std).logits(x), expected, atol=1e-6)


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((2, 4, 4, 3), np.float32),
        np.zeros((3, 4, 4), np.float32),
        np.zeros((2, 3, 4, 4), np.float64),
        np.full((2, 3, 4, 4), 255.0, np.float32),
        np.full((2, 3, 4, 4), -1.0, np.float32),
        np.full((2, 3, 4, 4), np.nan, np.float32),
    ],
)
def test_what_are_no_pixels(bad):
    with pytest.raises(InputError, match="pixels must"):
        model().logits(bad)
    with pytest.raises(InputError, match="pixels must"):
        resolve("timm:resnet10t?pretrained=false&size=32").logits(bad)


def test_a_function_that_returns_something_else():
    wrong = FunctionModel(
        id="python:w", classes=2, preprocessing=Preprocessing(size=(4, 4)), function=mean_colour
    )
    with pytest.raises(InputError, match=r"logits of shape \(1, 2\), got \(1, 3\)"):
        wrong.logits(np.zeros((1, 3, 4, 4), np.float32))


def test_a_description_is_json():
    found = resolve("timm:resnet10t?pretrained=false&size=32&num_classes=4").describe()
    assert json.loads(json.dumps(found)) == found
    assert found["architecture"] == "resnet10t"
    assert found["weights"] == {"random": True, "seed": 0}
    assert found["libraries"]["torch"] == torch.__version__
    assert found["preprocessing"]["size"] == [32, 32]
    assert (found["device"], found["precision"]) == ("cpu", "float32")


# Files


class Hostile:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol:UserWarning")
@pytest.mark.parametrize("protocol", ["torch", "pickle", "inside"])
def test_a_hostile_checkpoint_is_refused_and_does_not_run(tmp_path, protocol):
    file, marker = tmp_path / "hostile.pth", tmp_path / "ran"
    if protocol == "torch":
        torch.save(Hostile(marker), file)
    elif protocol == "inside":
        torch.save({"state_dict": {"a": torch.ones(1)}, "note": Hostile(marker)}, file)
    else:
        file.write_bytes(pickle.dumps(Hostile(marker)))
    for line in (f"timm:resnet18?weights={file}", f"torch:{file}?arch=torchvision:resnet18"):
        with pytest.raises(InputError, match=r"refused|cannot be read") as caught:
            resolve(line)
        assert "\n" not in str(caught.value)
    if protocol != "pickle":
        assert "system" in str(caught.value)
    assert not marker.exists()


def test_state_dicts_in_their_wrappings(tmp_path):
    state = {"a": torch.ones(2), "b": torch.zeros(1)}
    wrapped = {
        "plain": state,
        "trained": {"epoch": 3, "state_dict": state},
        "averaged": {"state_dict": {"a": torch.zeros(2)}, "state_dict_ema": state},
        "parallel": {f"module.{k}": v for k, v in state.items()},
        "lightning": {
            "pytorch-lightning_version": "2",
            "state_dict": {f"model.{k}": v for k, v in state.items()},
        },
    }
    for name, content in wrapped.items():
        torch.save(content, tmp_path / f"{name}.pth")
        found = read_state(tmp_path / f"{name}.pth")
        assert set(found) == {"a", "b"}, name
        assert torch.equal(found["a"], state["a"]), name


def test_safetensors(tmp_path):
    save_file = pytest.importorskip("safetensors.torch").save_file
    save_file({"a": torch.ones(2)}, tmp_path / "a.safetensors")
    assert torch.equal(read_state(tmp_path / "a.safetensors")["a"], torch.ones(2))
    (tmp_path / "b.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match="not a safetensors file"):
        read_state(tmp_path / "b.safetensors")


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04" + bytes(50)])
def test_files_that_are_no_checkpoints(tmp_path, content):
    (tmp_path / "x.pth").write_bytes(content)
    with pytest.raises(InputError, match=r"x\.pth") as caught:
        read_state(tmp_path / "x.pth")
    assert "\n" not in str(caught.value)


def test_checkpoints_without_a_state_dict(tmp_path):
    torch.save([1, 2], tmp_path / "x.pth")
    with pytest.raises(InputError, match="no state dict"):
        read_state(tmp_path / "x.pth")


def test_weights_that_do_not_fit(tmp_path):
    layer = torch.nn.Linear(2, 3)
    with pytest.raises(InputError, match=r"1 missing \(bias.*1 not in the architecture \(c.*shape"):
        fit(layer, {"weight": torch.ones(3, 4), "c": torch.ones(1)}, tmp_path / "x.pth")


def test_digests_follow_the_file(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"abc")
    assert digest(file) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    file.write_bytes(b"abcd")
    assert digest(file).startswith("88d4266fd4e6")


# The hub and its caches


def test_offline_is_said(monkeypatch):
    """A host that answers nothing: an address reserved for documentation (RFC 5737)."""
    monkeypatch.setattr(hub, "PATIENCE", 0.5)
    for name in hub.OFFLINE:
        monkeypatch.delenv(name, raising=False)
    assert hub.unreachable("https://192.0.2.1:8443/a/b")
    assert hub.unreachable("https://192.0.2.1:8443/c")  # asked once per host
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert hub.unreachable("https://192.0.2.1:8443/a/b") == "HF_HUB_OFFLINE is set"


@pytest.fixture
def empty_hub(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "torch"))
    return tmp_path


def test_missing_weights_say_which_file_goes_where(empty_hub):
    with pytest.raises(InputError, match="HF_HUB_OFFLINE is set") as caught:
        resolve("timm:resnet18")
    place = empty_hub / "hub/models--timm--resnet18.a1_in1k/snapshots/main/model.safetensors"
    assert str(place) in str(caught.value)
    assert "weights=FILE" in str(caught.value)
    with pytest.raises(InputError, match=r"resnet18-f37072fd\.pth") as caught:
        resolve("torchvision:resnet18")
    assert str(empty_hub / "torch/checkpoints/resnet18-f37072fd.pth") in str(caught.value)
    with pytest.raises(InputError, match="weights=FILE"):
        resolve("open_clip:ViT-B-32/laion2b_s34b_b79k", classes=["cat", "dog"])
    with pytest.raises(InputError, match=r"hub/models--microsoft--resnet-50.*hf:FOLDER"):
        resolve("hf:microsoft/resnet-50")
    with pytest.raises(InputError, match="needs the text model of roberta-base"):
        resolve("open_clip:roberta-ViT-B-32?pretrained=false", classes=["cat", "dog"])


def test_a_file_put_there_is_found(empty_hub):
    place = empty_hub / "hub/models--owner--net/snapshots/main/model.safetensors"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"x")
    assert hub_file("owner/net", ("model.safetensors",), "net") == place
    with pytest.raises(InputError, match="snapshots/v2/"):
        hub_file("owner/net@v2", ("model.safetensors",), "net")
    place = empty_hub / "torch/checkpoints/net-1.pth"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"x")
    assert url_file("https://example.org/a/net-1.pth", "net") == place


def test_weights_in_the_hub_cache_load_by_name(empty_hub):
    """timm's and torchvision's own names, from files that lie in their caches."""
    from safetensors.torch import save_file

    plain = resolve("timm:resnet18?pretrained=false&seed=5&size=32")
    place = empty_hub / "hub/models--timm--resnet18.a1_in1k/snapshots/main/model.safetensors"
    place.parent.mkdir(parents=True)
    state = plain.module.network.state_dict()
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, place)
    named = resolve("timm:resnet18?size=32")
    assert named.id == "timm:resnet18.a1_in1k?size=32"
    assert named.describe()["weights"]["tag"] == "a1_in1k"
    x = np.random.default_rng(0).random((2, 3, 32, 32), np.float32)
    assert np.array_equal(named.logits(x), plain.logits(x))
    with pytest.raises(InputError, match="1000 classes, not 10"):
        resolve("timm:resnet18", classes=10)


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("SHIFTBED_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    calls = []

    def compute():
        calls.append(1)
        return np.arange(3)

    assert remembered("a/b.npy", compute).tolist() == [0, 1, 2]
    assert remembered("a/b.npy", compute).tolist() == [0, 1, 2]
    assert len(calls) == 1
    (tmp_path / "a/b.npy").write_bytes(b"damaged")
    assert remembered("a/b.npy", compute).tolist() == [0, 1, 2]
    assert len(calls) == 2
    monkeypatch.setenv("SHIFTBED_CACHE", str(tmp_path / "a/b.npy"))  # a file, not a folder
    assert remembered("c.npy", compute).tolist() == [0, 1, 2]
    monkeypatch.delenv("SHIFTBED_CACHE")
    assert cache_folder().name == "shiftbed"
