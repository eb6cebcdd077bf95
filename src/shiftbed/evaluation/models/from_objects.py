"""Models from objects: a torch module, a scikit-learn estimator, a function, a ``Model``."""

import copy
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from shiftbed.errors import InputError, brief
from shiftbed.evaluation.models.base import FunctionModel, Model
from shiftbed.evaluation.models.checkpoints import digest, fit, read_state
from shiftbed.evaluation.models.spec import Request
from shiftbed.evaluation.preprocessing import Preprocessing

if TYPE_CHECKING:
    from torch import nn

Naming = Callable[[Preprocessing, Preprocessing], str]
"""From an object's own preprocessing and the one used to the id of its model."""


def from_object(
    source: Any,
    request: Request,
    naming: Naming,
    *,
    facts: Mapping[str, Any],
    native: Preprocessing | None = None,
) -> Model:
    """The model that an object is.

    ``native`` is its own preprocessing where the object does not state one. Weights that are asked
    for are loaded into a torch module, strictly; anything else refuses them.
    """
    what = request.spec.text
    if is_module(source):
        return _from_module(source, request, naming, facts, native)
    if request.weights is not None:
        raise InputError(
            f"{what}: weights are for a torch module, its class or a function making one, not for "
            f"{kind_of(source)}"
        )
    if isinstance(source, Model):
        return source
    if request.device != "cpu":
        raise InputError(f"{what}: device is an option of torch models; this one runs as it is")
    request.only_float32()
    sklearn = sys.modules.get("sklearn.base")
    if sklearn is not None and isinstance(source, sklearn.BaseEstimator):
        from shiftbed.evaluation.models.from_sklearn import estimator_model, native_of

        own = stated(source) or native or native_of(source, request)
        return estimator_model(source, request, own, naming, facts)
    if not callable(source):
        raise InputError(f"{what}: not a function but {type(source).__name__}")
    own = stated(source) or native or _asked(request)
    used = request.preprocess(own)
    name, classes = naming(own, used), request.integer("num_classes") or request.classes
    if classes is None:
        shape = np.shape(source(np.full((1, used.channels, *used.size), 0.5, np.float32)))
        if len(shape) != 2 or shape[0] != 1:
            raise InputError(f"{name} must return (N, classes) logits, got {shape} for N = 1")
        classes = int(shape[1])
    return FunctionModel(
        id=name,
        classes=classes,
        preprocessing=used,
        facts=facts,
        class_names=request.class_names or tuple(getattr(source, "class_names", ())),
        function=source,
    )


def _from_module(
    module: "nn.Module",
    request: Request,
    naming: Naming,
    facts: Mapping[str, Any],
    native: Preprocessing | None,
) -> Model:
    from shiftbed.evaluation.models.torch_model import wrap

    network, names = _adapted(module)
    own = stated(module) or native or _asked(request)
    used = request.preprocess(own)
    file = request.weights
    if file is not None:
        fit(network, read_state(file), file)
        facts = {**facts, "weights": {"file": file.name, "sha256": digest(file)}}
    return wrap(
        network,
        id=naming(own, used),
        preprocessing=used,
        facts=facts,
        device=request.device,
        precision=request.precision,
        class_names=request.class_names or tuple(getattr(module, "class_names", names)),
    )


def _adapted(module: "nn.Module") -> tuple["nn.Module", tuple[str, ...]]:
    """A copy that returns logits, without what wraps the module, and its classes' names.

    The module itself keeps its mode, device, gradients and statistics: it may be in training.
    """
    from torch import nn

    inner: Any = module
    while isinstance(inner, nn.DataParallel | nn.parallel.DistributedDataParallel):
        inner = inner.module
    inner = getattr(inner, "_orig_mod", inner)  # compiled
    try:
        network = copy.deepcopy(inner)
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"the module {kind_of(inner)} cannot be copied: {brief(error)}") from None
    transformers = sys.modules.get("transformers.modeling_utils")
    if transformers is None or not isinstance(network, transformers.PreTrainedModel):
        return network, ()
    from shiftbed.evaluation.models.modules import Named

    labels: dict[int, str] = network.config.id2label
    return Named(network), tuple(labels[at] for at in sorted(labels))


def stated(source: Any) -> Preprocessing | None:
    """The ``preprocessing`` that an object says it needs, if it does."""
    found = getattr(source, "preprocessing", None)
    if isinstance(found, Mapping):
        return Preprocessing.from_dict(found)
    return found if isinstance(found, Preprocessing) else None


def _asked(request: Request) -> Preprocessing:
    """Any size, if another is asked for."""
    if not request.asks_for("size"):
        raise InputError(
            f"{request.spec.text} does not say its image size: give size (in a line, ?size=224), "
            "or set its attribute preprocessing = {'size': (224, 224)}"
        )
    return Preprocessing(size=(1, 1))


def kind_of(source: Any) -> str:
    """What an object is called: a function's or its class's name."""
    name = str(getattr(source, "__qualname__", type(source).__qualname__)).rpartition(".")[2]
    return name if name.isidentifier() else type(source).__name__


def is_module(source: Any) -> bool:
    """Whether it is a torch module; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module)
