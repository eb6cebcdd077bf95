"""Accuracies no better than guessing, of models that should know: flagged, with a question.

Pre-trained weights on clean images answer better than chance; where they do not, labels and classes
are numbered differently, or images are not seen as the weights expect. Random weights, checkpoints
of a training run and perturbed settings may well be at chance, and nothing is said of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from shiftbed.store import PredictionStore, StoredTestSet


def flagged(
    store: PredictionStore, rows: Iterable[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Rows of scores; the note of a top-1 accuracy not above chance says so.

    Records and test sets are read once, and only where a row asks for them.
    """
    test_set = cache(store.test_set)

    @cache
    def records() -> dict[tuple[str, str], dict[str, Any]]:
        return {(record["model"], record["setting"]): record for record in store.cells()}

    for row in rows:
        low = row.get("low")
        if row["metric"] != "top1" or low is None or low > 0.5:
            yield row
            continue
        record = records().get((row["model"], row["setting"]), {})
        classes = _classes(test_set(row["setting"]), record) if _is_trained(record) else None
        if classes is None or low > 1 / classes:
            yield row
        else:
            said = f"no better than guessing among {classes:,} classes: are they the model's?"
            yield {**row, "note": "; ".join(one for one in (row["note"], said) if one)}


def _is_trained(record: Mapping[str, Any]) -> bool:
    """Whether a cell's model came with weights, and not from a recipe."""
    weights = (record.get("model_details") or {}).get("weights")
    trained = isinstance(weights, Mapping) and not weights.get("random")
    return trained and "arguments" not in record


def _classes(test_set: StoredTestSet, record: Mapping[str, Any]) -> int | None:
    """Classes that a guess is among; None where chance is nothing to wonder at, or not known."""
    setting, details = test_set.record, record["model_details"]
    if setting is None or setting.perturbation:
        return None
    width = None if setting.policy is None else setting.policy.width
    found = width or test_set.classes or details.get("classes")
    return int(found) if isinstance(found, int) and found > 1 else None
