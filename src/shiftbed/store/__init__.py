"""The prediction store: what models answered, per example, on disk.

The only module that writes results. Everything else (every metric, every line) is computed from
it, now or later, without running a model again.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shiftbed.store.files import is_store
from shiftbed.store.parts import part_from_logits, part_from_top
from shiftbed.store.store import PredictionStore
from shiftbed.store.test_sets import StoredTestSet

if TYPE_CHECKING:
    from shiftbed.store.answers import Answers, blocks, read_answers, right_together
    from shiftbed.store.check import Problem, collect_garbage, verify
    from shiftbed.store.relabel import UNDECIDED, UNREADABLE, Decided, twin_answers
    from shiftbed.store.twin import Twin, common_classes, make_twin

__all__ = [
    "UNDECIDED",
    "UNREADABLE",
    "Answers",
    "Decided",
    "PredictionStore",
    "Problem",
    "StoredTestSet",
    "Twin",
    "blocks",
    "collect_garbage",
    "common_classes",
    "is_store",
    "make_twin",
    "part_from_logits",
    "part_from_top",
    "read_answers",
    "right_together",
    "twin_answers",
    "verify",
]


def __getattr__(name: str) -> Any:
    """The rest, when it is first used: a testbed that is no store needs none of it."""
    if name in __all__:
        for module in ("answers", "check", "relabel", "twin"):
            found = vars(import_module(f"{__name__}.{module}"))
            if name in found:
                return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
