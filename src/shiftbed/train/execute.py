"""What a worker does with a job: train it, go on with it, or evaluate what was added since."""

import time
from collections.abc import Callable

import torch

from shiftbed.run.jobs import Done
from shiftbed.store import PredictionStore
from shiftbed.train.augment import keeping_generators
from shiftbed.train.evaluation import evaluate, is_evaluated
from shiftbed.train.networks import make_network
from shiftbed.train.objective import make_objective
from shiftbed.train.task import TrainTask, details_of, info_of, model_name, spec_near
from shiftbed.train.training import Training

__all__ = ["execute", "is_finished"]

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
            if task.folder.read("done") is None:
                notes = Training(task, report).go()
            else:
                notes = _evaluate_again(task)
    finally:
        torch.set_num_threads(threads)
    return Done(key=task.key, seconds=time.perf_counter() - clock, notes=notes)


def _evaluate_again(task: TrainTask) -> tuple[str, ...]:
    """A finished run on settings that were added since, from the weights that were kept."""
    folder, store = task.folder, PredictionStore(task.store)
    done, notes = folder.read("done"), []
    known = {one["step"]: one["info"] for one in folder.read("log")["checkpoints"]}
    for step in done["stops"]:
        name = model_name(task.job, step)
        if is_evaluated(store, name, task.settings):
            continue
        if not folder.weights(step).is_file():
            notes.append(f"step {step}: its weights were not kept, and some settings are new")
            continue
        network = make_network(
            spec_near(str(task.job.arguments["model"]), task.base),
            int(done["outputs"]),
            "weights",
            weights=folder.weights(step),
            old_classes=int(done["outputs"]),
        )
        objective = make_objective(task.job.arguments["objective"])
        module = objective.evaluated(network.module).eval()
        info = known.get(step, {}) | info_of(task, step, step == done["steps"], int(done["n"]))
        evaluate(
            network.as_model(name, module),
            task.settings,
            store,
            info=info,
            details=details_of(task),
            batch_size=int(task.options["evaluation_batch_size"]),
            top=int(task.options["top"]),
            memory_gib=float(task.options["memory_gib"]),
        )
    return tuple(notes)
