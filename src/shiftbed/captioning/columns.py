"""Which column of a source holds what, and the batches that readers hand on."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from shiftbed.errors import InputError, unknown

BATCH = 1 << 16
"""Rows held in memory at a time."""
LONGEST = 1 << 17
"""Bytes of a caption, or of a line of a CSV file; longer ones are counted and left out."""
_TEXT = ("caption", "text", "description", "title")
_TAGS = ("tags", "tag", "usertags", "keywords")
_ID = ("id", "uid", "key", "image_id", "photoid", "photo_id", "identifier")
_PATH = ("path", "file", "filename", "file_name", "filepath", "image_path", "image")
_URL = ("url", "image_url", "img_url", "download_url", "downloadurl")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Columns the user named; None where the usual names are to decide."""

    text: str | None = None
    tags: str | None = None
    id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What each column of one source is for."""

    text: str | None
    tags: str | None
    id: str | None
    path: str | None
    url: str | None

    def used(self) -> dict[str, str]:
        """Purpose → column, of those there are."""
        return {purpose: name for purpose, name in vars(self).items() if name is not None}


@dataclass
class Problems:
    """What was wrong with rows, counted; the rows are left out or read as far as possible."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, count: int = 1) -> None:
        """One more of a kind."""
        self.counts[kind] += count


def choose_columns(
    where: str, header: Sequence[str], asked: Asked, *, needed: bool = True
) -> Columns:
    """The columns asked for, or else those of the usual names; upper and lower case are alike.

    >>> choose_columns("f", ["URL", "TEXT"], Asked()).used()
    {'text': 'TEXT', 'url': 'URL'}
    """
    for name in (asked.text, asked.tags, asked.id):
        if name is not None and name not in header:
            raise unknown(f"column in {where}", name, header)
    text = asked.text or _usual(where, header, _TEXT, "--text-column")
    tags = asked.tags or _usual(where, header, _TAGS, "--tags-column")
    if text is None and tags is None and needed:
        raise InputError(
            f"{where}: expected a header with a column of captions ({', '.join(_TEXT)}) or tags "
            f"({', '.join(_TAGS)}), found {', '.join(header)[:200] or 'none'}; name it with "
            "--text-column"
        )
    columns = Columns(
        text=text,
        tags=tags,
        id=asked.id or _usual(where, header, _ID, "--id-column"),
        path=_usual(where, header, _PATH, None),
        url=_usual(where, header, _URL, None),
    )
    if needed and (columns.id, columns.path, columns.url) == (None, None, None):
        raise InputError(
            f"{where}: expected a column that says which image it is (path, url or id), found "
            f"{', '.join(header)[:200]}; name it with --id-column"
        )
    return columns


def _usual(
    where: str, header: Sequence[str], names: Sequence[str], option: str | None
) -> str | None:
    there = [name for name in header if name.lower() in names]
    if len(there) > 1 and option is not None:
        raise InputError(f"{where}: columns {' and '.join(there)}; say which with {option}")
    return there[0] if there else None


def batch_frame(columns: dict[str, Sequence[object] | pl.Series]) -> pl.DataFrame:
    """A batch: row, id, text, tags, path, url, offset and size, null where a source has none.

    ``row`` is the line of a CSV file, or the place from 0 in others. ``offset`` and ``size`` say
    where the image lies in a tar.
    """
    length = len(columns["row"])
    numbers = {"row", "offset", "size"}
    return pl.DataFrame(
        {
            name: pl.Series(
                name,
                columns.get(name, [None] * length),
                dtype=pl.Int64 if name in numbers else pl.String,
            )
            for name in ("row", "id", "text", "tags", "path", "url", "offset", "size")
        }
    )
