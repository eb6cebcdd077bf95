"""Weights from files, as tensors and nothing else.

Files come from the user or from the libraries' own caches, and are fetched only where the network
answers at once. What is expensive to compute again is kept in a cache folder of our own.
"""

import argparse
import hashlib
import io
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError, brief
from shiftbed.hub import unreachable
from shiftbed.places import cache_folder, local
from shiftbed.store.files import LocalFiles

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
    found = local(os.fspath(path), what).expanduser()
    if not found.is_file():
        reason = "a directory, not a file" if found.is_dir() else "no such file"
        raise InputError(f"{what}: {path}: {reason}")
    return found


def digest(path: Path) -> str:
    """SHA-256 of a file; remembered while it is the same one by size, times and inode."""
    about = path.stat()
    seen = (about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)
    return _digest(path.resolve(), seen)


@lru_cache(maxsize=4096)
def _digest(path: Path, seen: tuple[int, ...]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_state(path: Path) -> dict[str, "torch.Tensor"]:
    """The state dict in a checkpoint: ``.safetensors``, or torch's format with ``weights_only``.

    Takes it out of what training scripts wrap it in, averaged (EMA) weights first.
    """
    import torch

    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return _without(_PREFIXES, load_file(path))
        except SafetensorError as error:
            raise InputError(f"{path}: not a safetensors file: {error}") from None
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):  # timm's own checkpoints
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise refusal(path, error) from None
    except Exception as error:  # a pickle is a program: a damaged one ends in any of them
        raise InputError(f"{path}: cannot be read as a torch checkpoint: {brief(error)}") from None
    prefixes: tuple[str, ...] = _PREFIXES
    if isinstance(found, Mapping) and _LIGHTNING in found:
        prefixes = ("model.", *_PREFIXES)
    for name in _WRAPPERS:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
            break
    if isinstance(found, Mapping):
        found = {name: _dense(value, path) for name, value in found.items()}
    if not isinstance(found, Mapping) or not all(torch.is_tensor(v) for v in found.values()):
        raise InputError(f"{path}: no state dict (a mapping from names to tensors)")
    return _without(prefixes, dict(found))


def _dense(value: Any, path: Path) -> Any:
    """A tensor kept as (places, values, flat shape, shape) of its non-zero entries, filled up."""
    import torch

    if not isinstance(value, tuple) or len(value) != 4 or not all(map(torch.is_tensor, value[:2])):
        return value
    places, values, flat, shape = value
    try:
        whole = torch.zeros(tuple(flat), dtype=values.dtype)
        whole[places.reshape(-1).long()] = values
        return whole.reshape(tuple(shape))
    except (RuntimeError, IndexError, TypeError) as error:
        raise InputError(
            f"{path}: a sparse weight does not fit its shape: {brief(error)}"
        ) from None


def refusal(path: str | Path, error: Exception) -> InputError:
    """The error for a checkpoint that holds more than tensors: what it would have run."""
    import torch

    try:
        found = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:  # whatever a damaged file makes of it
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


_WITH_WEIGHTS = "pass it as weights=FILE"


def hub_file(
    repository: str, names: Sequence[str], what: str, instead: str = _WITH_WEIGHTS
) -> Path:
    """One of the named files of a hub repository: from the cache, else fetched.

    ``repository`` may carry a revision, ``OWNER/NAME@REVISION``. A file that was put into the
    cache by hand, as ``snapshots/ANYTHING/FILE``, is found too. ``instead`` is what else the user
    can do, for the error.
    """
    from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    name, _, revision = repository.partition("@")
    for file in names:
        found = try_to_load_from_cache(name, file, revision=revision or None)
        if isinstance(found, str):
            return Path(found)
    folder = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "snapshots"
    by_hand = [p for f in names for p in sorted(folder.glob(f"{revision or '*'}/{f}"))]
    if by_hand:
        return by_hand[0]
    reason = unreachable(constants.ENDPOINT)
    for file in names if reason is None else ():
        try:
            return Path(hf_hub_download(name, file, revision=revision or None))
        except EntryNotFoundError:
            reason = f"{name} has no {' or '.join(names)}"
        except (HfHubHTTPError, OSError) as error:
            reason = str(error).splitlines()[0]
            break
    place = folder / (revision or "main") / names[0]
    raise _missing(what, f"{name} on the hub", place, reason, instead)


def url_file(url: str, what: str, folder: Path | None = None) -> Path:
    """The file at a URL: from torch's hub cache (or ``folder``), else fetched."""
    import torch

    name = Path(urlsplit(url).path).name
    place = (folder or Path(torch.hub.get_dir()) / "checkpoints") / name
    if place.is_file():
        return place
    reason = unreachable(url)
    if reason is None:
        place.parent.mkdir(parents=True, exist_ok=True)
        stated = torch.hub.HASH_REGEX.search(name)
        try:
            torch.hub.download_url_to_file(
                url, str(place), hash_prefix=stated.group(1) if stated else None, progress=False
            )
            return place
        except (OSError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
    raise _missing(what, urlsplit(url).netloc, place, reason, _WITH_WEIGHTS)


def _missing(what: str, source: str, place: Path, reason: str | None, instead: str) -> InputError:
    return InputError(
        f"{what}: its files are not on this machine and could not be fetched ({reason}). "
        f"Get {place.name} of {source} and put it at {place}, or {instead}; "
        "'?pretrained=false' takes random weights"
    )


def remembered(name: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """The array cached under a name; computed and written if it is missing or damaged.

    Where nothing can be written, it is computed every time.
    """
    folder = cache_folder()
    try:
        found: NDArray[Any] = np.load(folder / name, allow_pickle=False)
        return found
    except (OSError, ValueError, EOFError):
        pass
    found = compute()
    buffer = io.BytesIO()
    np.save(buffer, found, allow_pickle=False)
    with suppress(OSError, InputError):
        LocalFiles(folder).write(name, buffer.getvalue())
    return found
