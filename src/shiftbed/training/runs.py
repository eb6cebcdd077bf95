"""Runs: a job as it travels to a worker, the files it leaves, and its checkpoints as models.

    RUNS/ID/job.json        the job's arguments, and where its recipe is
    RUNS/ID/last.pt         everything the next step depends on
    RUNS/ID/step-N.pt       the network's state dict, as ``torch:FILE?arch=…`` reads it; with
                            keep = "head" that of its head, and the rest is the run's start
    RUNS/ID/model.skops     instead, a fitted estimator, as ``sklearn:FILE`` reads it
    RUNS/ID/log.json        per checkpoint: step, epoch, mean loss, examples, seconds
    RUNS/ID/done.json       written last: what the run ended with

Files hold tensors, numbers and texts only, and are read with ``weights_only=True``.

``run:FOLDER[?step=N]`` is a checkpoint of a finished run as a model, the last if none is named.
FOLDER is RUNS/ID. The model is called RUN@STEP, as in the store. A ``python:`` network in its
job.json is executed if that is allowed.
"""

import json
import os
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from shiftbed.atomic import write_atomically
from shiftbed.engine.plan import WARNING, Done, ModelSpec, RunSpec, SettingPlan
from shiftbed.engine.run import run_spec
from shiftbed.engine.toml_files import model_beside
from shiftbed.errors import InputError, brief
from shiftbed.evaluation.models import Model
from shiftbed.evaluation.models.checkpoints import read_state, refusal
from shiftbed.evaluation.models.registry import code_in as code_of_line
from shiftbed.evaluation.models.spec import Request, Spec
from shiftbed.foreign_code import MINE, Named, Origin
from shiftbed.places import local, only_here
from shiftbed.reading.files import read_json
from shiftbed.reading.shapes import any_text, count, fitting, plain, text
from shiftbed.store import PredictionStore, read_answers
from shiftbed.training.augment import label_of
from shiftbed.training.networks import Network, make_network
from shiftbed.training.objective import Hook, make_objective
from shiftbed.training.prepare import TrainingData
from shiftbed.training.recipe import Job, short_hash
from shiftbed.training.sources import DataSpec

_SHAPES: dict[str, Any] = {
    "job": {"id": text, "base?": any_text, "*": plain},
    "log": {"checkpoints": [{"step": count, "info": {"*": plain}, "*": plain}], "*": plain},
    "done": {"stops": [count], "outputs": count, "*": plain},
}


class RunFolder:
    """The folder of one run."""

    def __init__(self, runs: str | Path, id: str) -> None:
        self.path = only_here(runs, "a folder of runs") / id

    def weights(self, step: int) -> Path:
        """Where the weights after a step are."""
        return self.path / f"step-{step:08d}.pt"

    @property
    def estimator(self) -> Path:
        """Where the fitted estimator of a classical model is."""
        return self.path / "model.skops"

    def steps(self) -> list[int]:
        """Steps whose weights are there."""
        names = (file.stem.removeprefix("step-") for file in self.path.glob("step-*.pt"))
        return sorted(int(name) for name in names if re.fullmatch("[0-9]{1,18}", name))

    def write_weights(self, step: int, state: Mapping[str, Tensor]) -> None:
        own = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
        self._save(self.weights(step), own)

    def forget_weights(self, but: int) -> None:
        """Remove the weights of all checkpoints but one."""
        for step in self.steps():
            if step != but:
                self.weights(step).unlink(missing_ok=True)

    def write_state(self, state: Mapping[str, Any]) -> None:
        self._save(self.path / "last.pt", dict(state))

    def state(self) -> dict[str, Any] | None:
        """The state to go on from, None if there is none."""
        path = self.path / "last.pt"
        if not path.is_file():
            return None
        try:
            found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise refusal(path, error) from None
        except Exception as error:  # a pickle is a program: a damaged one ends in any of them
            raise InputError(
                f"{path}: cannot be read, remove it to start again: {brief(error)}"
            ) from None
        return found

    def forget_state(self) -> None:
        """A finished run needs none."""
        (self.path / "last.pt").unlink(missing_ok=True)

    def read(self, name: str) -> Any:
        """A JSON file of the run, None if it is not there."""
        path = self.path / f"{name}.json"
        if not path.is_file():
            return None
        return fitting(read_json(path), _SHAPES[name], path)

    def write(self, name: str, value: Any) -> None:
        with write_atomically(self.path / f"{name}.json") as file:
            file.write(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode())

    def _save(self, path: Path, value: Any) -> None:
        with write_atomically(path) as file:
            torch.save(value, file)


@dataclass(frozen=True, kw_only=True)
class Checkpointed(Done):
    """What a worker says at a checkpoint; ``images`` are training examples since the last one."""

    step: int
    steps: int


@dataclass(frozen=True, kw_only=True)
class TrainTask:
    """A job with what it needs of its recipe; this travels to workers."""

    work: ClassVar[str] = "shiftbed.training.training:execute"
    job: Job
    recipe: str
    base: str
    store: str
    runs: str
    features: str
    data: Mapping[str, DataSpec]
    settings: tuple[SettingPlan, ...]
    options: Mapping[str, Any]
    origin: Origin = MINE
    """The file that the job was read from, and whether code that it names is executed."""

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
        model_beside(str(arguments["model"]), task.base),
        classes,
        start,
        seed=int(arguments["seed"]),
        base=task.base,
        weights=weights,
        old_classes=old_classes,
        head=arguments.get("head"),
        device=str(task.options["device"]),
        origin=task.origin,
    )


def setup_of(arguments: Mapping[str, Any], runs: str) -> str:
    """A hash of the arguments without seeds: the same for runs that differ by chance alone.

    Of a run that goes on from another one, with that run's setup in its place.
    """

    def seedless(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: seedless(one) for key, one in value.items() if key != "seed"}
        return value

    found = seedless(arguments)
    kind, _, parent = str(arguments.get("start")).partition(":")
    before = RunFolder(runs, parent).read("job") if kind == "run" else None
    if before is not None:
        own = {key: value for key, value in before.items() if key not in ("id", "base")}
        found["start"] = f"run:{setup_of(own, runs)}"
    return short_hash(found)


def info_of(
    task: TrainTask, step: int, last: bool, n: int, start: str | None, hooks: Sequence[Hook] = ()
) -> dict[str, Any]:
    """What the testbed knows of a checkpoint: the columns of its models.

    ``start`` is the network's. What says how a network is trained is None for a model of
    scikit-learn.
    """
    job, arguments = task.job, task.job.arguments
    optimiser = arguments.get("optimiser", {})
    found: dict[str, Any] = {
        "run": job.run,
        "called": job.called or None,
        "step": step,
        "kind": job.kind,
        "in_fit_set": job.in_fit_set == "all" or (job.in_fit_set == "final" and last),
        "architecture": job.architecture,
        "training_data": job.training_data,
        "data_size": job.data_size,
        "n_train": n,
        "mix": job.mix,
        "parent": None,
        "start": start,
        "tune": arguments.get("tune"),
        "augmentation": None if job.classical else label_of(arguments["augmentation"]),
        "objective": arguments.get("objective", {}).get("name"),
        "optimiser": optimiser.get("name"),
        "lr": optimiser.get("lr"),
        "length": arguments.get("epochs") or arguments.get("steps"),
        "seed": arguments["seed"],
        "setup": setup_of(arguments, task.runs),
        "stage": job.stage,
        "grid": job.grid,
        "final": last,
    }
    if job.backbone is not None:
        found["backbone"] = job.backbone
    if job.parent is not None:
        before = RunFolder(task.runs, str(arguments["start"]).removeprefix("run:")).read("done")
        found["parent"] = f"{job.parent}@{before['stops'][-1]}" if before else job.parent
    for hook in hooks:
        found |= hook.facts()
    return found


def begun(task: TrainTask, step: int) -> dict[str, Any]:
    """Write job.json; the log of earlier calls up to a step, with this beginning noted.

    job.json has the arguments, and where the recipe is as seen from the run's folder.
    """
    folder, job = task.folder, task.job
    base = Path(os.path.relpath(task.base, folder.path)).as_posix()
    folder.write("job", {"id": job.id, "base": base, **job.arguments})
    log: dict[str, Any] = folder.read("log") or {"checkpoints": [], "begun_at": []}
    log["begun_at"].append(step)
    log["checkpoints"] = [one for one in log["checkpoints"] if one["step"] <= step]
    folder.write("log", log)
    return log


def ended(
    task: TrainTask,
    log: Mapping[str, Any],
    data: TrainingData,
    stops: Sequence[int],
    outputs: int,
    **more: Any,
) -> None:
    """Write done.json; the weights after the last of ``stops`` have so many ``outputs``."""
    known = {"steps": stops[-1], "stops": stops, "classes": data.classes, "outputs": outputs}
    more |= {"called": task.job.called} if task.job.called else {}
    more |= {"n": len(data), "counts": data.counts, "begun_at": log["begun_at"]}
    task.folder.write("done", known | ({"kept": "head"} if task.job.keep == "head" else {}) | more)


def is_evaluated(store: PredictionStore, model: str, settings: Sequence[SettingPlan]) -> bool:
    """Whether a checkpoint has been evaluated on all settings that it can have.

    A setting that a model cannot have (an attack on one without gradients) is recorded as such, and
    it is not tried again.
    """

    def complete(setting: SettingPlan) -> bool:
        whole = store.complete(model, setting.id)  # first: cheap where there is nothing
        if not whole and setting.setting.kind != "adversarial":
            return False
        record = store.cell(model, setting.id) or {}
        if whole:
            return record.get("status") == "complete"
        return record.get("status") == "failed" and bool(record.get("not_applicable"))

    return all(map(complete, settings))


def evaluate_run(
    task: TrainTask,
    model: Model,
    info: Mapping[str, Any],
    *,
    warnings: Sequence[str] = (),
    features: str | None = None,
    say: Callable[[str], None],
) -> dict[str, float | None]:
    """Predict every setting of a run that is not in its store yet, and write it as ``model.id``.

    ``features`` is where what its backbone makes of a setting is kept, if only heads are trained.
    ``warnings`` are those of fitting it, for the cells' records. ``say`` hears why settings were
    left out and what attacks warn of. Returns the accuracies of what is in the store now, whichever
    call predicted it, None where no image has a label.
    """
    arguments, options, store = task.job.arguments, task.options, PredictionStore(task.store)
    details: dict[str, Any] = {
        "spec": arguments["model"],
        "identity": f"job:{task.job.id}",
        "recipe": task.recipe,
        "seed": arguments["seed"],
        "arguments": dict(arguments),
    }
    details |= {"warnings": list(warnings)} if warnings else {}
    one = ModelSpec(source=model, name=model.id, info=info, details=details, features=features)
    summary = run_spec(
        RunSpec(
            name="checkpoint",
            store=store,
            models=(one,),
            settings=[s for s in task.settings if not is_evaluated(store, model.id, [s])],
            options={
                "batch_size": int(options["evaluation_batch_size"]),
                "top": int(options["top"]),
                "memory_gib": float(options["memory_gib"]),
                "backend": str(options["backend"]),
            },
        ),
        describe=False,
    )
    for key, why in summary.failed.items():
        if key not in summary.not_applicable:
            raise InputError(f"{key[0]} on {key[1]}: {why}")
    for note in dict.fromkeys(summary.notes):
        if WARNING in note:
            say(note.removeprefix(f"{model.id} on "))
    if refused := list(summary.failed.values()):
        say(refused[0] + (f" (and {len(refused) - 1} more settings)" if refused[1:] else ""))
    found: dict[str, float | None] = {}
    for setting in task.settings:
        if store.complete(model.id, setting.id):
            right = read_answers(store, model.id, store.test_set(setting.id), []).right
            found[setting.id] = float(right.mean()) if len(right) else None
    return found


def kept_features(task: TrainTask) -> str | None:
    """Where features of a backbone are kept for all heads on it; None if it is trained, too."""
    frozen = task.job.arguments.get("tune") == "head"
    return task.features if frozen else None


def kept_file(task: TrainTask, step: int) -> Path:
    """Where a checkpoint's weights are, if they were kept."""
    return task.folder.estimator if task.job.classical else task.folder.weights(step)


def finished_model(task: TrainTask, step: int, done: dict[str, Any]) -> Model:
    """A checkpoint of a finished run, read from its file."""
    if task.job.classical:
        from shiftbed.training.classical import reopened

        return reopened(task, int(done["outputs"]))
    if done.get("kept") == "head":
        network = start_network(task, int(done["outputs"]))
        _read_head(network, task.folder.weights(step))
    else:
        network = make_network(
            model_beside(str(task.job.arguments["model"]), task.base),
            int(done["outputs"]),
            "run:",
            weights=task.folder.weights(step),
            old_classes=int(done["outputs"]),
            origin=task.origin,
        )
    objective = make_objective(task.job.arguments["objective"])
    module = objective.evaluated(network.module).eval()
    return network.as_model(model_name(task.job, step), module)


def _read_head(network: Network, path: Path) -> None:
    """Put the weights of a head where they belong; they must be those of all heads, and fit."""
    state, inner = read_state(path), network.module.network
    heads = {id(one) for head in network.heads for one in head.parameters()}
    own = {name: one for name, one in inner.named_parameters() if id(one) in heads}
    if own.keys() != state.keys() or any(own[n].shape != state[n].shape for n in own):
        raise InputError(f"{path}: not the weights of this network's head")
    with torch.no_grad():
        for name, tensor in state.items():
            own[name].copy_(tensor)


def load(request: Request) -> Model:
    """The model of a run's folder."""
    if request.precision != "float32" or request.preprocessing:
        raise InputError(f"{request.spec.text} runs as it was trained: no other precision or size")
    task, step, done = _read(request.spec, request.device, request.origin)
    if not kept_file(task, step).is_file():
        raise InputError(f"{task.folder.path}: the weights after step {step} were not kept")
    return finished_model(task, step, done)


def name_of(text: str) -> str:
    """What the store calls the checkpoint that a line names: RUN@STEP."""
    task, step, _ = _read(Spec.parse(text))
    return model_name(task.job, step)


def called_of(text: str) -> str | None:
    """What the run's recipe called it, None if it is of an older version."""
    done = _read(Spec.parse(text))[2]
    return str(done["called"]) if "called" in done else None


def code_in(spec: Spec, origin: Origin) -> list[Named]:
    """What opening the run would execute by name: its network, if that is somebody's own."""
    task = _read(spec, origin=origin)[0]
    return [] if task.job.classical else code_of_line(str(task.job.arguments["model"]), task.origin)


def _read(
    spec: Spec, device: str = "cpu", origin: Origin = MINE
) -> tuple[TrainTask, int, dict[str, Any]]:
    """The run, the step that is wanted, and what done.json says."""
    for key in spec.query:
        if key != "step":
            raise InputError(f"{spec.text}: only ?step=N may follow, got {key!r}")
    path = local(spec.name, spec.text)
    folder = RunFolder(path.parent, path.name)
    try:
        about, done = folder.read("job"), folder.read("done")
    except ValueError as error:
        raise InputError(f"{path}: its JSON cannot be read: {error}") from None
    if not isinstance(about, dict) or not isinstance(done, dict):
        what = "is not finished" if about else "is no run that shiftbed train made"
        raise InputError(f"{path} {what}: expected job.json and done.json in it")
    base, own = about.pop("base", None), about.pop("id", None)
    if base is None:
        raise InputError(f"{path}: its job.json is of an older version; train it again")
    wanted, stops = spec.query.get("step"), [int(one) for one in done["stops"]]
    if wanted not in (None, *map(str, stops)):
        known = ", ".join(map(str, stops))
        raise InputError(f"{path} has no checkpoint after step {wanted}; there are {known}")
    task = TrainTask(
        job=Job(arguments=about),
        recipe="",
        base=str(path / base),
        store="",
        runs=str(path.parent),
        features="",
        data={},
        settings=(),
        options={"device": device},
        origin=origin.inside(path / "job.json"),
    )
    if task.job.id != own or own != path.name:
        raise InputError(f"{path}: its job.json is that of another run ({task.job.id})")
    return task, stops[-1] if wanted is None else int(wanted), done
