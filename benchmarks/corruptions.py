"""Corruptions, against the `imagecorruptions` package.

    python -m benchmarks.corruptions [--quick] [--json]

Batches of 64 photographs of 224 px, all cores this process may use. Rounds alternate between the
package, in an environment and process of its own (made under ``.reference`` on the first run, which
is not timed), and ours; the ratio is of the medians of seconds per image. The package sees fewer
images per round where it is slow. ``--quick`` measures severity 3, otherwise all five are measured
and a corruption's ratio is their geometric mean. Greyscale has no counterpart in the package.

Wanted: none below 1, geometric mean at least 10, glass blur at least 200; zoom blur, brightness,
saturate, shot noise and elastic at least 15. The peak memory is that of this process; its growth
is that from one batch to sixteen.
"""

import resource
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import arguments, report
from benchmarks.photographs import photographs
from benchmarks.reference_corruptions import Reference, make_environment
from shiftbed.evaluation.corruptions import NAMES, Corruption
from shiftbed.evaluation.predict import pixels_to_float

BATCH, SIZE = 64, 224
MEASURED = tuple(name for name in NAMES if name != "greyscale")


def seconds_per_image(
    reference: Reference,
    pixels: NDArray[np.uint8],
    name: str,
    severity: int,
    rounds: int,
    budget: float,
) -> tuple[float, float]:
    """Ours and theirs: medians over rounds that alternate; ``budget`` seconds per round theirs."""
    x, ids = pixels_to_float(pixels), [str(i) for i in range(BATCH)]
    corruption = Corruption(name=name, severity=severity)
    corruption(x[:8], ids[:8])  # compiled
    count = 1
    if name != "glass_blur":  # which takes seconds: nothing to warm up
        reference(pixels[:1], name, severity)
        _, warm = reference(pixels[:1], name, severity)
        count = int(np.clip(budget / warm, 1, BATCH))
    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(reference(pixels[:count], name, severity)[1] / count)
        for _ in range(3):
            begin = time.perf_counter()
            corruption(x, ids)
            ours.append((time.perf_counter() - begin) / BATCH)
    return float(np.median(ours)), float(np.median(theirs))


def peak() -> float:
    """The most memory this process has used, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def growth(pixels: NDArray[np.uint8]) -> float:
    """MB that the peak grows by from one batch to sixteen, each thrown away."""
    x, ids = pixels_to_float(pixels), [str(i) for i in range(BATCH)]
    corruption = Corruption(name="gaussian_noise", severity=3)
    corruption(x, ids)
    before = peak()
    for _ in range(15):
        corruption(x, ids)
    return peak() - before


def geometric_mean(ratios: list[float]) -> float:
    return float(np.exp(np.mean(np.log(ratios))))


def measure(quick: bool) -> dict[str, Any]:
    make_environment()
    severities = (3,) if quick else (1, 2, 3, 4, 5)
    rounds, budget = (3, 0.15) if quick else (5, 0.5)
    per_corruption, milliseconds = {}, {}
    pixels = photographs(BATCH, SIZE)
    with Reference() as reference:
        for name in MEASURED:
            few = 2 if name == "glass_blur" else rounds
            both = [seconds_per_image(reference, pixels, name, s, few, budget) for s in severities]
            per_corruption[name] = geometric_mean([theirs / ours for ours, theirs in both])
            milliseconds[name] = {
                "ours": 1e3 * geometric_mean([ours for ours, _ in both]),
                "theirs": 1e3 * geometric_mean([theirs for _, theirs in both]),
            }
    return {
        "per_corruption": per_corruption,
        "geomean": geometric_mean(list(per_corruption.values())),
        "slowest": min(per_corruption, key=lambda name: per_corruption[name]),
        "milliseconds_per_image": milliseconds,
        "peak_mb": peak(),
        "growth_mb": growth(pixels),
        "method": f"batch {BATCH}, {SIZE} px, severities {severities}, medians of {rounds} rounds",
    }


def main() -> None:
    chosen = arguments(__doc__)
    result = measure(chosen.quick)
    if not chosen.json:
        for name, ratio in result["per_corruption"].items():
            times = result["milliseconds_per_image"][name]
            print(
                f"{name:<18} {ratio:8.1f}×  {times['ours']:8.3f} ms, was {times['theirs']:.2f} ms"
            )
        result = {k: v for k, v in result.items() if not isinstance(v, dict)}
    report(result, chosen.json)


if __name__ == "__main__":
    main()
