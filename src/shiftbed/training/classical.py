"""A job that fits a classifier of scikit-learn: one step, one file, evaluated like a checkpoint.

The estimator sees pixels in [0, 1], flattened as image arrays are (row, column, channel), as
float64: what ``sklearn:FILE`` gives it again. It is written with skops (no pickle) as
RUNS/ID/model.skops with its preprocessing beside it, read back, and what was read is evaluated as
RUN@1. The types in the file beyond those that skops trusts are in done.json as ``trusted``; all of
them are in ``TRUSTED``, and a file with others is neither written nor read.
"""

import io
import json
import re
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.atomic import write_atomically
from shiftbed.engine.open_setting import Kept
from shiftbed.engine.plan import WARNING, Done
from shiftbed.errors import InputError
from shiftbed.evaluation.models import Model
from shiftbed.evaluation.models.spec import Request, Spec, sidecar_of
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.training.estimators import PREFIX, EstimatorSpec, read_estimator
from shiftbed.training.prepare import TrainingData, prepare
from shiftbed.training.runs import (
    Checkpointed,
    RunFolder,
    TrainTask,
    begun,
    ended,
    evaluate_run,
    info_of,
    model_name,
)

STEP = 1
"""A fitted model is the first and last step of its run."""
TRUSTED = (
    "sklearn._loss.link.Interval",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.calibration._TemperatureScaling",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace",
    "sklearn.gaussian_process.kernels.ConstantKernel",
    "sklearn.gaussian_process.kernels.Product",
    "sklearn.gaussian_process.kernels.RBF",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
)
"""Types within fitted classifiers of scikit-learn that skops does not trust by itself."""
GREY = ("1", "L", "LA", "I", "I;16", "F")
"""Pillow's modes without colour."""
_decoded = Kept()


def fit(task: TrainTask, report: Callable[[Done], None]) -> tuple[str, ...]:
    """Fit a job's estimator, write it, evaluate it; what was begun and killed is fitted again."""
    clock = time.perf_counter()
    job, folder = task.job, task.folder
    log = begun(task, 0)
    spec = read_estimator(str(job.arguments["model"]))
    data, preprocessing, pixels = _training_pixels(task, spec)
    with limited(task):
        estimator, said = _fitted(spec, pixels, data.labels, int(job.arguments["seed"]))
        trusted = _write(estimator, preprocessing, folder)
        fitted_in = time.perf_counter() - clock
        info = info_of(task, STEP, True, len(data), None)
        notes = [f"{WARNING}{one}" for one in said]
        fitted = reopened(task, data.classes)
        accuracy = evaluate_run(task, fitted, info, warnings=said, say=notes.append)
    seconds = time.perf_counter() - clock
    spent = {"seconds": round(seconds, 3), "fit_seconds": round(fitted_in, 3)}
    log["checkpoints"] = [{"step": STEP, "accuracy": accuracy, **spent, "info": info}]
    folder.write("log", log)
    ended(task, log, data, [STEP], data.classes, trusted=trusted, warnings=said)
    report(Checkpointed(key=task.key, images=len(data), seconds=seconds, step=STEP, steps=STEP))
    return tuple(notes)


@contextmanager
def limited(task: TrainTask) -> Iterator[None]:
    """BLAS and OpenMP on the recipe's number of threads, which sums depend on."""
    if not task.job.classical:
        yield
        return
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(limits=int(task.options["threads"])):
        yield


def reopened(task: TrainTask, classes: int) -> Model:
    """The written estimator, as the adapter of ``sklearn:FILE`` reads it, under its run's name."""
    from shiftbed.evaluation.models.from_sklearn import load

    file = str(task.folder.estimator)
    named = Spec(text=f"{PREFIX}{file}", prefix="sklearn", name=file, query={})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the class: said when it was fitted
        model = load(Request(spec=named, classes=classes, trusted=TRUSTED))
    return replace(model, id=model_name(task.job, STEP))


def _fitted(
    spec: EstimatorSpec, pixels: NDArray[np.uint8], labels: NDArray[np.int64], seed: int
) -> tuple[Any, list[str]]:
    """The fitted estimator and its warnings, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator = spec.make(seed)
        estimator.fit(_features(pixels), labels)
    paragraphs = (str(one.message).strip().partition("\n\n")[0] for one in caught)
    return estimator, list(dict.fromkeys(" ".join(one.split()) for one in paragraphs))


def _features(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """(N, H, W, C) levels to (N, H·W·C) in [0, 1], through float32 as in evaluation."""
    fractions = np.divide(pixels, np.float32(255), dtype=np.float32)
    return fractions.reshape(len(pixels), -1).astype(np.float64)


def _training_pixels(
    task: TrainTask, spec: EstimatorSpec
) -> tuple[TrainingData, Preprocessing, NDArray[np.uint8]]:
    """Training data as the estimator sees them, decoded once for jobs that see the same."""
    limit = float(task.options["memory_gib"]) * 2**30
    data = prepare(task.job.arguments["data"], task.data, task.base)
    tokens = [part.token for part in data.parts]
    chosen = [one.tobytes() for one in (data.source, data.rows, data.labels)]
    key = (*tokens, *chosen, spec.size, spec.mode)

    def make() -> tuple[Any, int]:
        preprocessing = _preprocessing(data, spec)
        height, width = preprocessing.size
        needed = len(data) * height * width * preprocessing.channels * 8
        if needed > limit:
            raise InputError(
                f"{len(data)} images of {height}×{width} pixels are {needed / 2**30:.3g} GiB as "
                f"numbers, more than memory_gib = {task.options['memory_gib']}: give a smaller size"
            )
        pixels = data.pixels(preprocessing)
        return (preprocessing, pixels), pixels.nbytes

    found: tuple[Preprocessing, NDArray[np.uint8]] = _decoded.get(key, make, limit)
    return data, *found


def _preprocessing(data: TrainingData, spec: EstimatorSpec) -> Preprocessing:
    """What the line says; else the images' own size, and grey if all of them are."""
    size, mode = spec.size, spec.mode
    if size is not None and mode is not None:
        return Preprocessing(size=(size, size), mode=mode)
    pictures = (data.load(at) for at in range(len(data)))
    seen = {(one.height, one.width, one.mode in GREY) for one in pictures}
    own = sorted({(height, width) for height, width, _ in seen})
    if size is None and len(own) > 1:
        several = ", ".join(f"{height}×{width}" for height, width in own[:3])
        raise InputError(
            f"images of {data.name!r} have {len(own)} sizes ({several}, …): give the model a size, "
            f"such as {PREFIX}{spec.name}?size=32"
        )
    return Preprocessing(
        size=own[0] if size is None else (size, size),
        mode=mode or ("L" if all(grey for *_, grey in seen) else "RGB"),
    )


def _write(estimator: Any, preprocessing: Preprocessing, folder: RunFolder) -> list[str]:
    """Write the estimator, its preprocessing first; the types that its reader has to trust."""
    try:
        import skops.io
    except ImportError:
        raise InputError("skops is not installed: pip install 'shiftbed[evaluate]'") from None

    data = _repeatable(skops.io.dumps(estimator))
    types = sorted(skops.io.get_untrusted_types(data=data))
    others = [one for one in types if one not in TRUSTED]
    if others:
        raise InputError(
            f"a fitted {type(estimator).__name__} with these options holds types that are not "
            f"trusted: {', '.join(others)}"
        )
    with write_atomically(sidecar_of(folder.estimator)) as file:
        file.write(json.dumps(preprocessing.describe(), indent=1).encode())
    with write_atomically(folder.estimator) as file:
        file.write(data)
    return types


def _repeatable(data: bytes) -> bytes:
    """The same file of skops whenever and wherever it is written.

    Objects are numbered as they come instead of by their addresses in memory; times are left out.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {member.filename: archive.read(member) for member in archive.infolist()}
    schema = files.pop("schema.json").decode()
    addresses = re.findall(r'"__id__": (\d+)', schema)
    numbers = {address: str(i) for i, address in enumerate(dict.fromkeys(addresses))}

    def numbered(text: str) -> str:
        return re.sub(
            r'("__id__": |")(\d+)(\.\w+"|(?=[\s,}]))',
            lambda m: m[1] + numbers.get(m[2], m[2]) + m[3],
            text,
        )

    kept = {numbered(f'"{name}"').strip('"'): content for name, content in files.items()}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**kept, "schema.json": numbered(schema).encode()}.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return made.getvalue()
