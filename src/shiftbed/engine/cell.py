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
    """Begin the cell, if nobody has, and predict the parts of a task, each written at once.

    So models are opened, and their backends chosen, where they run.
    """
    start = time.perf_counter()
    store = opened_store(task.store)
    there = open_setting(task.setting)
    options = DEFAULTS | dict(task.options)
    try:
        model = open_model(task.model, options, task.shared)
    except Exception as error:  # a model can raise anything; the others go on
        return Done(key=task.key, error=one_line(error), broken=True)
    try:
        record = _begun(store, task)
    except NotApplicable as error:
        return Done(key=task.key, error=str(error), not_applicable=True)
    if not task.parts:
        return Done(key=task.key, seconds=time.perf_counter() - start)
    options |= record["options"]
    setting = matched(model, there)
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


def one_line(error: Exception) -> str:
    """An error for a record: what a user caused as it is, others with their kind."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"


def _begun(store: PredictionStore, task: Task) -> dict[str, Any]:
    """The cell's record; made now if there is none, or begun anew if the task says so."""
    record = None if task.fresh or task.first else store.cell(*task.key)
    if record is not None and "backend" in record:
        return record
    planned_here = isinstance(task.store, PredictionStore)  # with the test set written to it
    if not planned_here and not store.check_test_set(open_setting(task.setting).stored):
        raise InputError(
            f"{task.key[1]!r} is not in {store.files.root}: every worker must reach the store that "
            "the run began in"
        )
    return begin(
        store,
        task.model,
        task.setting,
        task.options,
        images=task.images,
        shared=task.shared,
        fresh=task.fresh,
        commit=task.commit,
    )


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
            answers = answered(parts, features, backend)
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


def resume(store: PredictionStore, model: ModelSpec, setting: SettingPlan) -> None:
    """Put a cell that was begun earlier in order; it keeps its backend and options.

    So continuing gives the same bytes.
    """
    old = store.cell(model.name, setting.id)
    if old is not None and "backend" in old:
        expand(store, model.name, setting.id, ranges(len(open_setting(setting).stored)))
        if old.get("status") == "failed" or old.get("unreadable"):  # those are tried again
            again = {key: value for key, value in old.items() if key != "error"}
            store.write_cell(model.name, setting.id, again | {"status": "running"})


def begin(
    store: PredictionStore,
    model: ModelSpec,
    setting: SettingPlan,
    options: Mapping[str, Any],
    images: int | None = None,
    shared: bool = False,
    fresh: bool = False,
    commit: str | None = None,
) -> dict[str, Any]:
    """Write the cell's record before it starts: what will run, on what, with which backend.

    ``images``: how many the model will see in all, over all its cells. ``shared``: whether others
    have the same backbone; all answer from its features then, which are torch's. ``fresh``: what
    is there is forgotten, once the model has been opened. Where somebody else begins the cell
    meanwhile, their record holds.
    """
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
        **({} if commit is None else {"commit": commit}),
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
OPEN = 2
"""Models that stay open."""
LIGHT = 1e-3
"""What a head counts among open models."""
CHECKED = 8
"""Images on which a backend is compared with torch at least; one asked for by name just these."""


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

    found: Model = _models.get(key, opened, limit=OPEN)
    return found


SHARE = 128
"""One in so many of a model's images makes a batch on which backends are measured, at most."""
_measured: dict[tuple[Any, ...], tuple[Model, str, dict[str, Any]]] = {}
_backends: dict[tuple[int, str], tuple[Model, Backend]] = {}


def _choose(
    model: Model, options: Mapping[str, Any], setting: OpenSetting, images: int
) -> tuple[str, dict[str, Any]]:
    """The backend for a model, measured on the first images that it meets, once for all of them.

    One that is asked for by name is not chosen, only compared with torch, on a few of them.
    """
    wanted, size = str(options["backend"]), int(options["batch_size"])
    if wanted == "torch" and isinstance(model, TorchModel):
        chosen = choose_backend(model, [], backend=wanted)
        return chosen.name, dict(chosen.report)
    key = (id(model), wanted, size, images)
    if key in _measured:
        return _measured[key][1:]
    few = min(size, max(CHECKED, images // SHARE if wanted == "auto" else 0))
    first = min(len(setting.stored), 2 * few if wanted == "auto" else few)
    loaded = setting.batches(model.preprocessing, 0, first, batch_size=few, threads=1)
    sample = [pixels.transpose(0, 3, 1, 2) for _, pixels, _ in loaded if len(pixels)]
    if not sample:
        raise InputError(f"none of the first images of {setting.test_set.name!r} can be read")
    chosen = choose_backend(model, sample, backend=wanted, images=images)
    _backends.clear()
    _backends[id(model), chosen.name] = model, chosen
    while len(_measured) >= OPEN:
        del _measured[next(iter(_measured))]
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
