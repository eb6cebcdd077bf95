"""Evaluating, against the bare loop and against timm's own loader and loop.

    python -m benchmarks.evaluate [--quick] [--json] [--bare]

Interleaved A/B with the same threads; the median ratio with a bootstrap interval:

- ResNet-18 at 224 px from memory: this package's loop over the bare ``for batch: model(batch)``
  (cost, at most 1.05 wanted);
- from a folder of JPEGs, the same backend: images per second over those of timm's loader and loop
  (speed, at least 1 wanted);
- ``--backend auto`` against timm's loop for ResNet-50 (1.8 wanted) and EfficientNet-Lite0 (3);
- from the same folder under onnxruntime, against a bare loop that decodes with the same decoder in
  two threads and calls the session (speed, at least 0.95 wanted);
- start-up apart, in new processes: ``shiftbed eval`` of one photograph with the exported graph kept
  from before, over a bare script that makes the network and opens the graph (cost, at most 1.5
  wanted), by processor time; and the same with an empty cache, which exports.

Weights are random: speed does not depend on them. ``--quick`` does the first and EfficientNet-Lite0
beside timm's loop; ``--bare`` what is about the bare onnxruntime loop only.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.common import arguments, report
from shiftbed.evaluation.backends import Backend, choose_backend, exported
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.data import batches, open_test_set
from shiftbed.evaluation.models import resolve
from shiftbed.evaluation.models.from_onnx import Graph
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


def beside_bare(name: str, rounds: int, images: int) -> dict[str, Any]:
    """A bare onnxruntime loop over ours, on the same JPEGs with the same decoder."""
    ensure_torchvision()
    with tempfile.TemporaryDirectory() as folder:
        where = photographs(Path(folder), images)
        model = resolve(f"timm:{name}?pretrained=false")
        p = model.preprocessing
        test_set = open_test_set(where)
        labels = np.asarray(test_set.labels)
        files = sorted(where.rglob("*.jpg"))
        backend = Backend(name="onnxruntime", run=exported(model), report={})
        graph = next(cell.cell_contents for cell in _cells(backend.run, Graph))
        session, fed = graph.session, graph.name

        def decoded(file: Path) -> Any:
            with Image.open(file) as picture:
                return p.pixels(picture)

        def bare() -> None:
            with ThreadPoolExecutor(2) as pool:
                ready = pool.map(decoded, files)
                while batch := list(islice(ready, BATCH)):
                    pixels = np.stack(batch).transpose(0, 3, 1, 2).astype(np.float32) / 255
                    session.run(None, {fed: np.ascontiguousarray(pixels)})

        def ours() -> None:
            predict_part(
                backend, batches(test_set, range(images), p.pixels, BATCH, 2),
                test_set.examples, labels, None, 0, images,
            )  # fmt: skip

        return ratio(ours, bare, rounds)


def _cells(function: Any, kind: type) -> Iterator[Any]:
    """What a closure, or those that it is made of, holds of a kind."""
    for cell in getattr(function, "__closure__", None) or ():
        if isinstance(cell.cell_contents, kind):
            yield cell
        elif callable(cell.cell_contents):
            yield from _cells(cell.cell_contents, kind)


BARE = """
import sys
from pathlib import Path
import numpy as np
import onnxruntime
from PIL import Image
from shiftbed.evaluation.compat import ensure_torchvision
ensure_torchvision()
import timm
network = timm.create_model(sys.argv[2], pretrained=False).eval()
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
picture = Image.open(next(Path(sys.argv[3]).rglob("*.jpg"))).convert("RGB").resize((224, 224))
pixels = np.asarray(picture, np.float32).transpose(2, 0, 1)[None] / 255
session.run(None, {session.get_inputs()[0].name: pixels})
"""


def start_up(name: str, rounds: int) -> dict[str, Any]:
    """Processor seconds of new processes that evaluate one photograph."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        where = photographs(folder, 4)
        os.environ["SHIFTBED_CACHE"] = str(folder / "cache")
        program = [sys.executable, "-c", "from shiftbed.cli import main; main()", "eval", "--quiet"]
        program += [f"timm:{name}?pretrained=false", str(where), "--backend", "onnxruntime"]
        program += ["--labels", "model"]
        cold = _seconds([*program, "--store", str(folder / "cold")])
        (graph,) = (folder / "cache" / "graphs").glob("*/model.onnx")
        found = []
        for i in range(rounds):
            ours = _seconds([*program, "--store", str(folder / f"warm{i}")])
            bare = _seconds([sys.executable, "-c", BARE, str(graph), name, str(where)])
            found.append((ours, bare))
        ours, bare = np.median(np.array(found), axis=0)
        return {
            "cost_kept": float(ours / bare),
            "seconds_bare": float(bare),
            "seconds_kept": float(ours),
            "seconds_exporting": cold,
            "rounds": rounds,
        }


def _seconds(command: list[str]) -> float:
    """Processor time of a command, with what it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    options = arguments(__doc__, "--bare")
    rounds, images = (2, 32) if options.quick else (20, 64)
    lite = "tf_efficientnet_lite0"
    bare = {
        "efficientnet_lite0_folder_bare_onnxruntime": partial(
            beside_bare, lite, rounds, 4 * images
        ),
        "efficientnet_lite0_start_up": partial(start_up, lite, 1 if options.quick else 5),
    }
    if options.bare:
        report({key: work() for key, work in bare.items()}, options.json)
        return
    result: dict[str, Any] = {
        "resnet18_memory_cost": from_memory(rounds, images if options.quick else 4 * images),
        "efficientnet_lite0_folder_auto": from_folder(lite, rounds, images, "auto"),
    }
    if not options.quick:
        result["resnet18_folder_same_backend"] = from_folder("resnet18", rounds, images, "torch")
        result["resnet50_folder_auto"] = from_folder("resnet50", rounds, images, "auto")
        result |= {key: work() for key, work in bare.items()}
    report(result, options.json)


if __name__ == "__main__":
    main()
