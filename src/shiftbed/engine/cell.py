"""One cell: a model in a setting. What it is, how it is begun, and what a worker does with it.

The only place where a model meets images for the store: runs, single evaluations, checkpoints of
training, mixes of weights and the pipeline check all end here.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.engine.class_names import how_matched, matched
from shiftbed.engine.identity import depends_on, identity, unknowable
from shiftbed.engine.open_setting import Kept, OpenSetting, open_setting
from shiftbed.engine.plan import (
    DEFAULTS,
    WARNING,
    Done,
    ModelSpec,
    SettingPlan,
    Task,
    opened_store,
    ranges,
)
from shiftbed.engine.provenance import provenance
from shiftbed.engine.shared_backbone import answered, on_shared, part_features, parts_of
from shiftbed.errors import InputError
from shiftbed.evaluation.backends import Backend, choose_backend, with_halving
from shiftbed.evaluation.models import Model, TorchModel, resolve
from shiftbed.evaluation.models.dependencies import watched
from shiftbed.evaluation.perturbations import NotApplicable, Perturbing
from shiftbed.evaluation.predict import Pixels, part_of, predict_part
from shiftbed.labels import LabelPolicy
from shiftbed.places import without_folders
from shiftbed.store import PredictionStore, StoredTestSet
from shiftbed.store.compact import expand


def execute(task: Task, report: Callable[[Done], None] = lambda done: None) -> Done:
    """Predict the parts of a task; each is written as soon as it is there."""
    start = time.perf_counter()
    store = opened_store(task.store)
    record = store.cell(*task.key)
    if record is None:
        raise InputError(
            f"{task.key[0]!r} on {task.key[1]!r} is not in {store.files.root}: every worker must "
            "reach the store that the run began in"
        )
    options = DEFAULTS | dict(task.options) | record["options"]
    model = open_model(task.model, options, task.shared)
    setting = matched(model, open_setting(task.setting))
    if how_matched(setting) != record.get("classes_matched"):
        raise InputError(
            f"{task.key[0]} on {task.key[1]} was begun with classes numbered in another way: use "
            "another store"
        )
    said: list[str] = []
    predict = _predictor(task, model, setting, record["backend"], options, said)
    images = 0
    for begin, stop in task.parts:
        clock = time.perf_counter()
        frame, unreadable = predict(begin, stop)
        store.write_part(*task.key, begin, frame)
        images += stop - begin
        notes = tuple(f"unreadable: {u.example} ({u.reason})" for u in unreadable)
        notes += tuple(dict.fromkeys(said))
        said.clear()
        seconds = time.perf_counter() - clock
        report(Done(key=task.key, images=stop - begin, seconds=seconds, notes=notes))
    return Done(key=task.key, images=images, seconds=time.perf_counter() - start)


def _predictor(
    task: Task,
    model: Model,
    setting: OpenSetting,
    backend: str,
    options: Mapping[str, Any],
    said: list[str],
) -> Callable[[int, int], tuple[Any, Any]]:
    """From a range of examples to its part and the images that could not be read."""
    kept = {key: options[key] for key in ("top", "keep_logits", "on_unreadable")}
    wanted, perturb = task.setting.perturb, None
    if wanted is not None:
        perturb = wanted.on(model, setting.policy, lambda text: said.append(f"{WARNING}{text}"))
    parts = None
    common = task.shared or task.model.features is not None
    able = backend in ("torch", "onnxruntime")
    if common and able and (wanted is None or not wanted.needs_gradients):
        parts = parts_of(model)
    scorer: list[_Halving] = []  # made when it is needed

    def predicted(begin: int, stop: int) -> tuple[Any, Any]:
        features = None
        if parts is not None:
            features = part_features(
                parts,
                setting,
                begin,
                stop,
                options,
                perturb=perturb,
                done=None if wanted is None else wanted.describe(),
                folder=task.model.features,
                backend=backend,
            )
        labels = setting.stored.labels
        if features is not None and parts is not None:
            answers = answered(parts, features)
            part = part_of(answers, labels, setting.policy, begin, stop, **kept)
            return part.frame, part.unreadable
        loaded = setting.batches(
            model.preprocessing,
            begin,
            stop,
            batch_size=options["batch_size"],
            threads=options["threads"],
            memory_gib=options["memory_gib"],
        )
        scorer.extend([] if scorer else [_Halving(_backend(model, backend), said)])
        part = predict_part(
            scorer[0],
            loaded,
            setting.stored.examples,
            labels,
            setting.policy,
            begin,
            stop,
            perturb=perturb,
            **kept,
        )
        return part.frame, part.unreadable

    return predicted


def prepare(
    store: PredictionStore,
    model: ModelSpec,
    setting: SettingPlan,
    options: Mapping[str, Any],
    images: int | None = None,
    shared: bool = False,
    fresh: bool = False,
    new: bool = False,
) -> dict[str, Any]:
    """Write the cell's record before it starts: what will run, on what, with which backend.

    A cell begun earlier keeps its backend and options, so that continuing gives the same bytes.
    ``images``: how many the model will see in all, over all its cells. ``shared``: whether others
    have the same backbone; all answer from its features then, which are torch's. ``fresh``: what
    is there is forgotten, once the model has been opened. ``new``: nobody has begun it; if somebody
    does meanwhile, their record holds.
    """
    old = None if fresh or new else store.cell(model.name, setting.id)
    if old is not None and "backend" in old:
        expand(store, model.name, setting.id, ranges(len(open_setting(setting).stored)))
        if old.get("status") == "failed" or old.get("unreadable"):  # those are tried again
            again = {key: value for key, value in old.items() if key != "error"}
            store.write_cell(model.name, setting.id, again | {"status": "running"})
        return old
    given = DEFAULTS | dict(options)
    opened = open_model(model, given, shared)
    there = matched(opened, open_setting(setting))
    if shared and given["backend"] == "auto":
        given["backend"] = "torch"
    if setting.perturb is not None and setting.perturb.needs_gradients:
        check_applicable(setting.perturb, opened, there.policy, there.stored)
        given["backend"] = "torch"
    common = shared or model.features is not None
    if common and given["backend"] == "onnxruntime" and parts_of(opened) is not None:
        chosen, report = "onnxruntime", {"note": "asked for; the backbone is shared, not measured"}
    else:
        chosen, report = _choose(opened, given, there, images or len(there.stored))
    described = opened.describe()
    unknown = unknowable(model)
    if opened.facts.get("undeclared"):
        files = ", ".join(opened.facts["undeclared"][:3])
        unknown = f"it loads {files}, which its source does not name"
    record = {
        "status": "running",
        "backend": chosen,
        "backend_report": report,
        "options": {k: given[k] for k in ("batch_size", "top", "keep_logits", "on_unreadable")},
        "preprocessing": opened.preprocessing.describe(),
        "model_details": described,
        "seed": described.get("seed"),  # of random weights
        "perturbation": None if setting.perturb is None else setting.perturb.describe(),
        "info": dict(model.info),
        "spec": without_folders(model.spec),
        "label_policy": there.stored.label_policy,
        "classes_matched": how_matched(there),
        "fingerprint": there.stored.fingerprint,
        "identity": identity(model, given, setting.perturb),
        "depends_on": depends_on(model),
        **({} if unknown is None else {"identity_unknown": unknown}),
        "n": len(there.stored),
        **provenance(),
        **without_folders(model.details),
    }
    if fresh and store.cell(model.name, setting.id) is not None:
        store.remove(model.name, setting.id)
    return store.begin_cell(model.name, setting.id, record)


def check_applicable(
    perturb: Perturbing, model: Model, policy: LabelPolicy | None, stored: StoredTestSet
) -> None:
    """Refuse, as ``NotApplicable``, what this model or test set cannot be perturbed by."""
    if not perturb.needs_gradients:
        return
    perturb.on(model, policy)
    if stored.label_sets is not None:
        raise NotApplicable(f"{perturb.record.id} needs one label per image, not sets of labels")


_models = Kept()
LIGHT = 1e-3
"""What a head counts among open models."""
CHECKED = 8
"""Images on which a backend that was asked for by name is compared with torch."""


def open_model(model: ModelSpec, options: Mapping[str, Any], shared: bool = False) -> Model:
    """The model, opened once; the last two stay open, told apart by content.

    ``shared``: it may have the backbone of another one. Then it is kept on that, and only its head
    counts.
    """
    if isinstance(model.source, Model):
        return model.source
    given = {k: v for k, v in model.options.items() if k != "preprocessing"}
    given["preprocessing"] = model.options.get("preprocessing") or options.get("preprocessing")
    given |= {"device": options["device"], "precision": options["precision"]}
    source = model.source
    key = (source, json.dumps(given, sort_keys=True, default=str), identity(model, options))

    def opened() -> tuple[Model, float]:
        if "python:" in source:
            with watched(source) as undeclared:
                found = resolve(source, **given, origin=model.origin)
                side = found.preprocessing
                found.logits(np.zeros((1, side.channels, *side.size), np.float32))
            if undeclared:
                found = replace(found, facts={**found.facts, "undeclared": undeclared})
        else:
            found = resolve(source, **given, origin=model.origin)
        on = on_shared(found) if shared else found
        return on, 1.0 if on is found else LIGHT

    found: Model = _models.get(key, opened, limit=2)
    return found


_measured: dict[tuple[Any, ...], tuple[Model, str, dict[str, Any]]] = {}
_backends: dict[tuple[int, str], tuple[Model, Backend]] = {}


def _choose(
    model: Model, options: Mapping[str, Any], setting: OpenSetting, images: int
) -> tuple[str, dict[str, Any]]:
    """The backend for a model, measured on its own first images, once per test set.

    One that is asked for by name is not chosen, only compared with torch, on a few of them.
    """
    wanted, size = str(options["backend"]), int(options["batch_size"])
    if wanted == "torch" and isinstance(model, TorchModel):
        chosen = choose_backend(model, [], backend=wanted)
        return chosen.name, dict(chosen.report)
    key = (id(model), setting.plan.setting.test_set, wanted, size)
    if key in _measured:
        return _measured[key][1:]
    first = min(len(setting.stored), 2 * size if wanted == "auto" else min(size, CHECKED))
    loaded = setting.batches(model.preprocessing, 0, first, batch_size=size, threads=1)
    sample = [pixels.transpose(0, 3, 1, 2) for _, pixels, _ in loaded if len(pixels)]
    if not sample:
        raise InputError(f"none of the first images of {setting.test_set.name!r} can be read")
    chosen = choose_backend(model, sample, backend=wanted, images=images)
    _backends.clear()
    _backends[id(model), chosen.name] = model, chosen
    _measured.clear()
    _measured[key] = model, chosen.name, dict(chosen.report)
    return chosen.name, dict(chosen.report)


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
        wanted = name if isinstance(model, TorchModel) else "auto"
        sample = [] if name == "torch" else [noise]
        _backends[key] = model, choose_backend(model, sample, backend=wanted, rounds=1)
    return _backends[key][1]


class _Halving:
    """A scorer that halves its batch when memory runs out, and says so."""

    def __init__(self, backend: Backend, said: list[str]) -> None:
        def report(before: int, after: int) -> None:
            said.append(f"out of memory: batches of {before} halved to {after}")

        self._run = with_halving(backend.logits, report)

    def logits(self, pixels: Pixels) -> NDArray[np.float32]:
        return self._run(pixels)
