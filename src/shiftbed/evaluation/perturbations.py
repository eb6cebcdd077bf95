"""Perturbations as settings name them: what ``gaussian_noise:3`` and ``pgd-linf:2/255`` do.

A perturbation acts on pixels in [0, 1], after the model's resize and crop and before its
normalisation. Corruptions look at nothing but the pixels and the images' ids; attacks also need
the labels and the model's gradients. The corruptions' compiled kernels are loaded when one is
asked for.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.attacks import (
    PRESET_GROUPS,
    PRESETS,
    Attack,
    attack_from_name,
    is_attack,
)
from shiftbed.evaluation.attacks.names import FAMILIES
from shiftbed.evaluation.models import Model, TorchModel
from shiftbed.evaluation.models.from_python import find, shown
from shiftbed.evaluation.predict import Perturb
from shiftbed.labels import LabelPolicy

Floats = NDArray[np.float32]
Say = Callable[[str], None]
SEVERITIES = (1, 2, 3, 4, 5)
EVERY = "all"


class NotApplicable(InputError):
    """A perturbation that cannot be applied to this model or test set; others can."""

    def __init__(self, why: str) -> None:
        super().__init__(f"not applicable: {why}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Perturbation(ABC):
    """What is done to the pixels in a setting, and what belongs to its identity."""

    id: str
    """Canonical, as in the setting's id: ``fog:3``, ``pgd-linf:2/255``."""
    details: Mapping[str, Any]
    """Everything the result depends on but the images and the model, as JSON types."""
    kind: ClassVar[str]
    """The kind of shift it makes: corruption or adversarial."""
    needs_gradients: ClassVar[bool] = False

    def describe(self) -> dict[str, Any]:
        """For the identity of a cell and its record."""
        return {"id": self.id, "kind": self.kind, **self.details}

    @abstractmethod
    def on(self, model: Model, policy: LabelPolicy | None = None, say: Say = print) -> Perturb:
        """The perturbation of one model's pixels; ``say`` hears warnings, each once a call."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Corrupting(Perturbation):
    """A corruption in memory."""

    corrupt: Callable[[Floats, Sequence[str]], Floats]
    kind: ClassVar[str] = "corruption"

    def on(self, model: Model, policy: LabelPolicy | None = None, say: Say = print) -> Perturb:
        return lambda pixels, labels, ids: self.corrupt(pixels, ids)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Attacking(Perturbation):
    """An attack on a differentiable model, judged by the setting's own label policy."""

    attack: Attack
    kind: ClassVar[str] = "adversarial"
    needs_gradients: ClassVar[bool] = True

    def on(self, model: Model, policy: LabelPolicy | None = None, say: Say = print) -> Perturb:
        if not isinstance(model, TorchModel):
            raise NotApplicable(f"{self.id} needs gradients, and {model.id} has no torch module")
        victim = _judged_by(model, policy)

        def perturb(pixels: Floats, labels: NDArray[np.int64], ids: Sequence[str]) -> Floats:
            known = np.flatnonzero(labels >= 0)  # the others count for nothing
            if not len(known):
                return pixels
            found = self.attack(
                victim,
                np.ascontiguousarray(pixels[known]),
                labels[known],
                [ids[int(i)] for i in known],
            )
            for warning in dict.fromkeys(found.warnings):
                say(warning)
            changed = np.array(pixels)
            changed[known] = found.pixels
            return changed

        return perturb


def _judged_by(model: TorchModel, policy: LabelPolicy | None) -> TorchModel:
    """The model with the policy as its last layer: the attack must change what is judged."""
    if policy is None or not policy.steps:
        return model
    from shiftbed.evaluation.under_policy import UnderPolicy

    width = policy.steps[-1].width
    return replace(model, module=UnderPolicy(model.module, policy), classes=width)


def parse_perturbation(text: str, *, seed: int = 0, **options: Any) -> Perturbation:
    """The perturbation of that name.

    ``NAME:SEVERITY`` for corruptions (``frost`` is a folder of frost pictures), a name such as
    ``pgd-linf:2/255`` for attacks (options change its steps, restarts, …), and
    ``python:module:function:SEVERITY`` for a function of yours.

    >>> found = parse_perturbation("gaussian_noise:3", seed=1)
    >>> found.id, found.kind, found.describe()["seed"]
    ('gaussian_noise:3', 'corruption', 1)
    >>> parse_perturbation("pgd-linf:2/255", steps=20).id
    'pgd-linf:2/255?steps=20'
    """
    if is_attack(text):
        return _attack(text, seed, options)
    from shiftbed.evaluation.corruptions import NAMES, Corruption

    name, colon, severity = text.rpartition(":")
    if not colon:
        name, severity = text, ""
    frost = options.pop("frost", None)
    if options:
        raise unknown(f"option of {text}", next(iter(options)), ["frost"])
    if name.startswith("python:"):
        return _function(name, _severity(severity, text), seed)
    if name not in NAMES:
        head = text.partition(":")[0]
        raise unknown("perturbation", head, [*NAMES, *FAMILIES, *PRESETS, "python"])
    corrupt = Corruption(name=name, severity=_severity(severity, text), seed=seed, frost=frost)
    details: dict[str, Any] = {"seed": seed}
    if name == "frost":
        details["frost"] = "synthesized" if frost is None else _digest(frost)
    return Corrupting(id=corrupt.id, details=details, corrupt=corrupt)


def _severity(text: str, of: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"{of!r}: expected NAME:SEVERITY, such as fog:3")
    return int(text)


def _attack(text: str, seed: int, options: dict[str, Any]) -> Attacking:
    attack = attack_from_name(text, **options, **({"seed": seed} if seed else {}))
    details = {key: value for key, value in attack.describe().items() if key != "id"}
    return Attacking(id=attack.id, details=details, attack=attack)


def _function(name: str, severity: int, seed: int) -> Corrupting:
    """``python:MODULE:FUNCTION``, called as ``from_function`` says; its file is looked at."""
    from shiftbed.evaluation.corruptions import from_function

    found, facts = find(name.removeprefix("python:"))
    if not callable(found):
        raise InputError(f"perturbation {name!r} is not a function")
    own = f"python:{shown(name.removeprefix('python:'))}"
    corrupt = from_function(found, severity, seed=seed, name=own)
    details = {"seed": seed, "code": facts.get("code")}
    return Corrupting(id=corrupt.id, details=details, corrupt=corrupt)


@lru_cache(maxsize=8)
def _digest(folder: str) -> str:
    """Identity of a folder of pictures: names and contents."""
    if not Path(folder).is_dir():
        raise InputError(f"{folder}: no such folder of frost pictures")
    whole = hashlib.sha256()
    for path in sorted(Path(folder).iterdir()):
        if path.is_file():
            whole.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{whole.hexdigest()}"


def spelled_out(texts: Iterable[str]) -> list[str]:
    """Corruptions at severities, one by one, from what is shorter to write.

    >>> spelled_out(["fog:2-4", "snow:1,5"])
    ['fog:2', 'fog:3', 'fog:4', 'snow:1', 'snow:5']
    >>> len(spelled_out(["all"])), spelled_out(["greyscale", "all:1"])[:2]
    (96, ['greyscale:1', 'gaussian_noise:1'])
    >>> spelled_out(["python:mine:stripes:1,2"])
    ['python:mine:stripes:1', 'python:mine:stripes:2']
    """
    from shiftbed.evaluation.corruptions import NAMES, severities

    found: list[str] = []
    for text in texts:
        if text.startswith("python:"):  # python:module:function:1-5
            function, _, levels = text.rpartition(":")
            found += [f"{function}:{level}" for level in _levels(levels, text, most=None)]
            continue
        name, colon, levels = text.partition(":")
        if name != EVERY and name not in NAMES:
            raise unknown("corruption", name, [*NAMES, EVERY])
        wanted = _levels(levels, text) if colon else SEVERITIES
        for one in NAMES if name == EVERY else (name,):
            known = severities(one)
            strict = bool(colon) and name != EVERY  # fog:9 is a mistake, all:3 has no greyscale
            found += [f"{one}:{level}" for level in wanted if strict or level in known]
    return list(dict.fromkeys(found))


def _levels(text: str, of: str, most: int | None = SEVERITIES[-1]) -> list[int]:
    """``3``, ``1-5`` or ``1,3``; a function of yours may have any severity."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low, high = _severity(first, of), _severity(last if dash else first, of)
        if not low <= high or (most is not None and not 1 <= low <= high <= most):
            raise InputError(f"{of!r}: severities go from 1 to {most or 'any number, upwards'}")
        found += range(low, high + 1)
    return found


def attacks_spelled_out(texts: Iterable[str]) -> list[str]:
    """Names of attacks; a paper's name stands for the attacks it averages.

    >>> attacks_spelled_out(["taori2020", "fgsm-linf:1/255"])[-2:]
    ['taori2020:pgd.l2.eps0.5', 'fgsm-linf:1/255']
    """
    found = [one for text in texts for one in PRESET_GROUPS.get(text, (text,))]
    for name in found:
        if not is_attack(name):
            raise unknown("attack", name, [*FAMILIES, *PRESETS, *PRESET_GROUPS])
    return list(dict.fromkeys(found))
