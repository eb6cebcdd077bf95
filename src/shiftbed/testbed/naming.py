"""What a testbed's settings are: the same test sets under other names, their titles and sizes."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shiftbed.catalogue import Identity, canonical, identity, is_weak

if TYPE_CHECKING:
    from shiftbed.testbed.record import Testbed


def find_setting(settings: Iterable[str], name: str) -> str | None:
    """The setting that ``name`` means, None if it means none of them or more than one.

    >>> find_setting(["val", "imagenet-r"], "ImageNet 1k"), find_setting(["val"], "mine")
    ('val', None)
    """
    meant = canonical(name)
    found = [one for one in settings if one == name or (meant and canonical(one) == meant)]
    return found[0] if len(found) == 1 else name if name in found else None


def recognised(sizes: Mapping[str, int]) -> dict[str, Identity]:
    """Which of the settings of one source, given with their sizes, the catalogue knows.

    A name that is a common word (``val``) counts where the number of images is right, or, if that
    is unknown (0), where another setting has a name of the catalogue's that is not.

    >>> list(recognised({"val": 50_000})), list(recognised({"val": 0, "imagenet-r": 0}))
    (['val'], ['val', 'imagenet-r'])
    >>> recognised({"val": 0, "mine": 0}), recognised({"val": 5_000})
    ({}, {})
    """
    found = {s: one for s in sizes if (one := identity(s)) is not None}
    named = any(not is_weak(setting) for setting in found)
    return {
        setting: one
        for setting, one in found.items()
        if not is_weak(setting)
        or sizes[setting] in (one.size, *one.also)
        or (named and not sizes[setting])
    }


def known_test_sets(bed: "Testbed") -> dict[str, Identity]:
    """Which settings are test sets that the catalogue knows, by setting (``recognised``)."""
    return recognised({setting: bed.usual_size(setting) for setting in bed.settings})


def not_recognised(sizes: Mapping[str, int]) -> list[str]:
    """What to do about common words that may mean a test set, a sentence each."""
    known = recognised(sizes)
    return [
        f"{setting!r} is a common word and not taken for {one.title}: call it {one.name!r}, or "
        "give its number of images"
        + (f" ({sizes[setting]:,} are not {one.size:,})" if sizes[setting] and one.size else "")
        for setting in sizes
        if setting not in known and (one := identity(setting)) is not None
    ]


def title_of(bed: "Testbed", setting: str) -> str:
    """What to call a setting in tables and charts; its name where nothing better is known."""
    known = bed.test_sets.get(setting)
    if known is not None:
        return known.title
    record = bed.records.get(setting)
    if record is not None and record.perturbation is not None:
        what = record.perturbation
        name = what.name.replace("_", " ")
        if what.severity is not None:
            name = f"{name} {what.severity}"
        elif what.kind == "adversarial":
            name = what.id
        where = ", on disk" if what.on_disk else ""
        return f"{_title(record.test_set)}, {name}{where}"
    if record is not None and record.mean_of and record.clean is not None:
        name = _mean(setting.removeprefix(f"{record.clean.id}+").removesuffix("@disk"))
        where = ", on disk" if setting.endswith("@disk") else ""
        return f"{_title(record.test_set)}, {name}{where}"
    titles = [
        s.title for s in bed.shifts if s.target == setting and _words(setting) in _words(s.title)
    ]
    return _mean(titles[0]) if titles else setting


def _mean(name: str) -> str:
    """
    >>> _mean("avg_pgd"), _mean("avg_5_corruptions"), _mean("fog")
    ('mean of PGD attacks', 'mean of 5 corruptions', 'fog')
    """
    words = name.replace("_", " ")
    what = words.removeprefix("avg ").replace("pgd", "PGD attacks")
    return f"mean of {what}" if words.startswith("avg ") else words


def _words(name: str) -> str:
    return name.replace("_", " ").replace("-", " ").casefold()


def _title(test_set: str) -> str:
    found = identity(test_set)
    return test_set if found is None else found.title


def axis_title(bed: "Testbed", setting: str) -> str:
    """The same with what is measured: ``ImageNet, top-1 %``."""
    return f"{title_of(bed, setting)}, {bed.metrics.get(setting, 'top-1 %')}"


def identity_of(bed: "Testbed", setting: str, known: Mapping[str, Identity]) -> tuple[str, str]:
    """What two testbeds' settings are joined on: the test set and what is measured.

    Images that are corrupted on disk are the same for everybody; what is done in memory is not,
    and keeps its name.
    """
    metric = bed.metrics.get(setting, "accuracy")
    if setting in known:
        return known[setting].name, metric
    record = bed.records.get(setting)
    if record is not None and record.perturbation is not None and record.perturbation.on_disk:
        clean = record.clean.test_set if record.clean is not None else record.test_set
        return f"{canonical(clean) or clean}+{record.perturbation.label}", metric
    return setting, metric


def meeting_points(bed: "Testbed") -> dict[tuple[str, str], str]:
    """The settings of a testbed by ``identity_of``, by name, and by the shifts towards them.

    A setting that is a known test set is met by that alone: ``val`` may be another's.
    """
    found: dict[tuple[str, str], str] = {}
    for setting in bed.settings:
        found.setdefault(identity_of(bed, setting, bed.test_sets), setting)
    for setting in bed.settings:
        if setting not in bed.test_sets:
            found.setdefault((setting, bed.metrics.get(setting, "accuracy")), setting)
    for shift in bed.shifts:
        found.setdefault((shift.name, bed.metrics.get(shift.target, "accuracy")), shift.target)
    return found


def joins(bed: "Testbed", given: "Testbed") -> dict[str, str]:
    """Settings of ``given`` with those of ``bed`` that they are.

    This is the one rule by which accuracies of a file, store or testbed meet another testbed
    (``identity_of``): the same test set, whatever it is called, measured in the same way.
    """
    there = meeting_points(bed)
    keys = {setting: identity_of(given, setting, given.test_sets) for setting in given.settings}
    return {setting: there[key] for setting, key in keys.items() if key in there}


def sizes_by_name(bed: "Testbed", known: Mapping[str, Identity]) -> NDArray[np.int64]:
    """The numbers of images, those that are unknown filled in where the test set is known."""
    n = bed.n.copy()
    for column, setting in enumerate(bed.settings):
        size = known[setting].size if setting in known and setting not in bed.metrics else None
        if size is not None:
            rows = np.isfinite(bed.value[:, column]) & (n[:, column] <= 0)
            n[rows, column] = size
    return n
