"""Models in weight space: interpolation between two checkpoints, uniform and greedy soups.

θ = (1−α)θ₀ + αθ₁ over the whole state dict, running means and variances of normalisation included
(Wortsman et al., 2021; fridovich2022, Section 4.3). A soup is the mean of several (Wortsman et al.,
2022). Both need networks of one architecture, best with a common start.

What is no floating-point number cannot be mixed so. Counts (``num_batches_tracked``, which no
network uses unless its normalisation has no momentum) are mixed alike and rounded; other integers
and booleans (indices, masks of attention) must be the same everywhere. Pruned networks are mixed
by the weights they compute with (``masks.folded``), so a mix of two masks is denser than
either.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from shiftbed.atomic import write_atomically
from shiftbed.errors import InputError
from shiftbed.evaluation.models.checkpoints import existing, read_state
from shiftbed.training.masks import folded

State = dict[str, Tensor]
Weights = Mapping[str, Tensor]
_COUNTS = ("num_batches_tracked",)


def interpolated(first: Weights, second: Weights, alpha: float) -> State:
    """θ = (1−α)θ₀ + αθ₁; α = 0 and α = 1 give the end points bit for bit.

    α may leave [0, 1], which extrapolates.

    >>> a, b = {"w": torch.tensor([0.0, 1.0])}, {"w": torch.tensor([1.0, 1.0])}
    >>> interpolated(a, b, 0.25)["w"].tolist()
    [0.25, 1.0]
    """
    if not math.isfinite(alpha):
        raise InputError(f"alpha must be a finite number, got {alpha}")
    check_alike([first, second])
    if alpha in (0, 1):
        return {name: t.clone() for name, t in (second if alpha else first).items()}
    return {
        name: _mix(name, [tensor, second[name]], [1.0 - alpha, alpha])
        for name, tensor in first.items()
    }


def uniform_soup(states: Sequence[Weights]) -> State:
    """The mean of all; of one, that one bit for bit."""
    if not states:
        raise InputError("a soup needs at least one model")
    check_alike(states)
    if len(states) == 1:
        return {name: tensor.clone() for name, tensor in states[0].items()}
    shares = [1.0 / len(states)] * len(states)
    return {name: _mix(name, [s[name] for s in states], shares) for name in states[0]}


class Tasting(NamedTuple):
    """One model tried in the soup: its place in the list given, and held-out accuracies."""

    member: int
    alone: float
    with_it: float
    """Of the soup with it."""
    kept: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class GreedySoup:
    """A soup, and how it came to be."""

    state: State
    members: tuple[int, ...]
    accuracy: float
    """On the held-out set it was chosen on: optimistic as an estimate of anything else."""
    trials: tuple[Tasting, ...]


def greedy_soup(states: Sequence[Weights], accuracy: Callable[[State], float]) -> GreedySoup:
    """Add models in the order of falling held-out accuracy; keep one only if the soup strictly
    gains (Wortsman et al., 2022, Recipe 1).

    It starts from the best single model, so it never does worse than that on the held-out set.
    Of equal models the earlier one comes first.
    """
    if not states:
        raise InputError("a soup needs at least one model")
    check_alike(states)
    alone = [accuracy(uniform_soup([state])) for state in states]
    order = sorted(range(len(states)), key=lambda i: -alone[i])
    members, best = [order[0]], alone[order[0]]
    trials = [Tasting(member=order[0], alone=best, with_it=best, kept=True)]
    for i in order[1:]:
        found = accuracy(uniform_soup([states[j] for j in (*members, i)]))
        kept = found > best
        trials.append(Tasting(member=i, alone=alone[i], with_it=found, kept=kept))
        if kept:
            members.append(i)
            best = found
    return GreedySoup(
        state=uniform_soup([states[j] for j in members]),
        members=tuple(members),
        accuracy=best,
        trials=tuple(trials),
    )


def _mix(name: str, tensors: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    """Σ shareᵢ·tensorᵢ in double precision, rounded once; equal numbers stay what they are."""
    first = tensors[0]
    if first.is_floating_point() or first.is_complex():
        wide = torch.complex128 if first.is_complex() else torch.float64
        base = first.to(wide)
        moved = base.clone()
        for tensor, share in zip(tensors[1:], shares[1:], strict=True):
            moved += share * (tensor.to(wide) - base)
        return moved.to(first.dtype)
    if name.rpartition(".")[2] in _COUNTS:
        parts = [s * t.to(torch.float64) for t, s in zip(tensors, shares, strict=True)]
        return torch.stack(parts).sum(0).round().to(first.dtype)
    if not all(torch.equal(first, tensor) for tensor in tensors[1:]):
        raise InputError(f"{name!r} is {first.dtype} and differs: it cannot be mixed")
    return first.clone()


def check_alike(states: Sequence[Weights]) -> None:
    """Same names, shapes and types, or an error that names the first difference."""
    first = states[0]
    for i, other in enumerate(states[1:], 2):
        odd = sorted(first.keys() ^ other.keys())
        if odd:
            raise InputError(
                f"model {i} is of another architecture than the first: {len(odd)} names are in one "
                f"only ({', '.join(odd[:3])})"
            )
        for name, tensor in first.items():
            if tensor.shape != other[name].shape or tensor.dtype != other[name].dtype:
                raise InputError(
                    f"{name!r} of model {i} is {tuple(other[name].shape)} {other[name].dtype}, of "
                    f"the first {tuple(tensor.shape)} {tensor.dtype}"
                )


def read_weights(file: str | Path) -> State:
    """A checkpoint's state dict, masks multiplied in; tensors only."""
    return folded(read_state(existing(file, "weights")))


def write_weights(state: Weights, file: str | Path) -> Path:
    """Write a state dict, whole or not at all."""
    file = Path(file)
    with write_atomically(file) as handle:
        torch.save(dict(state), handle)
    return file
