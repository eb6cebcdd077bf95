"""Similarity of models against a pairwise loop, a float32 matrix product and a plain popcount.

    python -m benchmarks.similarity [--quick] [--json]

Dominance, κ and agreement of 67 models × 80,000 images (the public predictions, validation and the
three V2 sets together, where they are there) and of 1,000 simulated models × 50,000; all triplets
of 67 models × 50,000. The peers run in the same process, alternating. The loop is what a notebook
does; over 1,000 models it is timed on some pairs and scaled to all.
"""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import SHARED, arguments, report
from shiftbed.analysis.joint_counts import joint_counts, pack, same_counts, triple_counts
from shiftbed.analysis.similarity import similarity

PUBLIC = ("imagenet-validation-original", *(f"imagenetv2-{v}" for v in ("a-44", "b-33", "c-12")))


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def public() -> tuple[NDArray[np.int16], NDArray[np.int16]] | None:
    """67 models on 80,000 images, and the labels."""
    files = [SHARED / "predictions" / f"imagenetv2_67models_{name}.npz" for name in PUBLIC]
    if not all(file.exists() for file in files):
        return None
    parts = [np.load(file) for file in files]
    top1 = np.concatenate([part["top1"] for part in parts], axis=1)
    return top1, np.concatenate([part["labels"] for part in parts])


def simulated(models: int, images: int) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """Models of several abilities on images of several difficulties, with favourite mistakes."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 1000, images).astype(np.int16)
    hard = rng.standard_normal(images, dtype=np.float32)
    top1 = np.empty((models, images), dtype=np.int16)
    for row, skill in zip(top1, rng.normal(0.7, 0.4, models), strict=True):
        right = skill - hard + 0.5 * rng.standard_normal(images, dtype=np.float32) > 0
        mistake = 1 + (40 * rng.random(images, dtype=np.float32) ** 3).astype(np.int16)
        row[:] = np.where(right, labels, (labels + mistake) % 1000)
    return top1, labels


def loop(top1: NDArray[np.int16], right: NDArray[np.bool_], rows: int) -> NDArray[np.float64]:
    """(3, rows, rows): dominance, agreement and agreement on correctness, pair by pair."""
    out = np.zeros((3, rows, rows))
    for i in range(rows):
        for j in range(i):
            a, b = (i, j) if right[i].sum() <= right[j].sum() else (j, i)
            out[0, i, j] = (right[a] & ~right[b]).mean()
            out[1, i, j] = (top1[i] == top1[j]).mean()
            out[2, i, j] = (right[i] == right[j]).mean()
    return out


def compare(
    top1: NDArray[np.int16], labels: NDArray[np.int16], rows: int, rounds: int
) -> dict[str, float | int]:
    """Times of one size; the loop runs over ``rows`` models and is scaled to all pairs."""
    m, n = top1.shape
    right = top1 == labels
    numbers = right.astype(np.float32)
    other = np.ascontiguousarray(numbers.T)
    scaled = m * (m - 1) / (rows * (rows - 1))
    times: dict[str, list[float]] = {}
    work: dict[str, Callable[[], object]] = {
        "loop": lambda: loop(top1, right, rows),
        "product": lambda: numbers @ other,
        "own_product": lambda: numbers @ numbers.T,
        "bits": lambda: joint_counts(pack(right)),
        "classes": lambda: same_counts(top1),
    }
    for _ in range(rounds + 1):
        for name, one in work.items():
            times.setdefault(name, []).append(seconds(one))
    best = {name: float(np.median(each[1:])) for name, each in times.items()}
    best["loop"] *= scaled
    found, naive = similarity(right, top1), loop(top1, right, rows)
    lower = np.tril_indices(rows, -1)
    ours = [found.dominance, found.agreement, found.agreement_on_correctness]
    worst = max(
        float(np.abs(np.asarray(a)[:rows, :rows][lower] - b[lower]).max())
        for a, b in zip(ours, naive, strict=True)
    )
    both = best["bits"] + best["classes"]
    return {
        "models": m,
        "images": n,
        "pairs_the_loop_was_timed_on": rows * (rows - 1) // 2,
        "largest_difference": worst,
        "loop_over_dominance_and_agreements": best["loop"] / both,
        "bits_over_product": best["bits"] / best["product"],
        "bits_over_own_product": best["bits"] / best["own_product"],
        "bits_and_classes_over_product": both / best["product"],
        "bits_and_classes_over_own_product": both / best["own_product"],
        **{f"{name}_seconds": value for name, value in best.items()},
    }


def triples(right: NDArray[np.bool_], rounds: int) -> dict[str, float | int]:
    """All triplets against counting the ones of as many words."""
    words = pack(right)
    m = len(words)
    count = m * (m - 1) * (m - 2) // 6
    plain = np.random.default_rng(0).integers(0, 2**63, count * words.shape[1], dtype=np.uint64)
    ours, bare, summed = [], [], []
    for _ in range(rounds + 1):
        bare.append(seconds(lambda: np.bitwise_count(plain)))
        ours.append(seconds(lambda: [both.sum() for _, both in triple_counts(words)]))
        summed.append(seconds(lambda: np.bitwise_count(plain).sum(dtype=np.int64)))
    middle = [float(np.median(times[1:])) for times in (ours, bare, summed)]
    return {
        "models": m,
        "images": right.shape[1],
        "triplets": count,
        "words": plain.size,
        "triplets_over_popcount": middle[0] / middle[1],
        "triplets_over_popcount_and_sum": middle[0] / middle[2],
        "triplets_seconds": middle[0],
        "popcount_seconds": middle[1],
        "popcount_and_sum_seconds": middle[2],
    }


def main() -> None:
    options = arguments(__doc__)
    real = public()
    small = real or simulated(67, 80_000)
    models, rounds = (250, 3) if options.quick else (1000, 5)
    some = 20 if options.quick else 40
    result = {
        "public_predictions": real is not None,
        "67_models": compare(*small, 67, rounds),
        f"{models}_models": compare(*simulated(models, 50_000), some, rounds),
        "triplets": triples((small[0] == small[1])[:, :50_000], rounds + 4),
    }
    if options.json:
        report(result, True)
        return
    for key, value in result.items():
        if isinstance(value, dict):
            print(f"\n{key}")
            report(value, False)
        else:
            report({key: value}, False)


if __name__ == "__main__":
    main()
