"""The demo: real images, real training, every stage through the commands a user would type.

    python -m examples.digits.demo [FOLDER]

A dozen quick models are trained on MNIST digits (about half a minute), evaluated on held-out MNIST
and on scikit-learn's digits (a natural shift) into a prediction store, fitted, ranked and reported.
What is there already is used again: a second run takes seconds.
"""

import json
import sys
import time
from pathlib import Path

from examples.digits import data
from examples.digits.train import RECIPES, train
from shiftbed.cli.main import app

PIXELS = {"size": [28, 28], "mode": "L", "crop": "none", "mean": [0.0], "std": [1.0]}


def command(*arguments: str) -> None:
    """Show a command, and run it."""
    print("\n$ shiftbed", " ".join(arguments), flush=True)
    app(list(arguments), standalone_mode=False)


def write_testbed(folder: Path) -> Path:
    """testbed.toml: which models on which test sets."""
    lines = ['name = "digits"', 'store = "store"', "", "[defaults]", "batch_size = 256"]
    lines += ['backend = "torch"', f"preprocessing = {_toml(PIXELS)}", ""]
    for recipe in RECIPES:
        prefix = "torch" if recipe.make == "cnn" else "sklearn"
        lines += [
            "[[models]]",
            f'id = "{prefix}:models/{recipe.file}"',
            f'name = "{recipe.name}"',
            f'kind = "{"intervention" if recipe.augment else "standard"}"',
            f"in_fit_set = {str(not recipe.augment).lower()}",
            f'architecture = "{recipe.make}"',
            f'training_data = "{recipe.share:g} of MNIST"',
            *(['parent = "cnn"'] if recipe.augment else []),
            *([f"trusted = {json.dumps(recipe.trusted)}"] if recipe.trusted else []),
            "",
        ]
    for name in ("mnist_test", "sklearn_digits"):
        lines += ["[[test_sets]]", f'name = "{name}"', f'path = "data/{name}.npz"', ""]
    lines += ["[[shifts]]", 'name = "sklearn-digits"', 'id = "mnist_test"']
    lines += ['ood = "sklearn_digits"']
    path = folder / "testbed.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _toml(value: dict[str, object]) -> str:
    return "{" + ", ".join(f"{key} = {json.dumps(one)}" for key, one in value.items()) + "}"


def main() -> None:
    start = time.perf_counter()
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
    folder.mkdir(parents=True, exist_ok=True)
    data.make(folder / "data")
    print(f"Training {len(RECIPES)} models on MNIST digits:", flush=True)
    for i, (recipe, trained) in enumerate(train(folder / "data", folder / "models"), 1):
        word = "trained" if trained else "there already"
        print(f"  {i:2d}/{len(RECIPES)} {recipe.name:<12} {word}", flush=True)
    testbed = write_testbed(folder)
    store = str(folder / "store")
    command("run", str(testbed))
    command("score", store)
    command("fit", "--testbed", store, "--shift", "sklearn-digits")
    command("rank", "--testbed", store, "--shift", "sklearn-digits")
    command("report", store, "-o", str(folder / "report.html"))
    seconds = time.perf_counter() - start
    print(f"\n{seconds:.0f} s. Open {folder / 'report.html'} in a browser.")


if __name__ == "__main__":
    main()
