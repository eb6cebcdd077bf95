"""Torch networks as models."""

import hashlib
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from shiftbed.errors import InputError, brief, unknown
from shiftbed.evaluation.models.base import Floats, Model, Pixels, check_pixels
from shiftbed.evaluation.models.spec import Request
from shiftbed.evaluation.preprocessing import Preprocessing

if TYPE_CHECKING:
    import torch
    from torch import nn

    from shiftbed.evaluation.models.heads import Split


PRECISIONS = ("float32", "bfloat16", "float16")


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class TorchModel(Model):
    """A network with its normalisation in front; gradients with respect to pixels are possible."""

    module: "nn.Module"
    """From (N, C, H, W) pixels in [0, 1] to (N, classes) float32 logits; in evaluation mode, its
    parameters frozen."""
    channels_last: bool = True
    """Whether batches are laid out as (N, H, W, C) in memory, which convolutions prefer."""
    differentiable: ClassVar[bool] = True

    def _content(self) -> str | None:
        return self.content or network_digest(self.module)

    @cached_property
    def parts(self) -> "Split | None":
        """Its backbone and its head, where it ends in one; see ``heads.split``."""
        from shiftbed.evaluation.models.heads import split

        return split(self)

    def tensor(self, pixels: Pixels, *, within: bool = True) -> "torch.Tensor":
        """Checked pixels as the float32 tensor that ``module`` takes, on its device."""
        import torch

        check_pixels(pixels, self.preprocessing, within=within)
        if not pixels.flags.writeable or min(pixels.strides, default=0) < 0:
            pixels = pixels.copy(order="K")
        x = torch.from_numpy(pixels).to(self.device)
        if x.dtype == torch.uint8:
            x = x.to(torch.float32).div_(255)
        if self.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        return x

    def logits(self, pixels: Pixels, *, within: bool = True) -> Floats:
        import torch

        with torch.inference_mode():
            found: Floats = self.module(self.tensor(pixels, within=within)).cpu().numpy()
        return found


def wrap(
    network: "nn.Module",
    *,
    id: str,
    preprocessing: Preprocessing,
    facts: Mapping[str, Any],
    device: str = "cpu",
    precision: str = "float32",
    class_names: tuple[str, ...] = (),
    channels_last: bool = True,
    content: str | None = None,
) -> TorchModel:
    """A model from a network that takes normalised pixels and returns logits.

    One empty image goes through it, so that a wrong image size is found here and not in a run.
    """
    import torch

    from shiftbed.evaluation.models.modules import Normalised

    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(f"device {device!r} cannot be used: {brief(error)}") from None
    module = Normalised(
        network, preprocessing.mean, preprocessing.std, dtype=getattr(torch, precision)
    )
    module = module.eval().requires_grad_(False).to(place)
    if channels_last:
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model = TorchModel(
        id=id,
        classes=1,
        preprocessing=preprocessing,
        facts=facts,
        class_names=class_names,
        device=str(place),
        precision=precision,
        module=module,
        channels_last=channels_last,
        content=content,
    )
    shape = (1, preprocessing.channels, *preprocessing.size)
    try:
        with torch_threads(1):
            found = model.logits(np.zeros(shape, np.float32))
    except (RuntimeError, AssertionError, ValueError, TypeError, IndexError) as error:
        raise InputError(f"{id} does not take an image of shape {shape}: {brief(error)}") from error
    if found.ndim != 2 or len(found) != 1:
        raise InputError(f"{id} must return (N, classes) logits, got {found.shape} for N = 1")
    return replace(model, classes=found.shape[1])


def wrap_for(
    request: Request,
    network: "nn.Module",
    name: str,
    native: Preprocessing,
    used: Preprocessing,
    facts: Mapping[str, Any],
    query: Mapping[str, str | int | None],
    class_names: tuple[str, ...] = (),
) -> TorchModel:
    """``wrap``, with the id, device and precision that were asked for."""
    return wrap(
        network,
        id=request.identity(name, native, used, **query),
        preprocessing=used,
        facts=facts,
        device=request.device,
        precision=request.precision,
        class_names=request.class_names or class_names,
    )


def network_digest(network: "nn.Module") -> str:
    """SHA-256 of a network: the names, classes and settings of its parts, and its weights."""
    import torch

    whole = hashlib.sha256()
    for name, part in network.named_modules():
        settings = re.sub(r" at 0x[0-9a-f]+", "", part.extra_repr())
        whole.update(f"{name} {type(part).__qualname__} {settings}\n".encode())
    for name, tensor in network.state_dict().items():
        if not torch.is_tensor(tensor):
            whole.update(f"{name} {tensor!r}\n".encode())
            continue
        whole.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        whole.update(plain.view(torch.uint8).numpy().data)
    return whole.hexdigest()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random weights drawn inside are those of ``seed``; the generators outside are untouched."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """So many threads inside. For a few images one is best: others wait for their share, busily."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Without warnings, and without what these loggers say short of a critical failure."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
