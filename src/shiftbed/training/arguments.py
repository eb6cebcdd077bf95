"""A job's arguments: every key checked, defaults filled in, one spelling for one meaning."""

from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from fnmatch import fnmatchcase
from importlib import import_module
from typing import TYPE_CHECKING, Any

from shiftbed.engine.toml_files import known_keys
from shiftbed.errors import InputError, unknown
from shiftbed.training.estimators import is_classical, read_estimator

if TYPE_CHECKING:
    from shiftbed.training.sources import DataSpec

Made = Mapping[str, tuple[str, tuple[str, ...]]]
"""Name in a recipe → MODULE:FUNCTION, and the keys of its table that it is called with."""


def _keys(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _made(where: str, keys: str = "") -> tuple[str, tuple[str, ...]]:
    return f"shiftbed.training.{where}", _keys(keys)


JOB_KEYS = _keys(
    "model start head data tune objective optimiser schedule epochs steps batch_size augmentation "
    "views checkpoints seed"
)
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
DATA_KEYS = _keys("name mix lambda total fraction balanced classes core shots difficulty seed")
HEADS = ("new", "keep", "mapped")
"""A new head, drawn with the seed; the start's own; its own, with a class map in front."""
PREFIXES = ("timm", "torchvision", "python", "torch", "nets", "open_clip")
"""Kinds of models that can be trained."""


def construct(known: Made, name: str, options: Mapping[str, Any], what: str = "") -> Any:
    """What the function of a known name makes of the keys of its table; ``what`` it is."""
    if name not in known:
        raise unknown(what or "hook", name, known)
    module, _, function = known[name][0].partition(":")
    try:
        return getattr(import_module(module), function)(**options)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        reason = str(error).partition(")")[2].strip() if "()" in str(error) else error
        raise InputError(f"{what} {name!r}: {reason}" if what else f"{name}: {reason}") from None


def with_patterns(value: Any, data: Iterable[str]) -> Any:
    """What ``data`` of a grid says, with names of data sets such as ``pacs/*`` spelled out.

    >>> with_patterns(["a/*", "b"], ["a/1", "a/2", "b"])
    ['a/1', 'a/2', 'b']
    """
    if isinstance(value, str) and "*" in value:
        names = [name for name in data if fnmatchcase(name, value)]
        if not names:
            raise unknown("data set", value, data)
        return names
    if isinstance(value, list):
        spelled = [[one] if isinstance(one, list) else with_patterns(one, data) for one in value]
        return [x for one in spelled for x in (one if isinstance(one, list) else [one])]
    if isinstance(value, dict) and "name" in value:
        return value | {"name": with_patterns(value["name"], data)}
    return value


def normalised(given: Mapping[str, Any], data: Mapping[str, "DataSpec"]) -> dict[str, Any]:
    """One combination of a grid as canonical arguments; what is left out gets its default."""
    classical = is_classical(given.get("model"))
    for key in given:
        if classical and key not in CLASSICAL_KEYS:
            raise InputError(f"{key} does not go with {given['model']}: it is for networks only")
    for key in ("model", "data") if classical else ("model", "data", "optimiser"):
        if key not in given:
            raise InputError(f"needs a {key}")
    chosen, seed = _data(given["data"]), whole_number(given.get("seed", 0), "seed", 0)
    names = list(chosen.get("mix") or [chosen["name"]])
    found: dict[str, Any]
    if classical:
        found = {"model": read_estimator(str(given["model"])).text, "data": chosen, "seed": seed}
    else:
        found = _of_network(given) | {"data": chosen, "seed": seed}
        others = (found["objective"], found.get("hooks", {}).get("watch", {}))
        names += [str(table["data"]) for table in others if "data" in table]
    for name in names:
        one_of(name, "data set", data)
    return found | {"sources": {name: data[name].identity for name in names}}


def _of_network(given: Mapping[str, Any]) -> dict[str, Any]:
    """What only a network has."""
    found: dict[str, Any] = {
        "model": _text(given["model"], "model"),
        "start": checked_start(str(given["model"]), str(given.get("start", "random"))),
        "tune": one_of(given.get("tune", "whole"), "tune", ("whole", "head")),
        "objective": _objective(given.get("objective", "cross-entropy")),
        "optimiser": _named(given["optimiser"], "optimiser"),
        "schedule": _named(given.get("schedule", "constant"), "schedule"),
        "batch_size": whole_number(given.get("batch_size", 64), "batch_size"),
        "augmentation": _augmentation(given.get("augmentation", "none")),
        "checkpoints": _checkpoints(given.get("checkpoints", {})),
    }
    if "head" in given:
        found |= _head(given["head"], found["objective"], given["data"], "objective" in given)
    if given.get("views", "each epoch") != "each epoch" and found["augmentation"]:
        if found["tune"] != "head":
            raise InputError("views go with tune = 'head': their features are computed once")
        found["views"] = whole_number(given["views"], "views")
    lengths = [key for key in ("epochs", "steps") if key in given]
    if len(lengths) != 1:
        raise InputError("needs epochs or steps, one of them")
    found[lengths[0]] = whole_number(given[lengths[0]], lengths[0])
    for key, (_, known) in HOOKS.items():
        if given.get(key, "none") != "none":
            found.setdefault("hooks", {})[key] = _table(given[key], key, known, "a table or 'none'")
    return found


def _head(head: Any, objective: dict[str, Any], data: Any, said: bool) -> dict[str, Any]:
    """What becomes of the head that the start came with; "mapped" is the objective class-map.

    Without an objective that says which, the map is the one named after the data.
    """
    one_of(head, "head", HEADS)
    mapped = objective["name"] == "class-map"
    if head != "mapped":
        if mapped:
            raise InputError(f"objective 'class-map' keeps the old head: head cannot be {head!r}")
        return {"head": head}
    if not mapped and said:
        raise InputError("head 'mapped' goes with the objective 'class-map', or with none given")
    name = data.get("name") if isinstance(data, dict) else data
    return {"objective": objective if mapped else {"name": "class-map", "map": str(name)}}


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"{what} must be a text, got {value!r}")
    return value


def one_of(value: Any, what: str, known: Collection[str]) -> str:
    """A name, if it is a known one."""
    if not isinstance(value, str) or value not in known:
        raise unknown(what, str(value), known)
    return value


def _table(
    value: Any, what: str, known: Iterable[str], expected: str = "a table"
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{what} must be {expected}, got {value!r}")
    known_keys(value, known, what)
    return value


def whole_number(value: Any, what: str, low: int = 1) -> int:
    """A whole number that is large enough."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InputError(f"{what} must be a whole number from {low}, got {value!r}")
    return value


def share(value: Any, what: str, interval: str = "[0, 1]") -> float:
    """A number between 0 and 1; ``(`` and ``)`` leave out the ends.

    >>> share(80, "sparsity", "[0, 1)")
    Traceback (most recent call last):
    ...
    shiftbed.errors.InputError: sparsity must be a number in [0, 1), got 80; write 0.8 for 80 %
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    left_out = [end for end, out in ((0, interval[0] == "("), (1, interval[-1] == ")")) if out]
    if not number or not 0 <= value <= 1 or value in left_out:
        hint = f"; write {value / 100:g} for {value:g} %" if number and 1 < value < 100 else ""
        raise InputError(f"{what} must be a number in {interval}, got {value!r}{hint}")
    return float(value)


def checked_start(model: str, start: str) -> str:
    """What a network starts from, if the model's line does not say otherwise.

    >>> checked_start("nets:conv8", "pretrained")
    Traceback (most recent call last):
    ...
    shiftbed.errors.InputError: nets:conv8 has no pretrained weights: start from 'random' or a file
    """
    prefix = model.partition(":")[0]
    one_of(prefix, "kind of model to train", PREFIXES)
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
    one_of(name, "objective", OBJECTIVES)
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
    value = _table(value, "checkpoints", ("every", "unit", "at", "keep"))
    found: dict[str, Any] = {
        "keep": one_of(value.get("keep", "all"), "keep", ("all", "last", "head")),
        "unit": one_of(value.get("unit", "epoch"), "unit of checkpoints", ("epoch", "step")),
    }
    if "every" in value:
        found["every"] = whole_number(value["every"], "checkpoints.every")
    at = value.get("at", [])
    steps = at if isinstance(at, list) else [at]
    return found | {"at": sorted(whole_number(one, "checkpoints.at", 0) for one in steps)}


def _data(value: Any) -> dict[str, Any]:
    given = {"name": value} if isinstance(value, str) else value
    table = _table(given, "data", DATA_KEYS, "a name or a table")
    if ("name" in table) == ("mix" in table):
        raise InputError("data needs a name or a mix, one of them")
    found: dict[str, Any] = _mix(table) if "mix" in table else {"name": str(table["name"])}
    if table.get("fraction", 1.0) != 1.0:
        found["fraction"] = share(table["fraction"], "fraction")
        found["balanced"] = bool(table.get("balanced", False))
    elif "balanced" in table:
        raise InputError("balanced goes with a fraction below 1")
    if table.get("shots", "all") != "all":
        found["shots"] = whole_number(table["shots"], "shots")
    classes = table.get("classes", "all")
    if isinstance(classes, list):
        found["classes"] = sorted({whole_number(one, "classes", 0) for one in classes})
    elif classes != "all":
        found["classes"] = whole_number(classes, "classes")
    if "core" in table:
        if "classes" not in found:
            raise InputError("core goes with a number of classes: those that are always among them")
        found["core"] = _text(table["core"], "core")
    if "difficulty" in table:
        found["difficulty"] = _difficulty(table["difficulty"])
    if "seed" in table:
        found["seed"] = whole_number(table["seed"], "data.seed", 0)
    return found


def _mix(table: Mapping[str, Any]) -> dict[str, Any]:
    """Shares of two or more data sets: ``{a = 0.5, b = 0.5}``, or two names and λ."""
    mix = table["mix"]
    if isinstance(mix, dict):
        if "lambda" in table:
            raise InputError("lambda goes with a mix of two names, not with shares")
        shares = {str(name): share(one, f"share of {name}") for name, one in mix.items()}
    else:
        if not isinstance(mix, list) or len(mix) != 2 or "lambda" not in table:
            raise InputError("mix must be two names with lambda, [[A, B]], or a table of shares")
        first = share(table["lambda"], "lambda")
        shares = {str(mix[0]): first, str(mix[1]): float(1 - Decimal(repr(first)))}
    if len(shares) < 2:
        raise InputError("a mix needs two different data sets or more")
    found: dict[str, Any] = {"mix": shares}
    if "total" in table:
        if abs(sum(shares.values()) - 1) > 1e-9:
            raise InputError(f"shares of a mix with a total must add up to 1, got {shares}")
        found["total"] = whole_number(table["total"], "total")
    return found


def _difficulty(value: Any) -> dict[str, Any]:
    value = _table(value, "difficulty", ("scores", "keep", "count", "per_class"))
    if "scores" not in value or "count" not in value:
        raise InputError("difficulty needs scores (a file) and a count")
    return {
        "scores": str(value["scores"]),
        "keep": one_of(value.get("keep", "hardest"), "keep", ("easiest", "hardest", "random")),
        "count": whole_number(value["count"], "difficulty.count"),
        "per_class": bool(value.get("per_class", True)),
    }
