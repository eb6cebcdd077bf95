"""Perturbed settings of a testbed.toml: in memory, or read from disk; never one for the other.

[[settings]]
test_set = "val"
corruptions = ["gaussian_noise:1-5", "fog:3"]    # or "all", "all:3"; the clean setting goes first
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

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbed.engine.spec import SettingSpec, TestSetSpec
from shiftbed.errors import InputError
from shiftbed.records import Shift

if TYPE_CHECKING:
    from shiftbed.evaluation.perturbations import Perturbation


KEYS = ("perturbation", "corruptions", "attacks", "disk", "frost", "attack_options")
DISK = "@disk"


def take(table: dict[str, Any], near: Path = Path()) -> dict[str, Any]:
    """What a setting's table says of perturbations, taken out of it; paths relative to ``near``."""
    wanted = {key: table.pop(key) for key in KEYS if key in table}
    if "frost" in wanted:
        wanted["frost"] = str(near / str(wanted["frost"]))
    if "perturbation" in wanted and "id" in table:  # its own name, not that of the clean setting
        wanted["id"] = str(table.pop("id"))
    return wanted


def setting_id(
    test_set: TestSetSpec, policy: str | None, share: float | None = None, seed: int = 0
) -> str:
    """TESTSET[@SUBSET][+NAME:SEVERITY@disk].

    >>> setting_id(TestSetSpec(name="val", path=""), "classes-1-2", 0.1)
    'val@classes-1-2.share-0.1'
    >>> disk = TestSetSpec(name="val+fog:3@disk", path="", clean="val")
    >>> setting_id(disk, "classes-1-2")
    'val@classes-1-2+fog:3@disk'
    """
    parts = [policy] if policy else []
    if share is not None:
        parts.append(f"share-{share:g}" + (f"-seed-{seed}" if seed else ""))
    subset = "@" + ".".join(parts) if parts else ""
    if test_set.clean is None:
        return test_set.name + subset
    return test_set.clean + subset + test_set.name.removeprefix(test_set.clean)


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
    base: SettingSpec, wanted: Mapping[str, Any], test_sets: Iterable[TestSetSpec] = ()
) -> list[SettingSpec]:
    """A setting with its perturbations: itself first, unless one perturbation alone is wanted."""
    found = _expanded(base, wanted, test_sets) if wanted else [base]
    if base.seed and base.share is None and not any(one.perturbation for one in found):
        raise InputError(f"setting {base.id!r} has a seed, but nothing is drawn")
    return found


def _expanded(
    base: SettingSpec, wanted: Mapping[str, Any], test_sets: Iterable[TestSetSpec]
) -> list[SettingSpec]:
    if base.clean is not None:
        raise InputError(f"setting {base.id!r} is perturbed already, on disk")
    alone = wanted.get("perturbation")
    if alone is not None and {"corruptions", "attacks", "disk"} & wanted.keys():
        raise InputError("a setting has a perturbation, or corruptions, attacks and disk, not both")
    if alone is not None and not isinstance(alone, str):
        raise InputError(f"perturbation must be a name such as 'fog:3', got {alone!r}")
    found = [] if alone is not None else [base]
    names = _names(wanted) if alone is None else [alone]
    found += [_perturbed(base, name, wanted) for name in names]
    if wanted.get("disk"):
        found += _from_disk(base, test_sets)
    if found == [base]:
        raise InputError(f"setting {base.id!r}: no perturbation goes with {sorted(wanted)}")
    heads = {setting.perturbation.partition(":")[0] for setting in found if setting.perturbation}
    if "frost" in wanted and "frost" not in heads:
        raise InputError(f"setting {base.id!r} has frost pictures, but no frost")
    if "attack_options" in wanted and not any(one.kind == "adversarial" for one in found):
        raise InputError(f"setting {base.id!r} has attack_options, but no attack")
    return found


def _names(wanted: Mapping[str, Any]) -> list[str]:
    """The perturbations wanted, one by one."""
    from shiftbed.evaluation.perturbations import attacks_spelled_out, spelled_out

    for key in ("corruptions", "attacks"):
        names = wanted.get(key, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(f"{key} must be a list of names, got {names!r}")
    corruptions, attacks = wanted.get("corruptions", []), wanted.get("attacks", [])
    return [*spelled_out(corruptions), *attacks_spelled_out(attacks)]


def _perturbed(base: SettingSpec, name: str, wanted: Mapping[str, Any]) -> SettingSpec:
    from shiftbed.evaluation.attacks import is_attack
    from shiftbed.evaluation.perturbations import parse_perturbation

    options: dict[str, Any] = {}
    if is_attack(name):
        given = wanted.get("attack_options", {})
        if not isinstance(given, dict):
            raise InputError(f"attack_options must be a table such as {{steps = 9}}, got {given!r}")
        options = dict(given)
    elif name.partition(":")[0] == "frost" and "frost" in wanted:
        options = {"frost": wanted["frost"]}
    found = parse_perturbation(name, seed=base.seed, **options)
    return replace(
        base,
        id=wanted.get("id") or f"{base.id}+{found.id}",
        perturbation=name,
        options=options,
        clean=base.id,
        kind=found.kind,
    )


def _from_disk(base: SettingSpec, test_sets: Iterable[TestSetSpec]) -> list[SettingSpec]:
    """The settings of ``base``'s test set that are on disk, under its label policy and share."""
    found = [one for one in test_sets if one.clean == base.test_set.name]
    if not found:
        raise InputError(
            f"no [[test_sets]] is corrupted = {base.test_set.name!r}, so disk has nothing to add"
        )
    return [
        replace(
            base,
            id=base.id + one.name.removeprefix(base.test_set.name),
            test_set=one,
            clean=base.id,
            kind="corruption",
        )
        for one in found
    ]


def on_disk(table: dict[str, Any], path: str) -> list[TestSetSpec]:
    """The test sets of a ``[[test_sets]]`` table with ``corrupted``: one folder, or a tree."""
    from shiftbed.evaluation.corrupted_trees import corrupted_folders

    clean, name = table.pop("corrupted"), table.pop("name", None)
    if not isinstance(clean, str) or not clean:
        raise InputError(
            f"corrupted must be the name of the clean test set, such as 'val', got {clean!r}"
        )
    if name is not None:
        folders = {str(name): path}
    else:
        folders = {key: str(folder) for key, folder in corrupted_folders(path).items()}
    return [
        TestSetSpec(name=f"{clean}+{key}{DISK}", path=folder, options=table, clean=clean)
        for key, folder in folders.items()
    ]


def perturbation_of(setting: SettingSpec) -> "Perturbation | None":
    """What is done to a setting's pixels in memory, None for nothing."""
    if setting.perturbation is None:
        return None
    options = json.dumps(dict(setting.options), sort_keys=True)
    return _parsed(setting.perturbation, setting.seed, options)


@lru_cache(maxsize=256)
def _parsed(name: str, seed: int, options: str) -> "Perturbation":
    from shiftbed.evaluation.perturbations import parse_perturbation

    return parse_perturbation(name, seed=seed, **json.loads(options))


def with_automatic(shifts: Sequence[Shift], settings: Sequence[SettingSpec]) -> tuple[Shift, ...]:
    """The shifts, and one from its clean setting to every perturbed one that none of them has."""
    names = {shift.name for shift in shifts}
    pairs = {(shift.source, shift.target) for shift in shifts}
    found = list(shifts)
    for one in settings:
        if one.clean is None or one.id in names or ((one.clean,), one.id) in pairs:
            continue
        found.append(Shift(name=one.id, kind=one.kind, source=(one.clean,), target=one.id))
    return tuple(found)


def difference(record: Mapping[str, Any], details: Mapping[str, Any] | None) -> str:
    """Where a cell's record and a perturbation differ, in words.

    >>> difference({"perturbation": {"id": "fog:3", "seed": 0}}, {"id": "fog:3", "seed": 1})
    'seed 0, now 1'
    """
    old, new = record.get("perturbation") or {}, details or {}
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return "; ".join(f"{key} {old.get(key)}, now {new.get(key)}" for key in changed)
