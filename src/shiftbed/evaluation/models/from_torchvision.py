"""``torchvision:NAME[/WEIGHTS]``: torchvision's classifiers, such as ``resnet50/IMAGENET1K_V1``.

Keys: ``pretrained`` (true; false draws weights from ``seed``), ``weights`` (a local state dict),
``num_classes``.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbed.errors import unknown
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.models.base import Model
from shiftbed.evaluation.models.checkpoints import fit, read_state, url_file
from shiftbed.evaluation.models.spec import Request, stamp
from shiftbed.evaluation.models.torch_model import seeded, wrap_for
from shiftbed.evaluation.preprocessing import Preprocessing

if TYPE_CHECKING:
    from torch import nn


_INITIALISED = ("googlenet", "inception_v3")
"""These two ask to be told that their weights are to be drawn."""


def load(request: Request) -> Model:
    """Build a torchvision classifier and load its weights."""
    ensure_torchvision()
    from torchvision.models import get_model

    request.check_keys("pretrained", "weights", "num_classes", "seed")
    name, _, tag = request.spec.name.partition("/")
    entry = _entry(name, tag)
    pretrained = request.flag("pretrained", request.weights is None)
    native = preprocessing_of(entry.transforms())
    used = request.preprocess(native)
    classes = request.integer("num_classes") or request.classes
    query: dict[str, str | int | None] = {}
    file, shown, names = request.weights, name, ()
    if file is not None:
        network = _from_file(name, file, classes)
        query["weights"] = stamp(file)
    elif pretrained:
        file = url_file(entry.url, request.spec.text)
        with _tensors_only():
            network = get_model(name, weights=entry)
        shown, names = f"{name}/{entry.name}", tuple(entry.meta.get("categories", ()))
    else:
        with seeded(request.seed):
            network = _empty(name, classes)
        query = {**request.drawn, "num_classes": classes}
    facts = request.facts(name, file, "torch", "torchvision")
    if shown != name:
        facts["weights"]["tag"] = entry.name
    return wrap_for(request, network, shown, native, used, facts, query, names)


def preprocessing_of(preset: Any) -> Preprocessing:
    """torchvision's ``ImageClassification`` preset."""
    resize, crop = preset.resize_size, preset.crop_size
    return Preprocessing(
        size=(crop[0], crop[-1]),
        resize=resize[0] if len(resize) == 1 else tuple(resize),
        interpolation=preset.interpolation.value,
        crop="center" if len(resize) == 1 else "squash",
        mean=tuple(preset.mean),
        std=tuple(preset.std),
    )


def _entry(name: str, tag: str) -> Any:
    """The entry of torchvision's table of weights: the one named, or its default."""
    import torchvision

    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        raise unknown("torchvision model", name, known)
    table = torchvision.models.get_model_weights(name)
    if tag and tag != "DEFAULT" and tag not in table.__members__:
        raise unknown(f"weights of torchvision's {name}", tag, table.__members__)
    return table[tag or "DEFAULT"]


def _empty(name: str, classes: int | None) -> "nn.Module":
    from torchvision.models import get_model

    options: dict[str, Any] = {} if classes is None else {"num_classes": classes}
    if name in _INITIALISED:
        options["init_weights"] = True
    network: nn.Module = get_model(name, weights=None, **options)
    return network


def _from_file(name: str, file: Path, classes: int | None) -> "nn.Module":
    """A local state dict; the number of classes is read from its last layer."""
    state = read_state(file)
    network = _empty(name, classes)
    own = network.state_dict()
    last = [n for n in own if n.endswith(".weight")][-1]
    if classes is None and last in state and len(state[last]) != len(own[last]):
        network = _empty(name, len(state[last]))
    fit(network, state, file)
    return network


@contextmanager
def _tensors_only() -> Iterator[None]:
    """torchvision asks torch for a full unpickling of its files; allow tensors only."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name)
        os.environ.update({} if before is None else {name: before})
