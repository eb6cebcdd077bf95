"""Answers per example, from whatever the user names: a .npz file, a store, a testbed file."""

from pathlib import Path
from typing import TYPE_CHECKING

from shiftbed.errors import InputError, unknown

if TYPE_CHECKING:
    from shiftbed.results.answers import JointAnswers


def open_answers(
    name: str, setting: str | None = None, *, scores: bool = False, unlabelled: bool = False
) -> "JointAnswers":
    """What models answered in one setting of a file or a store.

    A published testbed has accuracies only, and is refused in one line.
    """
    from shiftbed.results.answers import answers_from_store
    from shiftbed.testbed import PUBLISHED

    if name in PUBLISHED:
        raise InputError(
            f"{name}: a published testbed has accuracies, not what each model answered per image; "
            "give a .npz file of predictions or a prediction store"
        )
    path = Path(name)
    if "://" in name or path.is_dir():
        from shiftbed.store import PredictionStore

        store = PredictionStore.existing(name)
        return answers_from_store(store, setting, scores=scores, unlabelled=unlabelled)
    if path.suffix.lower() == ".npz":
        return _from_arrays(path, setting, unlabelled)
    return _from_testbed(name, setting)


def open_two(
    source: str, target: str | None, ids: str | None, ood: str | None, *, scores: bool = False
) -> "tuple[JointAnswers, JointAnswers]":
    """ID and OOD answers: two files, or two settings of one file or store."""
    if target is None and (ids is None or ood is None):
        raise InputError("give an ID and an OOD file, or one file or store with --id and --ood")
    first = open_answers(source, ids, scores=scores)
    second = open_answers(target or source, ood, scores=scores, unlabelled=True)
    if target is None and first.setting == second.setting:
        raise InputError(f"ID and OOD are the same setting, {first.setting!r}")
    return first, second


def _from_arrays(path: Path, setting: str | None, unlabelled: bool) -> "JointAnswers":
    from shiftbed.importing.predictions import ONE, parse_predictions, parse_unlabelled
    from shiftbed.reading.tables import read_bytes
    from shiftbed.results.answers import JointAnswers

    data = read_bytes(path)
    bare = {one.setting: one for one in parse_unlabelled(str(path), data)} if unlabelled else {}
    if bare:
        key = _chosen(str(path), setting, list(bare), ONE)
        return JointAnswers(
            setting=path.stem if key == ONE else key,
            models=bare[key].models,
            classes=bare[key].top1,
            right=None,
            labels=None,
        )
    found = {one.setting: one for one in parse_predictions(str(path), data)}
    key = _chosen(str(path), setting, list(found), ONE)
    one = found[key]
    return JointAnswers(
        setting=(setting or path.stem) if key == ONE else key,
        models=one.models,
        classes=one.top1,
        right=one.right,
        labels=one.labels,
    )


def _chosen(path: str, setting: str | None, there: list[str], alone: str) -> str:
    """The array of a setting; a file with one setting is that one, however it is called."""
    if setting in there:
        return str(setting)
    if alone in there and len(there) == 1:
        return alone
    if setting is None and len(there) == 1:
        return there[0]
    if setting is None:
        raise InputError(f"{path}: has {len(there)} settings, name one: {', '.join(there[:8])}")
    raise unknown(f"setting in {path}", setting, there)


def _from_testbed(name: str, setting: str | None) -> "JointAnswers":
    """Right and wrong per image that a testbed file keeps; its classes are not kept."""
    from shiftbed.results.answers import JointAnswers
    from shiftbed.testbed import open_testbed

    bed = open_testbed(name)
    there = [s for s, one in bed.results.items() if one.known.any()]
    if not there:
        raise InputError(
            f"{name}: this testbed has accuracies, not what each model answered per image"
        )
    if setting is None and len(there) > 1:
        raise InputError(f"{name}: has {len(there)} settings, name one: {', '.join(there[:8])}")
    key = setting or there[0]
    if key not in there:
        raise unknown(f"setting with results per image in {name}", key, there)
    results = bed.results[key]
    models = [m for m, known in zip(bed.model_names, results.known, strict=True) if known]
    return JointAnswers(
        setting=key,
        models=tuple(models),
        classes=None,
        right=results.right[results.known],
        labels=None,
    )
