"""What one training step minimises, and what else happens around a step: the two seams of training.

An ``Objective`` turns a network and a batch into a loss. A ``Hook`` acts between steps: it masks
weights, leaves out examples, writes down accuracies. Both are made from a recipe's table by what
``OBJECTIVES`` and ``HOOKS`` of arguments.py name; README.md beside this says how to add one.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from shiftbed.errors import InputError
from shiftbed.training.arguments import HOOKS, OBJECTIVES, construct

if TYPE_CHECKING:
    from shiftbed.training.loop import Run
    from shiftbed.training.prepare import TrainingData
    from shiftbed.training.stream import Stream


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingBatch:
    """Some training examples, augmented."""

    pixels: Tensor
    """(B, C, H, W) float32 in [0, 1]; (B, width) features where the head alone is trained."""
    labels: Tensor
    """(B,) int64."""
    rows: NDArray[np.int64]
    """(B,) rows of the training data, the same in every epoch."""
    views: tuple[Tensor, ...] = ()
    """The same examples augmented again, each like ``pixels``: ``Objective.views`` of them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Setup:
    """What an objective or hook may know before training starts."""

    network: nn.Module
    """Takes pixels in [0, 1] and returns logits; normalises by itself."""
    heads: tuple[nn.Linear, ...]
    """The last layer (two for distilled transformers), a part of ``network``."""
    classes: int
    data: "TrainingData"
    seed: int
    open: Callable[[str], "TrainingData"]
    """Another data set of the recipe by its name, whole: for replay."""
    stream: Callable[["TrainingData"], "Stream"]
    """Batches of other data as ``network`` takes them, pixels or features, un-augmented."""
    old_heads: tuple[nn.Linear, ...] = ()
    """Copies of the heads that the start's weights came with; none for a random start."""
    base: str = "."
    """The recipe's folder: files that objectives and hooks name are relative to it."""


class _Remembering:
    """What survives a kill: the attributes that ``remembered`` names.

    They hold tensors, numbers, texts, lists and dicts of them only.
    """

    remembered: tuple[str, ...] = ()

    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.remembered}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Read back what ``state`` gave; a hook's is called before its ``begin``."""
        for name, value in state.items():
            setattr(self, name, value)


class Objective(_Remembering, ABC):
    """The loss of a batch."""

    views: int = 0
    """How many further augmented versions of each example ``loss`` needs in ``batch.views``."""
    clean_first: bool = False
    """Whether ``batch.pixels`` is only cropped and flipped, and ``views`` are augmentations of it
    (AugMix); otherwise each is an augmentation of its own."""
    needs_labels: bool = True
    """Whether every training example must have a class."""
    on_features: bool = False
    """Whether ``loss`` asks nothing of the network but ``network(batch.pixels)``, so that a head
    can be trained on features computed once."""

    def begin(self, setup: Setup) -> nn.Module:
        """Called once, before the optimiser exists; returns the module to train.

        Add heads here: what it returns is what the optimiser and checkpoints see.
        """
        return setup.network

    @abstractmethod
    def loss(self, network: nn.Module, batch: TrainingBatch) -> Tensor:
        """A scalar."""

    def evaluated(self, network: nn.Module) -> nn.Module:
        """The part of the trained module that answers test images: pixels in [0, 1] to logits."""
        return network

    def written(self, network: nn.Module) -> nn.Module:
        """The part whose weights ``step-N.pt`` holds and later stages start from."""
        return self.evaluated(network)

    def outputs(self, classes: int) -> int:
        """Outputs of what ``written`` gives, where the data has so many classes."""
        return classes

    def after_step(self, run: "Run") -> None:
        """After the weights are new and before hooks: replay takes its further steps here."""


class Hook(_Remembering):
    """What happens around steps; every method may be left out.

    ``run`` has ``network``, ``optimiser``, ``schedule``, ``step``, ``epoch``, ``steps`` and
    ``stream``, and may be changed: ``run.stream.keep(rows)``, in ``before_epoch`` or
    ``after_epoch``, leaves examples out.
    """

    on_features: bool = False
    """Whether it asks nothing of the network, so that a head can be trained on features."""

    def begin(self, run: "Run") -> None:
        """Before the first step, and after a checkpoint was loaded (``run.step`` > 0)."""

    def before_epoch(self, run: "Run") -> None:
        """Before the order of the examples is drawn."""

    def after_backward(self, run: "Run") -> None:
        """Gradients are there, weights are still the old ones."""

    def after_step(self, run: "Run") -> None:
        """Weights are new; ``run.step`` counts this step."""

    def after_epoch(self, run: "Run") -> None:
        """After the last step of an epoch."""

    def before_checkpoint(self, run: "Run") -> None:
        """Before weights are written and evaluated."""

    def finish(self, run: "Run") -> None:
        """After the last step, before the last checkpoint."""

    def weights(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """The state dict as it is written for others: masks multiplied in, plain names."""
        return state

    def facts(self) -> dict[str, Any]:
        """What goes to the model's info beside every checkpoint (sparsity, old accuracy, …)."""
        return {}


@final
class CrossEntropy(Objective):
    """−log softmax(z)_y, averaged over the batch; ``label_smoothing`` as in torch."""

    on_features = True

    def __init__(self, label_smoothing: float = 0.0) -> None:
        self.label_smoothing = label_smoothing

    def loss(self, network: nn.Module, batch: TrainingBatch) -> Tensor:
        return functional.cross_entropy(
            network(batch.pixels), batch.labels, label_smoothing=self.label_smoothing
        )


@final
class MeanSquares(Objective):
    """Mean of (z − e_y)² over batch and classes, e_y one-hot (andreassen2021, Appendix C.4)."""

    on_features = True

    def loss(self, network: nn.Module, batch: TrainingBatch) -> Tensor:
        logits = network(batch.pixels)
        target = functional.one_hot(batch.labels, logits.shape[1]).to(logits.dtype)
        return functional.mse_loss(logits, target)


def make_objective(table: Mapping[str, Any]) -> Objective:
    """An objective from ``{name = "…", …}``."""
    name = str(table["name"])
    options = {key: value for key, value in table.items() if key != "name"}
    made: Objective = construct(OBJECTIVES, name, options, "objective")
    return made


def make_hook(key: str, table: Mapping[str, Any]) -> Hook:
    """A hook from a recipe's key and its table."""
    made: Hook = construct(HOOKS, key, table)
    return made


def jensen_shannon(logits: tuple[Tensor, ...]) -> Tensor:
    """JS(p₁; …; p_k) = mean_i KL(p_i ‖ m), m = mean_i p_i, averaged over the batch (B, classes).

    Hendrycks et al. 2020, Section 3. In [0, log k]; 0 where all agree.
    """
    logs = torch.stack([functional.log_softmax(one, dim=1) for one in logits])
    mixture = torch.logsumexp(logs, dim=0) - math.log(len(logits))
    return (logs.exp() * (logs - mixture)).sum(dim=2).mean()


@final
class AugMixLoss(Objective):
    """CE(clean) + ``weight``·JS(clean; view 1; view 2), the views drawn by the augmentation.

    Hendrycks et al. 2020, Section 3: λ = 12. Cross-entropy is on the clean example alone. All views
    go through the network as one batch, so batch statistics are shared.
    """

    views = 2
    clean_first = True

    def __init__(self, weight: float = 12.0) -> None:
        if not weight > 0:
            raise InputError(f"objective 'augmix': weight must be above 0, got {weight!r}")
        self.weight = weight

    def loss(self, network: nn.Module, batch: TrainingBatch) -> Tensor:
        logits = network(torch.cat([batch.pixels, *batch.views]))
        parts = torch.chunk(logits, 1 + self.views)
        clean = functional.cross_entropy(parts[0], batch.labels)
        return clean + self.weight * jensen_shannon(parts)
