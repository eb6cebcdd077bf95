"""Settings that are means of settings: a corruption over its severities, all corruptions, attacks.

taori2020 averages accuracies first and fits then: over the five severities of a corruption, over
corruption types, over four PGD attacks. In memory and on disk are never one setting (JPEG costs
accuracy), so both have an average of their own: the paper's 19 types each (in memory all but glass
blur, and greyscale). Its tables average the 38 together, and with Stylized ImageNet 39.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from shiftbed.catalogue.test_sets import CORRUPTIONS
from shiftbed.records import Setting, Shift
from shiftbed.testbed.record import Testbed

SEVERITIES = (1, 2, 3, 4, 5)
GREYSCALE = "greyscale"
TYPES: Mapping[bool, tuple[str, ...]] = {
    False: (*(name for name in CORRUPTIONS if name != "glass_blur"), GREYSCALE),
    True: CORRUPTIONS,
}
"""Corruption types of taori2020, by whether they are on disk (Appendix E.3)."""
PGD = ("pgd-linf:0.5/255", "pgd-linf:2/255", "pgd-l2:0.1", "pgd-l2:0.5")
"""taori2020's four attacks (Appendix E.2)."""
AS_RUN = "keep=last"
STYLIZED = ("stylized", "stylized_imagenet", "stylized-imagenet")


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A setting that is the mean of others."""

    record: Setting
    parts: tuple[str, ...]
    kind: str
    """Of its shift from the clean setting."""


def with_averages(testbed: Testbed) -> Testbed:
    """The testbed with the means that its perturbed settings allow, and their shifts.

    ``CLEAN+fog`` is the mean over severities 1 to 5 (``CLEAN+fog:2,4`` over others), ``@disk`` on
    disk. ``CLEAN+avg_corruptions`` is the mean over the paper's types, if all are there; of other
    k ≥ 2 types with the same severities it is ``CLEAN+avg_k_corruptions``. ``CLEAN+avg_pgd`` is the
    mean over the paper's four attacks as it ran them (``keep=last``), ``CLEAN+avg_pgd?OPTIONS``
    that of the same with other options (``keep=worst``: any iterate that fools counts).
    """
    found = averages(testbed)
    if not found:
        return testbed
    settings, value, n = list(testbed.settings), list(testbed.value.T), list(testbed.n.T)
    at = {name: i for i, name in enumerate(settings)}
    for one in found:
        rows = [at[part] for part in one.parts]
        at[one.record.id] = len(settings)
        settings.append(one.record.id)
        value.append(np.mean([value[row] for row in rows], axis=0))
        n.append(np.min([n[row] for row in rows], axis=0))
    return replace(
        testbed,
        settings=tuple(settings),
        value=np.column_stack(value),
        n=np.column_stack(n),
        derived={**testbed.derived, **{one.record.id: one.parts for one in found}},
        records={**testbed.records, **{one.record.id: one.record for one in found}},
        shifts=(*testbed.shifts, *(_shift(one, testbed.shifts) for one in found)),
    )


def averages(testbed: Testbed) -> list[Mean]:
    """The means that are not there yet, each after its parts."""
    there = {id: one for id, one in testbed.records.items() if id in testbed.settings}
    found: list[Mean] = []
    cleans = {one.clean.id: one.clean for one in there.values() if one.clean is not None}
    for name, clean in cleans.items():
        if name not in testbed.settings:
            continue
        own = {id: one for id, one in there.items() if one.clean == clean and one.perturbation}
        both = {disk: _corruptions(clean, own, disk) for disk in (False, True)}
        found += [*both[False], *both[True]]
        wanted = [f"{name}+avg_corruptions{place}" for place in ("", "@disk")]
        whole = [one for disk in both for one in both[disk] if one.record.id in wanted]
        if len(whole) == len(wanted):
            parts = tuple(part for one in whole for part in one.parts)
            found.append(_mean(clean, "avg_38_corruptions", parts, own, "corruption"))
            more = [id for id, one in own.items() if _name(one) in STYLIZED]
            if len(more) == 1:
                parts = (*parts, *more)
                found.append(_mean(clean, "avg_39_corruptions", parts, own, "corruption"))
        found += _attacks(clean, own)
    return [one for one in found if one.record.id not in testbed.settings]


def _name(one: Setting) -> str:
    return "" if one.perturbation is None else one.perturbation.name


def _corruptions(clean: Setting, own: dict[str, Setting], disk: bool) -> list[Mean]:
    """The mean of every corruption over its severities, and the mean of these."""
    by: dict[str, dict[int | None, list[str]]] = {}
    for id, one in own.items():
        what = one.perturbation
        if what is not None and what.kind == "corruption" and what.on_disk == disk:
            by.setdefault(what.name, {}).setdefault(what.severity, []).append(id)
    found: list[Mean] = []
    members: dict[tuple[int, ...], dict[str, str]] = {}
    place = "@disk" if disk else ""
    for name, at in by.items():
        if any(len(ids) > 1 for ids in at.values()):
            continue  # two settings of one kind, such as two folders of frost: which is not known
        severities = tuple(sorted(s for s in at if s is not None))
        if len(severities) < 2:
            if len(at) == 1:
                members.setdefault(severities, {})[name] = next(iter(at.values()))[0]
            continue
        sizes = "" if severities == SEVERITIES else ":" + ",".join(map(str, severities))
        parts = tuple(at[one][0] for one in severities)
        found.append(_mean(clean, f"{name}{sizes}{place}", parts, own, "corruption"))
        members.setdefault(severities, {})[name] = found[-1].record.id
    every = members.get(SEVERITIES, {})
    plain = [id for ids in by.get(GREYSCALE, {}).values() for id in ids]  # it has one strength
    grey = {GREYSCALE: plain[0]} if len(plain) == 1 else {}
    if set(TYPES[disk]) <= {*every, *grey}:
        parts = tuple((every | grey)[name] for name in TYPES[disk])
        found.append(_mean(clean, f"avg_corruptions{place}", parts, own, "corruption"))
        return found
    graded = {s: one for s, one in members.items() if s}
    if graded:
        severities, some = max(graded.items(), key=lambda item: (len(item[1]), item[0]))
        sizes = "" if severities == SEVERITIES else ":" + ",".join(map(str, severities))
        if len(some) > 1:
            name = f"avg_{len(some)}_corruptions{sizes}{place}"
            found.append(_mean(clean, name, tuple(some.values()), own, "corruption"))
    return found


def _attacks(clean: Setting, own: dict[str, Setting]) -> Iterable[Mean]:
    """The mean over the four attacks, for each choice of options that all of them have."""
    by: dict[str, dict[str, str]] = {}
    for id, one in own.items():
        if one.perturbation is not None and one.perturbation.kind == "adversarial":
            attack, _, options = one.perturbation.id.partition("?")
            by.setdefault(options, {})[attack] = id
    for options, found in by.items():
        if set(PGD) <= found.keys():
            parts = tuple(found[name] for name in PGD)
            name = "avg_pgd" if options == AS_RUN else f"avg_pgd?{options or 'keep=worst'}"
            yield _mean(clean, name, parts, own, "adversarial")


def _mean(
    clean: Setting, name: str, parts: tuple[str, ...], own: dict[str, Setting], kind: str
) -> Mean:
    of = tuple(own[part] for part in parts)
    record = replace(clean, clean=clean, name=f"{clean.id}+{name}", mean_of=of)
    own[record.id] = record  # it may be a part itself
    return Mean(record=record, parts=parts, kind=kind)


def _shift(mean: Mean, others: Iterable[Shift]) -> Shift:
    """From the clean setting; about the models that all other shifts from there are about."""
    assert mean.record.clean is not None
    name, source = mean.record.id, (mean.record.clean.id,)
    about = {(one.fit_on, one.task, one.validation) for one in others if one.source == source}
    fit_on, task, validation = about.pop() if len(about) == 1 else ("", "", "")
    found = Shift(name=name, kind=mean.kind, source=source, target=name)
    return replace(found, fit_on=fit_on, task=task, validation=validation)
