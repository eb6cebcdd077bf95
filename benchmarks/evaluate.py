"""Evaluating, against the bare loop and against timm's own loader and loop.

    python -m benchmarks.evaluate [--quick] [--json]

Interleaved A/B with the same threads; the median ratio with a bootstrap interval:

- ResNet-18 at 224 px from memory: this package's loop over the bare ``for batch: model(batch)``
  (cost, at most 1.05 wanted);
- from a folder of JPEGs, the same backend: images per second over those of timm's loader and loop
  (speed, at least 1 wanted);
- ``--backend auto`` against timm's loop for ResNet-50 (1.8 wanted) and EfficientNet-Lite0 (3).

Weights are random: speed does not depend on them. ``--quick`` does the first and the last.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.common import arguments, report
from shiftbed.evaluation.backends import choose_backend
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.data import batches, open_test_set
from shiftbed.evaluation.models import resolve
from shiftbed.evaluation.predict import predict_part

BATCH = 32


def photographs(folder: Path, count: int) -> Path:
    """A folder of JPEGs of usual size, cut from real photographs."""
    from sklearn.datasets import load_sample_images

    pictures = load_sample_images().images
    rng = np.random.default_rng(0)
    for i in range(count):
        target = folder / "photos" / f"class{i % 4}"
        target.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(pictures[i % len(pictures)])
        left, top = (int(v) for v in rng.integers(0, 100, 2))
        cut = picture.crop((left, top, left + 500, top + 320))
        cut.save(target / f"{i}.jpg", quality=90)
    return folder / "photos"


def ratio(
    ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int
) -> dict[str, float | int]:
    """theirs / ours, by rounds that alternate, with a bootstrap interval of the median."""
    ours()
    theirs()
    found = []
    for i in range(rounds):
        times = {}
        for name, work in ((0, ours), (1, theirs)) if i % 2 else ((1, theirs), (0, ours)):
            start = time.perf_counter()
            work()
            times[name] = time.perf_counter() - start
        found.append(times[1] / times[0])
    draws = np.random.default_rng(0).choice(found, (2000, rounds))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return {
        "ratio": float(np.median(found)),
        "low": float(low),
        "high": float(high),
        "rounds": rounds,
    }


def from_memory(rounds: int, images: int) -> dict[str, Any]:
    """Our whole loop, store's part included, over the bare forward passes."""
    import torch

    as_they_are = {"crop": "none", "resize": None}  # 224 px in memory, 224 px to the model
    model = resolve("timm:resnet18?pretrained=false", preprocessing=as_they_are)
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        pixels = rng.integers(0, 256, (images, 224, 224, 3), dtype=np.uint8)
        np.savez(Path(folder) / "images.npz", images=pixels, labels=np.zeros(images, np.int64))
        test_set = open_test_set(Path(folder) / "images.npz")
        labels = np.zeros(images, np.int64)
        floats = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255)
        floats = floats.contiguous(memory_format=torch.channels_last)
        module = model.module

        def bare() -> None:
            with torch.inference_mode():
                for batch in floats.split(BATCH):
                    module(batch)

        def ours() -> None:
            predict_part(
                model, batches(test_set, range(images), model.preprocessing.pixels, BATCH, 2),
                test_set.examples, labels, None, 0, images,
            )  # fmt: skip

        return ratio(bare, ours, rounds)


def from_folder(name: str, rounds: int, images: int, backend: str) -> dict[str, Any]:
    """timm's loader and loop over ours, on the same JPEGs."""
    ensure_torchvision()
    import timm
    import torch
    from timm.data import create_dataset, create_loader, resolve_data_config

    with tempfile.TemporaryDirectory() as folder:
        where = photographs(Path(folder), images)
        model = resolve(f"timm:{name}?pretrained=false")
        reference = timm.create_model(name, pretrained=False).eval()
        reference = reference.to(memory_format=torch.channels_last)
        config = resolve_data_config({}, model=reference)
        test_set = open_test_set(where)
        labels = np.asarray(test_set.labels)
        sample = [np.stack([model.preprocessing.pixels(test_set.load(i)) for i in range(BATCH)])]
        sample = [one.transpose(0, 3, 1, 2) for one in sample]
        chosen = choose_backend(model, sample, backend=backend, images=50_000)

        def with_timm() -> None:
            loader = create_loader(
                create_dataset("", str(where)), input_size=config["input_size"], batch_size=BATCH,
                use_prefetcher=False, interpolation=config["interpolation"], mean=config["mean"],
                std=config["std"], num_workers=2, crop_pct=config["crop_pct"], device="cpu",
            )  # fmt: skip
            with torch.inference_mode():
                for batch, _ in loader:
                    reference(batch.contiguous(memory_format=torch.channels_last))

        def ours() -> None:
            predict_part(
                chosen, batches(test_set, range(images), model.preprocessing.pixels, BATCH, 2),
                test_set.examples, labels, None, 0, images,
            )  # fmt: skip

        found = ratio(ours, with_timm, rounds)
        return found | {"backend": chosen.name}


def main() -> None:
    options = arguments(__doc__)
    rounds, images = (2, 32) if options.quick else (20, 64)
    lite = "tf_efficientnet_lite0"
    result: dict[str, Any] = {
        "resnet18_memory_cost": from_memory(rounds, images if options.quick else 4 * images),
        "efficientnet_lite0_folder_auto": from_folder(lite, rounds, images, "auto"),
    }
    if not options.quick:
        result["resnet18_folder_same_backend"] = from_folder("resnet18", rounds, images, "torch")
        result["resnet50_folder_auto"] = from_folder("resnet50", rounds, images, "auto")
    report(result, options.json)


if __name__ == "__main__":
    main()
