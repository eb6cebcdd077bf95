"""Captions: all names of 1,000 classes in one pass, against a loop of regular expressions.

    python -m benchmarks.captions [--quick] [--json]

Synthetic captions with capitals, punctuation and plurals; 1,000 classes with three names each. The
peer compiles one expression per class and searches every caption with all of them; it is timed on
a slice, spread over the same run, for the whole would take half an hour. Both must give the same
labels on that slice. Then the whole path, from a CSV file to the written test set, runs in a
process of its own for growing files: its exponent in rows and its peak memory.
"""

import csv
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.common import arguments, report
from shiftbed.captioning import AMBIGUOUS, NONE, CaptionClass, make_matcher
from shiftbed.captioning.match import SOFT, forms, normal_forms

WHOLE = """
import json, resource, sys, time
import numpy, polars
from shiftbed.captioning import captions
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
made = captions([sys.argv[1]], sys.argv[2], sys.argv[3], min_matches=50, per_class=50)
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": seconds, "mib": (peak - before) / 1024, "rows": made.rows}))
"""


def world(classes: int = 1000) -> tuple[list[CaptionClass], list[str]]:
    """Classes with synonyms of one to three words, and the words captions are made of."""
    random.seed(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(random.choices(letters, k=random.randint(3, 9))) for _ in range(20_000)]
    made = []
    for _ in range(classes):
        names = [" ".join(random.sample(words, random.choice([1, 1, 2, 2, 3]))) for _ in range(3)]
        made.append(CaptionClass(name=names[0], synonyms=tuple(names[1:])))
    return made, words


def captions(count: int, classes: list[CaptionClass], words: list[str], seed: int) -> list[str]:
    """Captions of four to sixteen words, half of them with a class's name."""
    draw, made = random.Random(seed), []
    for _ in range(count):
        text = draw.choices(words, k=draw.randint(4, 16))
        if draw.random() < 0.5:
            name = draw.choice(draw.choice(classes).names)
            text.insert(draw.randrange(len(text)), name.title() + draw.choice(["", "s", "!"]))
        made.append(" ".join(text) + draw.choice([".", "!", ", 2019", ""]))
    return made


def expressions(classes: list[CaptionClass]) -> list[re.Pattern[str]]:
    """One per class: any form of any of its names, as whole words, in any case."""
    between, found = rf"[{SOFT}]+", []
    for one in classes:
        normal = normal_forms(pl.Series(one.names))
        every = sorted({form.strip() for name in normal for form in forms(name)})
        choices = "|".join(between.join(map(re.escape, form.split())) for form in every)
        found.append(re.compile(rf"(?<![^\W_])(?:{choices})(?![^\W_])", re.IGNORECASE))
    return found


def with_expressions(found: list[re.Pattern[str]], texts: list[str]) -> np.ndarray:
    codes = np.full(len(texts), NONE)
    for row, text in enumerate(texts):
        hits = [number for number, one in enumerate(found) if one.search(text)]
        if hits:
            codes[row] = hits[0] if len(hits) == 1 else AMBIGUOUS
    return codes


def whole_path(
    sizes: list[int], classes: list[CaptionClass], words: list[str], folder: Path
) -> list[dict[str, float]]:
    """Seconds and memory from a CSV file to a test set, for growing files."""
    names = folder / "classes.json"
    names.write_text(json.dumps({one.name: one.synonyms for one in classes}))
    results = []
    for size in sizes:
        source = folder / f"{size}.csv"
        with source.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "caption"])
            for start in range(0, size, 50_000):
                some = captions(min(50_000, size - start), classes, words, start)
                writer.writerows((start + i, text) for i, text in enumerate(some))
        command = [sys.executable, "-c", WHOLE, str(source), str(names), str(folder / f"o{size}")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        results.append(json.loads(done.stdout))
        source.unlink()
    return results


def main() -> None:
    options = arguments(__doc__)
    size = 100_000 if options.quick else 1_000_000
    rounds, slice_ = (4, 200) if options.quick else (10, 1000)
    sizes = [50_000, 100_000, 200_000] if options.quick else [250_000, 500_000, 1_000_000]
    classes, words = world()
    texts = captions(size, classes, words, 1)
    found, matcher = expressions(classes), make_matcher(classes)
    column = pl.Series(texts)
    ours, peers, same = [], [], True
    for i in range(rounds):
        some = texts[i * slice_ : (i + 1) * slice_]
        start = time.perf_counter()
        expected = with_expressions(found, some)
        peers.append((time.perf_counter() - start) / slice_)
        start = time.perf_counter()
        parts = [matcher(part) for part in column.to_frame().iter_slices(1 << 16) for part in part]
        ours.append((time.perf_counter() - start) / size)
        codes = np.concatenate(parts)
        same &= bool((codes[i * slice_ : (i + 1) * slice_] == expected).all())
    with tempfile.TemporaryDirectory() as temporary:
        whole = whole_path(sizes, classes, words, Path(temporary))
    seconds = [one["seconds"] for one in whole]
    report(
        {
            "captions": size,
            "names": sum(len(one.names) for one in classes),
            "ratio_to_regular_expressions": float(np.median(np.array(peers) / np.array(ours))),
            "seconds_per_million": 1e6 * float(np.median(ours)),
            "regular_expressions_seconds_per_million": 1e6 * float(np.median(peers)),
            "regular_expressions_timed_on": rounds * slice_,
            "same_labels": same,
            "rounds": rounds,
            "whole_path_rows": sizes[-1],
            "whole_path_seconds_per_million": 1e6 * seconds[-1] / sizes[-1],
            "exponent_rows": float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]),
            "peak_mib_above_interpreter": [round(one["mib"]) for one in whole],
        },
        options.json,
    )


if __name__ == "__main__":
    main()
