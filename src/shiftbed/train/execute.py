"""What a worker does with a job: train it, or go on with it, and evaluate its checkpoints."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from shiftbed.errors import InputError
from shiftbed.run.jobs import Done
from shiftbed.run.spec import SettingSpec
from shiftbed.store import PredictionStore
from shiftbed.train.arguments import HOOK_KEYS
from shiftbed.train.augment import keeping_generators
from shiftbed.train.checkpoint import RunFolder
from shiftbed.train.evaluation import Answer, Opened, evaluate, is_evaluated
from shiftbed.train.features import HeadOnly, backbone_digest, cached_features
from shiftbed.train.loop import Run, checkpoint_steps, train
from shiftbed.train.networks import Network, make_network
from shiftbed.train.objective import Hook, Setup, make_hook, make_objective
from shiftbed.train.optim import make_optimiser, make_schedule
from shiftbed.train.prepare import TrainingData, prepare
from shiftbed.train.recipe import Job
from shiftbed.train.sources import DataSpec
from shiftbed.train.stream import Stream, make_stream

__all__ = ["TrainTask", "execute", "is_finished", "model_name"]

Report = Callable[[Done], None]


@dataclass(frozen=True, kw_only=True)
class TrainTask:
    """A job with what it needs of its recipe; this travels to workers."""

    work: ClassVar[str] = "shiftbed.train.execute:execute"
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
    torch.set_num_threads(int(task.options["threads"]))
    with keeping_generators():
        if task.folder.read("done") is None:
            notes = _Training(task, report).go()
        else:
            notes = _evaluate_again(task)
    return Done(key=task.key, seconds=time.perf_counter() - clock, notes=notes)


class _Training:
    """A job being trained: everything it is made of, and what happens at a checkpoint."""

    def __init__(self, task: TrainTask, report: Report) -> None:
        self.task, self.report = task, report
        self.store = PredictionStore(task.store)
        arguments = task.job.arguments
        self.data = prepare(arguments["data"], task.data, task.base)
        self.network = _network(task, self.data.classes)
        self.hooks = [
            make_hook(key, arguments["hooks"][key])
            for key in HOOK_KEYS
            if key in arguments.get("hooks", {})
        ]
        torch.manual_seed(int(arguments["seed"]))
        self.run = self._run()
        self.log: dict[str, Any] = self._begin()
        self.stops = checkpoint_steps(
            arguments["checkpoints"], self.run.steps, self.steps_per_epoch
        )
        self.examples = 0
        self.clock = time.perf_counter()

    def _run(self) -> Run:
        arguments = self.task.job.arguments
        objective = make_objective(arguments["objective"])
        module: nn.Module = self.network.module
        head_only = arguments["tune"] == "head"
        self.answer: Answer | None = None
        stream: Stream | None = None
        if head_only:
            self.network.freeze_all_but_heads()
            if objective.on_features and not self.hooks and not arguments["augmentation"]:
                stream = self._features()
        if stream is not None:
            module = HeadOnly(self.network.heads)
        else:
            stream = self._stream(objective.views, objective.clean_first)
        self.steps_per_epoch = stream.steps_per_epoch
        epochs = arguments.get("epochs")
        steps = int(arguments["steps"]) if epochs is None else epochs * self.steps_per_epoch
        setup = self._setup(module, steps)
        module = objective.begin(setup)
        optimiser = make_optimiser(
            arguments["optimiser"], (p for p in module.parameters() if p.requires_grad)
        )
        whole_epochs = max(1, -(-steps // self.steps_per_epoch))
        return Run(
            network=module,
            objective=objective,
            optimiser=optimiser,
            schedule=make_schedule(
                arguments["schedule"], optimiser, steps=steps, epochs=whole_epochs
            ),
            stream=stream,
            steps=steps,
            hooks=self.hooks,
            frozen=[self.network.module] if head_only else [],
        )

    def _setup(self, module: nn.Module, steps: int) -> Setup:
        task, arguments = self.task, self.task.job.arguments

        def other(name: str) -> TrainingData:
            if name not in task.data:
                raise InputError(f"data set {name!r} is not in the recipe")
            return prepare({"name": name}, task.data, task.base)

        return Setup(
            network=module,
            heads=self.network.heads,
            classes=self.network.classes,
            preprocessing=self.network.preprocessing,
            data=self.data,
            steps=steps,
            steps_per_epoch=self.steps_per_epoch,
            batch_size=int(arguments["batch_size"]),
            seed=int(arguments["seed"]),
            open=other,
        )

    def _stream(self, views: int, clean_first: bool) -> Stream:
        arguments, options = self.task.job.arguments, self.task.options
        return make_stream(
            self.data,
            self.network.preprocessing,
            arguments["augmentation"],
            batch_size=int(arguments["batch_size"]),
            seed=int(arguments["seed"]),
            views=views,
            clean_first=clean_first,
            workers=int(options["data_workers"]),
            memory_gib=float(options["memory_gib"]),
            device=str(options["device"]),
        )

    def _features(self) -> Stream | None:
        """Features of the training data as a stream, None if the head cannot be had alone."""
        network, folder = self.network, Path(self.task.runs) / "features"
        digest = backbone_digest(network)
        held = cached_features(
            network,
            self.data.fingerprint,
            lambda: self.data.pixels(network.preprocessing),
            folder,
            digest=digest,
        )
        if held is None:
            return None
        self.answer = _from_features(network, folder, digest)
        arguments = self.task.job.arguments
        return Stream(
            self.data.labels,
            batch_size=int(arguments["batch_size"]),
            seed=int(arguments["seed"]),
            held=torch.from_numpy(held),
            device=str(self.task.options["device"]),
        )

    def _begin(self) -> dict[str, Any]:
        """Go on from the last checkpoint if there is one; the log so far."""
        folder = self.task.folder
        state = folder.state()
        self.run.begin(state)
        folder.write("job", {"id": self.task.job.id, **self.task.job.arguments})
        log: dict[str, Any] = folder.read("log") or {"checkpoints": [], "begun_at": []}
        log["begun_at"].append(self.run.step)
        log["checkpoints"] = [one for one in log["checkpoints"] if one["step"] <= self.run.step]
        folder.write("log", log)
        return log

    def go(self) -> tuple[str, ...]:
        """Train to the end."""

        def seen(examples: int) -> None:
            self.examples += examples

        if self.run.step < self.run.steps or not self.log["checkpoints"]:
            train(self.run, self.stops, self.checkpoint, seen)
        ending = {
            "steps": self.run.steps,
            "stops": self.stops,
            "classes": self.network.classes,
            "n": len(self.data),
            "counts": self.data.counts,
            "begun_at": self.log["begun_at"],
        }
        self.task.folder.write("done", ending)
        self.task.folder.forget_state()
        return ()

    def checkpoint(self, run: Run) -> None:
        """Write the weights, evaluate them, then the state to go on from: in this order."""
        job, folder = self.task.job, self.task.folder
        loss = run.mean_loss()
        state = dict(self.network.module.network.state_dict())
        for hook in self.hooks:
            state = hook.weights(state)
        folder.write_weights(run.step, state)
        run.network.eval()
        self.network.module.eval()
        module = None if self.answer else run.objective.evaluated(run.network).eval()
        model = self.network.as_model(model_name(job, run.step), module)
        facts = {"epoch": run.step / self.steps_per_epoch, "loss": loss}
        info = _info(self.task, run.step, run.step == run.steps, self.data, self.hooks) | facts
        with keeping_generators():
            accuracy = evaluate(
                model,
                self.task.settings,
                self.store,
                info=info,
                details=_details(self.task),
                batch_size=int(self.task.options["evaluation_batch_size"]),
                top=int(self.task.options["top"]),
                memory_gib=float(self.task.options["memory_gib"]),
                answer=self.answer,
            )
        seconds = time.perf_counter() - self.clock
        self.log["checkpoints"].append(
            {"step": run.step, **facts, "accuracy": accuracy, "seconds": round(seconds, 3)}
        )
        folder.write("log", self.log)
        folder.write_state(run.state())
        if job.keep == "last":
            folder.forget_weights(but=run.step)
        self.report(Done(key=self.task.key, images=self.examples, seconds=seconds))
        self.examples, self.clock = 0, time.perf_counter()


def _network(task: TrainTask, classes: int) -> Network:
    """The network at its start: drawn, the library's, a file's, or the last of another run."""
    arguments = task.job.arguments
    start = str(arguments["start"])
    weights, old_classes = None, None
    if start.startswith("run:"):
        before = RunFolder(task.runs, start.removeprefix("run:"))
        done = before.read("done")
        if done is None:
            raise InputError(f"the run {start.removeprefix('run:')} it starts from is not finished")
        weights, old_classes = before.weights(done["stops"][-1]), int(done["classes"])
    return make_network(
        str(arguments["model"]),
        classes,
        start,
        seed=int(arguments["seed"]),
        base=task.base,
        weights=weights,
        old_classes=old_classes,
        device=str(task.options["device"]),
    )


def _from_features(network: Network, folder: Path, digest: str) -> Answer:
    """Answers of a setting from its features, which are computed once for all checkpoints."""
    head = HeadOnly(network.heads)
    kept: dict[str, torch.Tensor] = {}

    def answer(model: Any, opened: Opened, batch_size: int) -> np.ndarray[Any, Any]:
        name = opened.test_set.fingerprint
        if name not in kept:
            found = cached_features(network, name, lambda: opened.pixels, folder, digest=digest)
            assert found is not None  # it was had for the training data
            kept[name] = torch.from_numpy(found)
        with torch.inference_mode():
            scores: np.ndarray[Any, Any] = head(kept[name].to(model.device)).cpu().numpy()
        return scores

    return answer


def _info(
    task: TrainTask, step: int, last: bool, data: TrainingData | None, hooks: list[Hook]
) -> dict[str, Any]:
    """What the testbed knows of a checkpoint: the columns of its models."""
    job, arguments = task.job, task.job.arguments
    mix = arguments["data"].get("mix")
    names = "+".join(str(one["name"]) for one in arguments["augmentation"])
    found: dict[str, Any] = {
        "run": job.run,
        "step": step,
        "kind": job.kind,
        "in_fit_set": job.in_fit_set == "all" or (job.in_fit_set == "final" and last),
        "architecture": job.architecture,
        "training_data": job.training_data,
        "data_size": job.data_size,
        "mix": "+".join(f"{name}={share:g}" for name, share in mix.items()) if mix else None,
        "parent": None,
        "start": "run" if job.parent else arguments["start"].partition(":")[0],
        "tune": arguments["tune"],
        "augmentation": names or "none",
        "objective": arguments["objective"]["name"],
        "optimiser": arguments["optimiser"]["name"],
        "lr": arguments["optimiser"].get("lr"),
        "length": arguments.get("epochs") or arguments.get("steps"),
        "seed": arguments["seed"],
        "stage": job.stage,
        "grid": job.grid,
        "final": last,
    }
    if job.parent is not None:
        before = RunFolder(task.runs, str(arguments["start"]).removeprefix("run:")).read("done")
        found["parent"] = f"{job.parent}@{before['stops'][-1]}" if before else job.parent
    if data is not None:
        found["n_train"] = len(data)
    for hook in hooks:
        found |= hook.facts()
    return found


def _details(task: TrainTask) -> dict[str, Any]:
    return {
        "spec": task.job.arguments["model"],
        "identity": f"job:{task.job.id}",
        "recipe": task.recipe,
        "seed": task.job.arguments["seed"],
        "arguments": dict(task.job.arguments),
    }


def _evaluate_again(task: TrainTask) -> tuple[str, ...]:
    """A finished run on settings that were added since, from the weights that were kept."""
    folder, store = task.folder, PredictionStore(task.store)
    done, notes = folder.read("done"), []
    for step in done["stops"]:
        name = model_name(task.job, step)
        if is_evaluated(store, name, task.settings):
            continue
        if not folder.weights(step).is_file():
            notes.append(f"step {step}: its weights were not kept, and some settings are new")
            continue
        network = make_network(
            str(task.job.arguments["model"]),
            int(done["classes"]),
            "weights",
            weights=folder.weights(step),
            old_classes=int(done["classes"]),
        )
        network.module.eval()
        info = _info(task, step, step == done["steps"], None, []) | {"n_train": done["n"]}
        evaluate(
            network.as_model(name),
            task.settings,
            store,
            info=info,
            details=_details(task),
            batch_size=int(task.options["evaluation_batch_size"]),
            top=int(task.options["top"]),
            memory_gib=float(task.options["memory_gib"]),
        )
    return tuple(notes)
