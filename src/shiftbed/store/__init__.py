"""The prediction store: what models answered, per example, on disk.

The only module that writes results. Everything else (every metric, every line) is computed from
it, now or later, without running a model again.
"""

from shiftbed.store.answers import Answers, blocks, read_answers, right_together
from shiftbed.store.check import Problem, collect_garbage, verify
from shiftbed.store.files import is_store
from shiftbed.store.parts import part_from_logits, part_from_top
from shiftbed.store.relabel import UNDECIDED, UNREADABLE, Decided, twin_answers
from shiftbed.store.store import PredictionStore
from shiftbed.store.test_sets import StoredTestSet
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
