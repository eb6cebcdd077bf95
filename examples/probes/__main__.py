"""Which probe tells accuracy under corruption? 24 CIFAR-10 models trained, probed and compared.

    python -m examples.probes [FOLDER] [--quick]

Trains 2 networks × 3 augmentations × 4 sparsities, evaluates them on CIFAR-10 and six corruptions
at severity 3, probes each with 500 paths per probe (and 500 Jacobians), and prints every probe with
its interval and the predictor table, n beside every R². All of it continues where it was stopped;
``results.json`` in the folder has everything. ``--quick`` does the same on little data: it shows
that the pieces fit, and nothing about models.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cifar_data import Arrays, cifar10
from examples.probes.train import MEAN, STD, Made, Recipe, made
from shiftbed.cli.main import app
from shiftbed.evaluate.data import open_test_set
from shiftbed.evaluate.models import resolve
from shiftbed.evaluate.probes import default_probe, probe_model
from shiftbed.store import PredictionStore
from shiftbed.store.probes import PROBE_METRICS, PROBES
from shiftbed.tables.predictors import predictor_table
from shiftbed.tables.scores import score
from shiftbed.testbed import testbed_from_store

CORRUPTIONS = (
    *("brightness", "contrast", "defocus_blur", "pixelate", "gaussian_noise", "impulse_noise"),
)
PIXELS: dict[str, Any] = {"size": [32, 32], "crop": "none", "mean": list(MEAN), "std": list(STD)}


def command(*arguments: str) -> None:
    """Show a command, and run it."""
    print("\n$ shiftbed", " ".join(arguments), flush=True)
    app(list(arguments), standalone_mode=False)


def balanced(data: Arrays, each: int, seed: int = 0) -> Arrays:
    """``each`` images of every class, in the order of the original."""
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(np.flatnonzero(data[1] == c))[:each] for c in range(10)]
    kept = np.sort(np.concatenate(rows))
    return data[0][kept], data[1][kept]


def write_testbed(folder: Path, models: list[Made]) -> Path:
    """testbed.toml: 24 models on clean and corrupted images."""
    inside = ", ".join(f"{key} = {json.dumps(value)}" for key, value in PIXELS.items())
    lines = ['name = "probes"', 'store = "store"', "", "[defaults]", "batch_size = 256"]
    lines += ['backend = "torch"', f"preprocessing = {{{inside}}}", ""]
    for one in models:
        clean = one.augmentation == "clean"
        lines += [
            "[[models]]",
            f'id = "torch:models/{one.path.name}"',
            f'name = "{one.name}"',
            f'kind = "{"standard" if clean else "intervention"}"',
            f"in_fit_set = {str(clean).lower()}",
            f'architecture = "{one.net}"',
            f'training_data = "{one.augmentation}"',
            "",
        ]
    lines += ["[[test_sets]]", 'name = "cifar10"', 'path = "cifar10.npz"', ""]
    wanted = json.dumps([f"{name}:3" for name in CORRUPTIONS])
    lines += ["[[settings]]", 'test_set = "cifar10"', f"corruptions = {wanted}"]
    path = folder / "testbed.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def probe_all(folder: Path, models: list[Made], pairs: int) -> None:
    """Every probe of every model into the store; what is there is not measured again."""
    test_set = open_test_set(folder / "cifar10.npz")
    store = PredictionStore(folder / "store")
    probes = [default_probe(name, (32, 32)) for name in PROBES]
    for at, one in enumerate(models, 1):
        start = time.perf_counter()
        model = resolve(f"torch:{one.path}", preprocessing=PIXELS)
        probe_model(store, model, test_set, probes, name=one.name, setting="cifar10", pairs=pairs)
        spent = time.perf_counter() - start
        print(f"  {at:2d}/{len(models)} {one.name:<24} probed in {spent:.0f} s", flush=True)


def results(folder: Path) -> dict[str, Any]:
    """Every probe with its interval, and the predictor table with n."""
    store = PredictionStore(folder / "store")
    metrics = [m for m in PROBE_METRICS if not m.endswith("_released")]
    bed = testbed_from_store(store)
    accuracies = score(store).select("model", "setting", "value", "low", "high", "n")
    probes = score(store, metrics=metrics).select("model", "metric", "value", "low", "high", "n")
    return {
        "models": len(bed.models),
        "accuracies": accuracies.to_dicts(),
        "probes": probes.to_dicts(),
        "predictors_all": predictor_table(bed).to_dicts(),
        "predictors_by_architecture": predictor_table(bed, by="architecture").to_dicts(),
        "predictors_by_augmentation": predictor_table(bed, by="training_data").to_dicts(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="default demo/probes")
    parser.add_argument("--quick", action="store_true", help="little data: do the pieces fit?")
    options = parser.parse_args()
    name = "probes-quick" if options.quick else "probes"
    folder = options.folder or Path("demo") / name
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    data = cifar10()
    training = balanced(data["train"], 60 if options.quick else 5000)
    images, labels = balanced(data["test"], 60 if options.quick else 1000)
    if not (folder / "cifar10.npz").exists():
        np.savez(folder / "cifar10.npz", images=images, labels=labels)
    models = []
    recipe = Recipe(epochs=1, batch=64) if options.quick else Recipe()
    for one in made(training, folder / "models", recipe):
        models.append(one)
        word = "trained" if one.anew else "there already"
        print(f"  {len(models):2d}/24 {one.name:<24} {word}", flush=True)
    command("run", str(write_testbed(folder, models)))
    cells = PredictionStore(folder / "store").cells()
    failed = [c for c in cells if c.get("status") != "complete"]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(cells)} cells failed; see above")
    probe_all(folder, models, 20 if options.quick else 500)
    found = results(folder)
    (folder / "results.json").write_text(json.dumps(found, indent=1))
    store = str(folder / "store")
    shown = [part for m in PROBE_METRICS if not m.endswith("_released") for part in ("--metric", m)]
    command("score", store, *shown)
    command("predictors", store)
    command("predictors", store, "--by", "architecture", "--best", str(folder / "best.png"))
    command("predictors", store, "--by", "training_data", "--lines", str(folder / "lines.png"))
    print(f"\n{time.perf_counter() - start:.0f} s; {folder / 'results.json'} has all of it.")


if __name__ == "__main__":
    main()
