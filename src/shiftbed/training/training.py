"""What a worker does with a job: train it, go on with it, or evaluate what was added since.

Networks are trained here; models of scikit-learn are fitted (``classical.py``).
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from shiftbed.engine.plan import Done
from shiftbed.errors import InputError
from shiftbed.evaluation.models.heads import HeadOnly, Through
from shiftbed.evaluation.models.modules import Normalised
from shiftbed.evaluation.models.torch_model import torch_threads
from shiftbed.store import PredictionStore
from shiftbed.training.arguments import HOOKS, one_of
from shiftbed.training.augment import keeping_generators
from shiftbed.training.classical import fit, limited
from shiftbed.training.features import Batches, backbone_digest, cached_features
from shiftbed.training.loop import Run, checkpoint_steps, make_optimiser, make_schedule, train
from shiftbed.training.objective import Setup, make_hook, make_objective
from shiftbed.training.prepare import TrainingData, prepare
from shiftbed.training.recipe import canonical
from shiftbed.training.runs import (
    Checkpointed,
    TrainTask,
    begun,
    ended,
    evaluate_run,
    finished_model,
    info_of,
    is_evaluated,
    kept_features,
    kept_file,
    model_name,
    start_network,
)
from shiftbed.training.stream import Stream, make_stream

Report = Callable[[Done], None]


class Training:
    """A job being trained: everything it is made of, and what happens at a checkpoint."""

    def __init__(self, task: TrainTask, report: Report) -> None:
        self.task, self.report = task, report
        arguments = task.job.arguments
        self.data = prepare(arguments["data"], task.data, task.base)
        self.network = start_network(task, self.data.classes)
        self.hooks = [
            make_hook(key, arguments["hooks"][key])
            for key in HOOKS
            if key in arguments.get("hooks", {})
        ]
        torch.manual_seed(int(arguments["seed"]))
        self.run = self._run()
        self.run.begin(task.folder.state())
        self.log = begun(task, self.run.step)
        self.stops = checkpoint_steps(
            arguments["checkpoints"], self.run.steps, self.steps_per_epoch
        )
        self.examples = 0
        self.notes: list[str] = []
        """What was said in evaluation."""
        self.clock = time.perf_counter()

    def _run(self) -> Run:
        arguments = self.task.job.arguments
        objective = make_objective(arguments["objective"])
        without = int((self.data.labels < 0).sum())
        if without and objective.needs_labels:
            raise InputError(
                f"objective {arguments['objective']['name']!r} needs labels; {without:,} of the "
                f"{len(self.data):,} examples of {self.data.name!r} have captions only"
            )
        module: nn.Module = self.network.module
        head_only = arguments["tune"] == "head"
        self.backbone: str | None = None
        """Digest of the backbone, where the head is trained on its features."""
        stream: Stream | None = None
        if head_only:
            self.network.freeze_all_but_heads()
            apart = objective.on_features and all(hook.on_features for hook in self.hooks)
            fixed = not arguments["augmentation"] or "views" in arguments
            if apart and fixed:
                self.backbone = backbone_digest(self.network)
                stream = self._on_features(self.data, arguments["augmentation"])
            if stream is None and "views" in arguments:
                raise InputError("views need features, which this objective or network has not")
        if stream is not None:
            module = HeadOnly(self.network.heads)
        else:
            self.backbone = None
            stream = self._stream(
                self.data,
                arguments["augmentation"],
                views=objective.views,
                clean_first=objective.clean_first,
                workers=int(self.task.options["data_workers"]),
            )
        self.steps_per_epoch = stream.steps_per_epoch
        epochs = arguments.get("epochs")
        steps = int(arguments["steps"]) if epochs is None else epochs * self.steps_per_epoch
        setup = self._setup(module)
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
            setup=setup,
        )

    def _setup(self, module: nn.Module) -> Setup:
        task = self.task

        def other(name: str) -> TrainingData:
            one_of(name, "data set", task.data)
            return prepare({"name": name}, task.data, task.base)

        return Setup(
            network=module,
            heads=self.network.heads,
            classes=self.network.classes,
            data=self.data,
            seed=int(task.job.arguments["seed"]),
            open=other,
            stream=self._plain_stream,
            old_heads=self.network.old_heads,
            base=task.base,
        )

    @property
    def _batches(self) -> dict[str, Any]:
        """What all streams of the job have in common."""
        arguments = self.task.job.arguments
        found = {key: int(arguments[key]) for key in ("batch_size", "seed")}
        return found | {"device": str(self.task.options["device"])}

    def _stream(self, data: TrainingData, steps: list[dict[str, Any]], **views: Any) -> Stream:
        memory = float(self.task.options["memory_gib"])
        seen = self.network.preprocessing
        return make_stream(data, seen, steps, memory_gib=memory, **self._batches, **views)

    def _plain_stream(self, data: TrainingData) -> Stream:
        """Batches of other data, pixels or features, as the network is trained on."""
        if self.backbone is None:
            return self._stream(data, [])
        found = self._on_features(data)
        assert found is not None  # there were features of the training data
        return found

    def _on_features(
        self, data: TrainingData, steps: Sequence[Mapping[str, Any]] = ()
    ) -> Stream | None:
        """Features of data as a stream, None if the head cannot be trained alone.

        With ``steps`` of an augmentation, of as many views of each example as the job asks for:
        the same views whatever its seed.
        """
        if not steps:
            pixels = partial(data.pixels, self.network.preprocessing)
            held = self._features(data.fingerprint, pixels)
            return None if held is None else Stream(data.labels, held=held, **self._batches)
        memory = float(self.task.options["memory_gib"])
        own = {"memory_gib": memory, "batch_size": 64}
        seen, plain = self.network.preprocessing, [dict(one) for one in steps]
        turns = []
        for number in range(int(self.task.job.arguments["views"])):
            name = canonical([data.fingerprint, plain, number])

            def augmented(number: int = number) -> Iterator[NDArray[np.float32]]:
                source = make_stream(data, seen, plain, seed=0, **own)
                return (one.numpy() for one in source.view(number))

            held = self._features(name, augmented)
            if held is None:
                return None
            turns.append(held)
        return Stream(data.labels, held=turns, **self._batches)

    def _features(
        self, fingerprint: str, pixels: Callable[[], NDArray[np.uint8] | Batches]
    ) -> torch.Tensor | None:
        folder = kept_features(self.task)
        found = cached_features(
            self.network,
            fingerprint,
            pixels,
            folder,
            digest=self.backbone,
            backend=str(self.task.options["backend"]),
        )
        return None if found is None else torch.from_numpy(found)

    def go(self) -> tuple[str, ...]:
        """Train to the end."""
        if self.run.step < self.run.steps or not self.log["checkpoints"]:
            train(self.run, self.stops, self.checkpoint, self._seen)
        self._forget_earlier()
        outputs = self.run.objective.outputs(self.network.classes)
        ended(self.task, self.log, self.data, self.stops, outputs)
        self.task.folder.forget_state()
        return tuple(dict.fromkeys(self.notes))

    def _seen(self, examples: int) -> None:
        self.examples += examples

    def checkpoint(self, run: Run) -> None:
        """Write the weights, evaluate them, then the state to go on from: in this order."""
        job, folder = self.task.job, self.task.folder
        loss = run.mean_loss()
        folder.write_weights(run.step, self._kept(self._weights(run)))
        run.network.eval()
        self.network.module.eval()
        module = run.objective.evaluated(run.network).eval()
        if self.backbone is not None:
            module = Through(self.network.module, self.network.heads, module, self.backbone)
        model = self.network.as_model(model_name(job, run.step), module)
        parameters = sum(one.numel() for one in self.network.module.parameters())
        facts = {"epoch": run.step / self.steps_per_epoch, "loss": loss, "parameters": parameters}
        last, n = run.step == run.steps, len(self.data)
        info = info_of(self.task, run.step, last, n, self.network.start, self.hooks) | facts
        with keeping_generators():
            accuracy = evaluate_run(
                self.task, model, info, features=kept_features(self.task), say=self.notes.append
            )
        seconds = time.perf_counter() - self.clock
        spent = {"accuracy": accuracy, "seconds": round(seconds, 3)}
        self.log["checkpoints"].append({"step": run.step, **facts, **spent, "info": info})
        folder.write("log", self.log)
        folder.write_state(run.state())
        self._forget_earlier()
        done = Checkpointed(key=self.task.key, seconds=seconds, step=run.step, steps=run.steps)
        self.report(replace(done, images=self.examples))
        self.examples, self.clock = 0, time.perf_counter()

    def _forget_earlier(self) -> None:
        """Weights of earlier checkpoints go, unless all are kept; also where that was cut short."""
        if self.task.job.keep != "all":
            self.task.folder.forget_weights(but=self.run.step)

    def _kept(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """All weights, or those of the heads alone."""
        if self.task.job.keep != "head":
            return state
        own = self.network.module.network.state_dict(keep_vars=True)
        heads = {id(one) for head in self.network.heads for one in head.parameters()}
        return {name: state[name] for name in state if id(own.get(name)) in heads}

    def _weights(self, run: Run) -> dict[str, torch.Tensor]:
        """Plain weights for others, without the normalisation in front."""
        module: nn.Module = self.network.module
        if self.backbone is None:
            module = run.objective.written(run.network)
        state = dict((module.network if isinstance(module, Normalised) else module).state_dict())
        for hook in self.hooks:
            state = hook.weights(state)
        return state


def is_finished(task: TrainTask, store: PredictionStore) -> bool:
    """Whether a job is trained and all its checkpoints are evaluated.

    What only a run that goes on needs is removed, if its end was cut short.
    """
    done = task.folder.read("done")
    if done is None:
        return False
    task.folder.forget_state()
    return all(
        is_evaluated(store, model_name(task.job, step), task.settings) for step in done["stops"]
    )


def execute(task: TrainTask, report: Report = lambda done: None) -> Done:
    """Train a job from where it stopped; a finished one is only evaluated where it was not yet."""
    clock = time.perf_counter()
    with torch_threads(int(task.options["threads"])), keeping_generators():
        if task.folder.read("done") is not None:
            notes = _evaluate_again(task)
        elif task.job.classical:
            notes = fit(task, report)
        else:
            notes = Training(task, report).go()
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
        info = known.get(step, {})
        last, n, start = step == done["steps"], int(done["n"]), info.get("start")
        info |= info_of(task, step, last, n, start)
        with limited(task):
            model, said = finished_model(task, step, done), done.get("warnings", ())
            kept = kept_features(task)
            evaluate_run(task, model, info, warnings=said, features=kept, say=notes.append)
    return tuple(dict.fromkeys(notes))
