"""Answers of published CIFAR-10 networks to the study's test images, and to CIFAR-10.1."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from examples.imagenet_cifar10.judged import Answers
from shiftbed.errors import InputError

__all__ = ["Published", "read_published"]

Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Published:
    """Who was right: (networks, images) on the study's test images and on OOD sets by name."""

    id: Bools
    labels: NDArray[np.int64]
    ood: dict[str, Bools] = field(default_factory=dict)

    def line_of(self, answers: Answers, shift: str) -> Answers:
        """The same judged networks, against these instead of the study's own line."""
        if self.ood[shift].shape[1] != answers.ood.shape[1]:
            raise InputError(
                f"{shift}: {answers.ood.shape[1]:,} images, the published networks answered "
                f"{self.ood[shift].shape[1]:,}: another version of it?"
            )
        return replace(answers, line_id=self.id, line_ood=self.ood[shift])


def read_published(path: Path, rows: NDArray[np.int64]) -> Published:
    """``rows`` are the study's images among CIFAR-10's 10,000 test images, in their order.

    The file has ``original`` (networks, 10,000) and ``v6`` (CIFAR-10.1), classes that were
    answered, and ``labels_original``, ``labels_v6``.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            held = {key: file[key] for key in ("original", "labels_original", "v6", "labels_v6")}
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: expected original, v6 and their labels: {error}") from None
    if held["original"].shape[1] != 10_000:
        raise InputError(f"{path}: expected answers to CIFAR-10's 10,000 test images")
    labels = held["labels_original"][rows]
    return Published(
        id=held["original"][:, rows] == labels,
        labels=labels.astype(np.int64),
        ood={"cifar-10.1": held["v6"] == held["labels_v6"]},
    )
