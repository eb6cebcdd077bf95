"""State dicts as released with fridovich2022 (RobustNets), under the names of ``nets:``.

Networks with rewinding (lth, lrr) have torchvision's names and biases; those of the other methods
have 1×1 convolutions for linear layers, no biases and, for tickets at initialization, no weights in
their normalisation. What such a file lacks is what its architecture computes without it: biases of
0, normalisation weights of 1. Files above half sparsity keep a weight as its non-zero entries,
which ``read_state`` fills up.
"""

import re
from pathlib import Path

import torch
from torch import Tensor

from shiftbed.errors import InputError
from shiftbed.evaluation.models.checkpoints import read_state

State = dict[str, Tensor]
_VGG = (64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512)


def read_released(path: Path, net: str) -> State:
    """The weights of a file for ``nets:NET``, whichever of the layouts they are in."""
    return renamed(read_state(path), net)


def renamed(state: State, net: str) -> State:
    """A released state dict under our names; one that is ours already, as it is.

    >>> list(renamed({"layer2.0.downsample.0.weight": torch.zeros(1, 1, 1, 1)}, "resnet18"))
    ['stages.1.0.shortcut.0.weight']
    """
    if net not in _RULES or not any(re.match(_RELEASED, name) for name in state):
        return state
    found: State = {}
    for name, tensor in state.items():
        new = _RULES[net](name)
        if new is None:
            continue
        flat = new.startswith(("fc.", "classifier.")) and tensor.ndim == 4
        found[new] = tensor.flatten(1) if flat else tensor
    output, last = state.get("output.weight"), state.get("linear.4.weight")
    if output is not None and last is not None and not torch.equal(output, last):
        raise InputError("output.weight and linear.4.weight are one layer, but differ")
    return found | _implied(found, net)


_RELEASED = r"(convs|layers|layer[1-4])\.\d"


def _conv8(name: str) -> str | None:
    if name == "output.weight":  # the last of ``linear``, once more
        return None
    return name.replace("convs.", "features.").replace("linear.", "classifier.")


def _resnet18(name: str) -> str:
    name = re.sub(r"^layer(\d)\.", lambda found: f"stages.{int(found[1]) - 1}.", name)
    return name.replace(".downsample.", ".shortcut.")


def _vgg16(name: str) -> str:
    name = name.replace("convs.", "features.").replace("linear.", "classifier.")
    name = re.sub(r"^fc\.", "classifier.0.", name)
    return re.sub(
        r"^layers\.(\d+)\.(conv|bn)\.", lambda f: f"features.{_place(*f.groups())}.", name
    )


def _place(layer: str, part: str) -> int:
    """Where a layer of the plan is in our list, which has its normalisation and ReLU apart."""
    before = _VGG[: int(layer)]
    return sum(1 if one == "M" else 3 for one in before) + (part == "bn")


_RULES = {"conv8": _conv8, "resnet18": _resnet18, "vgg16": _vgg16}


def _implied(state: State, net: str) -> State:
    """Biases of 0 and normalisation weights of 1, where the released network has none."""
    found: State = {}
    for name, tensor in state.items():
        layer, _, kind = name.rpartition(".")
        if kind == "running_mean":
            found[f"{layer}.weight"] = torch.ones_like(tensor)
            found[f"{layer}.bias"] = torch.zeros_like(tensor)
        elif kind == "weight" and tensor.ndim in (2, 4):
            linear = tensor.ndim == 2 and net != "conv8"
            if linear or (net == "vgg16" and tensor.ndim == 4):
                found[f"{layer}.bias"] = tensor.new_zeros(len(tensor))
    return {name: tensor for name, tensor in found.items() if name not in state}
