"""Writing corrupted test sets to disk, as ImageNet-C was made.

The original's steps (Hendrycks and Dietterich 2019, the released script for ImageNet-C): the
shorter side becomes 256 by bilinear interpolation, the central 224 × 224 are cut out, the image is
corrupted, values are cut (not rounded) to eight bits, and it is saved as JPEG of quality 85 with
optimised tables. The second encoding costs accuracy of its own, so these files are another setting
than the same corruption in memory. The randomness is the same as in memory: it comes from the seed
and the image's id.

Rows are taken in parts of fixed bounds. A part's manifest is written after its files, so whatever
a killed run leaves is either verified by a manifest or made again, to the same bytes.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from shiftbed.errors import InputError
from shiftbed.evaluation.corrupt_part import (
    Made,
    Part,
    TreeOptions,
    folder_of,
    make,
    parsed,
    safe,
    write_json,
)
from shiftbed.evaluation.corrupted_trees import MANIFEST, read_manifest_of_tree
from shiftbed.evaluation.data import TestSet
from shiftbed.evaluation.models.base import versions
from shiftbed.evaluation.perturbations import spelled_out

_ENDINGS = {"jpeg": (".jpeg", ".jpg"), "png": (".png",)}
ROWS = 32
"""Source images per part."""


def corrupt_tree(
    test_set: TestSet,
    destination: str | Path,
    corruptions: Sequence[str],
    options: TreeOptions | None = None,
    *,
    workers: int = 1,
    report: Callable[[int], None] = lambda files: None,
) -> Made:
    """Write DST/NAME/SEVERITY/CLASS/FILE for every corruption and image, and the manifest.

    ``corruptions`` as ``fog:3``, ``fog:1-5`` or ``all``. The same call again continues: files that
    their manifest verifies are kept. More corruptions may be added to a tree later; other options
    are refused. ``report`` hears how many files are ready.
    """
    options = options or TreeOptions()
    root, names = Path(destination), spelled_out(corruptions)
    if not names:
        raise InputError("give at least one corruption")
    for name in names:
        parsed(name, options)
    paths = tree_paths(test_set, options.format)
    _begin(root, test_set, options, paths, names)
    parts = [
        Part(
            root=str(root),
            start=start,
            test_set=test_set.subset(np.arange(start, min(start + ROWS, len(test_set)))),
            paths=tuple(paths[start : start + ROWS]),
            names=tuple(names),
            options=options,
        )
        for start in range(0, len(test_set), ROWS)
    ]
    total = Made()
    for made in _each(parts, workers):
        report(made.written + made.kept)
        total = replace(
            total,
            written=total.written + made.written,
            kept=total.kept + made.kept,
            unreadable=total.unreadable + made.unreadable,
        )
    return total


def tree_paths(test_set: TestSet, kind: str) -> list[str]:
    """CLASS/FILE of every image: its own name, with another ending where the format asks for it."""
    if test_set.label_sets is not None or (np.asarray(test_set.labels) < 0).any():
        raise InputError(f"test set {test_set.name!r}: every image must have one label")
    classes = test_set.classes
    found = []
    for example, label in zip(test_set.examples, test_set.labels, strict=True):
        folder = safe(classes[label]) if classes is not None else str(label)
        inside = [safe(piece) for piece in example.split("/") if piece not in ("", ".")]
        if len(inside) > 1 and inside[0] == folder:
            inside = inside[1:]
        name = "/".join([folder, *inside])
        found.append(name if name.lower().endswith(_ENDINGS[kind]) else name + _ENDINGS[kind][0])
    if len({name.lower() for name in found}) < len(found):
        raise InputError(f"test set {test_set.name!r}: two images would get the same file name")
    return found


def _begin(
    root: Path, test_set: TestSet, options: TreeOptions, paths: list[str], names: list[str]
) -> None:
    """Write the manifest's head and all class folders; a tree made otherwise is refused."""
    order = sorted(range(len(paths)), key=lambda at: paths[at].split("/"))
    head = {
        "format": 1,
        "source": {
            "name": test_set.name,
            "fingerprint": test_set.fingerprint,
            "images": len(test_set),
        },
        "options": options.describe(),
        "in_order": order == list(range(len(paths))),
        "versions": versions("shiftbed", "numpy", "pillow"),
    }
    old = read_manifest_of_tree(root)
    if old is not None:
        for what in ("source", "options"):
            if old.get(what) != head[what]:
                raise InputError(
                    f"{root}: was made with another {what}: {_change(old.get(what), head[what])}"
                )
    else:
        if root.exists() and any(root.iterdir()):
            raise InputError(f"{root}: is not empty and has no manifest; give a new folder")
        write_json(root / f"{MANIFEST}.json", head)
    classes = test_set.classes or map(str, range(int(np.max(test_set.labels)) + 1))
    folders = sorted({safe(one) for one in classes})
    for name in names:
        for folder in folders:  # an empty class stays a class
            (root / folder_of(name) / folder).mkdir(parents=True, exist_ok=True)


def _change(old: Any, new: Any) -> str:
    before = old if isinstance(old, dict) else {}
    changed = [key for key in new if before.get(key) != new[key]]
    return "; ".join(f"{key} {before.get(key)}, now {new[key]}" for key in changed)


def _each(parts: list[Part], workers: int) -> Iterator[Made]:
    if workers <= 1 or len(parts) <= 1:
        yield from map(make, parts)
        return
    todo = iter(parts)
    with ProcessPoolExecutor(min(workers, len(parts)), mp_context=get_context("spawn")) as pool:
        running = {pool.submit(make, part) for part in islice(todo, 2 * workers)}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for one in done:
                    running |= {pool.submit(make, part) for part in islice(todo, 1)}
                    yield one.result()
        except BrokenProcessPool:
            raise InputError("a worker died; the same command again continues") from None
