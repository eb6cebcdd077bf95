"""``shiftbed place``, end to end, against an interpreter that imports numpy and scipy.special.

python -m benchmarks.place [--quick] [--json]
"""

import json
import subprocess
import sys
import time

import numpy as np

from benchmarks.common import arguments, report

COMMAND = [
    *("place", "--testbed", "imagenet-testbed-2020", "--id", "val=0.7613"),
    *("--ood", "imagenetv2-matched-frequency-format-val=0.6321"),
]
PLACE = "from shiftbed.cli import main; main()"
BARE = "import numpy, scipy.special"
HEAVY = "torch", "matplotlib", "scipy.stats", "pandas"


def run(code: str, *arguments: str) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return time.perf_counter() - start, done.stdout


def main() -> None:
    options = arguments(__doc__)
    rounds = 9 if options.quick else 31
    ours, bare = [], []
    for _ in range(rounds + 1):
        bare.append(run(BARE)[0])
        ours.append(run(PLACE, *COMMAND)[0])
    ratios = np.array(ours[1:]) / np.array(bare[1:])  # the first round warms the disk cache
    watch = "import sys, json; from shiftbed.cli import app\ntry: app()\nexcept SystemExit: pass\n"
    modules = run(watch + "print(json.dumps(sorted(sys.modules)))", *COMMAND)[1]
    loaded = set(json.loads(modules.splitlines()[-1]))
    report(
        {
            "ratio": float(np.median(ratios)),
            "ratio_interquartile": [float(q) for q in np.quantile(ratios, [0.25, 0.75])],
            "place_seconds": float(np.median(ours[1:])),
            "bare_seconds": float(np.median(bare[1:])),
            "rounds": rounds,
            "heavy_modules_imported": [name for name in HEAVY if name in loaded],
        },
        options.json,
    )


if __name__ == "__main__":
    main()
