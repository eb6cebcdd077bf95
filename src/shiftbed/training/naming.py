"""What the runs of a recipe are called: what was trained on what, and what sets each apart.

The names are made once, over all grids of the recipe, so that a run is called the same in a plan,
in the progress, in the store and on the page, whichever grids are run.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shiftbed.display import middle
from shiftbed.testbed.labels import label_parts, told_apart

if TYPE_CHECKING:
    from shiftbed.training.recipe import Job

_FIRST = (
    *("model", "start", "head", "tune", "hooks", "augmentation", "views", "objective", "data"),
    *("optimiser", "schedule", "epochs", "steps", "batch_size"),
)
"""Arguments in the order in which they are told apart by; the others after these."""
_UNSAID = ("seed", "sources", "classes")
"""Not told: seeds have a place of their own, and data sets are known by their names."""
_SPEAKING = ("name", "names", "method", "scope", "mode", "map", "init", "core")
"""Keys whose values need no key beside them."""
_COUNTED = ("epochs", "steps", "views")
_LONGEST = 24
"""Letters of a value."""


def run_names(jobs: Sequence["Job"]) -> dict[str, str]:
    """Names of runs by the ids of their jobs."""
    words: dict[str, dict[str, str]] = {}
    for job in jobs:
        words[job.id] = _words(job, words)
    parts = [label_parts(_columns(job)) for job in jobs]
    found = told_apart(parts, [words[job.id] for job in jobs], [job.run for job in jobs])
    return dict(zip((job.id for job in jobs), found, strict=True))


def _columns(job: "Job") -> dict[str, Any]:
    """The columns of ``testbed/labels.py`` that are known before a run begins."""
    arguments = job.arguments
    pruning = arguments.get("hooks", {}).get("prune", {})
    return {
        "model": job.run,
        "training_data": job.training_data,
        "data_size": job.data_size,
        "mix": job.mix,
        "augmentation": job.augmentation,
        "objective": arguments.get("objective", {}).get("name"),
        "pruning": pruning.get("method"),
        "sparsity": pruning.get("sparsity"),
        "seed": arguments["seed"],
    }


def _words(job: "Job", earlier: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Every argument in words, those of the run that it starts from last."""
    arguments = dict(job.arguments)
    model, _, options = str(arguments.pop("model")).partition("?")
    before = earlier.get(str(arguments.get("start")).removeprefix("run:"))
    if before is not None:
        arguments.pop("start")
    ordered = {key: arguments[key] for key in _FIRST if key in arguments} | arguments
    found = {"model": model}
    found |= {
        f"model.{key}": _said(key, value)
        for key, _, value in (one.partition("=") for one in options.split("&") if one)
    }
    found |= dict(_flat(ordered, ""))
    for key, text in sorted((before or {}).items(), key=lambda one: not one[0].startswith(".data")):
        said = f"after {text}" if key.startswith(".data") else f"before: {text}"
        found[f"before.{key}"] = said
    return found


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The values in nested tables and lists of tables, each with its path, in words.

    >>> list(_flat({"optimiser": {"name": "SGD", "lr": 0.1}, "nesterov": True}, ""))
    [('.optimiser.name', 'SGD'), ('.optimiser.lr', 'lr 0.1'), ('.nesterov', 'nesterov')]
    """
    key = path.rpartition(".")[2]
    if isinstance(value, Mapping):
        for name, one in value.items():
            if name not in _UNSAID:
                yield from _flat(one, f"{path}.{name}")
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        for number, one in enumerate(value):
            yield from _flat(one, f"{path}.{number}")
    elif value is not None:
        yield path, _said(key, value)


def _said(key: str, value: Any) -> str:
    word = key.replace("_", " ")
    if isinstance(value, bool):
        return word if value else f"no {word}"
    if isinstance(value, list):
        text = ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in value)
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value)
    text = middle(text, _LONGEST)
    if key in _SPEAKING and not isinstance(value, int | float):
        return text
    return f"{text} {word}" if key in _COUNTED else f"{word} {text}"
