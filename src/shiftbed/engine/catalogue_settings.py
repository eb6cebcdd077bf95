"""Test sets of the catalogue in a testbed.toml: their names, label policies and shifts.

[[test_sets]]
path = "imagenet@images/val"        # NAME@DIR, in its authors' layout; the name is the catalogue's

[[test_sets]]
path = "imagenet-a@images/a"        # judged by its own label policy: 200 of the 1,000 classes

[[settings]]
test_set = "imagenet-a"
policy = "full"                     # instead of that policy: all 1,000 classes

[[settings]]
test_set = "cifar-10"
through = "imagenet"                # a model with ImageNet's classes, by how = "max"

[[shifts]]
catalogue = "imagenet-a"            # adds the ID twin imagenet@imagenet-a-classes, and the kind
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftbed.catalogue import (
    KnownSetting,
    KnownShift,
    TestSetEntry,
    find,
    policy_of,
    shift,
    tasks,
    through,
)
from shiftbed.engine.plan import SettingPlan, TestSetSpec, corrupted_copy
from shiftbed.errors import InputError, unknown
from shiftbed.labels import LabelPolicy
from shiftbed.records import Setting, Shift

POLICY_KEYS = ("policy", "through")
POLICIES = ("catalogue", "full")


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A label policy of the catalogue, and what it does to a setting."""

    policy: LabelPolicy | None
    relabel: bool = False
    key: str | None = None
    """What is added to the setting's name; nothing for the catalogue's own policy."""


def _split(path: str) -> tuple[str, str] | None:
    from shiftbed.evaluation.data.authors import split_spec

    return split_spec(path)


def near(path: str, base: Path) -> str | None:
    """``NAME@DIR`` with DIR relative to ``base``; None if it is not of that form.

    >>> near("imagenet-a@images/a", Path("beds")), near("images/a", Path("beds"))
    ('imagenet-a@beds/images/a', None)
    """
    known = _split(path)
    if known is None or (base / path).exists():
        return None
    name, where = known
    return f"{name}@{base / where if where else ''}"


def known_test_set(
    path: str,
    name: str | None,
    options: Mapping[str, Any] | None = None,
    others: Collection[TestSetSpec] = (),
) -> TestSetSpec | None:
    """A test set of the catalogue under its own name; None if ``path`` is none.

    Corruptions on disk are called after the clean test set among ``others``.
    """
    known = _split(path)
    if known is None:
        return None
    entry = find(known[0])
    given = dict(options or {})
    if name is not None or entry.perturbation is None:
        return TestSetSpec(name=name or entry.setting, path=path, options=given)
    clean = next((o.name for o in others if known_name(o) == entry.family), entry.family)
    return corrupted_copy(clean, entry.perturbation, path, given)


def known_name(test_set: TestSetSpec) -> str | None:
    """The catalogue's name of a test set."""
    known = _split(test_set.path)
    return None if known is None else find(known[0]).name


def known_policy(name: str, path: str, table: dict[str, Any], chosen: bool) -> Chosen | None:
    """The label policy of the test set at ``path``; ``policy`` and ``through`` are taken out.

    ``chosen``: whether the table has a label policy of its own already. None for a test set that
    is none of the catalogue's, and where the table decides.
    """
    wanted, source = table.pop("policy", None), table.pop("through", None)
    known = _split(path)
    entry = None if known is None else find(known[0])
    if chosen and (wanted is not None or source is not None):
        raise InputError("a setting has a subset or map, or policy and through, not both")
    if entry is None and (wanted is not None or source is not None):
        raise InputError(
            f"test set {name!r}: policy and through are for test sets of the catalogue, NAME@DIR"
        )
    if wanted not in (None, *POLICIES):
        raise unknown("policy of a setting", str(wanted), POLICIES)
    if entry is None or chosen:
        return None
    if source is not None:
        if wanted is not None:
            raise InputError("a setting has policy or through, not both")
        found = through(str(source), _target(entry), how=str(table.pop("how", "max")))
        return Chosen(policy=found, key=found.key)
    if wanted == "full":
        if entry.labels != "subset":
            raise InputError(f"{entry.name}: only subsets of ImageNet can be judged by all classes")
        return Chosen(policy=None, key="full")
    return Chosen(policy=entry.policy, relabel=entry.relabel)


def _target(entry: TestSetEntry) -> str:
    """The label space that a class map must lead to."""
    if entry.family != "cifar-10":
        raise InputError(f"{entry.name}: there is no class map from another label space to its own")
    return "cifar-10"


def with_catalogue(
    tables: Sequence[Mapping[str, Any]],
    settings: Sequence[SettingPlan],
    test_sets: Collection[TestSetSpec],
) -> tuple[list[Mapping[str, Any]], tuple[SettingPlan, ...], list[Shift]]:
    """The ``[[shifts]]`` that are not the catalogue's; all settings; the catalogue's shifts."""
    rest: list[Mapping[str, Any]] = []
    found: list[Shift] = []
    all_settings = {one.id: one for one in settings}
    for table in tables:
        if "catalogue" not in table:
            rest.append(table)
            continue
        for key in table.keys() - {"catalogue", "name"}:
            raise unknown("key beside catalogue in [[shifts]]", key, ["name"])
        known = _shifts_of(str(table["catalogue"]), test_sets)
        if "name" in table and len(known) > 1:
            raise InputError(f"[[shifts]] catalogue = {table['catalogue']!r} are several: no name")
        for one in known:
            source, target = (_setting(end, one, test_sets) for end in (one.source, one.target))
            for setting in (source, target):
                all_settings.setdefault(setting.id, setting)
            whole = source.images.name
            found.append(
                Shift(
                    name=str(table.get("name", one.name)),
                    kind=one.kind,
                    source=(source.id,),
                    target=target.id,
                    full_source=whole if source.setting.relabel and whole in all_settings else None,
                    title=one.title,
                    task=one.task or "",
                )
            )
    return rest, tuple(all_settings.values()), found


def _shifts_of(name: str, test_sets: Collection[TestSetSpec]) -> list[KnownShift]:
    """One shift, or all pairs of a task whose two domains are among the test sets."""
    task = next((one for one in tasks() if one.name == name), None)
    if task is None:
        found = shift(name)
        if found.kind == "consistency":
            raise InputError(
                f"shift {name!r} is made of the predictions of {found.target}: give that as a "
                "test set, and see shiftbed consistency after the run"
            )
        if found.kind == "corruption":
            raise InputError(f"shift {name!r}: corruptions on disk make their shifts by themselves")
        return [found]
    there = {known_name(one) for one in test_sets}
    pairs = [shift(f"{name}/{a}-to-{b}") for a, b in task.pairs]
    both = [one for one in pairs if {one.source.test_set, one.target.test_set} <= there]
    if not both:
        raise InputError(
            f"shifts of {name!r} need two of its domains as test sets, such as "
            f"path = '{pairs[0].source}@DIR' and path = '{pairs[0].target}@DIR'"
        )
    return both


def _setting(
    end: KnownSetting, known: KnownShift, test_sets: Collection[TestSetSpec]
) -> SettingPlan:
    """A side of a shift as a setting of the test set that has that name."""
    from shiftbed.engine.testbed_file import plan_setting

    test_set = next((one for one in test_sets if known_name(one) == end.test_set), None)
    if test_set is None:
        raise InputError(f"shift {known.name!r} needs a test set with path = '{end.test_set}@DIR'")
    if not end.classes_of:
        return plan_setting(test_set, {})
    policy, name = policy_of(end.classes_of), end.policy_name
    made = Setting(test_set=test_set.name, policy=policy, policy_name=name, relabel=True)
    return SettingPlan(setting=made, images=test_set)
