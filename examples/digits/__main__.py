"""One real study from raw images to the papers' conclusions, through the commands one would type.

    python -m examples.digits [FOLDER] [--size quick|full] [--data FILE_OR_FOLDER] [--workers 2]

``make demo`` is the quick size, ``make study`` the full one: the same recipe with more models, more
corruptions, longer training. Stopped, it goes on where it was when it is started again; finished,
it takes seconds. FOLDER (demo/digits, demo/digits-full) then holds

    report.html     open this: which of the papers' findings hold here, and all views
    findings.json   the same findings with their numbers
    tables/         what each command of the analysis printed, as JSON
    manifest.json   hashes of everything that went in and came out
    store/, runs/   predictions of every model, and their weights
"""

import argparse
import sys
import time
from pathlib import Path

from examples.digits.analysis import analyse
from examples.digits.data import domains, find_usps
from examples.digits.manifest import is_current, write_manifest
from examples.digits.study import Study, interpolate, probe, soup, train, write_recipe
from shiftbed.errors import InputError

FOLDERS = {"quick": "demo/digits", "full": "demo/digits-full", "tiny": "demo/digits-tiny"}
MINUTES = {"quick": 2, "full": 15, "tiny": 1}
"""On two cores, about."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m examples.digits",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--size", choices=FOLDERS, default="quick")
    parser.add_argument("--data", type=Path, help="an .npz with USPS, or a folder with one")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    try:
        run(options.folder or Path(FOLDERS[options.size]), options)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def run(folder: Path, options: argparse.Namespace) -> None:
    """All stages; each says what it does."""
    start = time.perf_counter()
    print(f"The digits study, {options.size}: about {MINUTES[options.size]} minutes on two cores "
          "the first time, seconds after.", flush=True)  # fmt: skip
    usps = find_usps(options.data)
    _stage(1, "images", "MNIST, scikit-learn's digits, rendered fonts" + (", USPS" * bool(usps)))
    images = domains(folder / "data", usps)
    for name, about in images.items():
        print(f"  {name:<15} {about['images']:>5} images, none of them in another file")
    study = Study(folder=folder, size=options.size, usps=usps is not None, workers=options.workers)
    write_recipe(study)
    _stage(2, "training", "every model of the recipe, evaluated as it is trained")
    train(study)
    _stage(3, "weights", "between a pre-trained network and what became of it; a soup")
    interpolate(study)
    soup(study)
    _stage(4, "probes", "Fourier and pixel paths, Jacobians")
    probe(study)
    _stage(5, "analysis", "what each command says, and which findings hold")
    if is_current(folder):
        print("  there already: nothing has changed since manifest.json was written")
    else:
        analyse(study)
        write_manifest(folder)
    seconds = time.perf_counter() - start
    print(f"\n{seconds:.0f} s. Open {folder / 'report.html'} in a browser.")


def _stage(number: int, name: str, what: str) -> None:
    print(f"\n[{number}/5] {name}: {what}", flush=True)


if __name__ == "__main__":
    main()
