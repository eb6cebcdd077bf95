"""The stages that make models and measure them; each continues where it was stopped."""

import json
import multiprocessing
import tomllib
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from io import StringIO
from pathlib import Path
from string import Template
from typing import Any

from shiftbed.atomic import write_atomically
from shiftbed.cli.main import app
from shiftbed.errors import InputError
from shiftbed.store import PredictionStore
from shiftbed.store.probes import PROBES, probe_record
from shiftbed.training.recipe import Job, Recipe, read_recipe
from shiftbed.training.runs import RunFolder

__all__ = ["Study", "command", "interpolate", "probe", "soup", "train", "write_recipe"]

PROBED = ("networks", "classical", "augmented", "pruned")
"""Grids whose last checkpoints are probed."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Where it is, how large, and on what."""

    folder: Path
    size: str
    usps: bool
    workers: int = 2

    @property
    def store(self) -> str:
        return str(self.folder / "store")

    @property
    def natural(self) -> tuple[str, ...]:
        """Test sets of domains; the first is the ID set of most models."""
        return ("mnist", "digits", "rendered", *(["usps"] if self.usps else []))

    @property
    def third(self) -> str:
        """The domain that no model of the two-ID fits was trained on."""
        return "usps" if self.usps else "rendered"

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """The values of this size."""
        text = resources.files("examples.digits").joinpath("sizes.toml").read_text("utf-8")
        found: dict[str, Any] = tomllib.loads(text)[self.size]
        return found

    @cached_property
    def recipe(self) -> Recipe:
        return read_recipe(self.folder / "recipe.toml")

    def test_set(self, name: str) -> str:
        return str(self.folder / "data" / "test" / f"{name}.npz")

    def jobs(self, *grids: str) -> list[Job]:
        """Jobs of some grids, those of every stage."""
        return [job for job in self.recipe.jobs() if job.grid in grids]

    def weights(self, job: Job, step: int | None = None) -> Path:
        """The file of a finished run's weights, the last or those after a step."""
        folder = RunFolder(self.recipe.runs, job.id)
        done = folder.read("done")
        if done is None:
            raise InputError(f"{job.run} is not finished")
        return folder.weights(int(done["stops"][-1]) if step is None else step)


def command(*arguments: str, into: Path | None = None) -> None:
    """Show a command and run it; ``into`` takes what it prints, as JSON."""
    shown = " ".join(f"'{a}'" if "?" in a or " " in a else a for a in arguments)
    print(f"\n$ shiftbed {shown}" + (f" > {into}" if into else ""), flush=True)
    if into is None:
        if app(list(arguments), standalone_mode=False):
            raise InputError(f"shiftbed {arguments[0]} failed; see above")
        return
    printed = StringIO()
    with redirect_stdout(printed):
        app(list(arguments), standalone_mode=False)
    with write_atomically(into) as file:
        file.write(printed.getvalue().encode())


def write_recipe(study: Study) -> Path:
    """recipe.toml and nets.py in the study's folder, the numbers of its size filled in."""
    here = resources.files("examples.digits")
    values = {name: _toml(value) for name, value in study.numbers.items()}
    values |= {"third": study.third, "natural": _toml(list(study.natural))}
    text = here.joinpath("recipe.toml").read_text(encoding="utf-8")
    filled = Template(text).substitute(values)
    filled = filled.replace("#usps ", "") if study.usps else filled
    for name, content in (
        ("recipe.toml", filled),
        ("nets.py", here.joinpath("nets.py").read_text(encoding="utf-8")),
    ):
        with write_atomically(study.folder / name) as file:
            file.write(content.encode())
    return study.folder / "recipe.toml"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def train(study: Study) -> None:
    """Every model of the recipe, evaluated on all settings as it appears."""
    recipe = str(study.folder / "recipe.toml")
    command(
        "train", recipe, "--allow-code", "--runner", "processes", "--workers", str(study.workers)
    )


def interpolate(study: Study) -> None:
    """From the pre-trained network to the fine-tuned one, a run of α."""
    before, tuned = _tuned(study)
    line = "torch:{}?arch=python:" + f"{study.folder / 'nets.py'}:wide"
    name = "interpolated"
    alphas = study.numbers["alphas"].split(",")
    there = PredictionStore(study.store)
    complete = set.intersection(*(set(there.complete_models(one)) for one in study.natural))
    if len([m for m in complete if m.startswith(f"{name}@")]) == len(alphas):
        print("  interpolated: there already")
        return
    command(
        "interpolate", line.format(study.weights(before)), line.format(study.weights(tuned[0])),
        *map(study.test_set, study.natural), "--alphas", study.numbers["alphas"],
        "--store", study.store, "--weights", str(study.folder / "interpolated"), "--name", name,
    )  # fmt: skip


def soup(study: Study) -> None:
    """The mean of networks fine-tuned from the same start, run like any other model."""
    before, tuned = _tuned(study)
    arch = f"python:{study.folder / 'nets.py'}:wide"
    target = study.folder / "soup.pt"
    if not target.exists():
        lines = [f"torch:{study.weights(job)}?arch={arch}" for job in tuned]
        command("soup", *lines, "--how", "uniform", "--out", str(target))
    lines = ['name = "digits"', 'store = "store"', "", "[defaults]", 'backend = "torch"', ""]
    lines += ["[[models]]", 'id = "torch:soup.pt?arch=python:nets.py:wide"', 'name = "soup"']
    lines += ['kind = "intervention"', "in_fit_set = false", 'training_data = "mnist"']
    lines += ['architecture = "wide"', f'parent = "{before.run}"', ""]
    for name in study.natural:
        lines += ["[[test_sets]]", f'name = "{name}"', f'path = "data/test/{name}.npz"', ""]
    path = study.folder / "soup.toml"
    with write_atomically(path) as file:
        file.write("\n".join(lines).encode())
    command("run", str(path), "--allow-code")


def _tuned(study: Study) -> tuple[Job, list[Job]]:
    jobs = study.jobs("fine-tuned")
    return next(j for j in jobs if j.stage == 0), [j for j in jobs if j.stage == 1]


def probe(study: Study) -> None:
    """Every probe of the last checkpoint of each model, several processes at once."""
    store = PredictionStore(study.store)
    jobs = [job for job in study.jobs(*PROBED) if not _is_probed(study, store, job)]
    if not jobs:
        print("  there already")
        return
    calls = [
        (f"run:{Path(study.recipe.runs) / job.id}", study.test_set("mnist"), study.store,
         study.numbers["pairs"], job.classical)
        for job in jobs
    ]  # fmt: skip
    shown = f"  {len(calls)} × shiftbed probe run:… mnist.npz --allow-code --probe all --pairs"
    print(f"{shown} {study.numbers['pairs']}", flush=True)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(study.workers, mp_context=context, initializer=_one_thread) as pool:
        done = pool.map(_probed, calls)
        for number, job in enumerate(jobs, 1):
            next(done)
            print(f"\r  {number}/{len(jobs)} {job.called:<60}", end="", flush=True)
    print()


def _probes_of(classical: bool) -> list[str]:
    return [name for name in PROBES if not (classical and name == "jacobian")]


def _is_probed(study: Study, store: PredictionStore, job: Job) -> bool:
    done = RunFolder(study.recipe.runs, job.id).read("done")
    name = f"{job.run}@{done['stops'][-1]}"
    pairs = study.numbers["pairs"]
    found = [probe_record(store, name, "mnist", one) or {} for one in _probes_of(job.classical)]
    return all(
        one.get("status") == "complete" and int(one.get("paths", 0)) >= pairs for one in found
    )


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _probed(call: tuple[str, str, str, int, bool]) -> None:
    model, test_set, store, pairs, classical = call
    wanted = [part for name in _probes_of(classical) for part in ("--probe", name)]
    with redirect_stdout(StringIO()):
        app(
            ["probe", model, test_set, *wanted, "--pairs", str(pairs), "--store", store,
             "--backend", "torch", "--allow-code", "--json"],
            standalone_mode=False,
        )  # fmt: skip
