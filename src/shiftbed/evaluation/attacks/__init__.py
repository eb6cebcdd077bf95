"""Attacks: images changed within a small ball so that a model errs on them.

An attack is a record; calling it attacks a batch. ε is measured on pixels in [0, 1], and gradients
go through the model's own normalisation.

>>> import torch
>>> attack = attack_from_name("pgd-linf:0.5/255", steps=20)
>>> attack.id
'pgd-linf:0.5/255?steps=20'
>>> weights = torch.linspace(-1, 1, 48).view(1, 48)
>>> halves = lambda x: torch.cat([x.flatten(1) @ weights.T, -(x.flatten(1) @ weights.T)], 1)
>>> import numpy as np
>>> grey = np.full((2, 3, 4, 4), 0.5, np.float32)
>>> found = attack(halves, grey, np.array([0, 1]))
>>> found.fooled.tolist(), float(abs(found.pixels - grey).max()) <= 0.5 / 255 + 1e-6
([True, True], True)
"""

from shiftbed.evaluation.attacks.attack import APGD, FGSM, PGD, Attack, Attacked, balanced_subset
from shiftbed.evaluation.attacks.presets import (
    FAMILIES,
    PRESET_GROUPS,
    PRESETS,
    attack_from_name,
    is_attack,
)

__all__ = [
    "APGD",
    "FAMILIES",
    "FGSM",
    "PGD",
    "PRESETS",
    "PRESET_GROUPS",
    "Attack",
    "Attacked",
    "attack_from_name",
    "balanced_subset",
    "is_attack",
]
