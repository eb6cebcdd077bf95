"""State dicts as released with fridovich2022 answer as the architectures they are of."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from shiftbed.errors import InputError
from shiftbed.evaluation.models import resolve

PLAN = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512)
"""VGG16: channels, and 0 for max pooling."""


def conv(inputs: int, outputs: int, size: int = 3, stride: int = 1, bias: bool = False):
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=bias)


class Conv8(nn.Module):
    """Linear layers as 1×1 convolutions; with rewinding the last one has a second name."""

    def __init__(self, twice: bool) -> None:
        super().__init__()
        widths, layers = (3, 64, 128, 256, 512), []
        for inputs, outputs in pairwise(widths):
            layers += [conv(inputs, outputs), nn.ReLU(), conv(outputs, outputs), nn.ReLU()]
            layers.append(nn.MaxPool2d(2))
        self.convs = nn.Sequential(*layers)
        last = conv(256, 10, 1)
        if twice:
            self.output = last
        ones = [conv(2048, 256, 1), nn.ReLU(), conv(256, 256, 1), nn.ReLU(), last]
        self.linear = nn.Sequential(*ones)

    def forward(self, x):
        return self.linear(self.convs(x).reshape(len(x), -1, 1, 1)).flatten(1)


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, way: str, affine: bool) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv(inputs, outputs, stride=stride), conv(outputs, outputs)
        self.bn1, self.bn2 = (nn.BatchNorm2d(outputs, affine=affine) for _ in range(2))
        self.way = way
        if inputs != outputs:
            norm = nn.BatchNorm2d(outputs, affine=affine)
            setattr(self, way, nn.Sequential(conv(inputs, outputs, 1, stride), norm))

    def forward(self, x):
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        way = getattr(self, self.way, nn.Identity())
        return functional.relu(y + way(x))


class ResNet18(nn.Module):
    def __init__(self, rewound: bool, affine: bool) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(3, 64), nn.BatchNorm2d(64, affine=affine)
        way = "downsample" if rewound else "shortcut"
        for k, (inputs, outputs) in enumerate(pairwise((64, 64, 128, 256, 512)), 1):
            first = Block(inputs, outputs, 1 if k == 1 else 2, way, affine)
            blocks = nn.Sequential(first, Block(outputs, outputs, 1, way, affine))
            setattr(self, f"layer{k}", blocks)
        self.fc = nn.Linear(512, 10) if rewound else conv(512, 10, 1)

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)))
        for k in range(1, 5):
            y = getattr(self, f"layer{k}")(y)
        y = functional.avg_pool2d(y, 4)
        return self.fc(y.flatten(1) if isinstance(self.fc, nn.Linear) else y).flatten(1)


class Unit(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv, self.bn = conv(inputs, outputs, bias=True), nn.BatchNorm2d(outputs)

    def forward(self, x):
        return functional.relu(self.bn(self.conv(x)))


class VGG16(nn.Module):
    def __init__(self, rewound: bool, affine: bool) -> None:
        super().__init__()
        layers, inputs = [], 3
        for width in PLAN:
            if not width:
                layers.append(nn.MaxPool2d(2))
            elif rewound:
                layers.append(Unit(inputs, width))
            else:
                norm = nn.BatchNorm2d(width, affine=affine)
                layers += [conv(inputs, width), norm, nn.ReLU()]
            inputs = width or inputs
        if rewound:
            self.layers, self.fc = nn.Sequential(*layers), nn.Linear(512, 10)
        else:
            self.convs, self.linear = nn.Sequential(*layers), nn.Sequential(conv(512, 10, 1))

    def forward(self, x):
        if hasattr(self, "layers"):
            return self.fc(functional.avg_pool2d(self.layers(x), 2).flatten(1))
        return self.linear(functional.avg_pool2d(self.convs(x), 2)).flatten(1)


RELEASED = {
    ("conv8", "rewound"): lambda: Conv8(True),
    ("conv8", "other"): lambda: Conv8(False),
    ("resnet18", "rewound"): lambda: ResNet18(True, True),
    ("resnet18", "other"): lambda: ResNet18(False, True),
    ("resnet18", "ticket"): lambda: ResNet18(False, False),
    ("vgg16", "rewound"): lambda: VGG16(True, True),
    ("vgg16", "other"): lambda: VGG16(False, True),
    ("vgg16", "ticket"): lambda: VGG16(False, False),
}


def made(key):
    """The network with random weights and statistics, in evaluation mode."""
    torch.manual_seed(0)
    network = RELEASED[key]()
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-0.2, 0.2)
            layer.running_var.uniform_(0.5, 2.0)
            if layer.affine:
                nn.init.uniform_(layer.weight, 0.5, 1.5)
                nn.init.uniform_(layer.bias, -0.2, 0.2)
    return network.eval()


def sparse(state):
    """Weights as places, values and shapes, as files above half sparsity have them."""
    found = {}
    for name, tensor in state.items():
        if "weight" in name:
            flat = tensor.reshape(-1)
            places = torch.nonzero(flat).T
            tensor = (places.int(), flat[places[0]], flat.shape, tensor.shape)
        found[name] = tensor
    return found


@pytest.mark.parametrize("key", RELEASED, ids="-".join)
def test_a_released_file_answers_as_its_architecture(key, tmp_path):
    network = made(key)
    with torch.no_grad():
        for name, tensor in network.named_parameters():
            if tensor.ndim == 4:
                tensor[torch.rand(tensor.shape) < 0.8] = 0.0
            assert tensor.any(), name
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        want = network(x).numpy()
    for kind, state in (("dense", network.state_dict()), ("sparse", sparse(network.state_dict()))):
        file = tmp_path / f"{kind}.pt"
        torch.save(state, file)
        model = resolve(f"nets:{key[0]}?weights={file}&mean=0&std=1")
        assert model.classes == 10
        np.testing.assert_allclose(model.logits(x.numpy()), want, rtol=1e-3, atol=1e-5)


def test_what_does_not_fit_is_refused(tmp_path):
    state = made(("conv8", "rewound")).state_dict()
    torch.save(state | {"output.weight": state["output.weight"] + 1}, tmp_path / "two.pt")
    with pytest.raises(InputError, match="one layer, but differ"):
        resolve(f"nets:conv8?weights={tmp_path}/two.pt")
    torch.save(state, tmp_path / "conv8.pt")
    with pytest.raises(InputError, match="does not fit"):
        resolve(f"nets:vgg16?weights={tmp_path}/conv8.pt")
    bad = sparse(state) | {"convs.0.weight": (torch.tensor([[9]]), torch.ones(1), (4,), (2, 2))}
    torch.save(bad, tmp_path / "bad.pt")
    with pytest.raises(InputError, match="sparse weight"):
        resolve(f"nets:conv8?weights={tmp_path}/bad.pt")


def test_pixels_are_normalised_as_the_released_code_does():
    found = resolve("nets:conv8").preprocessing
    assert found.std == (0.247, 0.243, 0.262)
    assert found.mean == (0.491, 0.482, 0.447)
