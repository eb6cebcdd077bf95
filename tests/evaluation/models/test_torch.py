"""timm, torchvision and torch files, each for real."""

import io
import json
import zipfile

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.models import TorchModel, resolve
from shiftbed.evaluation.models.from_torch import check_archive

torch = pytest.importorskip("torch")
ensure_torchvision()
pytest.importorskip("timm")

X = np.random.default_rng(0).random((3, 3, 64, 64), np.float32)


def by_hand(network, model, x=X):
    """The library's own module on normalised pixels."""
    p = model.preprocessing
    mean, std = (torch.tensor(v).view(1, -1, 1, 1) for v in (p.mean, p.std))
    with torch.inference_mode():
        return network.eval()((torch.from_numpy(x) - mean) / std).numpy()


# timm


def test_timm_with_weights_drawn_from_a_seed():
    import timm

    model = resolve("timm:resnet18?pretrained=false&seed=3&size=64&num_classes=5")
    assert isinstance(model, TorchModel)
    assert model.id == "timm:resnet18?num_classes=5&pretrained=false&seed=3&size=64"
    assert (model.classes, model.differentiable) == (5, True)
    torch.manual_seed(3)
    network = timm.create_model("resnet18", num_classes=5)
    assert np.allclose(model.logits(X), by_hand(network, model), atol=1e-5)
    config = timm.data.resolve_model_data_config(network)
    assert model.preprocessing.mean == config["mean"]
    assert model.preprocessing.interpolation == config["interpolation"]


def test_seeds_differ_and_leave_the_generator_alone():
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    a, b = (resolve(f"timm:resnet10t?pretrained=false&seed={s}&size=64") for s in (0, 1))
    assert torch.equal(torch.rand(1), expected)
    assert not np.allclose(a.logits(X), b.logits(X))


def test_timm_from_a_local_checkpoint(tmp_path):
    first = resolve("timm:resnet18?pretrained=false&seed=7&num_classes=6&size=64")
    file = tmp_path / "net.pth"
    torch.save({"state_dict": first.module.network.state_dict()}, file)
    again = resolve("timm:resnet18?size=64", weights=file)
    assert again.classes == 6  # read from the last layer
    assert np.array_equal(first.logits(X), again.logits(X))
    described = again.describe()["weights"]
    assert again.id == f"timm:resnet18?size=64&weights=net.pth@{described['sha256'][:12]}"
    assert resolve(f"timm:resnet18?weights={file}&size=64").id == again.id
    assert resolve(f"torch:{file}?arch=timm:resnet18&size=64").id == again.id
    with pytest.raises(InputError, match="does not fit the architecture"):
        resolve(f"timm:resnet34?weights={file}")
    with pytest.raises(InputError, match="of another shape"):
        resolve("timm:resnet18", weights=file, classes=9)


def test_timm_sizes():
    small = resolve("timm:vit_tiny_patch16_224?pretrained=false&img_size=96")
    assert small.preprocessing.size == (96, 96)
    assert small.logits(X[:, :, :32, :32].repeat(3, 2).repeat(3, 3)).shape == (3, 1000)
    tested = resolve("timm:resnet18?pretrained=false&test_size=true")
    assert (tested.preprocessing.size, tested.preprocessing.resize) == ((288, 288), 288)
    with pytest.raises(InputError, match="no test size"):
        resolve("timm:vit_tiny_patch16_224?pretrained=false&test_size=true")
    grey = resolve("timm:resnet10t?pretrained=false&in_chans=1&size=32&num_classes=10")
    assert grey.preprocessing.mode == "L"
    assert grey.logits(np.zeros((2, 1, 32, 32), np.float32)).shape == (2, 10)
    with pytest.raises(InputError, match="in_chans must be 1 or 3"):
        resolve("timm:resnet10t?pretrained=false&in_chans=4")


def test_changed_preprocessing_belongs_to_the_id():
    plain = "timm:resnet10t?pretrained=false&seed=0&size=64"
    changes = {"interpolation": "bilinear", "mean": (0.5, 0.5, 0.5), "crop_pct": 1.0}
    model = resolve(plain, preprocessing=changes)
    assert model.id == (
        "timm:resnet10t?interpolation=bilinear&mean=0.5,0.5,0.5&pretrained=false&resize=64"
        "&seed=0&size=64"
    )
    assert resolve(model.id).id == model.id
    assert resolve(model.id).preprocessing == model.preprocessing


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_precisions(precision):
    line = "timm:resnet10t?pretrained=false&size=64"
    exact = resolve(line).logits(X)
    model = resolve(line, precision=precision)
    assert model.id.endswith(f"precision={precision}&pretrained=false&seed=0&size=64")
    rough = model.logits(X)
    assert rough.dtype == np.float32
    assert 0 < np.abs(rough - exact).max() < 0.05 * np.abs(exact).max()


def test_layouts_and_read_only_arrays_give_the_same():
    model = resolve("timm:resnet10t?pretrained=false&size=64")
    expected = model.logits(X)
    view = np.ascontiguousarray(X.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    frozen = X.copy()
    frozen.flags.writeable = False
    mirrored = np.ascontiguousarray(X[:, :, :, ::-1])[:, :, :, ::-1]
    for same in (view, frozen, mirrored):
        assert np.allclose(model.logits(same), expected, atol=1e-6)


def test_gradients_reach_the_pixels():
    model = resolve("timm:resnet10t?pretrained=false&size=64&num_classes=4")
    x = torch.from_numpy(X).requires_grad_()
    model.module(x)[:, 0].sum().backward()
    assert float(x.grad.abs().sum()) > 0
    assert not any(p.requires_grad for p in model.module.parameters())
    assert not model.module.training


# torchvision


def test_torchvision(tmp_path):
    from torchvision import models

    model = resolve("torchvision:mobilenet_v3_small?pretrained=false&seed=2&size=64")
    torch.manual_seed(2)
    network = models.mobilenet_v3_small()
    assert np.allclose(model.logits(X), by_hand(network, model), atol=1e-5)
    preset = models.MobileNet_V3_Small_Weights.DEFAULT.transforms()
    assert model.preprocessing.mean == tuple(preset.mean)
    file = tmp_path / "tv.pth"
    torch.save(models.mobilenet_v3_small(num_classes=4).state_dict(), file)
    local = resolve("torchvision:mobilenet_v3_small?size=64", weights=file)
    assert local.classes == 4
    assert local.id.startswith("torchvision:mobilenet_v3_small?size=64&weights=tv.pth@")
    assert resolve(f"torch:{file}?arch=torchvision:mobilenet_v3_small&size=64").id == local.id


def test_torchvision_weights_from_its_cache(tmp_path, monkeypatch):
    from torchvision import models

    entry = models.ResNet18_Weights.IMAGENET1K_V1
    place = tmp_path / "checkpoints" / entry.url.rsplit("/", 1)[1]
    place.parent.mkdir()
    torch.manual_seed(0)
    network = models.resnet18()
    torch.save(network.state_dict(), place)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    model = resolve("torchvision:resnet18/IMAGENET1K_V1")
    assert model.id == "torchvision:resnet18/IMAGENET1K_V1"
    assert resolve("torchvision:resnet18").id == model.id
    assert model.class_names[985] == "daisy"
    assert np.allclose(model.logits(X), by_hand(network, model), atol=1e-5)


# Files


class Net(torch.nn.Module):
    """A small network of one's own, with its preprocessing."""

    preprocessing = {"size": (64, 64), "mean": 0.5, "std": 0.25}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(),
            torch.nn.Dropout(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(4, 5),
        )

    def forward(self, x):
        return self.layers(x)


def save_program(network, file, dynamic=True, size=64):
    shapes = ({0: torch.export.Dim("batch")},) if dynamic else None
    example = (torch.rand(2, 3, size, size),)
    program = torch.export.export(network, example, dynamic_shapes=shapes)
    torch.export.save(program, file)
    return program


def test_a_state_dict_of_ones_own_architecture(tmp_path):
    torch.manual_seed(0)
    network, file = Net(), tmp_path / "own.pth"
    torch.save(network.state_dict(), file)
    model = resolve(f"torch:{file}?arch=python:{__name__}:Net")
    assert model.classes == 5
    assert model.preprocessing.std == (0.25, 0.25, 0.25)
    assert np.allclose(model.logits(X), by_hand(network, model), atol=1e-6)
    with pytest.raises(InputError, match="needs its architecture"):
        resolve(f"torch:{file}")
    with pytest.raises(InputError, match="unknown kind of architecture 'tim'"):
        resolve(f"torch:{file}?arch=tim:resnet18")
    with pytest.raises(InputError, match="must be a torch module"):
        resolve(f"torch:{file}?arch=python:{__name__}:save_nothing")


def save_nothing():
    return 3


def test_an_exported_program(tmp_path):
    torch.manual_seed(0)
    network, file = Net().eval(), tmp_path / "net.pt2"
    save_program(network, file)
    with pytest.raises(InputError, match=r"write net\.preprocessing\.json beside it, or give mean"):
        resolve(f"torch:{file}")
    model = resolve(f"torch:{file}?mean=0.5&std=0.25")
    assert model.preprocessing.size == (64, 64)  # from the graph
    for n in (1, 2, 3):
        assert np.allclose(model.logits(X[:n]), by_hand(network, model, X[:n]), atol=1e-6)
    x = torch.from_numpy(X).requires_grad_()
    model.module(x).sum().backward()
    assert float(x.grad.abs().sum()) > 0
    (tmp_path / "net.preprocessing.json").write_text(json.dumps({"mean": 0.5, "std": [0.25] * 3}))
    beside = resolve(f"torch:{file}")
    assert beside.preprocessing == model.preprocessing
    assert "mean" not in beside.id
    (tmp_path / "net.preprocessing.json").write_text("[1]")
    with pytest.raises(InputError, match="must be a JSON object"):
        resolve(f"torch:{file}")


def test_programs_that_would_mislead(tmp_path):
    save_program(Net().eval(), tmp_path / "fixed.pt2", dynamic=False)
    with pytest.raises(InputError, match="takes batches of 2 only"):
        resolve(f"torch:{tmp_path / 'fixed.pt2'}?mean=0&std=1")
    save_program(Net().train(), tmp_path / "training.pt2")
    with pytest.raises(InputError, match="exported in training mode"):
        resolve(f"torch:{tmp_path / 'training.pt2'}?mean=0&std=1")
    (tmp_path / "no.pt2").write_bytes(b"nothing")
    with pytest.raises(InputError, match="not an exported program"):
        resolve(f"torch:{tmp_path / 'no.pt2'}")


def rewritten(source, target, change):
    """An archive with its records changed: change(name, bytes) -> bytes, or None for the same."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            changed = change(name.split("/", 1)[1], data)
            root = target.stem
            new.writestr(f"{root}/{name.split('/', 1)[1]}", data if changed is None else changed)
    return target


class Touch:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


def hostile_changes(marker):
    buffer = io.BytesIO()
    torch.save((Touch(marker),), buffer)
    pickled = buffer.getvalue()

    def sample(name, data):
        return pickled if name.startswith("data/sample_inputs") else None

    def weight(name, data):
        if name.endswith("weights_config.json"):
            config = json.loads(data)
            first = next(iter(config["config"].values()))
            first["use_pickle"] = True
            return json.dumps(config).encode()
        return pickled if name.endswith("weight_0") else None

    def opaque(name, data):
        if not name.endswith("constants_config.json"):
            return None
        entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True}
        return json.dumps({"config": {"x": entry}}).encode()

    def call(name, data):
        if name != "models/model.json":
            return None
        return data.replace(b"torch.ops.aten.relu.default", b"torch.hub.load")

    def operator(name, data):
        if name != "models/model.json":
            return None
        return data.replace(b"torch.ops.aten.relu.default", b"_operator.methodcaller")

    def expression(name, data):
        if name != "models/model.json":
            return None
        code = f"open('{marker}', 'w')"
        return data.replace(b"Symbol('s", code.encode() + b" + Symbol('s")

    def guard(name, data):
        if name != "models/model.json":
            return None
        document = json.loads(data)
        document["guards_code"] = ["exec('x')"]
        return json.dumps(document).encode()

    return [sample, weight, opaque, call, operator, expression, guard]


def test_hostile_programs_are_refused_before_they_load(tmp_path):
    good = tmp_path / "good.pt2"
    save_program(Net().eval(), good)
    check_archive(rewritten(good, tmp_path / "same.pt2", lambda name, data: None))
    marker = tmp_path / "ran"
    for number, change in enumerate(hostile_changes(marker)):
        bad = rewritten(good, tmp_path / f"bad{number}.pt2", change)
        with pytest.raises(InputError, match="refused"):
            resolve(f"torch:{bad}?mean=0&std=1")
    assert not marker.exists()
