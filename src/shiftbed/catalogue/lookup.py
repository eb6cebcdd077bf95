"""Names of the catalogue: what they stand for, and which shifts there are."""

from dataclasses import replace

from shiftbed.catalogue.entries import DomainTask, KnownSetting, KnownShift, TestSetEntry
from shiftbed.catalogue.test_sets import known_tasks, known_test_sets
from shiftbed.errors import InputError, unknown

_REQUIRED = ("imagenet-c", "cifar-10-c")
"""Sets of many parts, of which one has to be chosen."""
_FRAMES = {"imagenet-vid-robust": (22_179, "4d4e460186727098"), "ytbb-robust": (None, None)}
"""Images and digest of all frames, where they are known."""


def entries() -> tuple[TestSetEntry, ...]:
    """All test sets; tasks domain by domain."""
    return (
        *known_test_sets().values(),
        *(one for task in known_tasks().values() for one in task.entries()),
    )


def tasks() -> tuple[DomainTask, ...]:
    """wenzel2022's ten tasks, and the digits."""
    return tuple(known_tasks().values())


def names() -> tuple[str, ...]:
    """Names that ``find`` knows, without parts that are optional."""
    return tuple(entry.name for entry in entries())


def find_task(name: str) -> DomainTask:
    """A task by its name, or by the name it has in wenzel2022.

    >>> find_task("terra_incognita").title
    'Terra Incognita'
    """
    task = known_tasks().get(_own_name(name))
    if task is None:
        raise unknown("task", name, known_tasks())
    return task


def _own_name(name: str) -> str:
    """A task's name, from the one it has in wenzel2022."""
    return next((t.name for t in known_tasks().values() if t.paper and t.paper == name), name)


def find(name: str) -> TestSetEntry:
    """A test set by its name: ``NAME``, ``NAME/PART``, ``TASK/DOMAIN`` or ``TASK/DOMAIN/SPLIT``.

    >>> find("imagenet-a").classes, find("imagenet-c/fog-3").setting
    (200, 'imagenet+fog:3@disk')
    >>> find("pacs/sketch").title
    'PACS, sketch'
    """
    head, *rest = name.split("/")
    head = _own_name(head)
    if head in known_tasks():
        return _domain(known_tasks()[head], rest)
    if head not in known_test_sets():
        raise unknown("test set of the catalogue", name, [*names(), *known_tasks()])
    entry = known_test_sets()[head]
    if not rest and head in _REQUIRED:
        raise InputError(f"{head}: which part? write {head}/{entry.parts[2]} or another of them")
    if not rest:
        return entry
    part = "/".join(rest)
    if part not in entry.parts:
        if not entry.parts:
            raise InputError(f"{head} has no parts; write {head}@DIR")
        raise unknown(f"part of {head}", part, entry.parts)
    return _part(entry, part)


def look_up(name: str) -> TestSetEntry | DomainTask | KnownShift:
    """Whatever has that name: a test set (all of its parts), a task, or a shift.

    >>> look_up("imagenet-c").title, look_up("office_home").title
    ('ImageNet-C', 'Office-Home')
    """
    if name in known_test_sets():
        return known_test_sets()[name]
    if _own_name(name) in known_tasks():
        return find_task(name)
    known = {one.name: one for one in shifts()}
    if name in known:
        return known[name]
    if "/" in name:
        return find(name)
    every = dict.fromkeys([*names(), *known_tasks(), *known])
    raise unknown("shift, test set or task", name, every)


def _part(entry: TestSetEntry, part: str) -> TestSetEntry:
    found = replace(entry, name=f"{entry.name}/{part}", part=part)
    if part == "frames":
        images, digest = _FRAMES[entry.name]
        return replace(found, images=images, digest=digest)
    return found


def _domain(task: DomainTask, rest: list[str]) -> TestSetEntry:
    if not rest or len(rest) > 2:
        domains = ", ".join(f"{task.name}/{domain.name}" for domain in task.domains)
        raise InputError(f"{task.name}: which domain? {domains}")
    return task.entry(*rest)


def shifts() -> tuple[KnownShift, ...]:
    """Every shift: ImageNet's and CIFAR-10's, then the (ID, OOD) pairs of all tasks."""
    found = [
        _to(entry)
        for entry in known_test_sets().values()
        if entry.twin is not None and entry.name not in _REQUIRED
    ]
    found += [_corruption(known_test_sets()[name]) for name in _REQUIRED]
    found.append(_on_125())
    found += [_consistency(name) for name in _FRAMES]
    return (*found, *(one for task in known_tasks().values() for one in _pairs(task)))


def shift(name: str) -> KnownShift:
    """The shift of that name."""
    known = {one.name: one for one in shifts()}
    if name not in known:
        raise unknown("shift of the catalogue", name, known)
    return known[name]


def _to(entry: TestSetEntry) -> KnownShift:
    """From an entry's ID twin to it."""
    assert entry.twin is not None
    return KnownShift(
        name=entry.name,
        kind=entry.kind,
        family=entry.family,
        source=entry.twin,
        target=KnownSetting(test_set=entry.setting),
        classes=entry.classes,
        images=entry.images,
        title=entry.title,
        published=entry.published,
    )


def _corruption(entry: TestSetEntry) -> KnownShift:
    """To a corruption of any name and severity on disk."""
    return replace(_to(entry), target=KnownSetting(test_set=f"{entry.family}+NAME:SEVERITY@disk"))


def _on_125() -> KnownShift:
    return KnownShift(
        name="imagenet-v2-125",
        kind="natural-dataset",
        family="imagenet",
        source=KnownSetting(test_set="imagenet", classes_of="imagenet-125"),
        target=KnownSetting(test_set="imagenet-v2", classes_of="imagenet-125"),
        classes=125,
        images=1250,
        title="ImageNetV2 on 125 classes",
        published=("imagenet-testbed-2020:imagenet-v2-125",),
    )


def _consistency(name: str) -> KnownShift:
    """From the anchors of a video set (pm-0) to all frames within 10 (pm-10)."""
    entry = known_test_sets()[name]
    return KnownShift(
        name=f"{name}-pm10",
        kind="consistency",
        family="imagenet",
        source=KnownSetting(test_set=name),
        target=KnownSetting(test_set=f"{name}/frames"),
        classes=entry.classes,
        images=entry.images,
        title=f"{entry.title}, all frames within 10",
        published=entry.consistent,
    )


def _pairs(task: DomainTask) -> list[KnownShift]:
    return [
        KnownShift(
            name=f"{task.name}/{source}-to-{target}",
            kind="natural-dataset",
            task=task.name if task.paper else None,
            family=task.name,
            source=KnownSetting(test_set=f"{task.name}/{source}"),
            target=KnownSetting(test_set=f"{task.name}/{target}"),
            classes=task.classes,
            images=task.domain(target).images,
            title=f"{task.title}: {source} to {target}",
            types=(task.domain(source).type, task.domain(target).type),
            held_out=task.held_out(source, target),
        )
        for source, target in task.pairs
    ]


def count_of_pairs() -> str:
    """How wenzel2022's 172 pairs come out, counted from its task table.

    >>> count_of_pairs().partition(":")[0]
    '172 (ID, OOD) pairs over 10 tasks and 36 data sets, 168 of them with held-out OOD'
    """
    listed = [task for task in known_tasks().values() if task.paper]
    pairs = [(task, *pair) for task in listed for pair in task.pairs]
    held = sum(bool(task.held_out(source, target)) for task, source, target in pairs)
    whole = [
        f"{task.title} {len(task.domains)}·{len(task.domains) - 1} = {len(task.pairs)}"
        for task in listed
        if not task.predefined
    ]
    wilds = [task for task in listed if task.predefined]
    return (
        f"{len(pairs)} (ID, OOD) pairs over {len(listed)} tasks and "
        f"{sum(task.datasets for task in listed)} data sets, {held} of them with held-out OOD: "
        f"{', '.join(whole)}, {len(wilds)} WILDS tasks with one predefined pair each = "
        f"{len(wilds)} (wenzel2022, Table S1)."
    )
