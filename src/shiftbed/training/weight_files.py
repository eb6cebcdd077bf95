"""Mixed weights as files and as lines of models, so that they are run like any other model.

Weights are named as models are: ``torch:FILE?arch=PREFIX:NAME``, or ``PREFIX:NAME?weights=FILE``.
All that are mixed must be the same line but for the file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from torch import Tensor

from shiftbed.atomic import write_atomically
from shiftbed.engine.plan import ModelSpec
from shiftbed.errors import InputError
from shiftbed.evaluation.data import batches, open_test_set
from shiftbed.evaluation.models import Model, resolve
from shiftbed.evaluation.models.checkpoints import existing
from shiftbed.evaluation.models.sidecar import sidecar_of
from shiftbed.evaluation.models.spec import Spec
from shiftbed.training.weights import State, path, read_weights, write_weights

_BATCH = 256
import_module("shiftbed.training.networks")  # so that nets:NAME can be resolved


@dataclass(frozen=True, kw_only=True)
class Line:
    """A model's line, taken apart: the architecture, and the file of its weights."""

    prefix: str
    name: str
    """Empty for ``torch:``, where the file stands in its place."""
    query: str
    file: Path

    @classmethod
    def parse(cls, text: str) -> "Line":
        """Take a line apart.

        >>> Line.parse("timm:resnet18?weights=a.pt&num_classes=7").query
        'num_classes=7'
        """
        spec = Spec.parse(text)
        query = text.partition("?")[2]
        if spec.prefix == "torch":
            if "arch" not in spec.query:
                raise InputError(
                    f"{text}: weights to mix are a state dict with its architecture, "
                    "torch:FILE?arch=timm:NAME; exported programs cannot be mixed"
                )
            return cls(prefix="torch", name="", query=query, file=Path(spec.name))
        if "weights" not in spec.query:
            raise InputError(
                f"{text}: names no file of weights; write torch:FILE?arch=PREFIX:NAME or "
                "PREFIX:NAME?weights=FILE"
            )
        rest = [part for part in query.split("&") if not part.startswith("weights=")]
        file = Path(spec.query["weights"])
        return cls(prefix=spec.prefix, name=spec.name, query="&".join(rest), file=file)

    @property
    def architecture(self) -> tuple[str, str, str]:
        """All but the file."""
        return self.prefix, self.name, self.query

    def read(self) -> State:
        return read_weights(self.file)

    def model(self, file: Path, name: str, info: Mapping[str, Any] | None = None) -> ModelSpec:
        """The same architecture with the weights of another file, ready to run."""
        query = f"?{self.query}" if self.query else ""
        if self.prefix == "torch":
            return ModelSpec(source=f"torch:{file}{query}", name=name, info=info or {})
        spec = f"{self.prefix}:{self.name}{query}"
        return ModelSpec(source=spec, name=name, options={"weights": str(file)}, info=info or {})

    def write(self, state: State, file: Path) -> Path:
        """Weights, and beside them the preprocessing that lies beside the line's own file."""
        write_weights(state, file)
        beside = sidecar_of(self.file)
        if beside.is_file() and sidecar_of(file) != beside:
            with write_atomically(sidecar_of(file)) as handle:
                handle.write(beside.read_bytes())
        return file


def same_line(texts: Sequence[str]) -> list[Line]:
    """Lines of one architecture, their files there."""
    lines = [Line.parse(text) for text in texts]
    for line, text in zip(lines, texts, strict=True):
        existing(line.file, text)
        if line.architecture != lines[0].architecture:
            raise InputError(
                f"{text} is not the model of {texts[0]} with other weights: weights that are "
                "mixed need the same line but for the file"
            )
    return lines


def path_models(
    first: str, second: str, alphas: Sequence[float], folder: str | Path, run: str
) -> list[ModelSpec]:
    """Write θ(α) for each α, and return the models ``RUN@α``.

    Each is a step of one run: ``step`` counts thousandths of α, ``alpha`` is the number itself.
    """
    if len(set(alphas)) < len(alphas) or not alphas:
        raise InputError("alphas must be one or more numbers, each once")
    one, two = same_line([first, second])
    found = []
    for alpha, state in path(one.read(), two.read(), alphas):
        shown = f"{alpha:g}" if float(f"{alpha:g}") == alpha else repr(float(alpha))
        file = one.write(state, Path(folder) / f"{_file_name(run)}-{shown}.pt")
        about: dict[str, Any] = {"run": run, "step": round(1000 * alpha), "alpha": float(alpha)}
        about |= {"kind": "intervention", "in_fit_set": False}
        about |= {"from": one.file.name, "to": two.file.name}
        found.append(one.model(file, f"{run}@{shown}", about))
    return found


def path_name(first: str, second: str) -> str:
    """What a path is called: after its files, or their folders where the files are namesakes.

    >>> path_name("nets:conv8?weights=a.pt", "nets:conv8?weights=b.pt")
    'a-to-b'
    """
    ends = [Line.parse(text).file for text in (first, second)]
    if ends[0].stem == ends[1].stem:
        return "-to-".join(file.absolute().parent.name for file in ends)
    return "-to-".join(file.stem for file in ends)


def _file_name(run: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in run)


def held_out(
    line: Line, test_set: str, device: str = "cpu"
) -> tuple[Callable[[dict[str, Tensor]], float], int]:
    """A function from weights to accuracy on a test set, and how many images that has.

    Images are decoded once; every set of weights goes through a file, as it will for whoever uses
    it later.
    """
    opened = open_test_set(test_set)
    if opened.label_sets is not None:
        raise InputError(f"{test_set}: a held-out set needs one label per image")
    labels = np.asarray(opened.labels, dtype=np.int64)
    kept: list[tuple[Any, Any]] = []

    def load(model: Model) -> None:
        for batch in batches(opened, None, model.preprocessing.pixels, _BATCH, 2):
            if batch.unreadable:
                bad = batch.unreadable[0]
                raise InputError(f"{test_set}: cannot read {bad.example}: {bad.reason}")
            kept.append((batch.pixels.transpose(0, 3, 1, 2), labels[batch.rows]))

    def accuracy(state: dict[str, Tensor]) -> float:
        with TemporaryDirectory() as folder:
            file = line.write(state, Path(folder) / line.file.name)
            spec = line.model(file, "")
            model = resolve(str(spec.source), device=device, **spec.options)
        if labels.min() < 0 or labels.max() >= model.classes:
            raise InputError(
                f"{test_set}: labels must lie in 0 … {model.classes - 1}, the model's classes"
            )
        if not kept:
            load(model)
        right = sum(int((model.logits(x).argmax(axis=1) == y).sum()) for x, y in kept)
        return right / len(labels)

    return accuracy, len(labels)
