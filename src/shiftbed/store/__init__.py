"""The prediction store: what models answered, per example, on disk.

The only module that writes results. Everything else (every metric, every line) is computed from
it, now or later, without running a model again.
"""

from shiftbed.store.answers import Answers, read_answers
from shiftbed.store.check import Problem, collect_garbage, verify
from shiftbed.store.parts import part_from_logits, part_from_top
from shiftbed.store.store import PredictionStore, StoredTestSet

__all__ = [
    "Answers",
    "PredictionStore",
    "Problem",
    "StoredTestSet",
    "collect_garbage",
    "part_from_logits",
    "part_from_top",
    "read_answers",
    "verify",
]
