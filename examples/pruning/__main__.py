"""Prune a small network by six methods to 80 % sparsity, beside its dense twin.

    python -m examples.pruning [FOLDER] [--json | --markdown] [--workers 2]

Trains on 4,000 MNIST digits and tests on 1,000 others and on scikit-learn's 1,797 (a natural
shift). All networks start from the same weights (edge-popup and biprop set their own size of them)
and see the same batches, with each of three seeds. Intervals are over seeds, differences from the
dense twin of the same seed. What is there already is used again.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from examples.digits import data
from examples.tables import table
from shiftbed.display import clean, percent, points
from shiftbed.results.joint_answers import answers_from_store
from shiftbed.store import PredictionStore
from shiftbed.training.train import train as train_recipe

__all__ = ["compare", "main", "markdown", "train"]

HERE = Path(__file__).parent
SETS = ("mnist_test", "sklearn_digits")
COLUMNS = (
    *("method", "scope", "sparsity", "steps", "accuracy", "95 % interval"),
    *("less the dense twin", "95 % interval"),
)


def train(folder: Path, workers: int = 2) -> None:
    """What is missing; a run that was killed goes on."""
    folder.mkdir(parents=True, exist_ok=True)
    data.make(folder / "data")
    for name in ("recipe.toml", "net.py"):
        shutil.copyfile(HERE / name, folder / name)
    runner = "processes" if workers > 1 else "local"
    summary = train_recipe(folder / "recipe.toml", allow_code=True, runner=runner, workers=workers)
    for run, why in summary.failed.items():
        raise SystemExit(f"{run}: {why}")


def compare(folder: Path) -> list[dict[str, Any]]:
    """The last checkpoint of every run by method and scope, beside the dense twin of its seed."""
    store = PredictionStore.existing(folder / "store")
    runs = [c for c in store.cells() if c["setting"] == SETS[0] and c["info"].get("final")]
    right = {setting: _right(store, setting) for setting in SETS}
    twins = {c["info"]["seed"]: c["model"] for c in runs if not c["info"].get("pruning")}
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in sorted(runs, key=lambda cell: int(cell["info"]["seed"])):
        info = cell["info"]
        kinds.setdefault((info.get("scope") or "", info.get("pruning") or "dense"), []).append(cell)
    rows = []
    for (scope, method), own in sorted(kinds.items()):
        row: dict[str, Any] = {"method": method, "scope": scope or None, "seeds": len(own)}
        row["sparsity"] = float(np.mean([c["info"].get("sparsity") or 0.0 for c in own]))
        row["steps"] = own[0]["info"]["step"]
        for setting in SETS:
            mine = np.array([right[setting][c["model"]] for c in own])
            theirs = np.array([right[setting][twins[c["info"]["seed"]]] for c in own])
            row[setting] = {"accuracy": _over_seeds(mine), "n": _size(store, setting)}
            row[setting]["difference"] = _over_seeds(mine - theirs) if method != "dense" else None
        rows.append(row)
    return rows


def _right(store: PredictionStore, setting: str) -> dict[str, float]:
    answers = answers_from_store(store, setting)
    return dict(zip(answers.models, answers.judged().mean(axis=1).tolist(), strict=True))


def _size(store: PredictionStore, setting: str) -> int:
    return len(store.test_set(setting))


def _over_seeds(values: Any) -> dict[str, float]:
    """Mean over seeds and its 95 % t interval."""
    mean, n = float(values.mean()), len(values)
    error = float(values.std(ddof=1)) / n**0.5 if n > 1 else float("nan")
    half = float(stdtrit(max(n - 1, 1), 0.975)) * error
    return {"mean": mean, "low": mean - half, "high": mean + half}


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
                    percent(row[setting]["accuracy"]["mean"]),
                    _ends(row[setting]["accuracy"], percent),
                    *_difference(row[setting]["difference"]),
                )
                for row in rows
            ],
            left=2,
        )
    print(f"95 % t intervals over {rows[0]['seeds']} seeds; differences are within a seed.")


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table of the README."""
    lines = [
        "| method | scope | sparsity | steps | MNIST, % | less dense | scikit-learn digits, % | "
        "less dense |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row["method"], row["scope"] or "", f"{row['sparsity']:.5f}", f"{row['steps']:,}"]
        for setting in SETS:
            one = row[setting]["accuracy"]
            cells.append(f"{percent(one['mean'])} ({_ends(one, percent)})")
            mean, ends = _difference(row[setting]["difference"])
            cells.append(f"{mean} ({ends})" if mean else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _ends(one: dict[str, float], form: Any) -> str:
    return f"{form(one['low'])} … {form(one['high'])}"


def _difference(one: dict[str, float] | None) -> tuple[str, str]:
    return ("", "") if one is None else (points(one["mean"]), _ends(one, points))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.pruning", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("demo/pruning"))
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--markdown", action="store_true", help="print the table of the README")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    train(given.folder, given.workers)
    found = compare(given.folder)
    if given.json:
        print(json.dumps(clean(found), indent=2, ensure_ascii=False))
    elif given.markdown:
        print(markdown(found))
    else:
        show(found)


if __name__ == "__main__":
    main()
