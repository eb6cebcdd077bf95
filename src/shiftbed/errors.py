"""The one kind of error a user can cause, and how names and causes are reported."""

from collections.abc import Iterable
from difflib import get_close_matches
from unicodedata import category

EXTRAS = {
    **dict.fromkeys(("matplotlib",), "report"),
    **dict.fromkeys(
        ("torch", "torchvision", "timm", "onnx", "onnxruntime", "onnxscript", "PIL", "numba"),
        "evaluate",
    ),
    **dict.fromkeys(
        ("cv2", "sklearn", "skops", "fsspec", "safetensors", "huggingface_hub"), "evaluate"
    ),
    **dict.fromkeys(("open_clip",), "clip"),
    **dict.fromkeys(("transformers", "datasets", "pyarrow"), "hf"),
    "ray": "ray",
    "s3fs": "s3",
    "webdataset": "all",
}
"""Which extra of this package brings a library."""


FORMULA = r"^[=+\-@\t\r]"
"""How a cell begins that a spreadsheet takes for a formula: CSV has an apostrophe before it."""


class InputError(ValueError):
    """Input that cannot be used: one line saying what was wrong, where, and what was expected.

    The command line prints the message and exits with code 2.
    """


class WriteError(OSError):
    """A file could not be written though its place is good: a full or failing disk, a quota.

    Nothing is half-written; the command line prints the message and exits with code 1, and the
    same command continues when there is space.
    """


class Unreachable(OSError):
    """A store or file on another machine did not answer, though it was asked several times.

    The command line prints the message and exits with code 1; the same command continues.
    """


def plain(text: str) -> str:
    r"""A text that only says something: no control, escape, bidirectional or invisible characters.

    What ends a line or a column becomes a space.

    >>> plain("a\x1b[31mb\u202ec\nd"), plain("ρ = 0.5\u00a0%")
    ('a[31mbc d', 'ρ = 0.5\xa0%')
    """
    if text.isprintable():
        return text
    kept = (c if c.isprintable() or category(c) == "Zs" else " " * c.isspace() for c in text)
    return "".join(kept)


def plain_lines(text: str) -> str:
    r"""``plain``, line by line: for texts of our own that are broken into lines.

    >>> plain_lines("a\u202eb\nc")
    'ab\nc'
    """
    return "\n".join(plain(line) for line in text.split("\n"))


def unknown(what: str, name: str, known: Iterable[str]) -> InputError:
    """An error for a name that is not among the known ones, with the closest of them.

    >>> str(unknown("shift", "imagnet-v2", ["imagenet-v2", "objectnet"]))
    "unknown shift 'imagnet-v2'; did you mean 'imagenet-v2'?"
    """
    names = list(known)
    close = get_close_matches(name, names, n=3, cutoff=0.5)
    if not close:
        lowered = name.lower()
        close = [other for other in names if lowered and lowered in other.lower()][:3]
    if close:
        hint = "did you mean " + " or ".join(repr(other) for other in close) + "?"
    elif len(names) <= 12:
        hint = "known: " + (", ".join(names) or "none")
    else:
        hint = f"{len(names)} are known, the first are {', '.join(names[:5])}"
    return InputError(f"unknown {what} {name!r}; {hint}")


def shown(text: str) -> str:
    """A name or a value for a message: quoted, on one line, not too long.

    >>> shown("resnet50"), shown("a\\nb")
    ("'resnet50'", "'a\\\\nb'")
    """
    return repr(text if len(text) <= 60 else text[:57] + "...")


def brief(error: BaseException) -> str:
    """The first line of what another library says, not too long."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def lacking(error: ImportError, what: str) -> InputError | None:
    """The one line for a library that is not installed, None if no extra of this package has it.

    >>> str(lacking(ModuleNotFoundError("no", name="PIL.Image"), "shiftbed eval"))
    "shiftbed eval needs PIL: pip install 'shiftbed[evaluate]'"
    """
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return InputError(f"{what} needs {package}: pip install 'shiftbed[{EXTRAS[package]}]'")
