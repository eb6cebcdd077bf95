"""Perturbed settings of a testbed.toml: in memory, or read from disk; never one for the other.

[[settings]]
test_set = "val"
corruptions = ["gaussian_noise:1-5", "fog:3"]    # or "all:3", "wenzel2022"; the clean one first
attacks = ["pgd-linf:2/255"]
share = 0.1                                      # of every class; seed = 0
frost = "frost-pictures"                         # a folder, instead of synthesized frost
attack_options = {steps = 20}

[[settings]]
test_set = "val"
perturbation = "python:mine:stripes:2"           # this one alone

[[test_sets]]                                    # NAME/SEVERITY/CLASS/FILE, as `shiftbed corrupt`
path = "val-c"                                   # and ImageNet-C: val+NAME:SEVERITY@disk
corrupted = "val"

[[test_sets]]                                    # a folder of classes: val+stylized@disk
name = "stylized"
path = "stylized-val"
corrupted = "val"
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shiftbed.engine.plan import SettingPlan, TestSetSpec, corrupted_copy
from shiftbed.errors import InputError
from shiftbed.foreign_code import MINE, Origin
from shiftbed.records import Perturbation, Shift

KEYS = ("perturbation", "corruptions", "attacks", "disk", "frost", "attack_options")


def take(table: dict[str, Any], near: Path = Path()) -> dict[str, Any]:
    """What a setting's table says of perturbations, taken out of it; paths relative to ``near``."""
    wanted = {key: table.pop(key) for key in KEYS if key in table}
    if "frost" in wanted:
        wanted["frost"] = str(near / str(wanted["frost"]))
    if "perturbation" in wanted and "id" in table:  # its own name, not that of the clean setting
        wanted["id"] = str(table.pop("id"))
    return wanted


def share_of(table: dict[str, Any]) -> tuple[float | None, int]:
    """``share`` and ``seed`` of a setting's table, taken out of it."""
    share, seed = table.pop("share", None), table.pop("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"seed must be a whole number from 0, got {seed!r}")
    if share is None:
        return None, seed
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise InputError(f"share must be above 0 and at most 1, got {share!r}")
    return float(share), seed


def expand(
    base: SettingPlan,
    wanted: Mapping[str, Any],
    test_sets: Iterable[TestSetSpec] = (),
    origin: Origin = MINE,
) -> list[SettingPlan]:
    """A setting with its perturbations: itself first, unless one perturbation alone is wanted."""
    found = _expanded(base, wanted, test_sets, origin) if wanted else [base]
    one = base.setting
    if one.seed and one.share is None and not any(plan.perturb for plan in found):
        raise InputError(f"setting {base.id!r} has a seed, but nothing is drawn")
    return found


def _expanded(
    base: SettingPlan,
    wanted: Mapping[str, Any],
    test_sets: Iterable[TestSetSpec],
    origin: Origin,
) -> list[SettingPlan]:
    if base.setting.perturbation is not None:
        raise InputError(f"setting {base.id!r} is perturbed already, on disk")
    alone = wanted.get("perturbation")
    if alone is not None and {"corruptions", "attacks", "disk"} & wanted.keys():
        raise InputError("a setting has a perturbation, or corruptions, attacks and disk, not both")
    if alone is not None and not isinstance(alone, str):
        raise InputError(f"perturbation must be a name such as 'fog:3', got {alone!r}")
    found = [] if alone is not None else [base]
    names = _names(wanted) if alone is None else [alone]
    found += [_perturbed(base, name, wanted, origin) for name in names]
    if wanted.get("disk"):
        found += _from_disk(base, test_sets)
    if found == [base]:
        raise InputError(f"setting {base.id!r}: no perturbation goes with {sorted(wanted)}")
    done = [plan.perturb.record for plan in found if plan.perturb is not None]
    if "frost" in wanted and not any(one.name == "frost" for one in done):
        raise InputError(f"setting {base.id!r} has frost pictures, but no frost")
    if "attack_options" in wanted and not any(one.kind == "adversarial" for one in done):
        raise InputError(f"setting {base.id!r} has attack_options, but no attack")
    return found


def _names(wanted: Mapping[str, Any]) -> list[Any]:
    """The perturbations wanted, one by one: texts, or corruptions and attacks as objects."""
    from shiftbed.evaluation.perturbations import attacks_spelled_out, spelled_out

    spell = {"corruptions": spelled_out, "attacks": attacks_spelled_out}
    found: list[Any] = []
    for key, one_by_one in spell.items():
        names = wanted.get(key, [])
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise InputError(f"{key} must be a list of names, got {names!r}")
        for name in names:
            if isinstance(name, (list, dict)):
                raise InputError(f"{key} must be a list of names, got {names!r}")
            found += one_by_one([name]) if isinstance(name, str) else [name]
    return list(dict.fromkeys(found))


def _perturbed(
    base: SettingPlan, name: Any, wanted: Mapping[str, Any], origin: Origin
) -> SettingPlan:
    from shiftbed.evaluation.attacks import is_attack
    from shiftbed.evaluation.perturbations import as_perturbing

    options: dict[str, Any] = {}
    if isinstance(name, str) and is_attack(name):
        given = wanted.get("attack_options", {})
        if not isinstance(given, dict):
            raise InputError(f"attack_options must be a table such as {{steps = 9}}, got {given!r}")
        options = dict(given)
    elif isinstance(name, str) and name.partition(":")[0] == "frost" and "frost" in wanted:
        options = {"frost": wanted["frost"]}
    found = as_perturbing(name, seed=base.setting.seed, origin=origin, **options)
    setting = base.setting.perturbed(found.record, name=wanted.get("id") or "")
    return replace(base, setting=setting, perturb=found)


def _from_disk(base: SettingPlan, test_sets: Iterable[TestSetSpec]) -> list[SettingPlan]:
    """The settings of ``base``'s test set that are on disk, under its label policy and share."""
    found = [one for one in test_sets if one.clean == base.images.name]
    if not found:
        raise InputError(
            f"no [[test_sets]] is corrupted = {base.images.name!r}, so disk has nothing to add"
        )
    return [
        replace(base, setting=base.setting.perturbed(one.perturbation), images=one)
        for one in found
        if one.perturbation is not None
    ]


def on_disk(table: dict[str, Any], path: str) -> list[TestSetSpec]:
    """The test sets of a ``[[test_sets]]`` table with ``corrupted``: one folder, or a tree."""
    from shiftbed.evaluation.corrupt_tree import corrupted_folders

    clean, name = table.pop("corrupted"), table.pop("name", None)
    if not isinstance(clean, str) or not clean:
        raise InputError(
            f"corrupted must be the name of the clean test set, such as 'val', got {clean!r}"
        )
    if name is not None:
        own = Perturbation(kind="corruption", name=str(name), id=str(name), on_disk=True)
        return [corrupted_copy(clean, own, path, table)]
    found = []
    for key, folder in corrupted_folders(path).items():
        called, _, severity = key.rpartition(":")
        own = Perturbation(
            kind="corruption", name=called, id=key, severity=int(severity), on_disk=True
        )
        found.append(corrupted_copy(clean, own, str(folder), table))
    return found


def with_automatic(shifts: Sequence[Shift], settings: Sequence[SettingPlan]) -> tuple[Shift, ...]:
    """The shifts, and one from its clean setting to every perturbed one that none of them has."""
    names = {shift.name for shift in shifts}
    pairs = {(shift.source, shift.target) for shift in shifts}
    found = list(shifts)
    for one in settings:
        clean = one.setting.clean
        if clean is None or one.id in names or ((clean.id,), one.id) in pairs:
            continue
        kind = one.setting.kind
        found.append(Shift(name=one.id, kind=kind, source=(clean.id,), target=one.id))
    return tuple(found)


def difference(record: Mapping[str, Any], details: Mapping[str, Any] | None) -> str:
    """Where a cell's record and a perturbation differ, in words.

    >>> difference({"perturbation": {"id": "fog:3", "seed": 0}}, {"id": "fog:3", "seed": 1})
    'seed 0, now 1'
    """
    old, new = record.get("perturbation") or {}, details or {}
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return "; ".join(f"{key} {old.get(key)}, now {new.get(key)}" for key in changed)
