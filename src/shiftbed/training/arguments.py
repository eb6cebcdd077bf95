"""A job's arguments: every key checked, defaults filled in, one spelling for one meaning."""

from collections.abc import Mapping
from decimal import Decimal
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any

from shiftbed.engine.toml_files import known_keys
from shiftbed.errors import InputError, unknown
from shiftbed.training.estimators import is_classical, read_estimator
from shiftbed.training.sources import DataSpec

JOB_KEYS = (
    "model",
    "start",
    "data",
    "tune",
    "objective",
    "optimiser",
    "schedule",
    "epochs",
    "steps",
    "batch_size",
    "augmentation",
    "checkpoints",
    "seed",
)
Made = Mapping[str, tuple[str, tuple[str, ...]]]
"""Name in a recipe → MODULE:FUNCTION, and the keys of its table that it is called with."""


def _made(where: str, keys: str = "") -> tuple[str, tuple[str, ...]]:
    return f"shiftbed.training.{where}", tuple(keys.split())


OBJECTIVES: Made = {
    "cross-entropy": _made("objective:CrossEntropy", "label_smoothing"),
    "mse": _made("objective:MeanSquares"),
    "augmix": _made("objective:AugMixLoss", "weight"),
    "replay": _made("forgetting:Replay", "data ratio together"),
    "class-map": _made("class_map:Mapped", "map over pull pulled data ratio together"),
    "contrastive": _made(
        "contrastive:Contrastive",
        "width text_width text_layers text_heads context_length templates class_names captions",
    ),
}
HOOKS: Made = {
    "prune": _made(
        "prune:make",
        "method sparsity scope skip at start stop prunings rewind rounds init seed",
    ),
    "phase_out": _made("curriculum:PhaseOut", "scores left until per_class"),
    "switch": _made("curriculum:Switch", "phases scores"),
    "watch": _made("forgetting:Watch", "data limit"),
}
STEPS: Made = {
    "crop-flip": _made("augment:CropFlip", "padding flip"),
    "flip": _made("augment:Flip", "p"),
    "randaugment": _made("auto_augment:RandAugment", "num_ops magnitude num_magnitude_bins"),
    "augmix": _made("auto_augment:AugMix", "severity mixture_width chain_depth alpha all_ops"),
    "gaussian-noise": _made("corruption_augment:GaussianNoise", "sigma share"),
    "corruption": _made("corruption_augment:Corrupt", "names severities share frost"),
}
"""Steps of an augmentation beside ``standard`` and torchvision's own."""
CLASSICAL_KEYS = ("model", "data", "seed")
"""Keys of a model that is fitted rather than trained; the others are refused."""
DATA_KEYS = (
    "name",
    "mix",
    "lambda",
    "total",
    "fraction",
    "balanced",
    "classes",
    "core",
    "shots",
    "difficulty",
    "seed",
)
PREFIXES = ("timm", "torchvision", "python", "torch", "nets")
"""Kinds of models that can be trained."""
TUNES = ("whole", "head")
UNITS = ("epoch", "step")
KEEPS = ("all", "last")
KEPT = ("easiest", "hardest", "random")


def construct(where: str, what: str, options: Mapping[str, Any]) -> Any:
    """What MODULE:FUNCTION makes of the keys of a table; ``what`` it is, for errors."""
    module, _, name = where.partition(":")
    try:
        return getattr(import_module(module), name)(**options)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        reason = str(error).partition(")")[2].strip() if "()" in str(error) else error
        raise InputError(f"{what}: {reason}") from None


def with_patterns(table: Mapping[str, Any], data: Mapping[str, DataSpec]) -> dict[str, Any]:
    """Names of data sets such as ``pacs/*`` spelled out."""
    found = dict(table)
    if "data" in found:
        found["data"] = _spelled(found["data"], data)
    return found


def _spelled(value: Any, data: Mapping[str, DataSpec]) -> Any:
    if isinstance(value, str) and "*" in value:
        names = [name for name in data if fnmatchcase(name, value)]
        if not names:
            raise unknown("data set", value, data)
        return names
    if isinstance(value, list):
        spelled = [_spelled(one, data) if not isinstance(one, list) else [one] for one in value]
        return [x for one in spelled for x in (one if isinstance(one, list) else [one])]
    if isinstance(value, dict) and "name" in value:
        return value | {"name": _spelled(value["name"], data)}
    return value


def normalised(given: Mapping[str, Any], data: Mapping[str, DataSpec]) -> dict[str, Any]:
    """One combination of a grid as canonical arguments; what is left out gets its default."""
    if is_classical(given.get("model")):
        return _classical(given, data)
    for key in ("model", "data", "optimiser"):
        if key not in given:
            raise InputError(f"needs a {key}")
    found: dict[str, Any] = {
        "model": _text(given, "model", ""),
        "start": checked_start(str(given["model"]), str(given.get("start", "random"))),
        "data": _data(given["data"], data),
        "tune": _choice(given.get("tune", "whole"), "tune", TUNES),
        "objective": _objective(given.get("objective", "cross-entropy")),
        "optimiser": _named(given["optimiser"], "optimiser"),
        "schedule": _named(given.get("schedule", "constant"), "schedule"),
        "batch_size": _whole(given.get("batch_size", 64), "batch_size", 1),
        "augmentation": _augmentation(given.get("augmentation", "none")),
        "checkpoints": _checkpoints(given.get("checkpoints", {})),
        "seed": _whole(given.get("seed", 0), "seed", 0),
    }
    if ("epochs" in given) == ("steps" in given):
        raise InputError("needs epochs or steps, one of them")
    length = "epochs" if "epochs" in given else "steps"
    found[length] = _whole(given[length], length, 1)
    for key, (_, known) in HOOKS.items():
        if key in given and given[key] != "none":
            if not isinstance(given[key], dict):
                raise InputError(f"{key} must be a table or 'none', got {given[key]!r}")
            known_keys(given[key], known, key)
            found.setdefault("hooks", {})[key] = given[key]
    names = [*_names(found["data"]), *_others(found, data)]
    found["sources"] = {name: data[name].identity for name in names}
    return found


def _classical(given: Mapping[str, Any], data: Mapping[str, DataSpec]) -> dict[str, Any]:
    """A model of scikit-learn has its options in its line; nothing of a network's goes with it."""
    model = str(given["model"])
    for key in given:
        if key not in CLASSICAL_KEYS:
            raise InputError(f"{key} does not go with {model}: it is for networks only")
    if "data" not in given:
        raise InputError("needs a data")
    chosen = _data(given["data"], data)
    return {
        "model": read_estimator(model).text,
        "data": chosen,
        "seed": _whole(given.get("seed", 0), "seed", 0),
        "sources": {name: data[name].identity for name in _names(chosen)},
    }


def _names(chosen: Mapping[str, Any]) -> list[str]:
    """The data sets trained on."""
    return list(chosen.get("mix") or [chosen["name"]])


def _others(found: Mapping[str, Any], data: Mapping[str, DataSpec]) -> list[str]:
    """Data sets that are not trained on as new: those that are replayed or watched."""
    watched = found.get("hooks", {}).get("watch", {})
    names = [str(table["data"]) for table in (found["objective"], watched) if "data" in table]
    for name in names:
        if name not in data:
            raise unknown("data set", name, data)
    return names


def _text(given: Mapping[str, Any], key: str, default: str) -> str:
    value = given.get(key, default)
    if not isinstance(value, str) or not value:
        raise InputError(f"{key} must be a text, got {value!r}")
    return value


def _choice(value: Any, what: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise unknown(what, str(value), known)
    return str(value)


def _whole(value: Any, what: str, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InputError(f"{what} must be a whole number from {low}, got {value!r}")
    return value


def checked_start(model: str, start: str) -> str:
    """What a network starts from, if the model's line does not say otherwise.

    >>> checked_start("nets:conv8", "pretrained")
    Traceback (most recent call last):
    ...
    shiftbed.errors.InputError: nets:conv8 has no pretrained weights: start from 'random' or a file
    """
    prefix = model.partition(":")[0]
    if prefix not in PREFIXES:
        raise unknown("kind of model to train", prefix, PREFIXES)
    own = prefix == "torch" or "weights=" in model.partition("?")[2]
    if start == "pretrained":
        if prefix == "nets" and not own:
            raise InputError(f"{model} has no pretrained weights: start from 'random' or a file")
    elif start == "random" or start.startswith("file:"):
        if own:
            raise InputError(f"{model} names weights: start must be 'pretrained', not {start!r}")
    elif not start.startswith("run:"):
        raise unknown("start", start, ("pretrained", "random", "file:WEIGHTS"))
    return start


def _named(value: Any, what: str) -> dict[str, Any]:
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise InputError(f"{what} must be a name, or a table with a name, got {value!r}")
    return dict(table)


def _objective(value: Any) -> dict[str, Any]:
    table = _named(value, "objective")
    name = table["name"]
    if name not in OBJECTIVES:
        raise unknown("objective", name, OBJECTIVES)
    known_keys(table, ("name", *OBJECTIVES[name][1]), f"objective {name!r}")
    return table


def _augmentation(value: Any) -> list[dict[str, Any]]:
    """``"standard+randaugment"``, a table, or a list of tables: steps in their order."""
    if isinstance(value, str):
        value = [{"name": name} for name in value.split("+")]
    steps = [_named(one, "augmentation") for one in (value if isinstance(value, list) else [value])]
    for step in steps:
        if step["name"] in STEPS:
            known = ("name", *STEPS[step["name"]][1])
            known_keys(step, known, f"augmentation {step['name']!r}")
    return [step for step in steps if step["name"] != "none"]


def _checkpoints(value: Any) -> dict[str, Any]:
    known = ("every", "unit", "at", "keep")
    if not isinstance(value, dict):
        raise InputError(f"checkpoints must be a table, got {value!r}")
    known_keys(value, known, "checkpoints")
    found: dict[str, Any] = {"keep": _choice(value.get("keep", "all"), "keep", KEEPS)}
    found["unit"] = _choice(value.get("unit", "epoch"), "unit of checkpoints", UNITS)
    if "every" in value:
        found["every"] = _whole(value["every"], "checkpoints.every", 1)
    at = value.get("at", [])
    found["at"] = sorted(_whole(one, "checkpoints.at", 0) for one in _as_list(at))
    return found


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _data(value: Any, data: Mapping[str, DataSpec]) -> dict[str, Any]:
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, dict):
        raise InputError(f"data must be a name or a table, got {value!r}")
    known_keys(table, DATA_KEYS, "data")
    if ("name" in table) == ("mix" in table):
        raise InputError("data needs a name or a mix, one of them")
    found: dict[str, Any] = _mix(table) if "mix" in table else {"name": str(table["name"])}
    for name in found.get("mix") or [found["name"]]:
        if name not in data:
            raise unknown("data set", name, data)
    if table.get("fraction", 1.0) != 1.0:
        found["fraction"] = _fraction(table["fraction"], "fraction")
        found["balanced"] = bool(table.get("balanced", False))
    elif "balanced" in table:
        raise InputError("balanced goes with a fraction below 1")
    if table.get("shots", "all") != "all":
        found["shots"] = _whole(table["shots"], "shots", 1)
    if table.get("classes", "all") != "all":
        found["classes"] = _classes(table["classes"])
        if "core" in table:
            found["core"] = _text(table, "core", "")
    elif "core" in table:
        raise InputError("core goes with a number of classes: those that are always among them")
    if "difficulty" in table:
        found["difficulty"] = _difficulty(table["difficulty"])
    if "seed" in table:
        found["seed"] = _whole(table["seed"], "data.seed", 0)
    return found


def _fraction(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(f"{what} must lie between 0 and 1, got {value!r}")
    return float(value)


def _classes(value: Any) -> int | list[int]:
    if isinstance(value, list):
        return sorted({_whole(one, "classes", 0) for one in value})
    return _whole(value, "classes", 1)


def _mix(table: Mapping[str, Any]) -> dict[str, Any]:
    """Shares of two or more data sets: ``{a = 0.5, b = 0.5}``, or two names and λ."""
    mix = table["mix"]
    if isinstance(mix, dict):
        if "lambda" in table:
            raise InputError("lambda goes with a mix of two names, not with shares")
        shares = {str(name): _fraction(share, f"share of {name}") for name, share in mix.items()}
    else:
        if not isinstance(mix, list) or len(mix) != 2 or "lambda" not in table:
            raise InputError("mix must be two names with lambda, [[A, B]], or a table of shares")
        first = _fraction(table["lambda"], "lambda")
        shares = {str(mix[0]): first, str(mix[1]): float(1 - Decimal(repr(first)))}
    if len(shares) < 2:
        raise InputError("a mix needs two different data sets or more")
    found: dict[str, Any] = {"mix": shares}
    if "total" in table:
        if abs(sum(shares.values()) - 1) > 1e-9:
            raise InputError(f"shares of a mix with a total must add up to 1, got {shares}")
        found["total"] = _whole(table["total"], "total", 1)
    return found


def _difficulty(value: Any) -> dict[str, Any]:
    known = ("scores", "keep", "count", "per_class")
    if not isinstance(value, dict):
        raise InputError(f"difficulty must be a table, got {value!r}")
    known_keys(value, known, "difficulty")
    if "scores" not in value or "count" not in value:
        raise InputError("difficulty needs scores (a file) and a count")
    return {
        "scores": str(value["scores"]),
        "keep": _choice(value.get("keep", "hardest"), "keep", KEPT),
        "count": _whole(value["count"], "difficulty.count", 1),
        "per_class": bool(value.get("per_class", True)),
    }
