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
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.attacks import (
    FAMILIES,
    PRESET_GROUPS,
    PRESETS,
    Attack,
    attack_from_name,
    is_attack,
)
from shiftbed.evaluation.models import Model, TorchModel
from shiftbed.evaluation.models.dependencies import source_of
from shiftbed.evaluation.models.from_python import code_of, find, shown
from shiftbed.evaluation.predict import Perturb
from shiftbed.foreign_code import MINE, Named, Origin
from shiftbed.labels import LabelPolicy
from shiftbed.places import local
from shiftbed.records import Perturbation

if TYPE_CHECKING:
    from shiftbed.evaluation.corruptions.corruption import Corruption, FunctionCorruption

Floats = NDArray[np.float32]
Say = Callable[[str], None]
SEVERITIES = (1, 2, 3, 4, 5)
EVERY = "all"
WITHOUT: Mapping[str, tuple[str, ...]] = {
    EVERY: (),
    "taori2020": ("glass_blur",),
    "wenzel2022": ("glass_blur", "frost", "greyscale"),
}
"""Names for many corruptions, and those that are not among them. taori2020 ran 18 and greyscale in
memory (Appendix E.3); wenzel2022 has 17 (Section 2): the 19 of ImageNet-C but the two that its
released code leaves out."""


class NotApplicable(InputError):
    """A perturbation that cannot be applied to this model or test set; others can."""

    def __init__(self, why: str) -> None:
        super().__init__(f"not applicable: {why}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Perturbing(ABC):
    """A perturbation that can be carried out; ``record`` is what it is as a value."""

    record: Perturbation
    again: tuple[str, int, Mapping[str, Any]] | None = None
    """Its text, seed and options, by which a worker makes it once more."""
    own: "OwnFunction | None" = None
    """The function that its text names."""
    needs_gradients: ClassVar[bool] = False

    def describe(self) -> dict[str, Any]:
        """For the identity of a cell and its record."""
        return {"id": self.record.id, "kind": self.record.kind, **self.record.details}

    def __reduce__(self) -> Any:
        if self.again is None:
            return object.__reduce_ex__(self, 2)
        text, seed, options = self.again
        return partial(parse_perturbation, text, seed=seed, **options), ()

    @property
    def code(self) -> list[Named]:
        """What it would execute by name."""
        return [] if self.own is None else [(self.own.origin, f"python:{self.own.name}")]

    def load(self) -> None:
        """Import what it names, where that is not done yet; refused where nobody asked for it."""
        if self.own is not None:
            _ = self.own.function

    @abstractmethod
    def on(self, model: Model, policy: LabelPolicy | None = None, say: Say = print) -> Perturb:
        """The perturbation of one model's pixels; ``say`` hears warnings, each once a call."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Corrupting(Perturbing):
    """A corruption in memory."""

    corrupt: Callable[[Floats, Sequence[str]], Floats]

    def on(self, model: Model, policy: LabelPolicy | None = None, say: Say = print) -> Perturb:
        self.load()
        return lambda pixels, labels, ids: self.corrupt(pixels, ids)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Attacking(Perturbing):
    """An attack on a differentiable model, judged by the setting's own label policy."""

    attack: Attack
    needs_gradients: ClassVar[bool] = True

    def on(self, model: Model, policy: LabelPolicy | None = None, say: Say = print) -> Perturb:
        if not isinstance(model, TorchModel):
            raise NotApplicable(
                f"{self.record.id} needs gradients, and {model.id} has no torch module"
            )
        victim = model
        if policy is not None and policy.steps:  # what is judged must be what is attacked
            from shiftbed.evaluation.models.modules import UnderPolicy

            under = UnderPolicy(model.module, policy)
            victim = replace(model, module=under, classes=policy.steps[-1].width)

        def perturb(pixels: Floats, labels: NDArray[np.int64], ids: Sequence[str]) -> Floats:
            known = np.flatnonzero(labels >= 0)  # the others count for nothing
            if not len(known):
                return pixels
            x, some = np.ascontiguousarray(pixels[known]), [ids[int(i)] for i in known]
            found = self.attack(victim, x, labels[known], some)
            for warning in dict.fromkeys(found.warnings):
                say(warning)
            changed = np.array(pixels)
            changed[known] = found.pixels
            return changed

        return perturb


@dataclass(frozen=True, eq=False)
class OwnFunction:
    """``MODULE:FUNCTION`` as a corruption; imported when it is first used."""

    name: str
    origin: Origin

    @cached_property
    def function(self) -> Callable[..., Any]:
        found = find(self.name, self.origin)[0]
        if not callable(found):
            raise InputError(f"perturbation 'python:{self.name}' is not a function")
        return found  # type: ignore[no-any-return]

    @property
    def code(self) -> dict[str, str] | None:
        source = source_of(self.name.rpartition(":")[0])
        return None if source is None else code_of(source)

    def __call__(self, *given: Any) -> Any:
        return self.function(*given)


def parse_perturbation(
    text: str, *, seed: int = 0, origin: Origin = MINE, **options: Any
) -> Perturbing:
    """The perturbation of that name.

    ``NAME:SEVERITY`` for corruptions (``frost`` is a folder of frost pictures), a name such as
    ``pgd-linf:2/255`` for attacks (options change its steps, restarts, …), and
    ``python:module:function:SEVERITY`` for a function of yours. A function that a file names (its
    ``origin``) is imported when it is first used, and only if that is allowed.

    >>> found = parse_perturbation("gaussian_noise:3", seed=1)
    >>> found.record.severity, found.describe()
    (3, {'id': 'gaussian_noise:3', 'kind': 'corruption', 'seed': 1})
    >>> parse_perturbation("pgd-linf:2/255", steps=20).record.id
    'pgd-linf:2/255?steps=20'
    """
    again = (text, seed, {**options, "origin": origin} if origin.file else dict(options))
    if is_attack(text):
        attack = attack_from_name(text, **options, **({"seed": seed} if seed else {}))
        return replace(of_attack(attack), again=again)
    from shiftbed.evaluation.corruptions import NAMES, Corruption, from_function

    name, colon, severity = text.rpartition(":")
    if not colon:
        name, severity = text, ""
    frost = options.pop("frost", None)
    if options:
        raise unknown(f"option of {text}", next(iter(options)), ["frost"])
    if name.startswith("python:"):
        own = OwnFunction(name.removeprefix("python:"), origin)
        if not origin.file:
            _ = own.function  # a mistake is said at once
        called = f"python:{shown(own.name)}"
        mine = from_function(own, _severity(severity, text), seed=seed, name=called)
        return replace(of_corruption(mine, code=own.code), again=again, own=own)
    if name not in NAMES:
        head = text.partition(":")[0]
        raise unknown("perturbation", head, [*NAMES, *FAMILIES, *PRESETS, "python"])
    made = Corruption(name=name, severity=_severity(severity, text), seed=seed, frost=frost)
    return replace(of_corruption(made), again=again)


def as_perturbing(what: Any, *, seed: int = 0, origin: Origin = MINE, **options: Any) -> Perturbing:
    """A perturbation from its text, or from a ``Corruption`` or an attack."""
    from shiftbed.evaluation.corruptions import Corruption
    from shiftbed.evaluation.corruptions.corruption import FunctionCorruption

    if isinstance(what, str):
        return parse_perturbation(what, seed=seed, origin=origin, **options)
    if isinstance(what, Perturbing):
        return what
    if isinstance(what, Corruption | FunctionCorruption):
        return of_corruption(what)
    if isinstance(what, Attack):
        return of_attack(what)
    raise InputError(
        f"a perturbation must be a text such as 'fog:3', a Corruption or an attack, got {what!r}"
    )


def of_corruption(corrupt: "Corruption | FunctionCorruption", **details: Any) -> Corrupting:
    """A corruption as a perturbation."""
    from shiftbed.evaluation.corruptions import Corruption

    known: dict[str, Any] = {"seed": corrupt.seed, **details}
    if corrupt.name == "frost":  # no function of one's own is called that
        assert isinstance(corrupt, Corruption)
        known["frost"] = "synthesized" if corrupt.frost is None else _digest(str(corrupt.frost))
    record = Perturbation(
        kind="corruption",
        name=corrupt.name,
        id=corrupt.id,
        severity=corrupt.severity,
        details=known,
    )
    return Corrupting(record=record, corrupt=corrupt)


def of_attack(attack: Attack) -> Attacking:
    """An attack as a perturbation."""
    details = {key: value for key, value in attack.describe().items() if key != "id"}
    record = Perturbation(kind="adversarial", name=attack.family, id=attack.id, details=details)
    return Attacking(record=record, attack=attack)


def _severity(text: str, of: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"{of!r}: expected NAME:SEVERITY, such as fog:3")
    return int(text)


@lru_cache(maxsize=8)
def _digest(folder: str) -> str:
    """Identity of a folder of pictures: names and contents."""
    place = local(folder, "frost")
    if not place.is_dir():
        raise InputError(f"{folder}: no such folder of frost pictures")
    whole = hashlib.sha256()
    for path in sorted(place.iterdir()):
        if path.is_file():
            whole.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{whole.hexdigest()}"


def spelled_out(texts: Iterable[str]) -> list[str]:
    """Corruptions at severities, one by one, from what is shorter to write.

    >>> spelled_out(["fog:2-4", "snow:1,5"])
    ['fog:2', 'fog:3', 'fog:4', 'snow:1', 'snow:5']
    >>> len(spelled_out(["all"])), spelled_out(["greyscale", "all:1"])[:2]
    (96, ['greyscale:1', 'gaussian_noise:1'])
    >>> len(spelled_out(["wenzel2022"])), len(spelled_out(["wenzel2022:3"]))
    (85, 17)
    >>> len(spelled_out(["taori2020"]))
    91
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
        many = name in WITHOUT
        if not many and name not in NAMES:
            raise unknown("corruption", name, [*NAMES, *WITHOUT])
        wanted = _levels(levels, text) if colon else SEVERITIES
        for one in (one for one in NAMES if one not in WITHOUT[name]) if many else (name,):
            known = severities(one)
            strict = bool(colon) and not many  # fog:9 is a mistake, all:3 has no greyscale
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
