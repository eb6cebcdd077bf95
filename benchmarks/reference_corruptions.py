"""The `imagecorruptions` package in an environment of its own, driven over a pipe.

Started as a script by that environment's Python it serves requests; imported, it makes the
environment and talks to it. Three of the package's functions fail on current libraries
(``multichannel``, ``np.float_``); they are mended on import, in the environment alone.

A request is one line of JSON followed by the images' bytes, uint8 (N, H, W, 3); the answer is one
line of JSON followed by float32 results in [0, 255], before the package rounds them down.
"""

import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).resolve().parents[1] / ".reference" / "corruptions"
PYTHON = FOLDER / "bin" / "python"
PACKAGES = (
    "imagecorruptions==1.1.2",
    "imageio",
    "lazy_loader",
    "networkx",
    "numpy",
    "opencv-python-headless",
    "packaging",
    "pillow",
    "scikit-image",
    "scipy<2",
    "setuptools<81",
    "tifffile",
)


def make_environment() -> None:
    """Make the environment under ``.reference`` if it is not there, touching no other."""
    done = FOLDER / "complete"
    if done.exists():
        return
    print("making an environment for imagecorruptions (once) …", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
    install = [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES]
    subprocess.run(install, check=True, stdout=sys.stderr)
    done.touch()


class Reference:
    """The package at work in a process of its own; use as a context."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": "", "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(
            [str(PYTHON), str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def __enter__(self) -> "Reference":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def __call__(
        self, images: NDArray[np.uint8], name: str, severity: int, seed: int = 0
    ) -> tuple[NDArray[np.float32], float]:
        """Corrupt uint8 images (N, H, W, 3): results (N, H, W, 3) in [0, 255], seconds taken."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        asked = {"name": name, "severity": severity, "seed": seed, "shape": images.shape}
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        self.process.stdin.write(np.ascontiguousarray(images).tobytes())
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the reference failed on {name}")
        answer = json.loads(line)
        data = self.process.stdout.read(images.size * 4)
        return np.frombuffer(data, np.float32).reshape(images.shape), answer["seconds"]

    @property
    def frost(self) -> Path:
        """The folder of frost pictures that comes with the package."""
        found = sorted(FOLDER.glob("lib/python*/site-packages/imagecorruptions/frost"))
        return found[0]


def mended() -> Any:
    """The package's module, its three broken functions made to work."""
    warnings.simplefilter("ignore")
    np.float_ = np.float64  # type: ignore[attr-defined]
    import cv2
    import imagecorruptions.corruptions as module
    from skimage.filters import gaussian

    def blurred(image: Any, sigma: Any, multichannel: bool = False, **settings: Any) -> Any:
        return gaussian(image, sigma, channel_axis=-1 if multichannel else None, **settings)

    module.gaussian = blurred
    cv2.setNumThreads(2)
    return module


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Answer requests until the pipe is closed."""
    module = mended()
    from PIL import Image

    while line := source.readline():
        asked = json.loads(line)
        shape = tuple(asked["shape"])
        images = np.frombuffer(source.read(int(np.prod(shape))), np.uint8).reshape(shape)
        function = getattr(module, asked["name"])
        np.random.seed(asked["seed"])
        out = np.empty(shape, np.float32)
        begin = time.perf_counter()
        for n, image in enumerate(images):
            out[n] = function(Image.fromarray(image), asked["severity"])
        seconds = time.perf_counter() - begin
        sink.write(json.dumps({"seconds": seconds}).encode() + b"\n")
        sink.write(out.tobytes())
        sink.flush()


if __name__ == "__main__":
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the package prints must not mix with answers
    serve(sys.stdin.buffer, pipe)
