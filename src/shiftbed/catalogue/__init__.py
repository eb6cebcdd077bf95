"""The catalogue of natural shifts: test sets, tasks of domains, class maps, shifts between them.

Nothing here reads an image: ``shiftbed.evaluation.data.open_test_set("NAME@DIR")`` opens what the
catalogue names.

>>> find("imagenet-r").classes, find("pacs/sketch").images
(200, 3929)
>>> sum(one.task is not None for one in shifts())
172
"""

from shiftbed.catalogue.entries import Domain, DomainTask, KnownSetting, KnownShift, TestSetEntry
from shiftbed.catalogue.identity import (
    Identity,
    canonical,
    identities,
    identity,
    is_weak,
    size,
    title,
)
from shiftbed.catalogue.lookup import (
    count_of_pairs,
    entries,
    find,
    find_task,
    look_up,
    names,
    shift,
    shifts,
    tasks,
)
from shiftbed.catalogue.maps import common_classes, policy_of, through

__all__ = [
    "Domain",
    "DomainTask",
    "Identity",
    "KnownSetting",
    "KnownShift",
    "TestSetEntry",
    "canonical",
    "common_classes",
    "count_of_pairs",
    "entries",
    "find",
    "find_task",
    "identities",
    "identity",
    "is_weak",
    "look_up",
    "names",
    "policy_of",
    "shift",
    "shifts",
    "size",
    "tasks",
    "through",
    "title",
]
