"""What testbed.toml and recipe.toml have in common: tables, known keys, files beside the file.

Both are read with the same strictness: a key that nothing reads is refused with the closest that
something does, a name that is not there likewise, and a file that is named is beside the file.
"""

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shiftbed.errors import InputError, shown, unknown
from shiftbed.labels.steps import MOST_CLASSES
from shiftbed.places import there, url_of
from shiftbed.reading.files import read_text
from shiftbed.reading.shapes import Shape, misfit, plain, text
from shiftbed.records import Shift

READING = (
    "image_column",
    "label_column",
    "group_column",
    "id_column",
    "caption_column",
    "classes",
    "labels",
    "layout",
    "root",
    "unlabelled",
    "citation",
    "licence",
    "cache",
)
"""Keys of a test set or data set that say how it is read."""
_FILES = ("onnx", "torch", "sklearn", "run", "python")
"""Prefixes of models whose name may be a file or folder."""


@contextmanager
def errors_in(path: str | Path) -> Iterator[None]:
    """Errors inside begin with the file's name."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def read_toml(path: str | Path, known: Iterable[str]) -> dict[str, Any]:
    """A TOML file with these keys at the top; relative paths in it are not resolved yet."""
    try:
        table = tomllib.loads(read_text(path))
    except RecursionError:
        raise InputError(f"{path}: not valid TOML: nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None
    with errors_in(path):
        _check_values(table)
    with errors_in(path):
        known_keys(table, known)
    return table


def _check_values(value: Any, at: str = "") -> None:
    """Refuse numbers and texts that nothing can be done with, wherever they are."""
    if isinstance(value, dict):
        for key, one in value.items():
            _check_values(one, f"{at}.{key}" if at else str(key))
    elif isinstance(value, list):
        for one in value:
            _check_values(one, at)
    elif not plain(value):
        raise InputError(f"{at} is {shown(str(value))}, which is no text or number to use here")


def known_keys(table: Mapping[str, Any], known: Iterable[str], where: str = "") -> None:
    """Refuse the first key that is not known.

    >>> known_keys({"paht": "a"}, ("name", "path"), "[[test_sets]]")
    Traceback (most recent call last):
    ...
    shiftbed.errors.InputError: unknown key in [[test_sets]] 'paht'; did you mean 'path'?
    """
    names = list(known)
    for key in table:
        if key not in names:
            raise unknown(f"key in {where}" if where else "key", key, names)


TEXT = (text, "a text")
TEXTS = ((text, [text]), "a text or a list of texts")


def check_kinds(
    table: Mapping[str, Any], kinds: Mapping[str, tuple[Shape, str]], where: str
) -> None:
    """Refuse the first value that is of another kind than its key's.

    >>> check_kinds({"name": 3}, {"name": TEXT}, "[[shifts]]")
    Traceback (most recent call last):
    ...
    shiftbed.errors.InputError: name in [[shifts]] must be a text, got '3'
    """
    for key, (shape, expected) in kinds.items():
        if key in table and misfit(table[key], shape) is not None:
            raise InputError(f"{key} in {where} must be {expected}, got {shown(str(table[key]))}")


def tables(table: Mapping[str, Any], key: str, *, least: int = 0) -> list[dict[str, Any]]:
    """Copies of the tables ``[[key]]``, at least so many."""
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise InputError(f"{key} must be tables, [[{key}]]")
    if len(found) < least:
        raise InputError(f"expected at least one [[{key}]] table")
    return [dict(one) for one in found]


def named_tables(table: Mapping[str, Any], key: str) -> dict[str, dict[str, Any]]:
    """Copies of the tables ``[key.NAME]``."""
    found = table.get(key, {})
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise InputError(f"{key} must be tables, [{key}.NAME]")
    return {name: dict(one) for name, one in found.items()}


def unique(names: Sequence[str], what: str) -> None:
    """Refuse a name that is there twice."""
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{what} {name!r} is there twice")


def beside(path: str, base: Path) -> str:
    """A path that is relative to the file's folder; addresses and absolute paths stay.

    ``NAME@DIR``, a test set of the catalogue, keeps its name.

    >>> beside("images/val", Path("beds")), beside("imagenet-a@images/a", Path("beds"))
    ('beds/images/val', 'imagenet-a@beds/images/a')
    """
    from shiftbed.engine.catalogue_settings import near
    from shiftbed.evaluation.data.wilds import PREFIX, WildsSpec

    known = near(path, base)
    if known is not None:
        return known
    if path.startswith(PREFIX):
        return WildsSpec.parse(path).below(base)
    stays = path.startswith("~") or Path(path).is_absolute()
    return path if stays or url_of(path) is not None else str(base / path)


def files_beside(options: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Options with every text that names a file beside the file as a whole path."""
    return {
        key: str(base / value) if isinstance(value, str) and there(base / value) else value
        for key, value in options.items()
    }


def model_beside(spec: str, base: str | Path) -> str:
    """A model's line whose files are relative to the file's folder.

    They are ``onnx:FILE``, ``torch:FILE``, ``sklearn:FILE.skops``, ``run:FOLDER``,
    ``python:FILE.py:FUNCTION``, and the files of ``weights=``, ``arch=``, ``classes=`` and
    ``templates=``.

    >>> model_beside("python:net.py:build()?weights=a.pt", "beds")
    'python:beds/net.py:build()?weights=beds/a.pt'
    >>> model_beside("timm:resnet18", "beds"), model_beside("python:my.nets:build()", "beds")
    ('timm:resnet18', 'python:my.nets:build()')
    """
    base = Path(base)
    prefix, colon, rest = spec.partition(":")
    name, mark, query = rest.partition("?")
    if not colon:
        return spec
    if prefix in _FILES:
        file, more, function = name.rpartition(":") if prefix == "python" else (name, "", "")
        module = prefix == "python" and not file.endswith(".py")
        kind = prefix == "sklearn" and not file.endswith(".skops")
        if file and not module and (not kind or there(base / file)):
            name = _file(file, base) + more + function
    parts = [_part_beside(part, base) for part in query.split("&")] if mark else []
    return f"{prefix}:{name}{mark}{'&'.join(parts)}"


def _part_beside(part: str, base: Path) -> str:
    key, equals, value = part.partition("=")
    if key == "weights":
        value = _file(value, base)
    elif key == "arch":
        value = model_beside(value, base)
    elif key in ("classes", "templates") and there(base / value):
        value = str(base / value)
    return key + equals + value


def _file(path: str, base: Path) -> str:
    stays = path.startswith("~") or Path(path).is_absolute() or url_of(path) is not None
    return path if stays else str(base / path)


SHIFT_KEYS = ("name", "id", "ood", "kind", "task", "fit_on", "validation")


def read_shift(table: Mapping[str, Any]) -> Shift:
    """A table of ``[[shifts]]`` that is not the catalogue's."""
    known_keys(table, (*SHIFT_KEYS, "catalogue"), "[[shifts]]")
    check_kinds(table, dict.fromkeys(SHIFT_KEYS, TEXT) | {"id": TEXTS}, "[[shifts]]")
    ids = table.get("id", [])
    return Shift(
        name=str(table.get("name", table.get("ood", ""))),
        kind=str(table.get("kind", "natural-dataset")),
        source=(ids,) if isinstance(ids, str) else tuple(ids),
        target=str(table.get("ood", "")),
        task=str(table.get("task", "")),
        fit_on=str(table.get("fit_on", "")),
        validation=str(table.get("validation", "")),
    )


def check_shifts(shifts: Sequence[Shift], settings: Collection[str]) -> None:
    """Refuse shifts of one name, and shifts between settings that are not there."""
    unique([one.name for one in shifts], "shift")
    for one in shifts:
        for name in (*one.source, one.target, *([one.validation] if one.validation else [])):
            if name not in settings:
                raise unknown(f"setting of shift {one.name!r}", name, settings)


def class_numbers(value: Any) -> Any:
    """``"1000-1009"`` as class numbers, both ends among them; a list as it is.

    >>> class_numbers("3-5"), class_numbers([1, 7])
    ([3, 4, 5], [1, 7])
    """
    if isinstance(value, list | tuple):
        return value
    first, dash, last = value.partition("-") if isinstance(value, str) else ("", "", "")
    ends = first.isdecimal() and last.isdecimal() and len(last) < 10
    if not dash or not ends or not int(first) <= int(last) < MOST_CLASSES:
        raise InputError(f"subset must be class numbers or a range such as '0-99', got {value!r}")
    return list(range(int(first), int(last) + 1))
