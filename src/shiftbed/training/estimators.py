"""``sklearn:MODULE.CLASS?OPTION=VALUE&…``: a classifier of scikit-learn, to be fitted; torch-free.

    sklearn:linear_model.LogisticRegression?C=0.05&max_iter=200&size=16
    sklearn:neural_network.MLPClassifier?hidden_layer_sizes=100,50

``size`` (pixels a side) and ``mode`` (L or RGB) are those of the images it sees; all other options
go to the constructor: whole numbers, numbers, ``true``, ``false``, ``none``, texts, and several of
them between commas (``100,`` is a tuple of one). Its ``random_state`` is the run's seed. Modules
are scikit-learn's own, and public; nothing else is imported.
"""

import inspect
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any
from urllib.parse import quote

from shiftbed.errors import InputError, unknown

PREFIX = "sklearn:"
MODES = ("L", "RGB")
SEED = "random_state"
_NOT_PUBLIC = ("tests", "externals", "experimental", "conftest")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "none": None}
Value = bool | int | float | str | None


def is_classical(model: object) -> bool:
    """Whether a recipe's model is one of scikit-learn, which is fitted rather than trained."""
    return isinstance(model, str) and model.startswith(PREFIX)


@dataclass(frozen=True, kw_only=True)
class EstimatorSpec:
    """A classifier of scikit-learn with its options, all of them checked."""

    name: str
    """Below ``sklearn``: linear_model.LogisticRegression."""
    options: Mapping[str, Value | tuple[Value, ...]]
    size: int | None = None
    """Pixels a side; None: as the training images have them."""
    mode: str | None = None
    """L or RGB; None: L if all training images are grey."""

    @property
    def text(self) -> str:
        """One spelling for one meaning: options sorted, numbers as they print.

        >>> read_estimator("sklearn:svm.SVC?size=8&C=1e-1").text
        'sklearn:svm.SVC?C=0.1&size=8'
        """
        given = {key: _shown(value) for key, value in self.options.items()}
        given |= {} if self.size is None else {"size": str(self.size)}
        given |= {} if self.mode is None else {"mode": self.mode}
        tail = "&".join(f"{key}={given[key]}" for key in sorted(given))
        return f"{PREFIX}{self.name}" + (f"?{tail}" if tail else "")

    @property
    def architecture(self) -> str:
        """The class's name."""
        return self.name.rpartition(".")[2]

    def make(self, seed: int) -> Any:
        """The estimator, not fitted yet; the seed is its ``random_state`` if it has one."""
        kind = _class(self.name)
        own = {SEED: seed} if SEED in inspect.signature(kind).parameters else {}
        return kind(**self.options, **own)


@lru_cache(maxsize=1024)
def read_estimator(text: str) -> EstimatorSpec:
    """A model's line, read and checked as far as it can be without data.

    >>> read_estimator("sklearn:neural_network.MLPClassifier?hidden_layer_sizes=100,50").options
    {'hidden_layer_sizes': (100, 50)}
    """
    from shiftbed.evaluation.models.spec import Spec

    parsed = Spec.parse(text)
    kind = _class(parsed.name)
    query = dict(parsed.query)
    size, mode = query.pop("size", None), query.pop("mode", None)
    if size is not None and (not _WHOLE.fullmatch(size) or int(size) < 1):
        raise InputError(f"{text}: size must be a whole number of pixels from 1, got {size!r}")
    if mode is not None and mode not in MODES:
        raise unknown(f"mode of {kind.__name__}", mode, MODES)
    spec = EstimatorSpec(
        name=parsed.name,
        options={key: _value(value, text) for key, value in query.items()},
        size=None if size is None else int(size),
        mode=mode,
    )
    _check_options(spec, kind)
    return spec


def _class(name: str) -> Any:
    """The classifier of that name; only public modules of scikit-learn are looked into."""
    if name.endswith(".skops"):
        raise InputError(
            f"{PREFIX}{name} is a fitted estimator; a recipe fits a class, such as "
            f"{PREFIX}linear_model.LogisticRegression"
        )
    try:
        import sklearn
        from sklearn.base import BaseEstimator, ClassifierMixin
    except ImportError:
        raise InputError(
            "scikit-learn is not installed: pip install 'shiftbed[evaluate]'"
        ) from None
    path, _, own = name.rpartition(".")
    module = sklearn
    for part in path.split(".") if path else []:
        below = (one.name for one in iter_modules(vars(module).get("__path__", ())))
        known = [one for one in below if not one.startswith("_") and one not in _NOT_PUBLIC]
        if part not in known:
            raise unknown(f"module of {module.__name__}", part, known)
        module = import_module(f"{module.__name__}.{part}")

    there = {
        key: found
        for key, found in vars(module).items()
        if inspect.isclass(found)
        and issubclass(found, ClassifierMixin)
        and issubclass(found, BaseEstimator)
        and not key.startswith("_")
    }
    if own not in there:
        raise unknown(f"classifier in {module.__name__}", own, there)
    return there[own]


def _check_options(spec: EstimatorSpec, kind: Any) -> None:
    """Refuse options that the class does not have, and values that it does not take."""
    known = dict(inspect.signature(kind).parameters)
    if SEED in spec.options:
        raise InputError(f"{SEED} of {spec.architecture} is the run's seed: give seed instead")
    for key in spec.options:
        if key not in known:
            names = [name for name in known if name != SEED]
            raise unknown(f"option of {spec.architecture}", key, [*names, "size", "mode"])
    for name, parameter in known.items():
        if parameter.default is parameter.empty and name not in spec.options:
            raise InputError(
                f"{PREFIX}{spec.name} needs {name}, another estimator, which a line cannot say"
            )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are recorded where it is fitted
        try:
            made = spec.make(0)
            made._validate_params()
        except (ValueError, TypeError) as error:
            raise InputError(f"{spec.text}: {' '.join(str(error).split())}") from None
        methods = ("predict_proba", "decision_function")
        if not any(callable(getattr(made, method, None)) for method in methods):
            raise InputError(f"{spec.text} has neither {' nor '.join(methods)}")


def _value(text: str, of: str) -> Value | tuple[Value, ...]:
    """A value, or several between commas.

    >>> [_value(text, "") for text in ("3", "1e-2", "None", "true", "sqrt", "5,")]
    [3, 0.01, None, True, 'sqrt', (5,)]
    """
    if "," not in text:
        return _scalar(text, of)
    return tuple(_scalar(part, of) for part in text.removesuffix(",").split(","))


def _scalar(text: str, of: str) -> Value:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise InputError(f"{of}: {text!r} is too large for a number")
        return number
    if not text:
        raise InputError(f"{of}: a value between commas is missing")
    return text


def _shown(value: Value | tuple[Value, ...]) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_shown, value)) + ("," if len(value) == 1 else "")
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, int | float) else quote(value, safe=" /:")
