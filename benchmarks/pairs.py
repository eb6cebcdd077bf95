"""All analyses of (ID, OOD) pairs with 1,000 bootstraps: CPU time, and how it grows.

    python -m benchmarks.pairs [--quick] [--json]

A simulated study as PACS gives one: 12 pairs of 4 domains, 300 networks on every ID domain, 20
metrics on ID, corrupted and OOD data (held-out means come on top). Timed are ``predictiveness``
(scores, matrix, transfer; by task, shift type and size), ``factors``, ``patterns``, ``effects``
(differences, architectures, difficulty, head) and ``predictors``. Growth: exponents of CPU time
from 300 to 1,200 networks and from 12 to 48 pairs (quick: to 600 networks and 24 pairs).
"""

import time
from collections.abc import Callable
from itertools import permutations

import numpy as np
import polars as pl

import shiftbed as sb
from benchmarks.common import arguments, report
from shiftbed.analysis.pairs import PairTable
from shiftbed.records import Shift
from shiftbed.testbed import Testbed

NETWORKS, PAIRS, DRAWS, LIMIT = 300, 12, 1000, 60.0
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
METRICS = ("error", "nll", "brier", "ece", "disparity", "worst_class_error", "adversarial")
NAMES = (*(f"id:{m}" for m in METRICS), *(f"ood:{m}" for m in METRICS))
NAMES += tuple(f"corrupted:{m}" for m in METRICS[:6])
OOD = np.array([name.startswith("ood:") for name in NAMES])
KIND = [name.partition(":")[2] for name in NAMES]
LOADINGS = np.column_stack(
    [
        [0.2 if kind in ("ece", "disparity") else 0.8 for kind in KIND],
        0.5 * OOD,
        [0.7 if kind == "ece" else 0.2 * (kind == "nll") for kind in KIND],
        [0.7 if kind == "disparity" else 0.0 for kind in KIND],
    ]
)
COLUMNS = {
    "architecture": ("resnet50d", "densenet169", "vit", "swin", "mixer"),
    "augmentation": ("none", "randaugment", "augmix"),
    "data_size": ("full", "few-shot-100", "few-shot-10"),
    "tune": ("head", "whole"),
}


def simulated(networks: int = NETWORKS, pairs: int = PAIRS, seed: int = 0) -> list[PairTable]:
    """Four abilities per network, as the paper's factors: accuracy, OOD, calibration, disparity."""
    rng = np.random.default_rng(seed)
    found: list[PairTable] = []
    tasks = -(-pairs // PAIRS)
    recipes = {
        name: [values[i // stride % len(values)] for i in range(networks)]
        for stride, (name, values) in zip((1, 5, 15, 45), COLUMNS.items(), strict=True)
    }
    for t in range(tasks):
        task = "pacs" if t == 0 else f"task-{t}"
        able = {d: rng.normal(size=(networks, 4)) for d in DOMAINS}
        own = {d: rng.normal(size=(networks, len(NAMES))) for d in DOMAINS}
        for source, target in permutations(DOMAINS, 2):
            noise = rng.normal(size=(networks, len(NAMES)))
            noise = np.where(OOD, noise, own[source])
            values = 1 / (1 + np.exp(0.5 - 0.6 * (able[source] @ LOADINGS.T + 0.5 * noise)))
            found.append(
                PairTable(
                    task=task,
                    source=source,
                    target=target,
                    models=tuple(f"{source}-{i}" for i in range(networks)),
                    metrics=NAMES,
                    values=values,
                    info=recipes,
                )
            )
    return found[:pairs]


def testbed(pairs: list[PairTable]) -> Testbed:
    """The errors of the same networks, for ``predictors``."""
    settings = tuple(dict.fromkeys(f"{p.task}/{s}" for p in pairs for s in (p.source, p.target)))
    rows = {(p.task, model): f"{p.task}/{p.source}" for p in pairs for model in p.models}
    at = {key: i for i, key in enumerate(rows)}
    value = np.full((len(rows), len(settings)), np.nan)
    for pair in pairs:
        index = [at[pair.task, model] for model in pair.models]
        for name, metric in ((pair.source, "id:error"), (pair.target, "ood:error")):
            value[index, settings.index(f"{pair.task}/{name}")] = 1 - pair.column(metric)
    models = pl.DataFrame(
        {
            "model": [f"{task}/{model}" for task, model in rows],
            "kind": "standard",
            "in_fit_set": True,
            "parent": pl.Series([None] * len(rows), dtype=pl.String),
            "training_data": list(rows.values()),
        }
    )
    shifts = tuple(
        Shift(
            name=f"{p.task}/{p.source}-to-{p.target}",
            kind="natural-dataset",
            source=(f"{p.task}/{p.source}",),
            target=f"{p.task}/{p.target}",
            fit_on=f"training_data={p.task}/{p.source}",
        )
        for p in pairs
    )
    n = np.where(np.isfinite(value), 1000, 0)
    return Testbed(
        name="simulated", models=models, settings=settings, value=value, n=n, shifts=shifts
    )


def analyses(pairs: list[PairTable]) -> dict[str, Callable[[], object]]:
    """Name → what a command computes and prints."""
    bed = testbed(pairs)

    def scores(**options: str) -> Callable[[], object]:
        return lambda: sb.predictiveness(pairs, bootstrap=DRAWS, **options).to_dict()  # type: ignore[arg-type]

    def effects(**options: object) -> Callable[[], object]:
        return lambda: sb.effects(pairs, **options).to_dict()  # type: ignore[arg-type]

    sides = {"of": ["randaugment", "augmix"], "against": ["none"]}
    return {
        "predictiveness": scores(),
        "predictiveness, matrix": scores(show="matrix"),
        "predictiveness, transfer": scores(show="transfer"),
        "predictiveness by task": scores(by="task"),
        "predictiveness by shift type": scores(by="shift-type"),
        "predictiveness by size": scores(by="data_size"),
        "factors": lambda: sb.factors(pairs, bootstrap=DRAWS).to_dict(),
        "patterns": lambda: sb.patterns(pairs, bootstrap=DRAWS, classes=7).to_dict(),
        "effects, differences": effects(column="augmentation", **sides),
        "effects, architectures": effects(show="architectures"),
        "effects, difficulty": effects(show="difficulty", bootstrap=DRAWS),
        "effects, head": effects(
            show="head", column="tune", of=["whole"], against=["head"], bootstrap=DRAWS
        ),
        "predictors": lambda: sb.predictors(bed, bootstrap=DRAWS).to_dict(),
    }


def seconds(pairs: list[PairTable]) -> dict[str, float]:
    """CPU seconds of every analysis."""
    found = {}
    for name, run in analyses(pairs).items():
        start = time.process_time()
        run()
        found[name] = time.process_time() - start
    return found


def growth(some: float, many: list[PairTable], ratio: int) -> float:
    """The exponent of CPU time."""
    return float(np.log(sum(seconds(many).values()) / some) / np.log(ratio))


def main() -> None:
    options = arguments(__doc__)
    seconds(simulated(90))  # imports and caches
    each = seconds(simulated())
    ratio = 2 if options.quick else 4
    total = sum(each.values())
    report(
        {
            "networks": NETWORKS,
            "pairs": PAIRS,
            "metrics": len(NAMES),
            "bootstraps": DRAWS,
            "cpu_seconds": total,
            "limit": LIMIT,
            "within": total <= LIMIT,
            "exponent_in_networks": growth(total, simulated(ratio * NETWORKS), ratio),
            "exponent_in_pairs": growth(total, simulated(pairs=ratio * PAIRS), ratio),
            **each,
        },
        options.json,
    )


if __name__ == "__main__":
    main()
