"""Weights from files, as tensors and nothing else."""

import argparse
import hashlib
import pickle
from collections.abc import Mapping
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbed.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import nn


_WRAPPERS = ("state_dict_ema", "model_ema", "state_dict", "model", "model_state_dict")
"""Where training scripts put the weights, in order of preference."""
_PREFIXES = ("module.", "_orig_mod.")
"""What wrappers (data parallel, compiled) put before every name."""
_LIGHTNING = "pytorch-lightning_version"
"""Checkpoints with this entry have the network as ``model.``"""


def existing(path: str | PathLike[str], what: str) -> Path:
    """A file that is there, or an error that names it."""
    found = Path(path).expanduser()
    if not found.is_file():
        reason = "a directory, not a file" if found.is_dir() else "no such file"
        raise InputError(f"{what}: {path}: {reason}")
    return found


def digest(path: Path) -> str:
    """SHA-256 of a file; remembered while it keeps its size and time."""
    status = path.stat()
    return _digest(path.resolve(), status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _digest(path: Path, _size: int, _time: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_state(path: Path) -> dict[str, "torch.Tensor"]:
    """The state dict in a checkpoint: ``.safetensors``, or torch's format with ``weights_only``.

    Takes it out of what training scripts wrap it in, averaged (EMA) weights first.
    """
    import torch

    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):  # timm's own checkpoints
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise refusal(path, error) from None
    except (RuntimeError, EOFError, ValueError, OSError, KeyError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path}: cannot be read as a torch checkpoint: {reason}") from None
    prefixes: tuple[str, ...] = _PREFIXES
    if isinstance(found, Mapping) and _LIGHTNING in found:
        prefixes = ("model.", *_PREFIXES)
    for name in _WRAPPERS:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
            break
    if not isinstance(found, Mapping) or not all(torch.is_tensor(v) for v in found.values()):
        raise InputError(f"{path}: no state dict (a mapping from names to tensors)")
    return _without(prefixes, dict(found))


def _read_safetensors(path: Path) -> dict[str, "torch.Tensor"]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return _without(_PREFIXES, load_file(path))
    except SafetensorError as error:
        raise InputError(f"{path}: not a safetensors file: {error}") from None


def refusal(path: str | Path, error: Exception) -> InputError:
    """The error for a checkpoint that holds more than tensors: what it would have run."""
    import torch

    try:
        found = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except (ValueError, RuntimeError, pickle.UnpicklingError, EOFError, OSError):
        found = []
    what = f"it names {', '.join(sorted(found))}" if found else str(error).splitlines()[0]
    return InputError(
        f"{path}: refused, a checkpoint may hold tensors only (weights_only=True); {what}"
    )


def _without(
    prefixes: tuple[str, ...], state: dict[str, "torch.Tensor"]
) -> dict[str, "torch.Tensor"]:
    for prefix in prefixes:
        if state and all(name.startswith(prefix) for name in state):
            state = {name[len(prefix) :]: tensor for name, tensor in state.items()}
    return state


def fit(network: "nn.Module", state: Mapping[str, Any], path: Path) -> None:
    """Load weights into a network; every name and shape must be the same."""
    own = network.state_dict()
    missing = [name for name in own if name not in state]
    extra = [name for name in state if name not in own]
    shapes = [n for n in own if n in state and own[n].shape != state[n].shape]
    complaints = []
    for what, names in (("missing", missing), ("not in the architecture", extra)):
        if names:
            more = f" and {len(names) - 8} more" if len(names) > 8 else ""
            complaints.append(f"{len(names)} {what} ({', '.join(names[:8])}{more})")
    for name in shapes[:1]:
        there, here = tuple(state[name].shape), tuple(own[name].shape)
        complaints.append(f"{len(shapes)} of another shape ({name}: {there}, not {here})")
    if complaints:
        raise InputError(f"{path} does not fit the architecture: {'; '.join(complaints)}")
    network.load_state_dict(dict(state))
