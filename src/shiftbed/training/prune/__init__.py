"""Pruning with torch's own masks: six methods, global or layerwise, exact to the weight.

=================  ===============================================================  ===============
method             what happens                                                     fridovich2022
=================  ===============================================================  ===============
magnitude          mask once, fine-tune (``at``)                                    traditional
gradual            mask a little at a time (``start``, ``stop``, ``prunings``)      traditional
lottery-ticket     mask, rewind weights and learning rate (``rewind``, ``rounds``)  rewinding
lr-rewinding       mask, rewind the learning rate (``rewind``, ``rounds``)          rewinding
edge-popup         learn masks, never weights (``init``, ``seed``)                  initialization
biprop             the same with binary weights (``init``, ``seed``)                initialization
=================  ===============================================================  ===============

All take ``sparsity``, ``scope`` (``global`` or ``layerwise``) and ``skip``, names of layers to
leave dense. Each is a ``Hook``: it acts on whatever has ``network``, ``optimiser``, ``schedule``,
``step`` and ``steps``.
"""

from collections.abc import Callable
from typing import Any

from shiftbed.errors import InputError, unknown
from shiftbed.training.objective import Hook
from shiftbed.training.prune.masks import (
    SCOPES,
    Sparsity,
    check_sparsity,
    dense,
    folded,
    restore,
    settle,
    sparsity_of,
)
from shiftbed.training.prune.popup import Popup
from shiftbed.training.prune.schedules import Gradual, Magnitude, Rewinding

__all__ = [
    "METHODS",
    "SCOPES",
    "Sparsity",
    "check_sparsity",
    "dense",
    "folded",
    "make",
    "restore",
    "settle",
    "sparsity_of",
]

METHODS: dict[str, tuple[Callable[..., Hook], dict[str, Any], tuple[str, ...]]] = {
    "magnitude": (Magnitude, {}, ("at",)),
    "gradual": (Gradual, {}, ("start", "stop", "prunings")),
    "lottery-ticket": (Rewinding, {"weights": True}, ("rewind", "rounds")),
    "lr-rewinding": (Rewinding, {"weights": False}, ("rewind", "rounds")),
    "edge-popup": (Popup, {"binary": False}, ("init", "seed")),
    "biprop": (Popup, {"binary": True}, ("init", "seed")),
}
"""Method → its hook, what the name fixes, and its own options."""


def make(*, method: str, sparsity: float, scope: str = "global", **options: Any) -> Hook:
    """A pruning hook from a recipe's table.

    >>> make(method="gradual", sparsity=0.8, prunings=10).facts()["pruning"]
    'gradual'
    >>> make(method="biprop", sparsity=0.8, rounds=2)
    Traceback (most recent call last):
    ...
    shiftbed.errors.InputError: unknown option of biprop 'rounds'; known: init, seed, skip
    """
    if method not in METHODS:
        raise unknown("pruning method", str(method), METHODS)
    hook, fixed, own = METHODS[method]
    for key, value in options.items():
        if key not in (*own, "skip"):
            raise unknown(f"option of {method}", key, (*own, "skip"))
        if key == "skip" and not _names(value):
            raise InputError(f"prune.skip must be a list of layer names, got {value!r}")
    return hook(sparsity=sparsity, scope=scope, **fixed, **options)


def _names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
