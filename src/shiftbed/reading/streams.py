"""Files of any size, piece by piece: rows of text, members of a tar, files that a pattern names."""

import csv
import glob
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shiftbed.errors import InputError, brief, shown
from shiftbed.places import local, matching, url_of
from shiftbed.reading.files import regular

_MOST = 100_000
_BRACES = re.compile(r"\{([^{}]*)\}")


def delimited_rows(
    lines: Iterable[tuple[int, str]],
    delimiter: str,
    *,
    skip_spaces: bool = False,
    spans: bool = True,
    longest: int | None = None,
) -> Iterator[tuple[int, list[str] | str]]:
    """The fields of each row and the line it begins on; words instead of fields where they cannot
    be made out, which costs that line only.

    A quoted field may go over lines (up to ``longest`` characters). With ``spans`` false a line is
    a row and quotes around a field fall away. ``skip_spaces``: a quote may follow blanks.

    >>> list(delimited_rows([(1, 'a,"b'), (2, 'c"'), (3, 'd,"e')], ","))
    [(1, ['a', 'b\\nc']), (3, 'a quote is never closed')]
    """
    rest = iter(lines)
    again: list[tuple[int, str]] = []
    opening = re.compile(rf'(?:^|{delimiter}){" *" if skip_spaces else ""}"')
    while (line := again.pop() if again else next(rest, None)) is not None:
        number, text = line
        if not spans or '"' not in text:
            fields = text.rstrip("\r").split(delimiter)
            yield number, fields if spans else [_unquoted(field) for field in fields]
            continue
        taken, size, odd = [line], len(text), text.count('"') % 2 == 1
        odd = odd and opening.search(text) is not None
        while odd and (longest is None or size <= longest):
            more = again.pop() if again else next(rest, None)
            if more is None:
                break
            taken.append(more)
            size += len(more[1])
            odd ^= more[1].count('"') % 2 == 1
        whole = "\n".join(one for _, one in taken).rstrip("\r")
        row = _fields(whole, delimiter, skip_spaces)
        if isinstance(row, str):
            again += reversed(taken[1:])
        yield number, row


def _fields(text: str, delimiter: str, skip_spaces: bool) -> list[str] | str:
    try:
        found = list(
            csv.reader([text], delimiter=delimiter, skipinitialspace=skip_spaces, strict=True)
        )
    except csv.Error as error:
        return "a quote is never closed" if "end of data" in str(error) else str(error)
    return found[0] if len(found) == 1 else "a quote is never closed"


def _unquoted(field: str) -> str:
    if len(field) > 1 and field[0] == field[-1] == '"':
        return field[1:-1].replace('""', '"')
    return field


def tar_members(path: str | Path) -> Iterator[tuple[tarfile.TarInfo, Callable[[], bytes]]]:
    """The members of an uncompressed tar in order, each with a function that reads it in place."""
    with _as_tar(path), tarfile.open(regular(path), "r:") as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # or all headers would be kept
            yield member, _Member(path, tar, member)


@dataclass(frozen=True)
class _Member:
    path: str | Path
    tar: tarfile.TarFile
    member: tarfile.TarInfo

    def __call__(self) -> bytes:
        with _as_tar(self.path):
            file = self.tar.extractfile(self.member)
            return file.read() if file is not None else b""


@contextmanager
def _as_tar(path: str | Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path}: cannot be read as an uncompressed tar file: {brief(error)}"
        ) from None


def expand(pattern: str) -> list[Path]:
    """The files a pattern stands for, at least one: in the order of a range, sorted for a glob.

    Those of URLs are fetched.
    """
    if url_of(pattern) is None and Path(pattern).exists():
        return [Path(pattern)]
    found: list[Path] = []
    for name in braces(pattern):
        url = url_of(name)
        if url is not None:
            found += map(local, matching(url) if glob.has_magic(url) else [url])
        elif Path(name).exists():
            found.append(Path(name))
        elif glob.has_magic(name):
            found += map(Path, sorted(glob.glob(name)))
        else:
            raise InputError(f"{name!r}: no such file")
    if not found:
        raise InputError(f"{pattern!r}: no such file; nothing matches")
    if len(set(found)) < len(found):
        raise InputError(f"{shown(pattern)}: names a file twice")
    return found


def braces(pattern: str) -> list[str]:
    """The names that braces stand for.

    >>> braces("val-{08..11}.tar")
    ['val-08.tar', 'val-09.tar', 'val-10.tar', 'val-11.tar']
    >>> braces("{a,b}.tar")
    ['a.tar', 'b.tar']
    """
    match = _BRACES.search(pattern)
    if match is None:
        return [pattern]
    inside = match[1]
    span = re.fullmatch(r"(\d+)\.\.(\d+)", inside)
    if span:
        low, high = int(span[1]), int(span[2])
        if not 0 <= high - low < _MOST:
            raise InputError(
                f"{shown(pattern)}: {{{inside}}} must go upwards, by less than {_MOST}"
            )
        choices = [f"{number:0{len(span[1])}d}" for number in range(low, high + 1)]
    elif "," in inside:
        choices = inside.split(",")
    else:
        raise InputError(f"{shown(pattern)}: expected {{0000..0003}} or {{a,b}}, not {{{inside}}}")
    head, tail = pattern[: match.start()], braces(pattern[match.end() :])
    if len(choices) * len(tail) > _MOST:
        raise InputError(f"{shown(pattern)}: stands for more than {_MOST} files")
    return [head + choice + rest for choice in choices for rest in tail]
