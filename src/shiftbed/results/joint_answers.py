"""What several models answered to the same examples, as arrays, from whatever a user has.

A .npz file of predictions, a prediction store or a testbed with results per image; a published
testbed has accuracies only, and is refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import softmax

from shiftbed.analysis.label_free import negative_entropy
from shiftbed.errors import InputError, unknown
from shiftbed.store import PredictionStore, StoredTestSet
from shiftbed.store.derived import right_answers
from shiftbed.store.sealing import Damaged
from shiftbed.testbed import PUBLISHED, Testbed, open_testbed, recognise
from shiftbed.testbed.stored import called_in

MAX_PROBABILITY = "max-probability"
NEGATIVE_ENTROPY = "negative-entropy"


@dataclass(frozen=True, kw_only=True, eq=False)
class JointAnswers:
    """Answers of M models to the same N examples of one setting."""

    setting: str
    models: tuple[str, ...]
    classes: NDArray[np.integer[Any]] | None
    """(M, N); None where only right and wrong are known."""
    right: NDArray[np.bool_] | None
    """(M, N); None where there are no labels."""
    labels: NDArray[np.int64] | None
    """(N,), −1 where an example has several labels."""
    scores: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """(M, N) by name of the score; NaN rows for models that do not have it."""
    partly: tuple[NDArray[np.bool_], NDArray[np.bool_]] | None = None
    """Where only some examples have labels: (M, N) who is right there, and (N,) which these are."""
    left_out: int = 0
    """Examples that a model could not read or that have no label."""
    store: PredictionStore | None = None
    kept: NDArray[np.bool_] | None = None
    """The store they come from and which examples of its test set these are, if there is one."""
    called: Mapping[str, str] = field(default_factory=dict)
    """What people call the models whose names are hashes."""

    @property
    def n(self) -> int:
        some = self.right if self.classes is None else self.classes
        return 0 if some is None else int(some.shape[1])

    def judged(self) -> NDArray[np.bool_]:
        """``right``, refused where there are no labels."""
        if self.right is None:
            raise InputError(f"setting {self.setting!r} has no labels, so nobody is known right")
        return self.right

    def of(self, models: Iterable[str]) -> "JointAnswers":
        """The same for some of the models, in that order."""
        names = _named(models, self.models, self.called, self.setting)
        at = {name: i for i, name in enumerate(self.models)}
        rows = [at[name] for name in names]
        return replace(
            self,
            models=names,
            classes=None if self.classes is None else self.classes[rows],
            right=None if self.right is None else self.right[rows],
            partly=None if self.partly is None else (self.partly[0][rows], self.partly[1]),
            scores={name: score[rows] for name, score in self.scores.items()},
        )


Source = str | Path | Testbed | PredictionStore | JointAnswers
"""Where answers come from: a file, a testbed, a store, or arrays."""


def open_answers(
    source: Source,
    setting: str | None = None,
    *,
    scores: bool = False,
    unlabelled: bool = False,
    classes: bool = True,
    models: Sequence[str] | None = None,
) -> JointAnswers:
    """What models, all or some, answered in one setting of a file, a testbed or a store.

    ``setting`` may be left out where there is one. ``scores`` reads confidences too, where a store
    has them; ``unlabelled`` takes answers without labels. Without ``classes``, of a store only who
    was right, which may be known already.
    """
    if isinstance(source, JointAnswers):
        _chosen("the answers", setting, [source.setting])
        return source.of(models) if models else source
    name = "" if isinstance(source, Testbed | PredictionStore) else str(source)
    if name in PUBLISHED:
        raise InputError(
            f"{name}: a published testbed has accuracies, not what each model answered per image; "
            "give a .npz file of predictions or a prediction store"
        )
    found = recognise(source)
    if isinstance(found, PredictionStore):
        if not classes:
            return right_from_store(found, setting, models)
        answers = answers_from_store(found, setting, scores=scores, unlabelled=unlabelled)
    elif isinstance(found, Path) and found.suffix.lower() == ".npz":
        answers = _from_arrays(found, setting, unlabelled)
    else:
        answers = _from_testbed(open_testbed(found), setting, name)
    return answers.of(models) if models else answers


def open_two(
    source: Source,
    target: Source | None = None,
    id: str | None = None,
    ood: str | None = None,
    *,
    scores: bool = False,
) -> tuple[JointAnswers, JointAnswers]:
    """ID and OOD answers: two files, or two settings of one file or store."""
    if target is None and (id is None or ood is None):
        raise InputError("give an ID and an OOD file, or one file or store with --id and --ood")
    first = open_answers(source, id, scores=scores)
    second = open_answers(target or source, ood, scores=scores, unlabelled=True)
    if target is None and first.setting == second.setting:
        raise InputError(f"ID and OOD are the same setting, {first.setting!r}")
    return first, second


def matched(first: JointAnswers, second: JointAnswers) -> tuple[JointAnswers, JointAnswers]:
    """Both with the models they share, in the order of the first."""
    shared = [name for name in first.models if name in set(second.models)]
    if not shared:
        raise InputError(f"{first.setting!r} and {second.setting!r} share no model")
    return first.of(shared), second.of(shared)


def answers_from_store(
    store: PredictionStore,
    setting: str | None = None,
    models: Iterable[str] | None = None,
    *,
    scores: bool = False,
    unlabelled: bool = False,
) -> JointAnswers:
    """The complete cells of a setting; the store's only one, if none is named.

    Examples that a model could not read are left out for all, so that models are compared on the
    same; so are examples without labels, unless ``unlabelled`` (then ``right`` is None if any
    example lacks a label, and ``partly`` has those that do not). ``scores`` reads confidences too.
    """
    test_set, names = _complete(store, setting, models)
    labelled = test_set.labelled
    bare = unlabelled and not labelled.all()
    if not bare:
        _check_labels(test_set)
    classes, readable, found = _read(store, names, test_set, scores)
    keep = _kept(readable if bare else readable & labelled, test_set.setting, names)
    if not keep.all():
        found = {name: score[:, keep] for name, score in found.items()}
    right = None
    if labelled.any():
        right = np.stack([test_set.judge(one).right for one in classes])[:, keep]
    return JointAnswers(
        setting=test_set.setting,
        models=tuple(names),
        classes=classes[:, keep],
        right=None if bare else right,
        partly=None if right is None or not bare else (right, labelled[keep]),
        labels=None if bare else test_set.labels[keep],
        scores=found,
        left_out=int((~keep).sum()),
        store=store,
        kept=keep,
        called=called_in(store),
    )


def right_from_store(
    store: PredictionStore, setting: str | None = None, models: Iterable[str] | None = None
) -> JointAnswers:
    """The same without the classes answered: what is known of who was right is not read again."""
    test_set, names = _complete(store, setting, None)
    called = called_in(store)
    if models:
        names = list(_named(models, names, called, test_set.setting))
    _check_labels(test_set)
    right = np.zeros((len(names), len(test_set)), dtype=bool)
    keep = test_set.labelled
    at = {name: i for i, name in enumerate(names)}
    for name, found in right_answers(store, names, test_set):
        if isinstance(found, Damaged):
            raise found
        right[at[name]], read = found
        keep = keep if read is None else keep & read
    keep = _kept(keep, test_set.setting, names)
    return JointAnswers(
        setting=test_set.setting,
        models=tuple(names),
        classes=None,
        right=right if keep.all() else right[:, keep],
        labels=test_set.labels[keep],
        left_out=int((~keep).sum()),
        store=store,
        kept=keep,
        called=called,
    )


def classes_of(
    answers: JointAnswers, test_set: StoredTestSet, models: list[str]
) -> NDArray[np.integer[Any]]:
    """(R, N) classes that some models of a store answered, where only who was right is open."""
    if answers.store is None or answers.kept is None:
        raise ValueError("these answers are of no store")
    classes, readable, _ = _read(answers.store, models, test_set, scores=False)
    if (answers.kept & ~readable).any():
        raise InputError(f"{answers.store.files.root} was changed while it was read; try again")
    return classes if answers.kept.all() else classes[:, answers.kept]


def _named(
    models: Iterable[str], there: Sequence[str], called: Mapping[str, str], where: str
) -> tuple[str, ...]:
    """Models by their names or what people call them; refused if unknown or named twice."""
    known, back = set(there), {label: name for name, label in called.items()}
    names = tuple(name if name in known else back.get(name, name) for name in models)
    for name in names:
        if name not in known:
            raise unknown(f"model in {where}", name, there)
    if len(set(names)) < len(names):
        raise InputError("a model is named twice")
    return names


def _complete(
    store: PredictionStore, setting: str | None, models: Iterable[str] | None
) -> tuple[StoredTestSet, list[str]]:
    """A setting of a store and the models that are complete there."""
    test_set = store.test_set(_chosen("the store", setting, store.settings()))
    names = store.complete_models(test_set.setting, models)
    if not names or not len(test_set):
        raise InputError(f"the store has no complete predictions on {test_set.setting!r}")
    return test_set, names


def _check_labels(test_set: StoredTestSet) -> None:
    if not test_set.labelled.any():
        raise InputError(f"setting {test_set.setting!r} has no labels, so nobody is known right")


def _kept(keep: NDArray[np.bool_], setting: str, names: Sequence[str]) -> NDArray[np.bool_]:
    if not keep.any():
        raise InputError(f"no example of {setting!r} was read by all of its {len(names)} models")
    return keep


def mean_probabilities(answers: JointAnswers, models: Sequence[str]) -> NDArray[np.float64] | None:
    """(N, K): mean probability of each class over some models; None if one's logits were not kept.

    One model's logits are in memory at a time.
    """
    if answers.store is None or answers.kept is None:
        return None
    total: NDArray[np.float64] | float = 0.0
    for name in models:
        frame = answers.store.read(name, answers.setting, ["class_1", "logits"])
        if "logits" not in frame.columns:
            return None
        logits = frame["logits"].filter(pl.Series(answers.kept))
        total = total + softmax(np.array(logits.to_list(), dtype=np.float64), axis=1)
    return np.asarray(total) / len(models)


def _chosen(where: str, setting: str | None, there: list[str], alone: str = "") -> str:
    """The setting asked for, or the only one; ``alone`` is the only one under any name."""
    if setting in there:
        return str(setting)
    if len(there) == 1 and (setting is None or there == [alone]):
        return there[0]
    if setting is None:
        some = ", ".join(there[:8]) or "none"
        raise InputError(f"{where} has {len(there)} settings, name one: {some}")
    raise unknown(f"setting in {where}", setting, there)


def _read(
    store: PredictionStore, names: list[str], test_set: StoredTestSet, scores: bool
) -> tuple[NDArray[np.integer[Any]], NDArray[np.bool_], dict[str, NDArray[np.float32]]]:
    """(M, N) classes; which examples all models read; (M, N) scores by name."""
    n = len(test_set)
    readable = np.ones(n, dtype=bool)
    found: dict[str, NDArray[np.float32]] = {}
    if not scores:
        best = store.best_classes(names, test_set.setting)
        if best is not None and best.shape[1] == n:
            return best, readable, found
    classes: NDArray[np.integer[Any]] = np.zeros((len(names), n), dtype=np.uint32)
    columns = ["class_1", "prob_1", "logits"] if scores else ["class_1"]
    for row, name in enumerate(names):
        frame = store.read_all(name, test_set, columns)
        readable &= frame["class_1"].is_not_null().to_numpy()
        classes[row] = frame["class_1"].fill_null(0).to_numpy()
        for key, score in _scores(frame).items():
            found.setdefault(key, np.full((len(names), n), np.nan, np.float32))[row] = score
    return classes, readable, found


def _scores(frame: pl.DataFrame) -> dict[str, NDArray[np.float32]]:
    """What says how sure a model is, where the cell has it; NaN where an example was unreadable."""
    found = {}
    if "prob_1" in frame.columns:
        found[MAX_PROBABILITY] = frame["prob_1"].cast(pl.Float32).fill_null(np.nan).to_numpy()
    if "logits" in frame.columns:
        there = frame["logits"].is_not_null().to_numpy()
        wide = np.array(frame["logits"].drop_nulls().to_list(), dtype=np.float64)
        entropy = np.full(len(frame), np.nan, dtype=np.float32)
        entropy[there] = negative_entropy(softmax(wide, axis=1))
        found[NEGATIVE_ENTROPY] = entropy
    return found


def _from_arrays(path: Path, setting: str | None, unlabelled: bool) -> JointAnswers:
    from shiftbed.importing.predictions import (
        ONE,
        Predictions,
        parse_predictions,
        parse_unlabelled,
    )
    from shiftbed.reading.tables import read_bytes

    data = read_bytes(path)
    bare = parse_unlabelled(str(path), data) if unlabelled else []
    found = {one.setting: one for one in bare or parse_predictions(str(path), data)}
    key = _chosen(str(path), setting, list(found), ONE)
    one = found[key]
    return JointAnswers(
        setting=(setting or path.stem) if key == ONE else key,
        models=one.models,
        classes=one.top1,
        right=one.right if isinstance(one, Predictions) else None,
        labels=one.labels if isinstance(one, Predictions) else None,
    )


def _from_testbed(bed: Testbed, setting: str | None, name: str = "") -> JointAnswers:
    """Right and wrong per image that a testbed keeps; its classes are not kept."""
    name = name or bed.name
    there = [s for s, one in bed.results.items() if one.known.any()]
    if not there:
        raise InputError(
            f"{name}: this testbed has accuracies, not what each model answered per image"
        )
    key = _chosen(f"{name}, of those with results per image,", setting, there)
    results = bed.results[key]
    models = [m for m, known in zip(bed.model_names, results.known, strict=True) if known]
    return JointAnswers(
        setting=key,
        models=tuple(models),
        classes=None,
        right=results.bits[results.known],
        labels=None,
        called=bed.called,
    )
