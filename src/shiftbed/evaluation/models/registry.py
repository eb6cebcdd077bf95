"""Prefixes, each with the module that reads it; nothing is imported before it is asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.metadata import entry_points
from os import PathLike
from typing import Any

import numpy as np

from shiftbed.errors import InputError, lacking, unknown
from shiftbed.evaluation.models.base import Model
from shiftbed.evaluation.models.checkpoints import existing
from shiftbed.evaluation.models.from_objects import from_object, kind_of
from shiftbed.evaluation.models.spec import PREPROCESSING, Request, Spec, stamp
from shiftbed.evaluation.models.torch_model import PRECISIONS
from shiftbed.foreign_code import MINE, Named, Origin, check_code
from shiftbed.places import without_folders
from shiftbed.reading.files import parse_json, read_text

PREFIXES: dict[str, str] = {
    prefix: f"shiftbed.evaluation.models.from_{prefix}"
    for prefix in ("timm", "torchvision", "open_clip", "hf", "onnx", "torch", "sklearn", "python")
}
"""Prefix → module with ``load(request) -> Model``."""
PLUGINS = "shiftbed.models"
"""Entry points by which other packages add prefixes: modules with ``load(request) -> Model`` and
``name_of(spec) -> str``, what the store calls the model of that line; where that is no name for
people, also ``called_of(spec) -> str | None``, what they call it."""

_WITH_WEIGHTS = ("timm", "torchvision", "open_clip", "python", "nets")
"""Prefixes of architectures, which take a file of weights; the others name one themselves."""
Texts = Sequence[str] | str | PathLike[str]
Names = int | Texts | None


def resolve(
    spec: str,
    *,
    device: str = "cpu",
    precision: str = "float32",
    preprocessing: Mapping[str, Any] | None = None,
    weights: str | PathLike[str] | None = None,
    classes: Names = None,
    templates: Texts | None = None,
    trusted: Sequence[str] = (),
    allow_code: bool = False,
    origin: Origin = MINE,
) -> Model:
    """The model that a line of text names, ready to run.

    ``preprocessing`` changes fields of the model's own; ``weights`` is a local file instead of the
    hub's; ``classes`` is their number, or their names (a list, or a file with one per line or a
    JSON list), which zero-shot models need; ``templates`` are their prompts, given likewise;
    ``trusted`` are types that an sklearn file may hold beyond scikit-learn's own. A line that says
    ``python:`` executes what it names; code that a file behind the line names (that of a run's
    folder) is executed only with ``allow_code``. ``origin`` is where a line was read that the
    caller did not write.

    >>> resolve("tim:resnet18")
    Traceback (most recent call last):
    ...
    shiftbed.errors.InputError: unknown kind of model 'tim'; did you mean 'timm'?
    """
    parsed = Spec.parse(spec)
    origin = replace(origin, allow_code=origin.allow_code or allow_code)
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    file = weights if weights is not None else parsed.query.get("weights")
    if file is not None and parsed.prefix not in _WITH_WEIGHTS:
        raise InputError(
            f"{spec}: takes no weights ({file}); those of {parsed.prefix}: belong to what it names"
        )
    check_code(code_in(spec, origin, trusted))
    if weights is not None and "weights" in parsed.query:
        raise InputError(f"{spec}: weights are given twice, in the line and as {weights}")
    request = _request(
        parsed,
        device=device,
        precision=precision,
        preprocessing=dict(preprocessing or {}),
        weights=None if file is None else existing(file, f"weights of {spec}"),
        classes=classes if classes is not None else parsed.query.get("classes"),
        templates=templates if templates is not None else parsed.query.get("templates"),
        trusted=tuple(trusted),
        origin=origin,
    )
    try:
        found: Model = _module(parsed.prefix).load(request)
    except ModuleNotFoundError as error:
        missing = lacking(error, spec)
        if missing is None:
            raise
        raise missing from None
    request.expect(found.classes)
    return found


def _request(spec: Spec, *, classes: Names, templates: Texts | None = None, **more: Any) -> Request:
    """With the names of classes and the prompts read, where they are files."""
    names = () if classes is None or isinstance(classes, int) else _lines(classes, "classes")
    return Request(
        spec=spec,
        classes=classes if isinstance(classes, int) else len(names) or None,
        class_names=names,
        templates=() if templates is None else _lines(templates, "templates"),
        **more,
    )


def model(
    source: Any,
    *,
    name: str | None = None,
    size: int | tuple[int, int] | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    classes: Names = None,
    preprocessing: Mapping[str, Any] | None = None,
    weights: str | PathLike[str] | None = None,
    device: str = "cpu",
    precision: str = "float32",
    **options: Any,
) -> Model:
    """A model from a line of text, a torch module, a function or a scikit-learn estimator.

    - text: ``timm:resnet18`` and every other prefix of ``resolve``, whose options it takes.
    - a ``torch.nn.Module`` from normalised pixels (N, C, H, W) to logits (N, classes). It is copied
      as it is now, and the copy put into evaluation mode: the module itself, which may be in the
      middle of training, keeps its mode, its gradients and its statistics. Make another model
      after more training.
    - a function from (N, C, H, W) float32 pixels, in [0, 1] unless mean and std say otherwise, to
      logits.
    - a fitted scikit-learn classifier of flattened pixels; ``layout`` is "hwc" or "chw".
    - a ``Model``, returned as it is.

    ``size`` is the image size, an int or (height, width); images are resized to it and cropped.
    ``mean`` and ``std`` are per channel in [0, 1] units, by default 0 and 1; their length says how
    many channels there are (one number serves all three). Other fields of ``Preprocessing`` are
    given by name or in ``preprocessing``. ``weights`` is a file of tensors for a module or an
    architecture, all of which must fit. ``classes`` is how many classes there must be, or their
    names. ``name`` is what results call the model. ``allow_code`` executes code that files name: of
    ``run:FOLDER`` the ``python:`` network it was trained with.

    >>> import numpy as np
    >>> bright = model(lambda x: x.mean(axis=(2, 3)), name="bright", size=4)
    >>> bright.id, bright.classes, bright.spec, bright.fingerprint
    ('bright', 3, None, None)
    >>> bright.logits(np.full((1, 3, 4, 4), 255, np.uint8)).tolist()
    [[1.0, 1.0, 1.0]]
    """
    given = {"size": size, "mean": mean, "std": std}
    changes = {key: value for key, value in given.items() if value is not None}
    changes |= {key: options.pop(key) for key in PREPROCESSING if key in options}
    changes = {**(preprocessing or {}), **changes}
    if name is not None and not (isinstance(name, str) and name.strip()):
        raise InputError(f"name must be a text that is not empty, got {name!r}")
    if isinstance(source, Model):
        asked = {"weights": weights, "classes": classes}
        other = [*changes, *options, *(key for key, value in asked.items() if value is not None)]
        other += ["device"] * (device != "cpu") + ["precision"] * (precision != "float32")
        if other:
            raise InputError(f"{source.id} is a model already: {', '.join(other)} cannot change")
        return source if name is None else replace(source, id=name)
    text = ("templates", "trusted", "allow_code", "origin")
    known = text if isinstance(source, str) else ("layout",)
    for key in options:
        if key not in known:
            raise unknown("option of a model", key, (*known, *PREPROCESSING))
    if isinstance(source, str):
        options |= {"device": device, "precision": precision, "weights": weights}
        found = resolve(source, preprocessing=changes, classes=classes, **options)
        return found if name is None else replace(found, id=name)
    file = None if weights is None else existing(weights, "weights")
    # a single mean (or std) in a list is that of the only channel
    sizes = {np.size(changes[key]) for key in ("mean", "std") if np.ndim(changes.get(key, 0))}
    one_channel = sizes == {1}
    own = name or kind_of(source) + (f"?weights={stamp(file)}" if file else "")
    request = _request(
        Spec(text=own, prefix="", name=own, query=options),
        device=device,
        precision=precision,
        preprocessing={"mode": "L", **changes} if one_channel else changes,
        weights=file,
        classes=classes,
    )
    found = from_object(source, request, lambda *_: own, facts={"architecture": kind_of(source)})
    request.expect(found.classes)
    return found


def code_in(spec: str, origin: Origin, trusted: Sequence[str] = ()) -> list[Named]:
    """What opening a line would execute by name, found without executing or opening anything.

    Of an entry point's prefix (``run:``) what its ``code_in`` says, if it has one.
    """
    parsed = Spec.parse(spec)
    lines = [f"{parsed.prefix}:{parsed.name}", parsed.query.get("arch", "")]
    found = [(origin, line) for line in lines if line.startswith("python:")]
    found += [(origin, f"{name} in {parsed.name}") for name in trusted]
    if parsed.prefix not in PREFIXES:
        found += vars(_module(parsed.prefix)).get("code_in", lambda *_: [])(parsed, origin)
    return found


def name_of(spec: str) -> str:
    """What a model is called in a store: its line, or what the module of its prefix says.

    >>> name_of("onnx:nets/a.onnx"), name_of("onnx:/home/me/nets/a.onnx")
    ('onnx:nets/a.onnx', 'onnx:a.onnx')
    """
    prefix = Spec.parse(spec).prefix
    return str(without_folders(spec if prefix in PREFIXES else _module(prefix).name_of(spec)))


def called_of(spec: str) -> str | None:
    """What people call the model of a line whose name in a store is a hash; None: by its name.

    >>> called_of("timm:resnet18")
    """
    prefix = Spec.parse(spec).prefix
    said = None if prefix in PREFIXES else getattr(_module(prefix), "called_of", None)
    return None if said is None else said(spec)


def kinds() -> set[str]:
    """What a model's line may begin with, entry points included."""
    return {*PREFIXES, *(one.name for one in entry_points(group=PLUGINS))}


def _module(prefix: str) -> Any:
    if prefix in PREFIXES:
        return import_module(PREFIXES[prefix])
    added = {one.name: one for one in entry_points(group=PLUGINS)}
    if prefix not in added:
        raise unknown("kind of model", prefix, [*PREFIXES, *added])
    return added[prefix].load()


def _lines(given: Texts, what: str) -> tuple[str, ...]:
    """Names or prompts: a list, or a file with one per line or a JSON list."""
    where, values = "", given
    if isinstance(given, str | PathLike):
        path = existing(given, what)
        where = f"{path}: "
        text = read_text(path)
        values = parse_json(text, str(path)) if path.suffix == ".json" else text.splitlines()
        if not isinstance(values, list):
            raise InputError(f"{where}{what} must be a JSON list of texts")
    found = tuple(values) if isinstance(values, Sequence) else ()
    if not found or not all(isinstance(v, str) and v.strip() for v in found):
        raise InputError(f"{where}{what} must be one or more texts, none of them empty")
    return found
