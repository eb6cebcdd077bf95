"""Files of a run: weights of checkpoints, the state to go on from, and what is known of it.

    RUNS/ID/job.json        the job's arguments, and where its recipe is
    RUNS/ID/last.pt         everything the next step depends on
    RUNS/ID/step-N.pt       the network's state dict, as ``torch:FILE?arch=…`` reads it
    RUNS/ID/model.skops     instead, a fitted estimator, as ``sklearn:FILE`` reads it
    RUNS/ID/log.json        per checkpoint: step, epoch, mean loss, examples, seconds
    RUNS/ID/done.json       written last: what the run ended with

Files hold tensors, numbers and texts only, and are read with ``weights_only=True``.
"""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shiftbed.atomic import write_atomically
from shiftbed.errors import InputError
from shiftbed.evaluation.models.checkpoints import refusal


class RunFolder:
    """The folder of one run."""

    def __init__(self, runs: str | Path, id: str) -> None:
        self.path = Path(runs) / id

    def weights(self, step: int) -> Path:
        """Where the weights after a step are."""
        return self.path / f"step-{step:08d}.pt"

    @property
    def estimator(self) -> Path:
        """Where the fitted estimator of a classical model is."""
        return self.path / "model.skops"

    def steps(self) -> list[int]:
        """Steps whose weights are there."""
        return sorted(int(file.stem.removeprefix("step-")) for file in self.path.glob("step-*.pt"))

    def write_weights(self, step: int, state: Mapping[str, Tensor]) -> None:
        own = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
        self._save(self.weights(step), own)

    def forget_weights(self, but: int) -> None:
        """Remove the weights of all checkpoints but one."""
        for step in self.steps():
            if step != but:
                self.weights(step).unlink(missing_ok=True)

    def write_state(self, state: Mapping[str, Any]) -> None:
        self._save(self.path / "last.pt", dict(state))

    def state(self) -> dict[str, Any] | None:
        """The state to go on from, None if there is none."""
        path = self.path / "last.pt"
        if not path.is_file():
            return None
        try:
            found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise refusal(path, error) from None
        except (RuntimeError, EOFError, ValueError, KeyError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(f"{path}: cannot be read, remove it to start anew: {reason}") from None
        return found

    def forget_state(self) -> None:
        """A finished run needs none."""
        (self.path / "last.pt").unlink(missing_ok=True)

    def read(self, name: str) -> Any:
        """A JSON file of the run, None if it is not there."""
        path = self.path / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def write(self, name: str, value: Any) -> None:
        with write_atomically(self.path / f"{name}.json") as file:
            file.write(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode())

    def _save(self, path: Path, value: Any) -> None:
        with write_atomically(path) as file:
            torch.save(value, file)
