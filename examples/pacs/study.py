"""Training and evaluating the networks of a profile; what is done is not done again."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from examples.pacs.recipes import Profile, texts
from shiftbed.atomic import write_atomically
from shiftbed.engine.plan import Done
from shiftbed.engine.runners import in_processes
from shiftbed.errors import InputError
from shiftbed.training.train import train

__all__ = ["networks", "prepare"]

SIZE = "PACS_SIZE"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A recipe as it travels to a worker: heads on one backbone share its features there."""

    work: ClassVar[str] = "examples.pacs.study:execute"
    recipe: Path
    size: int

    @property
    def key(self) -> tuple[str, str]:
        return self.recipe.stem, "sweep"


def prepare(folder: Path, profile: Profile, data: Path, features: Path) -> list[Sweep]:
    """Write the recipes, unless the folder is of another profile; they, in order."""
    found = texts(profile, data, features)
    made = json.dumps({"size": profile.size, **found}, indent=1)
    before = folder / "made.json"
    if before.exists() and before.read_text(encoding="utf-8") != made:
        raise InputError(f"{folder} was made with other options: give another folder, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {
        **{f"{one}.toml": text for one, text in found.items()},
        "made.json": made,
    }.items():
        with write_atomically(folder / name) as file:
            file.write(text.encode())
    return [Sweep(recipe=folder / f"{name}.toml", size=profile.size) for name in found]


def execute(sweep: Sweep, report: Callable[[Done], None] = lambda done: None) -> Done:
    """Train and evaluate what a recipe says, in this process."""
    os.environ[SIZE] = str(sweep.size)
    clock, count = time.perf_counter(), [0]

    def tell(done: Done) -> None:
        count[0] += 1
        report(done)

    found = train(sweep.recipe, allow_code=True, report=tell)
    for run, why in found.failed.items():
        raise InputError(f"{run} failed: {why}")
    return Done(key=sweep.key, images=count[0], seconds=time.perf_counter() - clock)


def networks(folder: Path, profile: Profile, data: Path, features: Path, workers: int) -> None:
    """Train and evaluate everything, a recipe per worker; the same call again goes on.

    Heads under attack come last: they are trained by then.
    """
    *first, attacked = prepare(folder, profile, data, features)
    first.sort(key=lambda one: one.recipe.stem != "heads-resnet50")  # the longest
    for some in (first, [attacked]):
        for done in in_processes(some, lambda done: None, workers=workers, threads=1):
            if done.error:
                raise InputError(f"{done.key[0]}: {done.error}")
            print(f"{done.key[0]}: {done.images} new networks, {done.seconds:.0f} s", flush=True)
