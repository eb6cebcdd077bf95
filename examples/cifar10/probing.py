"""Every probe of every model: one ``shiftbed probe`` per model, several of them at once."""

import contextlib
import io
import multiprocessing as mp
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from shiftbed.errors import InputError
from shiftbed.store import PredictionStore

__all__ = ["Trained", "arguments", "probe_all", "trained"]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The last checkpoint of a run, as the store knows it."""

    name: str
    """RUN@STEP."""
    weights: Path


def trained(folder: Path) -> list[Trained]:
    """All models of the study, in the store's order."""
    cells = PredictionStore.existing(folder / "store").cells()
    return [
        Trained(
            name=str(cell["model"]),
            weights=_weights(folder, str(cell["identity"]), int(cell["info"]["step"])),
        )
        for cell in cells
        if cell["setting"] == "cifar10" and cell["info"]["final"]
    ]


def _weights(folder: Path, identity: str, step: int) -> Path:
    return folder / "runs" / identity.removeprefix("job:") / f"step-{step:08d}.pt"


def arguments(folder: Path, model: Trained, pairs: int) -> list[str]:
    """What a user would type behind ``shiftbed``, from the folder where the project lies.

    >>> one = Trained(name="a-1b@9", weights=Path("demo/runs/1b/step-9.pt"))
    >>> arguments(Path("demo"), one, 500)[:3]
    ['probe', 'run:demo/runs/1b', 'demo/cifar10.npz']
    """
    line, test_set = f"run:{model.weights.parent}", str(folder / "cifar10.npz")
    return ["probe", line, test_set, "--store", str(folder / "store"),
            "--probe", "all", "--pairs", str(pairs), "--normalisation", "model",
            "--allow-code"]  # fmt: skip


def probe_all(folder: Path, pairs: int, workers: int) -> None:
    """Probe all models, ``workers`` at a time; what the store has is not measured again."""
    models = trained(folder)
    print("\n$ shiftbed", *arguments(folder, models[0], pairs), flush=True)
    print(f"  … and so for each of {len(models)} models, {workers} at a time", flush=True)
    context = mp.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_one_thread) as pool:
        asked = {pool.submit(_probe, arguments(folder, one, pairs)): one.name for one in models}
        for at, done in enumerate(as_completed(asked), 1):
            try:
                spent = done.result()
            except InputError as error:
                pool.shutdown(cancel_futures=True)
                raise SystemExit(f"{asked[done]}: {error}") from None
            name = asked[done]
            print(f"  {at:2d}/{len(models)} {name:<28} probed in {spent:.0f} s", flush=True)


def _one_thread() -> None:
    """Models share the cores, not each model all of them."""
    import torch

    torch.set_num_threads(1)


def _probe(given: list[str]) -> float:
    from shiftbed.cli.main import app

    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        app(given, standalone_mode=False)
    return time.perf_counter() - start
