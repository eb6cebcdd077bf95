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

[[shifts]]
name = "sketch"
id = "val"
ood = "sketch"
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shiftbed.errors import InputError, unknown
from shiftbed.records import Shift

__all__ = ["ModelSpec", "RunSpec", "SettingSpec", "TestSetSpec", "read_spec"]

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


@dataclass(frozen=True, kw_only=True)
class SettingSpec:
    """A test set with a label policy; ``id`` is its canonical name and the cache key."""

    id: str
    test_set: TestSetSpec
    policy: str | None = None
    """The label policy as JSON, None for the test set's own labels."""
    relabel: bool = False
    """Whether the test set's labels are among the model's classes and go through the policy too:
    the class-subset twin of a whole test set."""


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
    try:
        defaults = dict(table.get("defaults", {}))
        test_sets = {t.name: t for t in _test_sets(table.get("test_sets"), base)}
        return RunSpec(
            name=str(table.get("name", path.stem)),
            store=_resolve(str(table.get("store", "store")), base),
            models=_models(table.get("models"), base),
            settings=_settings(table.get("settings"), test_sets),
            shifts=_shifts(table.get("shifts", [])),
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
    found = []
    for i, one in enumerate(_tables(value, "test_sets"), 1):
        table = dict(one)
        path, name = table.pop("path", None), table.pop("name", None)
        if not isinstance(path, str) or not isinstance(name, str):
            raise InputError(f"[[test_sets]] number {i} needs a name and a path")
        found.append(TestSetSpec(name=name, path=_resolve(path, base), options=table))
    _unique([t.name for t in found], "test set")
    return found


def _settings(value: Any, test_sets: Mapping[str, TestSetSpec]) -> tuple[SettingSpec, ...]:
    if value is None:
        return tuple(SettingSpec(id=name, test_set=t) for name, t in test_sets.items())
    found = []
    for one in _tables(value, "settings"):
        table = dict(one)
        name = table.pop("test_set", None)
        if name not in test_sets:
            raise unknown("test set in [[settings]]", str(name), test_sets)
        found.append(setting(test_sets[name], table))
    _unique([s.id for s in found], "setting")
    return tuple(found)


def setting(test_set: TestSetSpec, table: dict[str, Any]) -> SettingSpec:
    """A setting from its table: ``subset`` or ``map`` (with ``how``), and perhaps an ``id``."""
    from shiftbed import labels

    given, where = table.pop("id", None), table.pop("labels", "model")
    if where not in ("model", "target"):
        raise InputError(f"labels of a setting must be 'model' or 'target', got {where!r}")
    policy = None
    if "subset" in table:
        policy = labels.subset(table.pop("subset"))
    elif "map" in table:
        policy = labels.class_map(table.pop("map"), how=table.pop("how", "max"))
    if table:
        keys = ["id", "test_set", "subset", "map", "how", "labels"]
        raise unknown("key in [[settings]]", next(iter(table)), keys)
    name = given or test_set.name + (f"@{policy.key}" if policy else "")
    return SettingSpec(
        id=str(name),
        test_set=test_set,
        policy=policy.to_json() if policy else None,
        relabel=policy is not None and where == "model",
    )


def _shifts(value: Any) -> tuple[Shift, ...]:
    shifts = []
    for one in value:
        ids = one.get("id", [])
        shifts.append(
            Shift(
                name=str(one.get("name", one.get("ood", ""))),
                kind=str(one.get("kind", "natural-dataset")),
                source=(ids,) if isinstance(ids, str) else tuple(ids),
                target=str(one.get("ood", "")),
            )
        )
    _unique([s.name for s in shifts], "shift")
    return tuple(shifts)


def _unique(names: list[str], what: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{what} {name!r} is there twice")


def _resolve(path: str, base: Path) -> str:
    return path if "://" in path or Path(path).is_absolute() else str(base / path)
