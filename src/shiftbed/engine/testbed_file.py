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
subset = [0, 1, 5]               # or a map: {cat = [281, 282]}, a JSON file; how = "max"
labels = "model"                 # the images' labels are the model's classes, or "target"
corruptions = ["fog:1-5"]        # and more: see perturbed_settings.py

[[shifts]]
name = "sketch"
id = "val"
ood = "sketch"
fit_on = "training_data=imagenet-1k"   # baseline models: the fit set, or only some of it
validation = "val-2"             # ID setting that networks may be chosen by, never one of the ends

A recipe.toml has the same ``[[test_sets]]``, ``[[settings]]`` and ``[[shifts]]``, read here too.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbed import labels
from shiftbed.engine.catalogue_settings import (
    POLICY_KEYS,
    known_policy,
    known_test_set,
    with_catalogue,
)
from shiftbed.engine.perturbed_settings import KEYS, expand, on_disk, share_of, take, with_automatic
from shiftbed.engine.plan import ModelSpec, RunSpec, SettingPlan, TestSetSpec, check_options
from shiftbed.engine.toml_files import (
    READING,
    TEXT,
    beside,
    check_kinds,
    check_shifts,
    class_numbers,
    errors_in,
    files_beside,
    known_keys,
    model_beside,
    read_shift,
    read_toml,
    tables,
    unique,
)
from shiftbed.errors import InputError, unknown
from shiftbed.foreign_code import Origin
from shiftbed.records import Setting, Shift

if TYPE_CHECKING:
    from shiftbed.evaluation.data import TestSet

OPENING = ("weights", "preprocessing", "classes", "templates", "trusted")
"""How a model is opened; a file cannot say whether code is executed."""
INFO = ("kind", "in_fit_set", "parent", "architecture", "training_data", "run", "step")


def read_testbed_toml(path: str | Path, *, allow_code: bool = False) -> RunSpec:
    """Read a testbed.toml; relative paths are relative to it.

    Nothing is executed here; ``allow_code`` allows running to execute what the file names as
    ``python:``.
    """
    path = Path(path)
    base = path.parent
    known = ("name", "store", "defaults", "models", "test_sets", "settings", "shifts")
    table = read_toml(path, known)
    origin = Origin(file=str(path), allow_code=allow_code)
    with errors_in(path):
        check_kinds(table, {"name": TEXT, "store": TEXT}, "the file")
        test_sets: dict[str, TestSetSpec] = {}
        for i, one in enumerate(tables(table, "test_sets", least=1), 1):
            add_test_sets(test_sets, read_test_sets(one, base, test_sets, f"number {i}"))
        settings, shifts = read_settings(table, base, test_sets, origin)
        return RunSpec(
            name=str(table.get("name", path.stem)),
            store=beside(str(table.get("store", "store")), base),
            models=_models(table, base, origin),
            settings=settings,
            shifts=shifts,
            options=check_options(table.get("defaults", {}), " in [defaults]"),
        )


def _models(table: Mapping[str, Any], base: Path, origin: Origin) -> tuple[ModelSpec, ...]:
    models = []
    for i, one in enumerate(tables(table, "models", least=1), 1):
        spec = one.pop("id", None)
        if not isinstance(spec, str) or not spec:
            raise InputError(f"[[models]] number {i} needs an id such as 'timm:resnet18'")
        check_kinds(one, {"name": TEXT, "weights": TEXT}, f"[[models]] number {i}")
        name = str(one.pop("name", spec))
        info = {key: one.pop(key) for key in INFO if key in one}
        known_keys(one, (*OPENING, "id", "name", *INFO), "[[models]]")
        if "weights" in one:
            one["weights"] = beside(str(one["weights"]), base)
        source = model_beside(spec, base)
        models.append(ModelSpec(source=source, name=name, options=one, info=info, origin=origin))
    unique([m.name for m in models], "model")
    return tuple(models)


def add_test_sets(there: dict[str, TestSetSpec], more: list[TestSetSpec]) -> None:
    """Add test sets to those that are there, by name; a name is there once."""
    unique([*there, *(one.name for one in more)], "test set")
    there |= {one.name: one for one in more}


def read_test_sets(
    table: Mapping[str, Any], base: Path, others: Mapping[str, TestSetSpec], which: str = ""
) -> list[TestSetSpec]:
    """The test sets of one ``[[test_sets]]`` table: several where it is a tree of corruptions."""
    known_keys(table, ("name", "path", "corrupted", *READING), "[[test_sets]]")
    given = dict(table)
    name, path = given.pop("name", None), given.pop("path", None)
    if not isinstance(path, str) or not (name is None or isinstance(name, str)):
        raise InputError(f"[[test_sets]] {which or repr(name)} needs a name and a path")
    where = beside(path, base)
    if "corrupted" in given:
        return on_disk(given | ({} if name is None else {"name": name}), where)
    given = files_beside(given, base)
    known = known_test_set(where, name, given, list(others.values()))
    if known is None and name is None:
        raise InputError(f"[[test_sets]] {which or repr(path)} needs a name and a path")
    return [known or TestSetSpec(name=str(name), path=where, options=given)]


def read_settings(
    table: Mapping[str, Any], base: Path, test_sets: Mapping[str, TestSetSpec], origin: Origin
) -> tuple[tuple[SettingPlan, ...], tuple[Shift, ...]]:
    """``[[settings]]`` and ``[[shifts]]`` of a file; without settings, every test set as it is."""
    found: list[SettingPlan] = []
    if "settings" not in table:
        found = [plan_setting(one, {}) for one in test_sets.values()]
    for one in tables(table, "settings", least=1 if "settings" in table else 0):
        name = str(one.pop("test_set", None))
        if name not in test_sets:
            raise unknown("test set in [[settings]]", name, test_sets)
        wanted = take(one, base)
        one |= files_beside({key: one[key] for key in ("map",) if key in one}, base)
        found += expand(plan_setting(test_sets[name], one), wanted, test_sets.values(), origin)
    unique([one.id for one in found], "setting")
    rest, settings, shifts = with_catalogue(tables(table, "shifts"), found, test_sets.values())
    shifts += [read_shift(one) for one in rest]
    check_shifts(shifts, {one.id for one in settings})
    return settings, with_automatic(shifts, settings)


def plan_setting(images: "TestSetSpec | TestSet", table: Mapping[str, Any]) -> SettingPlan:
    """A setting from its table: ``subset`` or ``map`` (with ``how``), ``share``, ``id``.

    What the table says of perturbations is taken out before; see ``perturbed_settings.py``.
    """
    given = dict(table)
    check_kinds(given, {"id": TEXT, "test_set": TEXT, "how": TEXT}, "[[settings]]")
    share, seed = share_of(given)
    as_numbered = given.get("labels") == "model" and not {"subset", "map"} & given.keys()
    name, where = given.pop("id", None), given.pop("labels", "model")
    if where not in ("model", "target"):
        raise InputError(f"labels of a setting must be 'model' or 'target', got {where!r}")
    policy = None
    if "subset" in given:
        policy = labels.subset(class_numbers(given.pop("subset")))
    elif "map" in given:
        groups, how = given.pop("map"), given.pop("how", "max")
        file = isinstance(groups, str | Path)
        policy = (labels.read_class_map if file else labels.class_map)(groups, how=how)
    path = images.path if isinstance(images, TestSetSpec) else ""
    chosen = known_policy(images.name, path, given, policy is not None)
    if chosen is not None:
        policy = chosen.policy
    keys = ["id", "test_set", "subset", "map", "how", "labels", "share", "seed"]
    known_keys(given, [*keys, *POLICY_KEYS, *KEYS], "[[settings]]")
    for left in given:
        raise InputError(f"[[settings]] {left} does not go with the rest of this setting")
    key = (policy.key if policy else "") if chosen is None else chosen.key or ""
    spec = images if isinstance(images, TestSetSpec) else None
    perturbation = None if spec is None else spec.perturbation
    made = Setting(
        test_set=images.name if spec is None else spec.clean or spec.name,
        policy=policy,
        policy_name=key,
        relabel=policy is not None and where == "model" if chosen is None else chosen.relabel,
        share=share,
        seed=seed,
        name=str(name or "") if perturbation is None else "",
    )
    if perturbation is not None:
        made = made.perturbed(perturbation, name=str(name or ""))
    return SettingPlan(setting=made, images=images, as_numbered=as_numbered and policy is None)
