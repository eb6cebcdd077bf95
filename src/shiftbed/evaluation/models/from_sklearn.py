"""``sklearn:FILE.skops``: scikit-learn estimators, saved with skops; pickles are refused.

Pixels are normalised by the preprocessing's mean and std, flattened (``layout=hwc`` as image
arrays are, or ``chw``) and given to the estimator as float64. Digits on a scale of 0 to 16, for
example, are ``?size=8&mode=L&std=0.0625``. Logits are log-probabilities where there is
``predict_proba``, else ``decision_function``. Where the estimator's classes are whole numbers, they
are the labels.
"""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.models.base import Floats, FunctionModel, Model
from shiftbed.evaluation.models.checkpoints import digest, existing
from shiftbed.evaluation.models.spec import Request, native_preprocessing, stamp
from shiftbed.evaluation.preprocessing import Preprocessing

Method = Literal["predict_proba", "decision_function"]
LOWEST = -104.0
"""Logit of what has probability 0: below the logarithm of the smallest float32."""
_PICKLES = (".pkl", ".pickle", ".joblib", ".dill", ".sav")


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimator:
    """An estimator as a function from normalised (N, C, H, W) pixels to (N, columns) logits."""

    estimator: Any
    method: Method
    labels: NDArray[np.int64]
    """Column of each of the estimator's classes."""
    columns: int
    layout: str = "hwc"

    def __call__(self, x: Floats) -> Floats:
        arranged = x.transpose(0, 2, 3, 1) if self.layout == "hwc" else x
        features = np.ascontiguousarray(arranged, dtype=np.float64).reshape(len(x), -1)
        scores = np.asarray(getattr(self.estimator, self.method)(features), np.float64)
        if self.method == "predict_proba":
            with np.errstate(divide="ignore"):
                scores = np.maximum(np.log(scores), LOWEST)
        elif scores.ndim == 1:  # two classes: the margin is the difference of the logits
            scores = np.stack([-scores / 2, scores / 2], axis=1)
        found = np.full((len(x), self.columns), LOWEST, np.float32)
        found[:, self.labels] = scores
        return found


def load(request: Request) -> Model:
    """Load an estimator of known types only."""
    request.check_keys("layout", "num_classes")
    request.only_float32()
    file = existing(request.spec.name, request.spec.prefix)
    estimator = _read(file, request.trusted)
    native = native_preprocessing(request, file, needed=("std",))
    changed = None if layout_of(request) == "hwc" else layout_of(request)
    facts = request.facts(type(estimator).__name__, file, "scikit-learn", "skops")
    return estimator_model(
        estimator,
        request,
        native,
        lambda own, used: request.identity(stamp(file), own, used, layout=changed),
        facts,
        content=digest(file),
    )


def estimator_model(
    estimator: Any,
    request: Request,
    native: Preprocessing,
    naming: Callable[[Preprocessing, Preprocessing], str],
    facts: Mapping[str, Any],
    content: str | None = None,
) -> FunctionModel:
    """A fitted estimator as a model, after a look at its features and classes."""
    what = request.spec.text
    methods: tuple[Method, ...] = ("predict_proba", "decision_function")
    method = next((one for one in methods if callable(getattr(estimator, one, None))), None)
    if method is None:
        kind = type(estimator).__name__
        raise InputError(f"{what}: {kind} has neither predict_proba nor decision_function")
    used = request.preprocess(native)
    width = used.channels * used.size[0] * used.size[1]
    expected = getattr(estimator, "n_features_in_", width)
    if expected != width:
        raise InputError(
            f"{what} takes {expected} features, but {used.size} pixels in {used.channels} channels "
            f"are {width}"
        )
    labels, names = _labels(estimator, what)
    columns = max(int(labels.max()) + 1, request.classes or request.integer("num_classes") or 0)
    layout = layout_of(request)
    return FunctionModel(
        id=naming(native, used),
        classes=columns,
        preprocessing=used,
        facts=facts,
        class_names=request.class_names or names,
        content=estimator_digest(estimator, layout) or content,
        function=Estimator(
            estimator=estimator, method=method, labels=labels, columns=columns, layout=layout
        ),
        engine="sklearn",
    )


def layout_of(request: Request) -> str:
    """How pixels become features, as asked for."""
    layout = request.text("layout") or "hwc"
    if layout not in ("hwc", "chw"):
        raise unknown("layout", layout, ("hwc", "chw"))
    return layout


def native_of(estimator: Any, request: Request) -> Preprocessing:
    """Of an estimator in memory: nothing is known but, from its features, the channels."""
    if not request.asks_for("size", "std"):
        raise InputError(
            f"{request.spec.text} does not say its preprocessing: give size and std, such as "
            "size=8, std=1/16 for 8 × 8 pixels on a scale of 0 to 16"
        )
    plain = request.preprocess(Preprocessing(size=(1, 1)))
    grey = getattr(estimator, "n_features_in_", None) == plain.size[0] * plain.size[1]
    return Preprocessing(size=(1, 1), mode="L" if grey else "RGB")


def estimator_digest(estimator: Any, layout: str) -> str | None:
    """A digest of an estimator's parameters and arrays; None if it holds what cannot be saved."""
    import joblib  # type: ignore[import-untyped]

    try:
        pickle.dumps(estimator)  # a function without a name has no identity
        return f"{layout} {joblib.hash(estimator, hash_name='sha1')}"
    except (pickle.PicklingError, TypeError, AttributeError):
        return None


def _read(file: Path, trusted: tuple[str, ...]) -> Any:
    if file.suffix.lower() in _PICKLES:
        raise InputError(
            f"{file}: pickles run whatever they contain and are refused; "
            "save the estimator with skops.io.dump(estimator, 'FILE.skops')"
        )
    try:
        import skops.io
    except ImportError:
        raise InputError("skops is not installed: pip install skops") from None
    try:
        others = sorted(set(skops.io.get_untrusted_types(file=file)) - set(trusted))
    except Exception as error:  # a damaged archive fails in many ways
        raise InputError(f"{file}: not a skops file: {error}") from None
    if others:
        raise InputError(
            f"{file} holds types that are not trusted: {', '.join(others)}; "
            "if you know them, name them as trusted=[…]"
        )
    try:
        return skops.io.load(file, trusted=list(trusted))
    except Exception as error:
        raise InputError(f"{file}: skops cannot load it: {error}") from None


def _labels(estimator: Any, file: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Columns of the estimator's classes, and their names if they are no numbers."""
    classes = np.asarray(getattr(estimator, "classes_", ()))
    if classes.ndim != 1 or len(classes) < 2:
        raise InputError(f"{file}: {type(estimator).__name__} is not a fitted classifier")
    whole = classes.dtype.kind == "f" and (classes == classes.astype(np.int64)).all()
    if whole or (classes.dtype.kind in "iub" and classes.min() >= 0):
        return classes.astype(np.int64), ()
    return np.arange(len(classes)), tuple(str(c) for c in classes)
