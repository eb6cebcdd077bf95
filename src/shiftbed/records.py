"""Frozen records that pass between the parts of the package."""

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError, unknown

ShiftKind = Literal[
    "natural-dataset", "consistency", "adversarially-filtered", "corruption", "adversarial"
]
KINDS: tuple[str, ...] = get_args(ShiftKind)


@dataclass(frozen=True, kw_only=True)
class Shift:
    """From which ID settings the accuracy in which OOD setting is predicted.

    A pair over the same label space: ImageNet-A pairs with ``val`` on ImageNet-A's classes.
    Several sources make a plane instead of a line (shi2023, Section 4).

    >>> Shift(name="v2", kind="natural-dataset", source=("val",), target="imagenetv2").source
    ('val',)
    """

    name: str
    kind: str
    source: tuple[str, ...]
    """ID settings: one for a line, several for a plane."""
    target: str
    """OOD setting."""
    full_source: str | None = None
    """The whole ID set, where ``source`` is its class-subset twin."""
    threshold: float | None = None
    """taori2020's figures keep only models above this accuracy on the source."""
    knee: float | None = None
    """Where the published line breaks in two (ImageNet-A), as an accuracy on the source."""
    full_knee: float | None = None
    """The same on the whole ID set."""
    title: str = field(default="", compare=False)
    task: str = ""
    """The task whose domains it is between (wenzel2022); shifts of one task share their labels."""
    fit_on: str = ""
    """``COLUMN=PATTERN`` that baseline models must meet besides being in the fit set: where models
    are trained on different data, a line goes through those trained on its own ID data."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("kind of shift", self.kind, KINDS)
        if not self.source or not self.target:
            raise InputError(f"shift {self.name!r} needs at least one ID setting and an OOD one")

    def on_full_source(self) -> "Shift":
        """The same shift with the whole ID set as x instead of its class twin."""
        if self.full_source is None:
            raise InputError(f"shift {self.name!r} already uses the whole ID set as x")
        return Shift(
            name=self.name,
            kind=self.kind,
            source=(self.full_source,),
            target=self.target,
            knee=self.full_knee,
            title=self.title,
            task=self.task,
            fit_on=self.fit_on,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageResults:
    """Which models got which images of one setting right.

    ``images`` identifies the images: settings with equal ``images`` share them, in order.
    """

    images: str
    right: NDArray[np.bool_]
    """(models, images), in the order of the testbed's models."""
    known: NDArray[np.bool_]
    """(models,): whether the row of ``right`` holds results."""
