"""What a worker does with a job: train it, go on with it, or evaluate what was added since.

Networks are trained (``training.py``); models of scikit-learn are fitted (``classical.py``).
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from shiftbed.engine.jobs import Done
from shiftbed.evaluation.models import Model
from shiftbed.store import PredictionStore
from shiftbed.training.augment import keeping_generators
from shiftbed.training.classical import details_of_fitted, fit, limited, reopened
from shiftbed.training.evaluation import evaluate, is_evaluated
from shiftbed.training.networks import make_network
from shiftbed.training.objective import make_objective
from shiftbed.training.task import TrainTask, details_of, info_of, model_name, spec_near
from shiftbed.training.training import Training

Report = Callable[[Done], None]


def is_finished(task: TrainTask, store: PredictionStore) -> bool:
    """Whether a job is trained and all its checkpoints are evaluated."""
    done = task.folder.read("done")
    if done is None:
        return False
    return all(
        is_evaluated(store, model_name(task.job, step), task.settings) for step in done["stops"]
    )


def execute(task: TrainTask, report: Report = lambda done: None) -> Done:
    """Train a job from where it stopped; a finished one is only evaluated where it was not yet."""
    clock = time.perf_counter()
    threads = torch.get_num_threads()
    torch.set_num_threads(int(task.options["threads"]))
    try:
        with keeping_generators():
            if task.folder.read("done") is not None:
                notes = _evaluate_again(task)
            elif task.job.classical:
                notes = fit(task, report)
            else:
                notes = Training(task, report).go()
    finally:
        torch.set_num_threads(threads)
    return Done(key=task.key, seconds=time.perf_counter() - clock, notes=notes)


def _evaluate_again(task: TrainTask) -> tuple[str, ...]:
    """A finished run on settings that were added since, from the weights that were kept."""
    folder, store = task.folder, PredictionStore(task.store)
    done = folder.read("done")
    notes: list[str] = []
    known = {one["step"]: one["info"] for one in folder.read("log")["checkpoints"]}
    for step in done["stops"]:
        name = model_name(task.job, step)
        if is_evaluated(store, name, task.settings):
            continue
        if not kept_file(task, step).is_file():
            notes.append(f"step {step}: its weights were not kept, and some settings are new")
            continue
        info = known.get(step, {}) | info_of(task, step, step == done["steps"], int(done["n"]))
        with limited(task):
            evaluate(
                finished_model(task, step, done),
                task.settings,
                store,
                info=info,
                details=details_of_fitted(task, done) if task.job.classical else details_of(task),
                batch_size=int(task.options["evaluation_batch_size"]),
                top=int(task.options["top"]),
                memory_gib=float(task.options["memory_gib"]),
                say=notes.append,
            )
    return tuple(dict.fromkeys(notes))


def kept_file(task: TrainTask, step: int) -> Path:
    """Where a checkpoint's weights are, if they were kept."""
    return task.folder.estimator if task.job.classical else task.folder.weights(step)


def finished_model(task: TrainTask, step: int, done: dict[str, Any]) -> Model:
    """A checkpoint of a finished run, read from its file."""
    if task.job.classical:
        return reopened(task, int(done["outputs"]))
    network = make_network(
        spec_near(str(task.job.arguments["model"]), task.base),
        int(done["outputs"]),
        "weights",
        weights=task.folder.weights(step),
        old_classes=int(done["outputs"]),
    )
    objective = make_objective(task.job.arguments["objective"])
    module = objective.evaluated(network.module).eval()
    return network.as_model(model_name(task.job, step), module)
