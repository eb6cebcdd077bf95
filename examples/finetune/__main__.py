"""Two small studies of training, each one recipe and a few commands.

    python -m examples.finetune FOLDER [--usps digits.npz] [--workers 2]

``trajectory``: effective robustness along fine-tuning (andreassen2021). ``mixes``: one ID set or
two for models trained on different data (shi2023; needs USPS). The same command again continues.
"""

import argparse
from importlib import resources
from pathlib import Path

import numpy as np
import polars as pl

from examples.finetune.data import domains
from shiftbed.cli.main import app
from shiftbed.report import write_report
from shiftbed.testbed import Testbed, open_testbed


def prepare(folder: Path, name: str, usps: Path | None) -> Path:
    """A folder with the data and the recipe of one study."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    domains(place, usps)
    text = (resources.files("examples.finetune") / f"{name}.toml").read_text(encoding="utf-8")
    recipe = place / "recipe.toml"
    recipe.write_text(text.replace("#USPS ", "") if usps else text, encoding="utf-8")
    return recipe


def train(recipe: Path, workers: int) -> Testbed:
    command = ["train", str(recipe), "--runner", "processes", "--workers", str(workers)]
    print("\n$ shiftbed", " ".join(command), flush=True)
    app(command, standalone_mode=False)
    return open_testbed(str(recipe.parent / "store"))


def along(bed: Testbed, shift: str) -> None:
    """ρ at the start, at its largest and at the end of each fine-tuned run, and what it lost."""
    line = bed.fit(shift, bootstrap=0)
    print(f"\n{shift}: line through {line.n} checkpoints from scratch, R² {line.r2:.2f}")
    found = bed.effective_robustness(shift)
    columns = ["model", "run", "step", "in_fit_set", "training_data", "grid"]
    table = found.join(bed.models.select(columns), on="model").sort("run", "step")
    on_digits = table.filter(pl.col("training_data") == "digits")
    for (grid,), rows in on_digits.group_by(["grid"], maintain_order=True):
        last = rows.group_by("run", maintain_order=True).last()
        rho = 100 * last["effective"].to_numpy()
        print(f"  {grid}: ρ of the last checkpoint {rho.mean():+.1f} ± {rho.std():.1f} points, "
              f"{len(last)} runs")  # fmt: skip
    tuned = on_digits.filter(~pl.col("in_fit_set"))
    for (run,), rows in tuned.group_by(["run"], maintain_order=True):
        best, end = rows.sort("effective").row(-1, named=True), rows.row(-1, named=True)
        lost = bed.difference(line, best["model"], end["model"])
        print(
            f"  {run}: ρ {100 * rows['effective'][0]:+.1f} before, largest {_with(best)} after "
            f"{best['step']} steps (ID {100 * best['source']:.1f} %), {_with(end)} after "
            f"{end['step']} (ID {100 * end['source']:.1f} %); lost {100 * lost.effective:.1f} "
            f"[{100 * lost.low:.1f}, {100 * lost.high:.1f}]"
        )


def _with(row: dict[str, float]) -> str:
    return f"{100 * row['effective']:+.1f} [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"


def planes(bed: Testbed) -> None:
    """One ID set or two: fit quality, and ρ by what the networks were trained on."""
    for shift in ("usps-alone", "mnist-alone", "usps-and-mnist"):
        line = bed.fit(shift, bootstrap=0)
        found = bed.effective_robustness(shift).join(
            bed.models.select("model", "training_data", "grid"), on="model"
        )
        print(f"\n{shift}: n = {line.n}, R² {line.r2:.3f}, MAE {100 * line.mae:.2f} points")
        found = found.with_columns(
            pl.when(pl.col("grid") == "mixed").then(pl.lit("mixed")).otherwise("training_data")
            .alias("group")
        )  # fmt: skip
        for (group,), rows in found.group_by(["group"], maintain_order=True):
            rho = 100 * rows["effective"].to_numpy()
            error = rho.std(ddof=1) / np.sqrt(len(rho)) if len(rho) > 1 else float("nan")
            print(f"  trained on {group}: mean ρ {rho.mean():+.2f} ± {1.96 * error:.2f} points "
                  f"(95 %, {len(rho)} networks)")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--usps", type=Path, help="an .npz with usps_train_images, …")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    bed = train(prepare(options.folder, "trajectory", options.usps), options.workers)
    for shift in bed.shifts:
        along(bed, shift.name)
    write_report(str(options.folder / "trajectory" / "store"), options.folder / "trajectory.html")
    if options.usps is None:
        print("\nmixes: needs USPS (--usps), left out")
        return
    planes(train(prepare(options.folder, "mixes", options.usps), options.workers))
    write_report(str(options.folder / "mixes" / "store"), options.folder / "mixes.html")


if __name__ == "__main__":
    main()
