"""A job with all it needs, as it travels to a worker, and what is written down of it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from shiftbed.engine.jobs import Done
from shiftbed.engine.spec import SettingSpec
from shiftbed.errors import InputError
from shiftbed.training.augment import label_of
from shiftbed.training.checkpoint import RunFolder
from shiftbed.training.networks import Network, make_network
from shiftbed.training.objective import Hook
from shiftbed.training.recipe import Job
from shiftbed.training.sources import DataSpec


@dataclass(frozen=True, kw_only=True)
class Checkpointed(Done):
    """What a worker says at a checkpoint; ``images`` are training examples since the last one."""

    step: int
    steps: int


@dataclass(frozen=True, kw_only=True)
class TrainTask:
    """A job with what it needs of its recipe; this travels to workers."""

    work: ClassVar[str] = "shiftbed.training.execute:execute"
    job: Job
    recipe: str
    base: str
    store: str
    runs: str
    data: Mapping[str, DataSpec]
    settings: tuple[SettingSpec, ...]
    options: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        return self.job.run, "training"

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.runs, self.job.id)


def model_name(job: Job, step: int) -> str:
    """A checkpoint's name in the store."""
    return f"{job.run}@{step}"


def start_network(task: TrainTask, classes: int) -> Network:
    """The network at its start: drawn, the library's, a file's, or the last of another run."""
    arguments = task.job.arguments
    start = str(arguments["start"])
    weights, old_classes = None, None
    if start.startswith("run:"):
        before = RunFolder(task.runs, start.removeprefix("run:"))
        done = before.read("done")
        if done is None:
            raise InputError(f"the run {start.removeprefix('run:')} it starts from is not finished")
        weights, old_classes = before.weights(done["stops"][-1]), int(done["outputs"])
    return make_network(
        spec_near(str(arguments["model"]), task.base),
        classes,
        start,
        seed=int(arguments["seed"]),
        base=task.base,
        weights=weights,
        old_classes=old_classes,
        device=str(task.options["device"]),
    )


def spec_near(spec: str, base: str) -> str:
    """A model's line with the file it names (``python:FILE.py:…``, ``torch:FILE``) near the recipe.

    >>> spec_near("timm:resnet18", "recipes")
    'timm:resnet18'
    """
    prefix, _, rest = spec.partition(":")
    file = rest.partition(":" if prefix == "python" else "?")[0]
    beside = Path(base) / file
    if prefix not in ("python", "torch") or not file or not beside.is_file():
        return spec
    return f"{prefix}:{beside}{rest[len(file) :]}"


def info_of(
    task: TrainTask, step: int, last: bool, n: int, hooks: Sequence[Hook] = ()
) -> dict[str, Any]:
    """What the testbed knows of a checkpoint: the columns of its models.

    Those of how a network is trained are None for a model of scikit-learn.
    """
    job, arguments = task.job, task.job.arguments
    optimiser = arguments.get("optimiser", {})
    mix = arguments["data"].get("mix")
    found: dict[str, Any] = {
        "run": job.run,
        "step": step,
        "kind": job.kind,
        "in_fit_set": job.in_fit_set == "all" or (job.in_fit_set == "final" and last),
        "architecture": job.architecture,
        "training_data": job.training_data,
        "data_size": job.data_size,
        "n_train": n,
        "mix": "+".join(f"{name}={share:g}" for name, share in mix.items()) if mix else None,
        "parent": None,
        "start": _start(job),
        "tune": arguments.get("tune"),
        "augmentation": None if job.classical else label_of(arguments["augmentation"]),
        "objective": arguments.get("objective", {}).get("name"),
        "optimiser": optimiser.get("name"),
        "lr": optimiser.get("lr"),
        "length": arguments.get("epochs") or arguments.get("steps"),
        "seed": arguments["seed"],
        "stage": job.stage,
        "grid": job.grid,
        "final": last,
    }
    if job.parent is not None:
        before = RunFolder(task.runs, str(arguments["start"]).removeprefix("run:")).read("done")
        found["parent"] = f"{job.parent}@{before['stops'][-1]}" if before else job.parent
    for hook in hooks:
        found |= hook.facts()
    return found


def _start(job: Job) -> str | None:
    if job.classical:
        return None
    return "run" if job.parent else str(job.arguments["start"]).partition(":")[0]


def described(task: TrainTask) -> dict[str, Any]:
    """What job.json says: the arguments, and where the recipe is as seen from the run's folder."""
    base = os.path.relpath(task.base, task.folder.path)
    return {"id": task.job.id, "base": Path(base).as_posix(), **task.job.arguments}


def details_of(task: TrainTask) -> dict[str, Any]:
    return {
        "spec": task.job.arguments["model"],
        "identity": f"job:{task.job.id}",
        "recipe": task.recipe,
        "seed": task.job.arguments["seed"],
        "arguments": dict(task.job.arguments),
    }
