"""Averaged correlation matrices with 1,000 bootstraps, against loops of scipy.stats.spearmanr.

    python -m benchmarks.predictiveness [--quick] [--json]

A simulated study of wenzel2022's size: 172 (ID, OOD) pairs of 10 tasks, 216 networks, 25 metrics.
Peers, alternating with us in one run: spearmanr for every two metrics of every pair, and spearmanr
for all metrics of a pair at once; both then resample pairs within tasks 1,000 times, in numpy. The
quick run does the slower peer on a tenth of the pairs and says how much that is.
"""

import time
from collections.abc import Callable

import numpy as np
from scipy.stats import spearmanr

from benchmarks.common import arguments, report
from shiftbed.analysis.pairs import PairTable
from shiftbed.results.pairs.averages import matrix, study

PAIRS = {"PACS": 12, "VLCS": 12, "DomainNet": 30, "OfficeHome": 12, "SVIRO": 90, "Terra": 12}
PAIRS |= {"Camelyon17": 1, "FMoW": 1, "iWildCam": 1, "RxRx1": 1}
NETWORKS, METRICS, DRAWS = 216, 25, 1000


def simulated(seed: int = 0) -> list[PairTable]:
    """Networks of one ability each, metrics with noise of their own."""
    rng = np.random.default_rng(seed)
    names = ["id:error", "ood:error", *(f"id:m{i}" for i in range(METRICS - 2))]
    found = []
    for task, count in PAIRS.items():
        for i in range(count):
            ability = rng.normal(size=(NETWORKS, 1))
            values = ability + rng.normal(size=(NETWORKS, METRICS))
            models = tuple(f"m{j}" for j in range(NETWORKS))
            found.append(
                PairTable(
                    task=task,
                    source=f"{task}-{i}",
                    target="ood",
                    models=models,
                    metrics=tuple(names),
                    values=values,
                )
            )
    return found


def cell_by_cell(pairs: list[PairTable]) -> np.ndarray:
    """(pairs, metrics, metrics): spearmanr for every two metrics of every pair."""
    found = np.ones((len(pairs), METRICS, METRICS))
    for p, pair in enumerate(pairs):
        for i in range(METRICS):
            for j in range(i):
                r = spearmanr(pair.values[:, i], pair.values[:, j]).statistic
                found[p, i, j] = found[p, j, i] = r
    return found


def all_at_once(pairs: list[PairTable]) -> np.ndarray:
    """The same with one call of spearmanr per pair."""
    return np.stack([spearmanr(pair.values).statistic for pair in pairs])


def resampled(r: np.ndarray, tasks: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Task-weighted mean and percentiles of resamples of pairs within tasks, one by one."""
    rng = np.random.default_rng(0)
    rows = [np.flatnonzero(np.array(tasks) == task) for task in dict.fromkeys(tasks)]
    mean = np.mean([r[some].mean(axis=0) for some in rows], axis=0)
    drawn = np.empty((DRAWS, *r.shape[1:]))
    for draw in range(DRAWS):
        drawn[draw] = np.mean(
            [r[rng.choice(some, len(some))].mean(axis=0) for some in rows], axis=0
        )
    return mean, np.quantile(drawn, [0.025, 0.975], axis=0)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    options = arguments(__doc__)
    pairs = simulated()
    tasks = [pair.task for pair in pairs]
    some = pairs[::10] if options.quick else pairs
    ours, cells, calls = [], [], []
    found = matrix(study(pairs, bootstrap=DRAWS))  # also warms up
    for _ in range(3):
        ours.append(seconds(lambda: matrix(study(pairs, bootstrap=DRAWS))))
        calls.append(seconds(lambda: all_at_once(pairs)))
        calls[-1] += seconds(lambda: resampled(np.zeros((len(pairs), METRICS, METRICS)), tasks))
        if options.quick and cells:
            continue
        cells.append(seconds(lambda: cell_by_cell(some)) * len(pairs) / len(some))
        cells[-1] += seconds(lambda: resampled(np.zeros((len(pairs), METRICS, METRICS)), tasks))
    mean, _ = resampled(all_at_once(pairs), tasks)
    order = [found.metrics.index(name) for name in pairs[0].metrics]
    apart = float(np.abs(found.r[np.ix_(order, order)] - mean).max())
    report(
        {
            "pairs": len(pairs),
            "networks": NETWORKS,
            "metrics": METRICS,
            "bootstraps": DRAWS,
            "ratio": float(np.median(cells) / np.median(ours)),
            "ratio_to_one_call_per_pair": float(np.median(calls) / np.median(ours)),
            "largest_difference_of_r": apart,
            "loop_seconds": float(np.median(cells)),
            "share_of_pairs_in_the_loop": len(some) / len(pairs),
            "one_call_per_pair_seconds": float(np.median(calls)),
            "shiftbed_seconds": float(np.median(ours)),
        },
        options.json,
    )


if __name__ == "__main__":
    main()
