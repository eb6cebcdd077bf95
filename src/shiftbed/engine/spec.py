"""``testbed.toml``: which models, which test sets, which settings between them.

name = "digits"
store = "store"

[defaults]                       # options of every model and test set
batch_size = 64

[[models]]
id = "timm:resnet18"
kind = "standard"                # any further columns of models: kind, parent, in_fit_set, …

[[test_sets]]
name = "val"
path = "images/val"

[[settings]]                     # default: every test set as it is
test_set = "val"
subset = [0, 1, 5]               # or a map: {cat = [281, 282]}, with how = "max"
labels = "model"                 # the images' labels are the model's classes, or "target"
corruptions = ["fog:1-5"]        # and more: see perturbed.py

[[shifts]]
name = "sketch"
id = "val"
ood = "sketch"
fit_on = "training_data=imagenet-1k"   # baseline models: the fit set, or only some of it
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shiftbed.errors import InputError, unknown
from shiftbed.records import Shift

INFO = ("kind", "in_fit_set", "parent", "architecture", "training_data", "run", "step")


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model: how to resolve it, and what is known of it."""

    spec: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TestSetSpec:
    """A test set: where it is, and how to read it."""

    __test__ = False

    name: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    clean: str | None = None
    """Name of the test set that this one is a corrupted copy of."""


@dataclass(frozen=True, kw_only=True)
class SettingSpec:
    """A test set under a label policy and a perturbation; ``id`` is its name and the cache key."""

    id: str
    test_set: TestSetSpec
    policy: str | None = None
    """The label policy as JSON, None for the test set's own labels."""
    relabel: bool = False
    """Whether the test set's labels are among the model's classes and go through the policy too:
    the class-subset twin of a whole test set."""
    share: float | None = None
    """Only this share of every class, drawn with ``seed``."""
    perturbation: str | None = None
    """Done to the pixels in memory; None for nothing (or for what is corrupted on disk)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the perturbation."""
    seed: int = 0
    clean: str | None = None
    """Id of the same setting without the perturbation, None if there is none."""
    kind: str = ""
    """The kind of shift from ``clean`` to this: corruption or adversarial."""


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """What to run: models × settings."""

    name: str
    store: str
    models: tuple[ModelSpec, ...]
    settings: tuple[SettingSpec, ...]
    shifts: tuple[Shift, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    """batch_size, backend, top, keep_logits, on_unreadable, …"""


def read_spec(path: str | Path) -> RunSpec:
    """Read a testbed.toml; relative paths are relative to it."""
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None
    known = {"name", "store", "defaults", "models", "test_sets", "settings", "shifts"}
    for key in table.keys() - known:
        raise InputError(f"{path}: {unknown('key', key, known)}")
    base = path.parent
    from shiftbed.engine.known import with_catalogue
    from shiftbed.engine.perturbed import with_automatic

    try:
        defaults = dict(table.get("defaults", {}))
        test_sets = {t.name: t for t in _test_sets(table.get("test_sets"), base)}
        settings = _settings(table.get("settings"), test_sets, base)
        own, settings, known_shifts = with_catalogue(
            table.get("shifts", []), settings, test_sets.values()
        )
        return RunSpec(
            name=str(table.get("name", path.stem)),
            store=_resolve(str(table.get("store", "store")), base),
            models=_models(table.get("models"), base),
            settings=settings,
            shifts=with_automatic(_shifts(own, known_shifts), settings),
            options=_options(defaults),
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


OPTIONS: dict[str, type | tuple[type, ...]] = {
    "batch_size": int,
    "backend": str,
    "device": str,
    "precision": str,
    "top": int,
    "keep_logits": bool,
    "on_unreadable": str,
    "threads": int,
    "preprocessing": dict,
}


def _options(table: dict[str, Any]) -> dict[str, Any]:
    for key, value in table.items():
        if key not in OPTIONS:
            raise unknown("key in [defaults]", key, OPTIONS)
        if not isinstance(value, OPTIONS[key]) or (value is True and OPTIONS[key] is int):
            raise InputError(f"[defaults] {key} has the wrong type: {value!r}")
    return table


def _tables(value: Any, what: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value or not all(isinstance(v, dict) for v in value):
        raise InputError(f"expected at least one [[{what}]] table")
    return value


def _models(value: Any, base: Path) -> tuple[ModelSpec, ...]:
    models = []
    for i, one in enumerate(_tables(value, "models"), 1):
        table = dict(one)
        spec = table.pop("id", None)
        if not isinstance(spec, str) or not spec:
            raise InputError(f"[[models]] number {i} needs an id such as 'timm:resnet18'")
        name = str(table.pop("name", spec))
        info = {key: table.pop(key) for key in INFO if key in table}
        if "weights" in table:
            table["weights"] = _resolve(str(table["weights"]), base)
        models.append(ModelSpec(spec=_near(spec, base), name=name, options=table, info=info))
    _unique([m.name for m in models], "model")
    return tuple(models)


def _near(spec: str, base: Path) -> str:
    """File names in a spec (onnx:FILE, torch:FILE, sklearn:FILE) are relative to the toml."""
    prefix, colon, rest = spec.partition(":")
    if colon and prefix in ("onnx", "torch", "sklearn"):
        file, mark, query = rest.partition("?")
        return f"{prefix}:{_resolve(file, base)}{mark}{query}"
    return spec


def _test_sets(value: Any, base: Path) -> list[TestSetSpec]:
    from shiftbed.engine.known import known_test_set
    from shiftbed.engine.perturbed import on_disk

    found: list[TestSetSpec] = []
    for i, one in enumerate(_tables(value, "test_sets"), 1):
        table = dict(one)
        path, corrupted = table.pop("path", None), "corrupted" in table
        if isinstance(path, str) and corrupted:
            found += on_disk(table, _resolve(path, base))
            continue
        name = table.pop("name", None)
        if isinstance(path, str) and (name is None or isinstance(name, str)):
            known = known_test_set(_resolve(path, base), name, table, found)
            if known is not None:
                found.append(known)
                continue
        if not isinstance(path, str) or not isinstance(name, str):
            raise InputError(f"[[test_sets]] number {i} needs a name and a path")
        found.append(TestSetSpec(name=name, path=_resolve(path, base), options=table))
    _unique([t.name for t in found], "test set")
    return found


def _settings(
    value: Any, test_sets: Mapping[str, TestSetSpec], base: Path
) -> tuple[SettingSpec, ...]:
    from shiftbed.engine.perturbed import expand, take

    if value is None:
        return tuple(setting(test_set, {}) for test_set in test_sets.values())
    found: list[SettingSpec] = []
    for one in _tables(value, "settings"):
        table = dict(one)
        name = table.pop("test_set", None)
        if name not in test_sets:
            raise unknown("test set in [[settings]]", str(name), test_sets)
        wanted = take(table, base)
        found += expand(setting(test_sets[name], table), wanted, test_sets.values())
    _unique([s.id for s in found], "setting")
    return tuple(found)


def setting(test_set: TestSetSpec, table: dict[str, Any]) -> SettingSpec:
    """A setting from its table: ``subset`` or ``map`` (with ``how``), ``share``, ``id``.

    What the table says of perturbations is taken out before; see ``perturbed.py``.
    """
    from shiftbed import labels
    from shiftbed.engine.known import POLICY_KEYS, known_policy
    from shiftbed.engine.perturbed import KEYS, setting_id, share_of

    share, seed = share_of(table)
    given, where = table.pop("id", None), table.pop("labels", "model")
    if where not in ("model", "target"):
        raise InputError(f"labels of a setting must be 'model' or 'target', got {where!r}")
    policy = None
    if "subset" in table:
        policy = labels.subset(table.pop("subset"))
    elif "map" in table:
        policy = labels.class_map(table.pop("map"), how=table.pop("how", "max"))
    chosen = known_policy(test_set, table, policy is not None)
    if chosen is not None:
        policy = chosen.policy
    if table:
        keys = ["id", "test_set", "subset", "map", "how", "labels", "share", "seed"]
        keys += [*POLICY_KEYS, *KEYS]
        raise unknown("key in [[settings]]", next(iter(table)), keys)
    key, clean = policy.key if policy else None, test_set.clean
    key = key if chosen is None else chosen.key
    name = given or setting_id(test_set, key, share, seed)
    if clean is not None:
        clean = setting_id(TestSetSpec(name=clean, path=""), key, share, seed)
    return SettingSpec(
        id=str(name),
        test_set=test_set,
        policy=policy.to_json() if policy else None,
        relabel=policy is not None and where == "model" if chosen is None else chosen.relabel,
        share=share,
        seed=seed,
        clean=clean,
        kind="corruption" if clean is not None else "",
    )


def _shifts(value: Any, known: list[Shift]) -> tuple[Shift, ...]:
    shifts = list(known)
    for one in value:
        ids = one.get("id", [])
        shifts.append(
            Shift(
                name=str(one.get("name", one.get("ood", ""))),
                kind=str(one.get("kind", "natural-dataset")),
                source=(ids,) if isinstance(ids, str) else tuple(ids),
                target=str(one.get("ood", "")),
                task=str(one.get("task", "")),
                fit_on=str(one.get("fit_on", "")),
            )
        )
    _unique([s.name for s in shifts], "shift")
    return tuple(shifts)


def _unique(names: list[str], what: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{what} {name!r} is there twice")


def _resolve(path: str, base: Path) -> str:
    from shiftbed.engine.known import near

    known = near(path, base)  # NAME@DIR, a test set of the catalogue
    if known is not None:
        return known
    return path if "://" in path or Path(path).is_absolute() else str(base / path)
