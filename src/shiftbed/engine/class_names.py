"""Which of a model's classes a test set's labels mean: found by name or number, or refused.

A folder of classes numbers them by their order; a model has an order of its own. Where both have
the same classes in the same order, labels are the model's classes. Where the test set has only some
of them, or another order, its numbers mean something else, and an accuracy by them would be that of
guessing. So classes are matched by name where names are known: the model's own, ImageNet's WordNet
ids and words for models of its 1,000 classes, CIFAR-10's for models of ten. All classes of the
model go on competing; those that the test set lacks are numbered behind its own. Where nothing is
known to fit, one line says what to pass. A setting with a label policy says for itself what its
labels mean.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from shiftbed.catalogue.maps import IMAGENET_CLASSES, groups, imagenet_synsets
from shiftbed.engine.open_setting import OpenSetting
from shiftbed.errors import InputError
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.models import Model
from shiftbed.labels import subset

_GENERIC = re.compile(r"(label|class|category)?[ _-]*\d+", re.I)
"""Names that say no more than a number."""
_AGREE = 0.9
"""Share of a model's class names that must be ImageNet's for its order to be ImageNet's."""


def matched(model: Model, setting: OpenSetting) -> OpenSetting:
    """The setting as this model has to be judged: with a policy if its classes are numbered anew.

    Refuses what cannot be meant.
    """
    if setting.policy is not None or setting.plan.as_numbered:
        return setting
    labels = np.asarray(setting.stored.labels)
    known = labels[labels >= 0]
    if not len(known) and setting.stored.label_sets is None:
        return setting
    names, width = setting.test_set.classes, model.classes
    if names is not None and len(known):  # a class behind all others without examples says nothing
        names = names[: max(int(known.max()) + 1, min(width, len(names)))]
    if names is None:
        if len(known) and int(known.max()) >= width:
            raise _refusal(model, setting, f"labels up to {int(known.max())}")
        return setting
    order = _order(names, model)
    if order is None:
        if len(names) == width and not _contradict(names, model.class_names):
            return setting
        raise _refusal(model, setting, f"{len(names)} classes ({_some(names)})")
    if order == tuple(range(len(names))):
        return setting
    rest = sorted(set(range(width)) - set(order))
    return replace(setting, policy=subset((*order, *rest), of=width))


def how_matched(setting: OpenSetting) -> str | None:
    """What a cell's record says of classes that were matched; None where they are as numbered."""
    if setting.policy is None or setting.policy is setting.plan.setting.policy:
        return None
    return f"classes matched by name: {setting.policy.key[:200]}"


def _refusal(model: Model, setting: OpenSetting, what: str) -> InputError:
    own = f" ({_some(model.class_names)})" if model.class_names else ""
    return InputError(
        f"{setting.test_set.name} has {what}, {model.id} {model.classes}{own}, and nothing says "
        "which is which: pass --class-map FILE or --subset with the model's class of each label "
        "(--policy, --through for NAME@DIR), or --labels model if labels are the model's numbers"
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _order(names: Sequence[str], model: Model) -> tuple[int, ...] | None:
    """The model's class of each of the test set's; None where that is not known."""
    for known in _lists(model):
        found = _places(names, known)
        if found is not None:
            return found
    if len(names) < model.classes and all(name.isascii() and name.isdecimal() for name in names):
        numbers = tuple(int(name) for name in names)
        if max(numbers) < model.classes and len(set(numbers)) == len(numbers):
            return numbers
    return None


def _lists(model: Model) -> Iterable[Sequence[str]]:
    """Lists of names in the order of the model's classes, as far as they are known."""
    own = () if _generic(model.class_names) else model.class_names
    if own:
        yield own
    if model.classes == IMAGENET_CLASSES and (not own or _is_imagenet(own)):
        yield imagenet_synsets()
        yield from imagenet_words()
    if model.classes == 10 and not own:
        yield tuple(groups("cifar-10"))


def _places(names: Sequence[str], known: Sequence[str]) -> tuple[int, ...] | None:
    """Where each name is in a list; None unless every one is in one place, its own."""
    at: dict[str, set[int]] = {}
    for place, name in enumerate(known):
        for key in _keys(name):
            at.setdefault(key, set()).add(place)
    found = [at.get(_plain(name), set()) for name in names]
    if any(len(places) != 1 for places in found):
        return None
    order = tuple(next(iter(places)) for places in found)
    return order if len(set(order)) == len(order) else None


def _plain(name: str) -> str:
    """Without case, and with spaces for what folders have instead of them."""
    return " ".join(re.split(r"[\s_-]+", name.casefold().strip()))


def _keys(name: str) -> set[str]:
    """A name and each of its synonyms: ``tench, Tinca tinca``."""
    return {_plain(name), *(_plain(part) for part in name.split(",") if part.strip())}


def _generic(names: Sequence[str]) -> bool:
    return all(_GENERIC.fullmatch(name.strip()) for name in names)


def _contradict(names: Sequence[str], own: Sequence[str]) -> bool:
    """Whether both have real names, which do not agree; a number says nothing."""
    return bool(own) and not _generic(own) and not _generic(names)


def _is_imagenet(own: Sequence[str]) -> bool:
    """Whether a model's thousand names are ImageNet's, in its order."""
    lists = [imagenet_synsets(), *imagenet_words()]
    if len(own) != IMAGENET_CLASSES:
        return False
    same = [
        sum(bool(_keys(a) & _keys(b)) for a, b in zip(own, known, strict=True)) for known in lists
    ]
    return max(same) >= _AGREE * len(own)


@cache
def imagenet_words() -> tuple[tuple[str, ...], ...]:
    """ImageNet's class names as libraries that are installed have them, in its order."""
    found = []
    try:
        ensure_torchvision()
        from timm.data.imagenet_info import ImageNetInfo

        info = ImageNetInfo()
        found.append(tuple(info.index_to_description(i) for i in range(IMAGENET_CLASSES)))
        from torchvision.models._meta import _IMAGENET_CATEGORIES

        found.append(tuple(_IMAGENET_CATEGORIES))
    except ImportError:  # names by WordNet ids remain
        pass
    return tuple(one for one in found if len(one) == IMAGENET_CLASSES)
