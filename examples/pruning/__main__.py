"""Prune a small network by six methods to 80 % sparsity, beside its dense twin.

    python -m examples.pruning [FOLDER] [--json]

Trains on 4,000 MNIST digits and tests on 1,000 others and on scikit-learn's 1,797 (a natural
shift). All networks start from the same weights (edge-popup and biprop set their own size of them)
and see the same batches. Accuracies have Clopper–Pearson intervals; the difference from the dense
twin is paired, on the same images. What is there already is used again.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from examples.digits import data
from examples.tables import table
from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.analysis.similarity import mcnemar
from shiftbed.display import clean, interval, p_value, percent, points
from shiftbed.results.joint_answers import answers_from_store
from shiftbed.store import PredictionStore
from shiftbed.training.train import train as train_recipe

__all__ = ["compare", "main", "train"]

HERE = Path(__file__).parent
SETS = ("mnist_test", "sklearn_digits")
COLUMNS = (
    *("method", "scope", "sparsity", "steps", "accuracy", "95 % interval"),
    *("less the dense twin", "95 % interval", "p (McNemar)"),
)


def train(folder: Path, workers: int = 2) -> None:
    """What is missing; a run that was killed goes on."""
    folder.mkdir(parents=True, exist_ok=True)
    data.make(folder / "data")
    for name in ("recipe.toml", "net.py"):
        shutil.copyfile(HERE / name, folder / name)
    runner = "processes" if workers > 1 else "local"
    summary = train_recipe(folder / "recipe.toml", runner=runner, workers=workers)
    for run, why in summary.failed.items():
        raise SystemExit(f"{run}: {why}")


def compare(folder: Path) -> list[dict[str, Any]]:
    """The last checkpoint of every run: its sparsity, and both accuracies beside the twin's."""
    store = PredictionStore.existing(folder / "store")
    cells = [cell for cell in store.cells() if cell["setting"] == SETS[0]]
    rows: list[dict[str, Any]] = [
        {
            "model": cell["model"],
            "method": cell["info"].get("pruning") or "dense",
            "scope": cell["info"].get("scope"),
            "sparsity": cell["info"].get("sparsity") or 0.0,
            "steps": cell["info"]["step"],
        }
        for cell in cells
        if cell["info"].get("final")
    ]
    rows.sort(key=lambda row: (row["method"] != "dense", row["scope"] or "", row["method"]))
    for setting in SETS:
        answers = answers_from_store(store, setting).of([row["model"] for row in rows])
        twin = answers.judged()[0]
        for row, right in zip(rows, answers.judged(), strict=True):
            row[setting] = _beside(right, twin)
    return rows


def _beside(right: Any, twin: Any) -> dict[str, Any]:
    n = len(right)
    low, high = clopper_pearson(right.mean(), n)
    test = mcnemar(int((right & ~twin).sum()), int((twin & ~right).sum()), n)
    return {
        "accuracy": float(right.mean()),
        "low": float(low),
        "high": float(high),
        "n": n,
        "difference": float(test.difference),
        "difference_low": float(test.low),
        "difference_high": float(test.high),
        "p_value": float(test.p_value),
    }


def show(rows: list[dict[str, Any]]) -> None:
    for setting in SETS:
        table(
            f"{setting}, n = {rows[0][setting]['n']:,}",
            COLUMNS,
            [
                (
                    row["method"],
                    row["scope"],
                    f"{row['sparsity']:.5f}",
                    row["steps"],
                    percent(row[setting]["accuracy"]),
                    f"{percent(row[setting]['low'])} … {percent(row[setting]['high'])}",
                    *_difference(row, setting),
                )
                for row in rows
            ],
            left=2,
        )
    print("Intervals are of the test images; one run each, so not of the seed.")


def _difference(row: dict[str, Any], setting: str) -> tuple[str, str, str]:
    if row["method"] == "dense":
        return "", "", ""
    one = row[setting]
    ends = interval(one["difference_low"], one["difference_high"])
    return points(one["difference"]), ends, p_value(one["p_value"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.pruning", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("demo/pruning"))
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    given = parser.parse_args()
    train(given.folder)
    found = compare(given.folder)
    if given.json:
        print(json.dumps(clean(found), indent=2, ensure_ascii=False))
    else:
        show(found)


if __name__ == "__main__":
    main()
