"""The attacked model as a differentiable function, and the checks on what it is fed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shiftbed.errors import InputError, brief
from shiftbed.evaluation.image_batches import as_fractions, check_values, ids_of
from shiftbed.evaluation.models import Model, TorchModel


@dataclass(frozen=True, kw_only=True, eq=False)
class Victim:
    """Pixels in, logits out, with gradients."""

    name: str
    function: Callable[[Tensor], Any]
    device: torch.device
    channels_last: bool
    """Whether batches are laid out as (N, H, W, C)."""
    notes: tuple[str, ...] = ()

    def __call__(self, pixels: Tensor) -> Tensor:
        """(N, classes) float32 logits, with the graph behind them if pixels require gradients."""
        try:
            logits = self.function(pixels)
        except (RuntimeError, TypeError) as error:
            if isinstance(error, RuntimeError) and "requires grad" not in str(error):
                raise
            raise InputError(f"{self.name} {_NO_GRADIENT}: {brief(error)}") from None
        if not isinstance(logits, Tensor):
            raise InputError(f"{self.name} {_NO_GRADIENT}: it returns {type(logits).__name__}")
        if logits.ndim != 2 or len(logits) != len(pixels) or logits.shape[1] < 2:
            raise InputError(
                f"{self.name} must return (N, classes) logits of at least two classes, "
                f"got {tuple(logits.shape)} for N = {len(pixels)}"
            )
        return logits.to(torch.float32)

    def pull_back(self, logits: Tensor, pixels: Tensor, pull: Tensor) -> Tensor:
        """The gradient with respect to pixels of Σ pull · logits, pull held fixed."""
        gradient = None
        if logits.requires_grad:
            (gradient,) = torch.autograd.grad(logits, pixels, pull, allow_unused=True)
        if gradient is None:
            raise InputError(
                f"{self.name} {_NO_GRADIENT}: its logits do not depend on pixels differentiably"
            )
        return gradient

    def tensor(self, values: NDArray[np.float32]) -> Tensor:
        """Values (N, C, H, W) as a tensor of its device and layout, never sharing memory."""
        made = torch.from_numpy(np.array(values, dtype=np.float32, order="K")).to(self.device)
        return self.laid_out(made)

    def laid_out(self, values: Tensor) -> Tensor:
        if self.channels_last:
            return values.contiguous(memory_format=torch.channels_last)
        return values.contiguous()


_NO_GRADIENT = "has no gradients to attack along"


def open_victim(model: Any, images: Any, x: NDArray[np.float32]) -> Victim:
    """A TorchModel, a module or a function as something to attack; ``x`` are the images' pixels.

    Parameters of a module are left as they are: only pixels' gradients are computed.
    """
    if isinstance(model, TorchModel):
        wanted = (model.preprocessing.channels, *model.preprocessing.size)
        if x.shape[1:] != wanted:
            raise InputError(
                f"{model.id} takes images of (C, H, W) = {wanted}, got {x.shape[1:]}: "
                "bring them to its size first"
            )
        note = f"gradients are computed in {model.precision}, which rounds small ones to 0"
        return Victim(
            name=model.id,
            function=model.module,
            device=torch.device(model.device),
            channels_last=model.channels_last,
            notes=() if model.precision == "float32" else (note,),
        )
    if isinstance(model, Model):
        raise InputError(
            f"{model.id} {_NO_GRADIENT}: it is no torch network; "
            "attack the network it was exported from, or another model and transfer the images"
        )
    if not callable(model):
        raise InputError(f"a {type(model).__name__} is no model: expected a TorchModel or function")
    device, notes = torch.device("cpu"), tuple[str, ...]()
    if isinstance(model, nn.Module):
        device = next((one.device for one in model.parameters()), device)
        if model.training:
            notes = ("the network is in training mode: dropout and batch statistics are random",)
    if isinstance(images, Tensor):
        device = images.device
    return Victim(
        name=type(model).__name__ if isinstance(model, nn.Module) else "the function",
        function=model,
        device=device,
        channels_last=bool(x.transpose(0, 2, 3, 1).flags.c_contiguous and not x.flags.c_contiguous),
        notes=notes,
    )


def open_images(images: Any, ids: Sequence[str] | None) -> tuple[NDArray[np.float32], list[str]]:
    """The batch as (N, C, H, W) float32 pixels in [0, 1], all of them looked at, and its ids."""
    if isinstance(images, Tensor):
        plain = images.float() if images.dtype == torch.bfloat16 else images
        images = plain.detach().cpu().numpy()
    x = as_fractions(images)
    listed = ids_of(ids, len(x))
    if 0 in x.shape:
        raise InputError(f"images must not be empty, got shape {images.shape}")
    finite = np.isfinite(x).all(axis=(1, 2, 3))
    if not finite.all():
        raise InputError(f"image {listed[int(finite.argmin())]} holds values that are not finite")
    low, high = float(x.min()), float(x.max())
    check_values(low, high, True)
    return x.clip(0, 1) if low < 0 or high > 1 else x, listed


def check_labels(labels: Any, count: int) -> NDArray[np.int64]:
    """(N,) class numbers; whether they are below the number of classes is seen later."""
    found = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if found.shape != (count,):
        raise InputError(f"labels must have shape ({count},), got {found.shape}")
    if not np.issubdtype(found.dtype, np.integer):
        raise InputError(f"labels must be whole numbers, got {found.dtype}")
    if found.min() < 0:
        raise InputError(f"labels must be class numbers from 0, got {found.min()}")
    return found.astype(np.int64)


def take(values: Tensor, rows: Tensor) -> Tensor:
    """Rows of a tensor, its memory layout kept."""
    if values.ndim == 4 and not values.is_contiguous():
        return values.permute(0, 2, 3, 1).index_select(0, rows).permute(0, 3, 1, 2)
    return values.index_select(0, rows)
