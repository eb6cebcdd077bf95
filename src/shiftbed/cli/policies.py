"""Label policies on the command line: --subset, --class-map and --how."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbed.errors import InputError

if TYPE_CHECKING:
    from shiftbed.labels import LabelPolicy


SubsetText = Annotated[
    str | None, typer.Option("--subset", help="Only these classes: 1,5,7 or a file of indices.")
]
ClassMapFile = Annotated[
    Path | None,
    typer.Option(
        "--class-map",
        help="A JSON file, {target: classes} or {class: target}: many classes to one.",
    ),
]
Like = Annotated[
    str | None,
    typer.Option(help="The classes of a test set of the catalogue, such as imagenet-a."),
]
How = Annotated[
    str | None,
    typer.Option(help="Combine mapped classes by max (default), mean, sum or max-logit."),
]
_LIMIT = 1 << 26


def policy_of(
    subset: str | None, class_map: Path | None, how: str | None, like: str | None = None
) -> "LabelPolicy":
    """The policy that the options name; exactly one of them must be given."""
    from shiftbed import labels

    if sum(one is not None for one in (subset, class_map, like)) != 1:
        raise InputError("give one of --subset, --class-map and --like")
    if how is not None and class_map is None:
        raise InputError("--how goes with --class-map")
    if subset is not None:
        return labels.subset(_indices(subset))
    if class_map is not None:
        return read_class_map(class_map, how or "max")
    from shiftbed.catalogue import policy_of as known

    return known(str(like))


def read_class_map(path: Path, how: str) -> "LabelPolicy":
    """A class map either way round; targets that are numbers are the labels 0, 1, …"""
    from shiftbed import labels

    try:
        if path.stat().st_size > _LIMIT:
            raise InputError(f"{path}: too large for a class map")
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read as a class map: {error}") from None
    groups: dict[Any, list[int]] = {}
    if isinstance(read, dict) and read and all(isinstance(v, list) for v in read.values()):
        groups = read
    elif isinstance(read, dict) and read and all(_is_pair(k, v) for k, v in read.items()):
        for one, target in read.items():
            groups.setdefault(str(target), []).append(int(one))
    else:
        raise InputError(f"{path}: expected {{target: [classes, …]}} or {{class: target}}")
    if not all(str(key).isdigit() for key in groups):
        return labels.class_map(groups, how)
    numbered = {int(key): classes for key, classes in groups.items()}
    return labels.class_map(numbered, how, targets=max(numbered) + 1)


def _is_pair(one: str, target: object) -> bool:
    return one.isdigit() and isinstance(target, int | str) and not isinstance(target, bool)


def _indices(text: str) -> list[int]:
    path = Path(text)
    try:
        source = path.read_text(encoding="utf-8") if path.is_file() else text
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--subset: {text} cannot be read: {error}") from None
    words = source.replace(",", " ").strip("[] \n").split()
    if not words or not all(word.isdigit() for word in words):
        raise InputError(f"--subset: expected class indices such as 1,5,7 or a file, got {text!r}")
    return [int(word) for word in words]
