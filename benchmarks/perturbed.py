"""Evaluating under corruption in memory, against the bare forward passes.

    python -m benchmarks.perturbed [--quick] [--json]

For every corruption and severity the package's whole loop (decoded images, corruption, model, part
of predictions) and the bare passes over the same images as ready tensors, in turns, batch 64, two
threads. The ratio of the sums is the cost: for ResNet-18 (channels-last) at most 1.2 wanted, for
EfficientNet-Lite0 under onnxruntime at most 1.6. Then the peak memory of a process that evaluates
few and many images under corruption. Weights are random: speed does not depend on them.
``--quick`` takes severity 3 only, and few images.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import arguments, report
from benchmarks.evaluate import photographs
from shiftbed.evaluation.backends import choose_backend
from shiftbed.evaluation.data import batches, open_test_set
from shiftbed.evaluation.models import resolve
from shiftbed.evaluation.models.base import FunctionModel
from shiftbed.evaluation.perturbations import parse_perturbation, spelled_out
from shiftbed.evaluation.predict import pixels_to_float, predict_part
from shiftbed.evaluation.preprocessing import Preprocessing

BATCH = 64
AS_IT_IS = {"crop": "none", "resize": None, "size": [224, 224]}
MODELS = {
    "resnet18_channels_last": ("timm:resnet18?pretrained=false", "torch"),
    "efficientnet_lite0_onnxruntime": (
        "timm:tf_efficientnet_lite0?pretrained=false",
        "onnxruntime",
    ),
}


def cost(spec: str, backend: str, names: list[str], images: int) -> dict[str, Any]:
    """Seconds of the whole loop over those of the bare passes, per corruption and in all."""
    model = resolve(spec, preprocessing=AS_IT_IS)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (images, 224, 224, 3), dtype=np.uint8)
    floats = pixels_to_float(pixels)
    chosen = choose_backend(model, [floats[: min(BATCH, images)]], backend=backend, rounds=1)
    labels = np.zeros(images, np.int64)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "images.npz", images=pixels, labels=labels)
        test_set = open_test_set(Path(folder) / "images.npz")

        def bare() -> None:
            for at in range(0, images, BATCH):
                chosen.logits(floats[at : at + BATCH])

        def ours(name: str) -> Callable[[], None]:
            perturb = parse_perturbation(name).on(model)
            perturb(floats[:1], labels[:1], ["first"])  # kernels are compiled when first used

            def work() -> None:
                predict_part(
                    chosen, batches(test_set, range(images), model.preprocessing.pixels, BATCH, 2),
                    test_set.examples, labels, None, 0, images, perturb=perturb,
                )  # fmt: skip

            return work

        bare()
        spent: dict[str, list[float]] = {}
        for at, name in enumerate(names):
            whole = ours(name)
            pair = {}
            order = [("bare", bare), ("ours", whole)]
            for what, work in order if at % 2 else order[::-1]:
                start = time.perf_counter()
                work()
                pair[what] = time.perf_counter() - start
            head = name.partition(":")[0]
            sums = spent.setdefault(head, [0.0, 0.0])
            sums[0] += pair["ours"]
            sums[1] += pair["bare"]
    total = np.sum(list(spent.values()), axis=0)
    return {
        "ratio": float(total[0] / total[1]),
        "images_per_second": len(names) * images / float(total[0]),
        "cells": len(names),
        "images": images,
        "per_corruption": {name: round(own / free, 3) for name, (own, free) in spent.items()},
    }


def peak(images: int) -> float:
    """Megabytes that a process needs at most to evaluate so many photographs under noise."""
    with tempfile.TemporaryDirectory() as folder:
        where = str(photographs(Path(folder), images))
        command = [sys.executable, "-m", "benchmarks.perturbed", "--peak", where]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["peak_megabytes"])


def measure_peak(where: str) -> None:
    """What the process of ``peak`` does.

    The peak is the kernel's VmHWM: ``ru_maxrss`` of a new process begins with its parent's.
    """

    def means(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x.mean(axis=(2, 3))

    preprocessing = Preprocessing(size=(224, 224), resize=256)
    model = FunctionModel(id="python:means", classes=3, preprocessing=preprocessing, function=means)
    test_set = open_test_set(where)
    labels = np.asarray(test_set.labels)
    perturb = parse_perturbation("gaussian_noise:3").on(model)
    for at in range(0, len(test_set), 1024):
        stop = min(at + 1024, len(test_set))
        predict_part(
            model, batches(test_set, range(at, stop), preprocessing.pixels, BATCH, 2),
            test_set.examples, labels, None, at, stop, top=3, perturb=perturb,
        )  # fmt: skip
    status = Path("/proc/self/status").read_text().split()
    print(json.dumps({"peak_megabytes": int(status[status.index("VmHWM:") + 1]) / 1024}))


def main() -> None:
    if "--peak" in sys.argv:
        measure_peak(sys.argv[-1])
        return
    options = arguments(__doc__)
    names = spelled_out(["greyscale", "all:3"] if options.quick else ["all"])
    sizes = (
        {"torch": 8, "onnxruntime": 16}
        if options.quick
        else dict.fromkeys(("torch", "onnxruntime"), 64)
    )
    result: dict[str, Any] = {
        key: cost(spec, backend, names, sizes[backend]) for key, (spec, backend) in MODELS.items()
    }
    few, many = (192, 576) if options.quick else (256, 4096)
    result["peak_megabytes"] = {str(n): round(peak(n), 1) for n in (few, many)}
    report(result, options.json)


if __name__ == "__main__":
    main()
