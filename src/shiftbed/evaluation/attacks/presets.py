"""Attacks by name, and the papers' own."""

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.attacks.attack import (
    APGD,
    FGSM,
    NORMS,
    PGD,
    Attack,
    read_size,
    size_text,
)  # fmt: skip

FAMILIES: Mapping[str, Callable[..., Attack]] = types.MappingProxyType(
    {f"pgd-{norm}": PGD for norm in NORMS}
    | {f"fgsm-{norm}": FGSM for norm in NORMS}
    | {f"apgd-{loss}-{norm}": APGD for loss in ("ce", "dlr") for norm in NORMS}
)
"""What may stand before the colon."""


def is_attack(name: str) -> bool:
    """Whether a perturbation's name is that of an attack, sizes and options unread.

    >>> is_attack("apgd-ce-l2:0.5"), is_attack("gaussian_noise:3")
    (True, False)
    """
    return name.partition(":")[0] in FAMILIES or name in PRESETS


def attack_from_name(name: str, **overrides: Any) -> Attack:
    """The attack of a setting name, ``FAMILY:SIZE[?OPTION=VALUE&…]``, or a preset.

    >>> attack_from_name("apgd-dlr-linf:8/255", restarts=3).id
    'apgd-dlr-linf:8/255?restarts=3'
    >>> attack_from_name("pgd-l2:.50?target=own&steps=20").id
    'pgd-l2:0.5?steps=20&target=own'
    >>> attack_from_name("taori2020:pgd.linf.eps2").id
    'pgd-linf:2/255?keep=last'
    """
    if (preset := PRESETS.get(name)) is not None:
        made = {field.name: getattr(preset, field.name) for field in fields(preset)}
        return _made(type(preset), name, made | overrides)
    family, colon, rest = name.partition(":")
    if family not in FAMILIES:
        raise unknown("attack", name, [*FAMILIES, *PRESETS])
    size, _, query = rest.partition("?")
    if not colon or not size:
        raise InputError(f"attack {name!r} needs a size: {family}:0.5/255 or {family}:0.1")
    kind = FAMILIES[family]
    parts = family.split("-")
    options: dict[str, Any] = {"norm": parts[-1], "eps": read_size(size)}
    if kind is APGD:
        options["loss"] = parts[1]
    return _made(kind, name, options | _read(query, name, kind) | overrides)


def _made(kind: Callable[..., Attack], name: str, options: dict[str, Any]) -> Attack:
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            raise unknown(f"option of {name}", option, known)
    return kind(**options)


def _read(query: str, name: str, kind: Callable[..., Attack]) -> dict[str, Any]:
    """The part after the question mark, each value by its option's type."""
    readers = {field.name: _READERS[field.type] for field in fields(kind)}  # type: ignore[arg-type]
    found: dict[str, Any] = {}
    for part in query.split("&") if query else ():
        option, _, value = part.partition("=")
        if option not in readers or option in ("norm", "eps", "loss"):
            raise unknown(f"option of {name}", option, sorted(readers))
        if option in found:
            raise InputError(f"option {option} stands twice in {name!r}")
        try:
            found[option] = readers[option](value)
        except InputError as error:
            raise InputError(f"{option} in {name!r}: {error}") from None
        except (ValueError, KeyError):
            raise InputError(f"{option}={value} in {name!r} cannot be read") from None
    return found


_READERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: read_size,
    float | None: read_size,
    bool: {"true": True, "false": False}.__getitem__,
}


def _presets() -> dict[str, Attack]:
    """Names to attacks: ``PAPER:ITS NAME``, and ``PAPER-released:…`` where its code differs.

    taori2020, Appendix E.2: 100 steps from a random start; step sizes are the defaults of PGD, and
    the last iterate counts. It attacked most models on 10 % of every class: ``share = 0.1``. Its
    released code has also ``target=own`` and ``clamp=false``, and ε·size/224 in ℓ2, which is ε for
    images of 224 pixels.
    wenzel2022, Appendix G: APGD, ℓ2, sizes 0.001 and 0.02, the loss unsaid; 100 steps. Taken
    literally those are tiny; its released presets have sizes s/255 for ℓ∞ and s/255·224√3 for ℓ2
    (the ℓ2 length of s/255 in every channel of 224 × 224 pixels).
    """
    released: dict[str, Any] = {"target": "own", "clamp": False}
    found: dict[str, Attack] = {
        f"{paper}:pgd.{norm}.eps{text}": PGD(norm=norm, eps=eps, keep="last", **more)
        for paper, more in (("taori2020", {}), ("taori2020-released", released))
        for norm, text, eps in (
            ("linf", "0.5", 0.5 / 255),
            ("linf", "2", 2 / 255),
            ("l2", "0.1", 0.1),
            ("l2", "0.5", 0.5),
        )
    }
    for eps in (0.001, 0.02):
        found[f"wenzel2022:l2.{eps:g}"] = APGD(norm="l2", eps=eps)
    for size in (0.005, 0.05, 0.1, 0.15, 0.3, 0.5):
        for loss in ("ce", "dlr"):
            for norm, factor in (("linf", 1.0), ("l2", 224 * math.sqrt(3))):
                name = f"wenzel2022-released:{loss}.{norm}.{size_text(size)}"
                found[name] = APGD(norm=norm, eps=size / 255 * factor, loss=loss)
    return found


PRESETS: Mapping[str, Attack] = types.MappingProxyType(_presets())
"""The published attacks by ``PAPER:NAME``."""

PRESET_GROUPS: Mapping[str, tuple[str, ...]] = types.MappingProxyType(
    {
        paper: tuple(name for name in PRESETS if name.startswith(f"{paper}:"))
        for paper in ("taori2020", "wenzel2022")
    }
)
"""Attacks that a paper averages: the mean of their errors is its number."""
