"""A checkpoint on all settings of its recipe, through the one engine.

A setting that a model cannot have (an attack on one without gradients) is recorded as such, and it
is not tried again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.engine.open_setting import OpenSetting
from shiftbed.engine.plan import WARNING, ModelSpec, RunSpec, SettingPlan
from shiftbed.engine.run import run_spec
from shiftbed.errors import InputError
from shiftbed.evaluation.data import Unreadable
from shiftbed.evaluation.models import Model
from shiftbed.store import PredictionStore, read_answers

Answer = Callable[[OpenSetting], tuple[NDArray[np.float32], Sequence[Unreadable]]]
Say = Callable[[str], None]


def is_evaluated(store: PredictionStore, model: str, settings: Sequence[SettingPlan]) -> bool:
    """Whether a checkpoint has been evaluated on all settings that it can have."""
    return all(_is_complete(store, model, one) for one in settings)


def _is_complete(store: PredictionStore, model: str, setting: SettingPlan) -> bool:
    if store.complete(model, setting.id):  # first: cheap where there is nothing
        return (store.cell(model, setting.id) or {}).get("status") == "complete"
    if setting.setting.kind != "adversarial":
        return False
    record = store.cell(model, setting.id) or {}
    return record.get("status") == "failed" and bool(record.get("not_applicable"))


def evaluate_checkpoint(
    model: Model,
    settings: Sequence[SettingPlan],
    store: PredictionStore,
    *,
    info: Mapping[str, Any],
    details: Mapping[str, Any],
    batch_size: int = 256,
    top: int = 5,
    memory_gib: float = 2.0,
    answer: Answer | None = None,
    say: Say = lambda note: None,
) -> dict[str, float | None]:
    """Predict every setting that is not in the store yet, and write it there as ``model.id``.

    ``answer`` computes the logits of a setting without perturbation, by default from its pixels.
    ``say`` hears why settings were left out and what attacks warn of. Returns the accuracies of
    what was predicted, None where no image has a label.
    """
    todo = [one for one in settings if not is_evaluated(store, model.id, [one])]
    spec = RunSpec(
        name="checkpoint",
        store=store,
        models=(
            ModelSpec(source=model, name=model.id, info=info, details=details, answers=answer),
        ),
        settings=todo,
        options={
            "batch_size": batch_size,
            "top": top,
            "memory_gib": memory_gib,
            "backend": "torch",
        },
    )
    summary = run_spec(spec, describe=False)
    for key, why in summary.failed.items():
        if key not in summary.not_applicable:
            raise InputError(f"{key[0]} on {key[1]}: {why}")
    for note in dict.fromkeys(summary.notes):
        if WARNING in note:
            say(note.removeprefix(f"{model.id} on "))
    refused = [summary.failed[key] for key in summary.failed]
    if refused:
        more = f" (and {len(refused) - 1} more settings)" if len(refused) > 1 else ""
        say(refused[0] + more)
    return {setting: _accuracy(store, model.id, setting) for _, setting in summary.complete}


def _accuracy(store: PredictionStore, model: str, setting: str) -> float | None:
    right = read_answers(store, model, store.test_set(setting), []).right
    return float(right.mean()) if len(right) else None
