"""What a worker does: open what a task names, predict, write to the store, say it is done."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.engine.identity import identity
from shiftbed.engine.jobs import WARNING, Done, Task
from shiftbed.engine.opening import open_images
from shiftbed.engine.perturbed import perturbation_of
from shiftbed.engine.spec import ModelSpec, SettingSpec
from shiftbed.errors import InputError
from shiftbed.evaluation.backends import Backend, choose_backend
from shiftbed.evaluation.data import TestSet, batches
from shiftbed.evaluation.models import Model, TorchModel, resolve
from shiftbed.evaluation.models.memory import with_halving
from shiftbed.evaluation.perturbations import NotApplicable, Perturbation
from shiftbed.evaluation.predict import Perturb, Pixels, predict_part
from shiftbed.labels import LabelPolicy
from shiftbed.store import PredictionStore, StoredTestSet

DEFAULTS = {
    "batch_size": 64,
    "backend": "auto",
    "top": 5,
    "keep_logits": False,
    "on_unreadable": "skip",
    "threads": 2,
    "device": "cpu",
    "precision": "float32",
}


def execute(task: Task, report: Callable[[Done], None] = lambda done: None) -> Done:
    """Predict the parts of a task; each is written as soon as it is there."""
    start = time.perf_counter()
    store = PredictionStore(task.store)
    record = store.cell(*task.key)
    if record is None:
        raise InputError(f"{task.key[0]!r} on {task.key[1]!r} was not prepared")
    options = DEFAULTS | dict(task.options) | record["options"]
    test_set, stored, policy = open_images(task.setting)
    model = _model(task.model, options)
    said: list[str] = []
    scorer = _Halving(_backend(model, record["backend"]), said)
    perturb = _perturb(task.setting, model, policy, said)
    images = 0
    for begin, stop in task.parts:
        clock = time.perf_counter()
        part = predict_part(
            scorer,
            model.preprocessing.pixels,
            test_set,
            stored.labels,
            policy,
            begin,
            stop,
            batch_size=options["batch_size"],
            top=options["top"],
            keep_logits=options["keep_logits"],
            threads=options["threads"],
            on_unreadable=options["on_unreadable"],
            perturb=perturb,
        )
        store.write_part(*task.key, begin, part.frame)
        images += stop - begin
        notes = tuple(f"unreadable: {u.example} ({u.reason})" for u in part.unreadable)
        notes += tuple(dict.fromkeys(said))
        said.clear()
        seconds = time.perf_counter() - clock
        report(Done(key=task.key, images=stop - begin, seconds=seconds, notes=notes))
    return Done(key=task.key, images=images, seconds=time.perf_counter() - start)


def register(store: PredictionStore, setting: SettingSpec) -> StoredTestSet:
    """Put a setting's examples and labels into the store (once), and return them."""
    _, stored, _ = open_images(setting)
    store.add_test_set(stored)
    return stored


def prepare(
    store: PredictionStore,
    model: ModelSpec,
    setting: SettingSpec,
    options: dict[str, Any],
    images: int | None = None,
) -> dict[str, Any]:
    """Write the cell's record before it starts: what will run, on what, with which backend.

    A cell begun earlier keeps its backend and options, so that continuing gives the same bytes.
    ``images``: how many the model will see in all, over all its cells.
    """
    old = store.cell(model.name, setting.id)
    if old is not None and "backend" in old:
        if old.get("status") == "failed":
            store.write_cell(model.name, setting.id, _without(old, "error") | {"status": "running"})
        return old
    options = DEFAULTS | options
    opened = _model(model, options)
    test_set, stored, policy = open_images(setting)
    perturbation = perturbation_of(setting)
    details = None if perturbation is None else perturbation.describe()
    if perturbation is not None and perturbation.needs_gradients:
        check_applicable(perturbation, opened, policy, stored)
        options = options | {"backend": "torch"}
    chosen, report = _choose(model, options, setting, test_set, images or len(test_set))
    record = {
        "status": "running",
        "backend": chosen,
        "backend_report": report,
        "options": {k: options[k] for k in ("batch_size", "top", "keep_logits", "on_unreadable")},
        "preprocessing": opened.preprocessing.describe(),
        "model_details": opened.describe(),
        "seed": opened.describe().get("seed"),  # of random weights
        "perturbation": details,
        "info": dict(model.info),
        "spec": model.spec,
        "label_policy": stored.label_policy,
        "fingerprint": stored.fingerprint,
        "identity": identity(model, options, details),
        "n": len(stored),
        **_provenance(),
    }
    store.write_cell(model.name, setting.id, record)
    return record


def check_applicable(
    perturbation: Perturbation, model: Model, policy: LabelPolicy | None, stored: StoredTestSet
) -> None:
    """Refuse, as ``NotApplicable``, what this model or test set cannot be perturbed by."""
    if not perturbation.needs_gradients:
        return
    perturbation.on(model, policy)
    if stored.label_sets is not None:
        raise NotApplicable(f"{perturbation.id} needs one label per image, not sets of labels")


def _without(record: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in record.items() if k not in (key, "model", "setting")}


_measured: dict[str, tuple[str, dict[str, Any]]] = {}


def _choose(
    model: ModelSpec,
    options: dict[str, Any],
    setting: SettingSpec,
    test_set: TestSet,
    images: int,
) -> tuple[str, dict[str, Any]]:
    """The backend for a model, measured on its own first images, once per test set."""
    wanted = str(options["backend"])
    opened = _model(model, options)
    size = int(options["batch_size"])
    whose = setting.test_set.clean or setting.test_set.name
    given = [model.spec, dict(model.options), options.get("preprocessing")]
    place = [options["device"], options["precision"], whose, wanted, size]
    key = json.dumps([given, place], sort_keys=True)
    if key in _measured:
        return _measured[key]
    rows = range(min(len(test_set), 2 * size))
    loaded = batches(test_set, rows, opened.preprocessing.pixels, size, 1)
    sample = [pixels.transpose(0, 3, 1, 2) for _, pixels, _ in loaded if len(pixels)]
    if not sample:
        raise InputError(f"none of the first images of {test_set.name!r} can be read")
    chosen = choose_backend(opened, sample, backend=wanted, images=images)
    _backends.clear()
    _backends[id(opened), chosen.name] = chosen
    _measured.clear()
    _measured[key] = chosen.name, dict(chosen.report)
    return _measured[key]


def _model(model: ModelSpec, options: dict[str, Any]) -> Model:
    """The model, opened once; the last two stay open."""
    given = {k: v for k, v in model.options.items() if k != "preprocessing"}
    given["preprocessing"] = model.options.get("preprocessing") or options.get("preprocessing")
    given |= {"device": options["device"], "precision": options["precision"]}
    return _resolved(model.spec, json.dumps(given, sort_keys=True))


@lru_cache(maxsize=2)
def _resolved(spec: str, options: str) -> Model:
    return resolve(spec, **json.loads(options))


_backends: dict[tuple[int, str], Backend] = {}


def _backend(model: Model, name: str) -> Backend:
    """The backend of that name for an open model; only the last one is kept.

    It is checked against torch on noise before it is used.
    """
    key = (id(model), name)
    if key not in _backends:
        _backends.clear()
        height, width = model.preprocessing.size
        shape = (2, model.preprocessing.channels, height, width)
        noise = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        own = not isinstance(model, TorchModel)
        wanted = "auto" if own else name
        _backends[key] = choose_backend(model, [noise], backend=wanted, rounds=1)
    return _backends[key]


class _Halving:
    """A scorer that halves its batch when memory runs out, and says so."""

    def __init__(self, backend: Backend, said: list[str]) -> None:
        def report(before: int, after: int) -> None:
            said.append(f"out of memory: batches of {before} halved to {after}")

        self._run = with_halving(backend.logits, report)

    def logits(self, pixels: Pixels) -> NDArray[np.float32]:
        return self._run(pixels)


def _perturb(
    setting: SettingSpec, model: Model, policy: LabelPolicy | None, said: list[str]
) -> Perturb | None:
    perturbation = perturbation_of(setting)
    if perturbation is None:
        return None
    return perturbation.on(model, policy, lambda warning: said.append(f"{WARNING}{warning}"))


@lru_cache(maxsize=1)
def _provenance() -> dict[str, Any]:
    """Versions, commit and hardware, for the record."""
    return {"versions": dict(_versions()), "commit": _commit(), "hardware": _hardware()}


def _versions() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    for name in ("shiftbed", "numpy", "torch", "timm", "open_clip_torch", "onnxruntime", "pillow"):
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def _commit() -> str | None:
    """The commit of the working directory, if it is a git checkout."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _hardware() -> dict[str, Any]:
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "processors": os.cpu_count(),
    }
