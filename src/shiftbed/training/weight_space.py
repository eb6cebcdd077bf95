"""``interpolate`` and ``soup``: models between and among others, in weight space, evaluated.

What is mixed are weights of one network: a line of text with their file
(``torch:FILE?arch=PREFIX:NAME`` or ``PREFIX:NAME?weights=FILE``), a torch module, a ``Model``, or a
state dict. Lines must be the same but for the file. ``open_clip:`` lines are image towers with
their heads: between a zero-shot model and what it was fine-tuned to lies WiSE-FT's path (Wortsman
et al., 2021). The arithmetic is in ``weights.py``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import torch

from shiftbed.atomic import write_atomically
from shiftbed.display import Result, Table, between, percent, records
from shiftbed.engine.evaluate import evaluate, images_of
from shiftbed.engine.plan import CellPlan, Done, ModelSpec
from shiftbed.engine.testbed_file import plan_setting
from shiftbed.errors import InputError
from shiftbed.evaluation.data import TestSet
from shiftbed.evaluation.memory import reused_memory
from shiftbed.evaluation.models import Model, TorchModel, model, resolve
from shiftbed.evaluation.models.checkpoints import existing, fit
from shiftbed.evaluation.models.modules import Normalised
from shiftbed.evaluation.models.spec import Spec, sidecar_of
from shiftbed.places import local
from shiftbed.records import Shift
from shiftbed.results.scores import score_table
from shiftbed.store import PredictionStore
from shiftbed.training.masks import folded
from shiftbed.training.weights import (
    State,
    Weights,
    check_alike,
    greedy_soup,
    interpolated,
    read_weights,
    uniform_soup,
    write_weights,
)

Source = str | Model | torch.nn.Module | Weights
ALPHAS = tuple(k / 10 for k in range(11))
HOW = ("greedy", "uniform")
_TOWERS = "open_clip:"
"""Lines whose network is more than what their file of weights holds: a head made of class names."""


@dataclass(frozen=True, kw_only=True)
class WeightsLine:
    """A line that names weights, taken apart."""

    architecture: tuple[str, str, str]
    """All but the file: prefix, name (empty for ``torch:``, where the file stands) and query."""
    file: Path

    @classmethod
    def parse(cls, text: str) -> "WeightsLine":
        """Take a line apart.

        >>> WeightsLine.parse("timm:resnet18?weights=a.pt&num_classes=7").architecture
        ('timm', 'resnet18', 'num_classes=7')
        """
        spec, query = Spec.parse(text), text.partition("?")[2]
        if spec.prefix == "torch":
            if "arch" not in spec.query:
                raise InputError(
                    f"{text}: weights to mix are a state dict with its architecture, "
                    "torch:FILE?arch=timm:NAME; exported programs cannot be mixed"
                )
            return cls(architecture=("torch", "", query), file=local(spec.name))
        if "weights" not in spec.query:
            raise InputError(
                f"{text}: names no file of weights; write torch:FILE?arch=PREFIX:NAME or "
                "PREFIX:NAME?weights=FILE"
            )
        rest = "&".join(part for part in query.split("&") if not part.startswith("weights="))
        return cls(architecture=(spec.prefix, spec.name, rest), file=local(spec.query["weights"]))

    def write(self, state: Weights, file: Path) -> Path:
        """Weights, and beside them the preprocessing that lies beside the line's own file."""
        write_weights(state, file)
        beside = sidecar_of(self.file)
        if beside.is_file() and sidecar_of(file) != beside:
            with write_atomically(sidecar_of(file)) as handle:
                handle.write(beside.read_bytes())
        return file

    def network(self, state: Weights, device: str) -> Model:
        """The architecture with these weights: masks of a pruned file are multiplied in already."""
        prefix, name, rest = self.architecture
        query = f"?{rest}" if rest else ""
        with TemporaryDirectory() as folder:
            file = self.write(state, Path(folder) / self.file.name)
            if prefix == "torch":
                return resolve(f"torch:{file}{query}", device=device)
            return resolve(f"{prefix}:{name}{query}", device=device, weights=file)


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixable:
    """Several weights of one network."""

    network: TorchModel
    """What they are weights of, and how it sees images."""
    states: tuple[State, ...]
    names: tuple[str, ...]
    line: WeightsLine | None
    """The first of them that is a line."""

    def model(self, state: Weights, name: str) -> TorchModel:
        """The network with other weights, all of which must fit."""
        module = deepcopy(self.network.module)
        fit(_inner(module), state, Path(name))
        known = {k: v for k, v in self.network.facts.items() if k not in ("spec", "weights")}
        facts = {**known, "weights": {"mixed": list(self.names)}}
        return replace(self.network, id=name, module=module, facts=facts, content=None)

    def write(self, state: Weights, file: Path) -> None:
        """The weights as a file, with the side-car of the line they come from."""
        if self.line is None:
            write_weights(state, file)
        else:
            self.line.write(state, file)


def mixable(
    sources: Sequence[Source], network: Source | None = None, device: str = "cpu"
) -> Mixable:
    """Weights to mix, read and found alike; ``network`` says what state dicts are weights of."""
    if not sources:
        raise InputError("models: expected at least one")
    sources = [
        resolve(one, device=device) if isinstance(one, str) and one.startswith(_TOWERS) else one
        for one in sources
    ]
    lines = {text: WeightsLine.parse(text) for text in sources if isinstance(text, str)}
    for text, line in lines.items():
        existing(line.file, text)
        if line.architecture != next(iter(lines.values())).architecture:
            raise InputError(
                f"{text} is not the model of {next(iter(lines))} with other weights: weights that "
                "are mixed need the same line but for the file"
            )
    states: list[State] = []
    names: list[str] = []
    for number, one in enumerate(sources, 1):
        if isinstance(one, str):
            states.append(read_weights(lines[one].file))
            names.append(one)
        elif isinstance(one, Model):
            states.append(folded(dict(_inner(_torch(one).module).state_dict())))
            names.append(one.id)
        elif isinstance(one, torch.nn.Module | Mapping):
            own = one.state_dict() if isinstance(one, torch.nn.Module) else one
            states.append(folded(dict(own)))
            names.append(f"model {number}")
        else:
            raise InputError(
                "weights to mix are a line of text, a model, a torch module or a state dict, got "
                f"{type(one).__name__}"
            )
    check_alike(states)
    if network is None:
        network = next((one for one in sources if not isinstance(one, str | Mapping)), None)
    first = next(iter(lines.values()), None)
    if network is not None and not isinstance(network, Mapping):
        found = network if isinstance(network, Model) else model(network, device=device)
    elif first is not None:
        found = first.network(states[0], device)
    else:
        raise InputError("state dicts need network, the model that they are weights of")
    return Mixable(network=_torch(found), states=tuple(states), names=tuple(names), line=first)


def _torch(found: Model) -> TorchModel:
    if not isinstance(found, TorchModel) or not list(found.module.parameters()):
        raise InputError(f"{found.id} cannot be mixed: it is no torch network with weights")
    return found


def _inner(module: torch.nn.Module) -> torch.nn.Module:
    """The network without the normalisation in front."""
    return module.network if isinstance(module, Normalised) else module


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Interpolated(Result):
    """Accuracies along α: ``frame`` has a row per α and setting."""

    json_keys = "run store=where path=frame failed"
    run: str
    """The run whose steps the models are: RUN@α."""
    store: PredictionStore
    where: str | None
    """The store's folder, None if predictions stay in memory."""
    failed: tuple[dict[str, str], ...] = ()
    level: float = 0.95

    def answer(self) -> Iterable[str]:
        for (setting,), rows in self.frame.group_by(["setting"], maintain_order=True):
            best = rows.sort("value", descending=True, nulls_last=True).row(0, named=True)
            ends = between(best["low"], best["high"])
            yield f"Best on {setting}: α = {best['alpha']:g}, {percent(best['value'])} % ({ends})."

    def tables(self) -> Iterable[Table]:
        notes = [f"failed: {f['model']} on {f['setting']}: {f['error']}" for f in self.failed]
        yield score_table(f"{self.run}: accuracy along α", self.frame, self.level, notes)


def interpolate(
    first: Source,
    second: Source,
    test_sets: Any,
    *,
    alphas: Iterable[float] = ALPHAS,
    network: Source | None = None,
    store: str | Path | None = None,
    weights: str | Path | None = None,
    name: str | None = None,
    batch_size: int = 64,
    backend: str = "torch",
    device: str = "cpu",
    level: float = 0.95,
    report: Callable[[Done], None] = lambda done: None,
    announce: Callable[[list[CellPlan]], None] = lambda cells: None,
) -> Interpolated:
    """Evaluate θ = (1−α)θ₀ + αθ₁ along α; every α is a step of one run (thousandths of α).

    ``first`` is where α = 0, ``second`` where α = 1: lines of text, models, torch modules or state
    dicts (then ``network`` is the model that they are weights of). The first test set is the ID
    set, each other one the OOD set of a shift. ``store`` keeps the predictions, else they stay in
    memory; ``weights`` is a folder for the mixed weights, a file per α; ``name`` that of the run.
    """
    values = [float(alpha) for alpha in alphas]
    if len(set(values)) < len(values) or not values:
        raise InputError("alphas must be one or more numbers, each once")
    both = mixable([first, second], network, device)
    ends = _ends(first, second, both.names)
    run = name or "-to-".join(ends)
    kept = PredictionStore(None if store is None else store)
    images = images_of(test_sets)
    shifts = _new_shifts([plan_setting(one, {}).id for one in images], kept.about())
    frames, failed = [], []
    for alpha in sorted(values):
        state = interpolated(both.states[0], both.states[1], alpha)
        shown = f"{alpha:g}" if float(f"{alpha:g}") == alpha else repr(alpha)
        if weights is not None:
            safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in run)
            both.write(state, Path(weights) / f"{safe}-{shown}.pt")
        about: dict[str, Any] = {"run": run, "step": round(1000 * alpha), "alpha": alpha}
        about |= {"kind": "intervention", "in_fit_set": False, "from": ends[0], "to": ends[1]}
        mixed = both.model(state, f"{run}@{shown}")
        found = evaluate(
            [ModelSpec(source=mixed, name=mixed.id, info=about)],
            images,
            shifts=shifts,
            store=kept,
            name=str(kept.about().get("name", "interpolate")),
            level=level,
            report=report,
            announce=announce,
            batch_size=batch_size,
            backend=backend,
            device=device,
        )
        own = found.frame.sort("setting")
        frames.append(own.select(pl.lit(alpha).alias("alpha"), pl.all()))
        failed += [
            {"model": key[0], "setting": key[1], "error": why} for key, why in found.failed.items()
        ]
    return Interpolated(
        frame=pl.concat(frames),
        run=run,
        store=kept,
        where=None if store is None else str(store),
        failed=tuple(failed),
        level=level,
    )


def _ends(first: Source, second: Source, names: Sequence[str]) -> list[str]:
    """What the end points are called: after their files, or folders where files are namesakes."""
    if not (isinstance(first, str) and isinstance(second, str)):
        return list(names)
    if first.startswith(_TOWERS):  # perhaps without a file of weights
        specs = [Spec.parse(text) for text in (first, second)]
        return [Path(one.query.get("weights") or one.name.replace("/", "-")).stem for one in specs]
    files = [WeightsLine.parse(text).file for text in (first, second)]
    if files[0].stem == files[1].stem:
        return [file.absolute().parent.name for file in files]
    return [file.stem for file in files]


def _new_shifts(ids: Sequence[str], about: Mapping[str, Any]) -> tuple[Shift, ...]:
    """Shifts from the first setting to the others, but for those the store knows by a name."""
    known = {name for s in about.get("shifts", []) for name in (s["name"], s["target"])}
    return tuple(
        Shift(name=ood, kind="natural-dataset", source=(ids[0],), target=ood)
        for ood in ids[1:]
        if ood not in known
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Soup(Result):
    """A soup and how it came to be; ``frame`` has a row per model tried, or per member."""

    how: str
    model: TorchModel
    """The network with the soup's weights."""
    members: tuple[str, ...]
    accuracy: Mapping[str, Any] | None
    """On the held-out set, with interval and n; optimistic where members were chosen on it."""
    held_out: str | None
    file: str | None
    """Where the weights were written."""
    level: float = 0.95

    @property
    def state(self) -> State:
        """The soup's weights."""
        return dict(_inner(self.model.module).state_dict())

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"how": self.how, "file": self.file, "members": list(self.members)}
        found["accuracy"] = None if self.accuracy is None else dict(self.accuracy)
        if self.held_out is not None:
            found["held_out"] = self.held_out
        if self.how == "greedy":
            found["trials"] = records(self.frame)
        return found

    def answer(self) -> Iterable[str]:
        where = "" if self.file is None else f": {self.file}"
        yield f"{self.how.capitalize()} soup of {len(self.members)}{where}"
        if self.accuracy is None:
            yield "Not evaluated: no held-out set."
        else:
            reached = self.accuracy
            yield (
                f"Accuracy on {self.held_out}: {percent(reached['value'])} % "
                f"({percent(reached['low'])} … {percent(reached['high'])}, {100 * self.level:g} %, "
                f"n = {reached['n']:,})"
            )

    def tables(self) -> Iterable[Table]:
        if self.how == "uniform":
            yield Table.of("", self.frame, {"member": "model"})
            return
        notes = ["It was chosen on these images: evaluate it on others before quoting it."]
        yield Table.of(
            "Greedy soup, in the order tried",
            self.frame,
            {
                "model": "model",
                "alone": lambda row: percent(row["alone"]["value"]),
                "soup with it": lambda row: percent(row["soup_with_it"]["value"]),
                "kept": lambda row: "yes" if row["kept"] else "no",
            },
            notes=notes,
        )


@reused_memory()
def soup(
    models: Sequence[Source],
    *,
    how: str = "greedy",
    held_out: Any = None,
    out: str | Path | None = None,
    network: Source | None = None,
    device: str = "cpu",
    level: float = 0.95,
) -> Soup:
    """Average the weights of several models, all of them or greedily, into one.

    ``models`` are lines of text, models, torch modules or state dicts (then ``network`` is the
    model that they are weights of). Greedy chooses by the accuracy on ``held_out``, a ``TestSet``
    or path to be kept out of tests. ``out`` is a file for the weights.
    """
    if how not in HOW:
        raise InputError(f"how must be {' or '.join(HOW)}, got {how!r}")
    if how == "greedy" and held_out is None:
        raise InputError("a greedy soup needs held_out, the test set it is chosen on")
    given = mixable(models, network, device)
    images = [] if held_out is None else images_of(held_out)
    measured: dict[float, dict[str, Any]] = {}

    def accuracy(state: State) -> float:
        found = evaluate(
            given.model(state, "candidate"),
            images,
            level=level,
            batch_size=256,
            backend="torch",
            device=device,
            memory_gib=2.0,
            on_unreadable="stop",
        )
        (row,) = records(found.frame, ["value", "low", "high", "n"])
        measured[row["value"]] = row
        return float(row["value"])

    rows: list[dict[str, Any]] = [{"model": name} for name in given.names]
    reached: dict[str, Any] | None = None
    if how == "greedy":
        made = greedy_soup(given.states, accuracy)
        state, members = made.state, [given.names[i] for i in made.members]
        rows = [
            {
                "model": given.names[trial.member],
                "alone": measured[trial.alone],
                "soup_with_it": measured[trial.with_it],
                "kept": trial.kept,
            }
            for trial in made.trials
        ]
        reached = measured[made.accuracy]
    else:
        state, members = uniform_soup(given.states), list(given.names)
        if images:
            reached = measured[accuracy(state)]
    if out is not None:
        given.write(state, Path(out))
    return Soup(
        frame=pl.DataFrame(rows),
        how=how,
        model=given.model(state, f"{how}-soup"),
        members=tuple(members),
        accuracy=reached,
        held_out=held_out.name if isinstance(held_out, TestSet) else held_out and str(held_out),
        file=None if out is None else str(out),
        level=level,
    )
