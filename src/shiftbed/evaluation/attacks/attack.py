"""The attacks as records: what is varied, what identifies it, what it attacks, what comes out.

Nothing here needs torch until an attack is called, so that setting names can be read without it.
"""

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbed.errors import InputError, unknown

if TYPE_CHECKING:
    import torch

    from shiftbed.evaluation.attacks.running import Evidence


NORMS = ("linf", "l2")
_CHOICES = {
    "norm": NORMS,
    "target": ("label", "own"),
    "keep": ("worst", "last"),
    "loss": ("ce", "dlr"),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Attacked:
    """What an attack made of N images."""

    pixels: NDArray[np.float32]
    """(N, C, H, W), inside the ball and, if clamped, in [0, 1]."""
    logits: NDArray[np.float32]
    """(N, classes) of ``pixels``."""
    clean_logits: NDArray[np.float32]
    """(N, classes) of the images as they came."""
    fooled: NDArray[np.bool_]
    """(N,): the class of ``logits`` is not the attacked one (the label, or the model's own clean
    prediction)."""
    passes: NDArray[np.int64]
    """(N,): forward and backward passes spent on each image."""
    evidence: "Evidence"
    """Counts behind ``warnings``; those of several batches can be added."""
    warnings: tuple[str, ...]
    """Why the robust accuracy may be too high, in words; empty if nothing was seen."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A loss is raised by changing pixels within an ε-ball around each image."""

    norm: str
    """``linf`` or ``l2``, over all pixels and channels of an image."""
    eps: float
    """Radius of the ball, in pixels of [0, 1]."""
    restarts: int = 1
    """Runs from different random starts; later ones attack only what still resists."""
    random_start: bool = True
    """Start uniformly in the ball instead of at the image."""
    target: str = "label"
    """``label``: away from the true label. ``own``: away from the model's clean prediction."""
    clamp: bool = True
    """Whether pixels stay in [0, 1]."""
    early_stop: bool = False
    """Drop images from the batch once fooled. As many are fooled; they are just less far inside
    the wrong class."""
    keep: str = "worst"
    """``worst``: an image counts as fooled if any iterate was. ``last``: only the last iterate
    counts, as in plain PGD."""
    seed: int = 0
    kind: ClassVar[str] = ""
    skips_wrong: ClassVar[bool] = False
    """Whether images that are misclassified as they are are left alone."""

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            if name in self._options() and getattr(self, name) not in known:
                raise unknown(f"{name} of an attack", str(getattr(self, name)), known)
        if not 0 < self.eps < np.inf:
            raise InputError(f"eps of an attack must be above 0 and finite, got {self.eps}")
        if self.norm == "linf" and self.eps > 1:
            raise InputError(
                f"eps of an l∞ attack is in pixels of [0, 1], got {self.eps:g}; "
                f"write {self.eps:g}/255 for eight-bit steps"
            )
        for name in ("restarts", "steps"):
            if name in self._options() and getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.keep == "last" and self.early_stop:
            raise InputError("early_stop ends at the first fooling iterate: it needs keep='worst'")
        if self.restarts > 1 and not self.random_start:
            raise InputError(f"{self.restarts} restarts without a random start are all the same")

    @classmethod
    def _options(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))

    @property
    def family(self) -> str:
        """Its name without the size, as ``pgd-linf``; random starts are drawn under it."""
        return f"{self.kind}-{self.norm}"

    @property
    def id(self) -> str:
        """Setting name: ``family:size``, and what differs from the defaults.

        >>> PGD(norm="linf", eps=2 / 255).id
        'pgd-linf:2/255'
        >>> PGD(norm="l2", eps=0.5, target="own", clamp=False).id
        'pgd-l2:0.5?clamp=false&target=own'
        """
        changed = "&".join(
            f"{field.name}={text(getattr(self, field.name))}"
            for field in sorted(fields(self), key=lambda field: field.name)
            if field.name not in ("norm", "eps", "loss")
            and getattr(self, field.name) != field.default
        )
        return f"{self.family}:{size_text(self.eps)}" + (f"?{changed}" if changed else "")

    def describe(self) -> dict[str, Any]:
        """Everything about it, as JSON types, for the record beside a result."""
        return {"id": self.id} | {name: getattr(self, name) for name in self._options()}

    def __call__(
        self,
        model: Any,
        images: "NDArray[Any] | torch.Tensor",
        labels: "NDArray[np.int64] | torch.Tensor | Sequence[int] | None",
        ids: Sequence[str] | None = None,
        *,
        batch_size: int | None = None,
    ) -> Attacked:
        """Attack uint8 (N, H, W, C) or (N, H, W), or float (N, C, H, W) in [0, 1].

        ``model`` is a ``TorchModel``, or any differentiable function from float32 (N, C, H, W) in
        [0, 1] to (N, classes) logits, such as a module. ``labels`` may be None if the model's own
        predictions are attacked. What comes out are float32 pixels in any case: rounding to eight
        bits would undo a small perturbation. Without ids an image's position is its id.
        Random starts come from (seed, id, family, restart) alone, so an image gets the same start
        in any batch. The rest differs between batch sizes only as far as the model's arithmetic
        does: batched convolutions round differently, and the sign of a gradient near 0 may turn.
        """
        from shiftbed.evaluation.attacks.running import run

        return run(self, model, images, labels, ids, batch_size=batch_size)


@dataclass(frozen=True, kw_only=True)
class _FixedStep(Attack):
    """Steps of one size: x ← P(x + step · direction of ∇ log-loss).

    The direction is the sign (ℓ∞) or the unit vector (ℓ2), and P projects onto the ball and [0, 1].
    """

    step: float | None = None
    """None: what the attack has by default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step is not None and not 0 < self.step < np.inf:
            raise InputError(f"step of an attack must be above 0 and finite, got {self.step}")

    @property
    def step_size(self) -> float:
        return self.eps if self.step is None else self.step


@final
@dataclass(frozen=True, kw_only=True)
class PGD(_FixedStep):
    """Projected gradient ascent on the cross-entropy with steps of one size (madry2018).

    ``step`` is 3 ε/steps (ℓ∞) or 10 ε/steps (ℓ2) by default, taori2020's sizes at 100 steps.

    >>> f'{PGD(norm="linf", eps=0.5 / 255).step_size:.2e}'
    '5.88e-05'
    """

    steps: int = 100
    kind: ClassVar[str] = "pgd"

    @property
    def step_size(self) -> float:
        if self.step is not None:
            return self.step
        return (3 if self.norm == "linf" else 10) * self.eps / self.steps


@final
@dataclass(frozen=True, kw_only=True)
class FGSM(_FixedStep):
    """One step, of size ε by default, along the sign (ℓ∞) or the direction (ℓ2) of the gradient
    (goodfellow2015)."""

    random_start: bool = False
    kind: ClassVar[str] = "fgsm"


@final
@dataclass(frozen=True, kw_only=True)
class APGD(Attack):
    """Auto-PGD: steps start at 2 ε and are halved where progress stalls (croce2020, Algorithm 1).

    Images that are misclassified as they are are not attacked. ``loss`` is the cross-entropy or
    the difference of logits ratio (Section 4.2).

    >>> APGD(norm="l2", eps=0.5, loss="dlr").id
    'apgd-dlr-l2:0.5'
    """

    loss: str = "ce"
    steps: int = 100
    rho: float = 0.75
    """A step is halved if the loss rose in less than this share of the steps since the last
    check point."""
    kind: ClassVar[str] = "apgd"
    skips_wrong: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.rho < 1:
            raise InputError(f"rho must lie between 0 and 1, got {self.rho}")
        if self.keep == "last":
            raise InputError("APGD keeps its best iterate: keep='last' does not apply to it")

    @property
    def family(self) -> str:
        return f"{self.kind}-{self.loss}-{self.norm}"


def text(value: object) -> str:
    """An option's value as it stands in a name."""
    if isinstance(value, bool):
        return str(value).lower()
    return size_text(value) if isinstance(value, float) else str(value)


_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_SIZE = re.compile(rf"({_NUMBER})(?:/({_NUMBER}))?")


def read_size(text: str) -> float:
    """A decimal number or a quotient of two."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise InputError(f"size {text!r} of an attack must be a number such as 0.1 or 0.5/255")
    over = float(found[2] or 1)
    value = float(found[1]) / over if over else math.inf
    if not 0 < value < math.inf:
        raise InputError(f"size {text!r} of an attack must be above 0 and finite")
    return value


def size_text(value: float) -> str:
    """The one spelling of a size: a short decimal, else a short multiple of 1/255, else all digits.

    >>> size_text(0.10), size_text(0.5 / 255), size_text(2 / 255), size_text(1 / 7)
    ('0.1', '0.5/255', '2/255', '0.14285714285714285')
    >>> size_text(8 / 255) == size_text(read_size("0.031372549019607843"))
    True
    """
    short = f"{value:.4g}"
    if math.isclose(float(short), value, rel_tol=1e-12):
        return short
    eights = f"{value * 255:.6g}"
    if math.isclose(float(eights) / 255, value, rel_tol=1e-12):
        return f"{eights}/255"
    return repr(float(value))


def balanced_subset(
    labels: ArrayLike, share: float, seed: int, ids: Sequence[str]
) -> NDArray[np.int64]:
    """Rows of a class-balanced subset, ascending: of a class with n examples, share · n (rounded,
    at least one).

    taori2020 attacked most models on 10 % of the set. Which examples are taken depends on their
    ids and the seed alone, not on the order of the rows, nor on the other classes; a smaller share
    is part of a larger one.

    >>> balanced_subset([0, 0, 0, 0, 1, 1], 0.5, seed=0, ids=list("abcdef")).size
    3
    """
    classes = np.asarray(labels)
    if classes.ndim != 1 or len(classes) != len(ids):
        raise InputError(f"{len(ids)} ids do not go with labels of shape {classes.shape}")
    if not np.issubdtype(classes.dtype, np.integer):
        raise InputError(f"labels must be whole numbers, got {classes.dtype}")
    if not 0 < share <= 1:
        raise InputError(f"share of a subset must be above 0 and at most 1, got {share}")
    if len(set(ids)) != len(ids):
        raise InputError("ids of a subset must be different from each other")
    keys = [f"{seed}\0{example}".encode() for example in ids]
    drawn = [hashlib.blake2b(key, digest_size=8, person=b"subset").digest() for key in keys]
    ranks = np.frombuffer(b"".join(drawn), dtype="<u8")
    order = np.lexsort((ranks, classes))
    _, counts = np.unique(classes, return_counts=True)
    within = np.arange(len(classes)) - np.repeat(np.cumsum(counts) - counts, counts)
    taken = np.maximum(1, np.floor(share * counts + 0.5).astype(np.int64))
    return np.sort(order[within < np.repeat(taken, counts)]).astype(np.int64)
