"""Training and evaluating the networks of a profile; what is done is not done again."""

import json
import os
from pathlib import Path

from examples.pacs.recipes import Profile, texts
from shiftbed.atomic import write_atomically
from shiftbed.engine.plan import Done
from shiftbed.errors import InputError
from shiftbed.training.train import Trained, train

__all__ = ["networks", "prepare"]


def prepare(folder: Path, profile: Profile, data: Path) -> list[Path]:
    """Write the recipes, unless the folder is of another profile; their paths, in order."""
    found = texts(profile, data)
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
    os.environ["PACS_SIZE"] = str(profile.size)
    return [folder / f"{name}.toml" for name in found]


def networks(folder: Path, profile: Profile, data: Path) -> list[Trained]:
    """Train and evaluate everything; the same call again goes on."""
    found = []
    for recipe in prepare(folder, profile, data):
        count = [0]

        def tell(done: Done, count: list[int] = count, name: str = recipe.stem) -> None:
            count[0] += 1
            if count[0] % 20 == 0:
                print(f"{name}: {count[0]} checkpoints", flush=True)

        found.append(train(recipe, report=tell))
        print(found[-1], flush=True)
        for run, why in found[-1].failed.items():
            raise InputError(f"{run} failed: {why}")
    return found
