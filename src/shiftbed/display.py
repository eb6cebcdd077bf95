"""How results leave: a table for people, JSON for programs, HTML for notebooks.

Every result of the package is a frozen record derived from ``Result``: it has its numbers as a
polars frame, and says once which tables a person sees and which object a program gets. The command
line prints ``str(result)`` or ``result.to_json()`` and adds nothing. Numbers are formatted here
and nowhere else.
"""

import io
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Self

from shiftbed.errors import FORMULA, plain_lines

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console
    from rich.text import Text

Row = Mapping[str, Any]
Cell = str | tuple[str, Callable[[Any], str]] | Callable[[Row], Any]
"""How a column gets its text from a row: a key, a key with its format, or a function of the row."""


SAID = 5
"""How many of a kind are told in words above a table."""
_LEAST = 14
"""Letters that a shortened word keeps."""
_PIPE = 200
"""Characters a line where there is no terminal: notes are then not broken at all."""
_FEWEST = 3
"""Columns that a narrow table keeps."""
_COLOURS = {
    r"\bmore robust than its accuracy predicts\b|(?<!not )\bout of line\b": "bold green",
    r"\bless robust than its accuracy predicts\b": "bold red",
    r"\bas robust as its accuracy predicts\b|\bon the line\b": "bold",
    r"\bordinary(?=: )|\bnot out of line\b": "bold",
    r"\bnot trusted\b|\bextrapolated\b|\bartefact\b": "yellow",
}
"""Words of verdicts and what they look like on a terminal."""
_INTERVAL = re.compile(r"\d\s…\s[-+]?\d")
_STARRED = re.compile(r"(?<=\d) (?=\*)")
_HASHED = re.compile(r"[^\W\d][\w.:/-]*-[0-9a-f]{12}(?:@\d+)?")
"""Names that recipes give: of no use to a reader."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Text ready to be shown: a title, columns, rows and notes; only notes if it has no columns."""

    title: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    left: int = 1
    """How many of the first columns are aligned left."""

    def __post_init__(self) -> None:
        """Names come from anywhere: what would move the cursor or turn the line is left out."""
        for name in ("title", "columns", "rows", "notes"):
            object.__setattr__(self, name, _harmless(getattr(self, name)))

    @classmethod
    def of(
        cls,
        title: str,
        rows: "Iterable[Row] | pl.DataFrame",
        columns: Mapping[str, Cell],
        *,
        notes: Iterable[str] = (),
        left: int = 1,
    ) -> Self:
        """A table of rows, column by column.

        >>> made = Table.of("ρ", [{"model": "a", "effective": 0.011}],
        ...                 {"model": "model", "ρ": ("effective", points)})
        >>> made.rows
        (('a', '+1.10'),)
        """
        listed = list(rows.iter_rows(named=True)) if hasattr(rows, "iter_rows") else list(rows)
        lines = tuple(tuple(_text(row, cell) for cell in columns.values()) for row in listed)
        return cls(title=title, columns=tuple(columns), rows=lines, notes=tuple(notes), left=left)

    def renamed(self, called: Mapping[str, str]) -> "Table":
        """With models of a recipe as people call them, wherever their names stand.

        >>> table = Table(columns=("model",), rows=(("wide-898fff6cc4e4@150",),))
        >>> table.renamed({"wide-898fff6cc4e4@150": "wide · seed 0 · step 150"}).rows
        (('wide · seed 0 · step 150',),)
        """
        if not called:
            return self

        def new(texts: Sequence[str]) -> tuple[str, ...]:
            return tuple(readable(text, called) for text in texts)

        return replace(
            self,
            title=readable(self.title, called),
            columns=new(self.columns),
            rows=tuple(map(new, self.rows)),
            notes=new(self.notes),
        )

    def print(self, console: "Console") -> None:
        """Onto a rich console; names are printed as they are, never read as markup.

        Where it is too wide, columns with one value for all rows become a note, and long words are
        shortened in the middle, so that no word is broken.
        """
        from rich import box
        from rich.table import Table as Grid
        from rich.text import Text

        if self.title:
            console.print(Text(self.title, style="bold"), soft_wrap=console.width >= _PIPE)
        fitting = self.fitted(console.width)
        if fitting.columns:
            widths = fitting.widths(console.width)
            grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
            for i, (column, width) in enumerate(zip(fitting.columns, widths, strict=True)):
                side = "left" if i < fitting.left else "right"
                grid.add_column(Text(column), justify=side, width=width, overflow="fold")  # type: ignore[arg-type]
            for row in fitting.rows:
                grid.add_row(*map(_coloured, row))
            console.print(grid)
        for note in fitting.notes:
            console.print(_coloured(note), soft_wrap=console.width >= _PIPE)

    def fitted(self, width: int) -> "Table":
        """This table for so many characters a line.

        >>> table = Table(columns=("model", "kind", "ρ"), rows=(("resnet50_augmix", "own", "+1"),
        ...               ("alexnet", "own", "+2")))
        >>> [table.fitted(24).columns, table.fitted(24).notes, table.fitted(20).rows[0]]
        [('model', 'ρ'), ('kind: own for all.',), ('resnet5…augmix', '+1')]
        """
        if _line(self._longest(lambda text: [text])) <= width:
            return self
        columns = list(zip(*self.rows, strict=True))
        same = [i for i, texts in enumerate(columns) if i and len(texts) > 1 and _one(texts)]
        said = [f"{self.columns[i]}: {columns[i][0]} for all." for i in same if columns[i][0]]
        table = self._without(same, said)
        while _line(table._least()) > width and len(table.columns) > _FEWEST:
            table = table._without([table._dispensable()], [])
        most = table._longest(_parts)
        while _line(most) > width and max(most) > _LEAST:
            most[most.index(max(most))] -= 1
        rows = (zip(row, most, strict=True) for row in table.rows)
        table = replace(table, rows=tuple(tuple(_short(*one) for one in row) for row in rows))
        left = [name for i, name in enumerate(self.columns) if i not in same]
        left = [name for name in left if name and name not in table.columns]
        more = [f"A wider terminal also shows: {', '.join(left)}."] if left else []
        return replace(table, notes=(*table.notes, *more))

    def widths(self, width: int) -> list[int]:
        """Characters of each column: what its words need, and of what is left what it could use."""
        found, wanted = self._longest(_parts), self._longest(lambda text: [text])
        room = width - _line(found)
        for i, most in sorted(enumerate(wanted), key=lambda pair: pair[1]):
            more = max(0, min(room, most - found[i]))
            found[i] += more
            room -= more
        return found

    def _longest(self, parts: "Callable[[str], Sequence[str]]") -> list[int]:
        columns = zip(self.columns, *self.rows, strict=True)
        return [
            max([len(p) for text in texts for p in parts(text)], default=0) for texts in columns
        ]

    def _least(self) -> list[int]:
        """What columns need when long words are shortened."""
        heads = [max(map(len, _parts(name)), default=0) for name in self.columns]
        pairs = zip(self._longest(_parts), heads, strict=True)
        return [max(min(longest, _LEAST), head) for longest, head in pairs]

    def _without(self, which: Sequence[int], said: Sequence[str]) -> "Table":
        kept = [i for i in range(len(self.columns)) if i not in which]
        return replace(
            self,
            columns=tuple(self.columns[i] for i in kept),
            rows=tuple(tuple(row[i] for i in kept) for row in self.rows),
            notes=(*self.notes, *said),
            left=sum(i < self.left for i in kept),
        )

    def _dispensable(self) -> int:
        """The emptiest column besides the first and the last, or the widest; ρ, an interval and
        what tells rows apart are the last to go."""
        widths, names = self._longest(_parts), [row[: self.left] for row in self.rows]

        def rank(i: int) -> tuple[bool, int, int]:
            texts = [row[i] for row in self.rows]
            needed = self.columns[i] == "ρ" or any(map(_INTERVAL.search, texts))
            others = {(*name[:i], *name[i + 1 :]) for name in names}
            needed = needed or (i < self.left and len(others) < len(set(names)))
            return not needed, texts.count(""), widths[i]

        return max(range(1, len(self.columns) - 1), key=rank)

    def html(self) -> str:
        """The same as HTML, every text escaped."""
        parts = [f"<p><b>{escape(self.title)}</b></p>"] if self.title else []
        if self.columns:
            sides = ["left" if i < self.left else "right" for i in range(len(self.columns))]
            head = _cells("th", self.columns, sides)
            body = "".join(f"<tr>{_cells('td', row, sides)}</tr>" for row in self.rows)
            parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        return "".join(parts + [f"<p>{escape(note)}</p>" for note in self.notes])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Result(ABC):
    """What a function of the package returns: numbers, and how they are shown."""

    json_keys: ClassVar[str] = ""
    """Attributes that are keys of the JSON; NAME=ATTRIBUTE where one is called otherwise."""

    frame: "pl.DataFrame"
    """The numbers, a row per thing that has one, each with its n and interval."""
    notes: tuple[str, ...] = ()
    """What a reader must know beside the numbers."""
    citation: str = ""
    """What to cite."""
    called: Mapping[str, str] = field(default_factory=dict)
    """What tables call a model whose name is a hash, by its name; ``to_dict`` keeps the names."""

    def answer(self) -> Iterable[str]:
        """What it comes to, in a sentence or a few; a person sees it before the tables."""
        return ()

    @abstractmethod
    def tables(self) -> Iterable[Table]:
        """What a person sees."""

    def to_dict(self) -> dict[str, Any]:
        """What a program gets: by default what ``json_keys`` names."""
        pairs = (key.rpartition("=") for key in self.json_keys.split())
        return {name or of.rpartition(".")[2]: plain(attrgetter(of)(self)) for name, _, of in pairs}

    def to_json(self) -> str:
        """``to_dict`` as JSON, as ``--json`` prints it; NaN and infinity become null."""
        return printable_json(clean(self.to_dict()), indent=2)

    def print(self, console: "Console | None" = None) -> None:
        """Onto the terminal (or another rich console)."""
        where = console or terminal()
        self.print_answer(where)
        for table in self.tables():
            table.renamed(self.called).print(where)

    def print_answer(self, console: "Console | None" = None) -> None:
        """The answer alone, its first sentence bold."""
        where = console or terminal()
        for i, sentence in enumerate(self._answered()):
            text = _coloured(sentence, "" if i else "bold")
            where.print(text, soft_wrap=where.width >= _PIPE)

    def _answered(self) -> tuple[str, ...]:
        return Table(notes=tuple(self.answer())).renamed(self.called).notes

    def __str__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        plain: dict[str, Any] = {"color_system": None, "force_jupyter": False}
        self.print(Console(file=text, highlight=False, width=_PIPE, **plain))
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{escape(sentence)}</p>" for sentence in self._answered())
        return said + "".join(table.renamed(self.called).html() for table in self.tables())


def _harmless(value: Any) -> Any:
    return plain_lines(value) if isinstance(value, str) else tuple(map(_harmless, value))


def printable_json(value: Any, **options: Any) -> str:
    r"""JSON that a terminal can show: what cannot be printed is escaped, and is the same value.

    >>> printable_json("ρ \u202e \x9b")
    '"ρ \\u202e \\u009b"'
    """
    text = json.dumps(value, ensure_ascii=False, **options)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n " else json.dumps(c).strip('"') for c in text)


def csv_text(frame: "pl.DataFrame") -> str:
    r"""A frame as CSV: no invisible characters, no cell that a spreadsheet would execute.

    The one way in which this package writes CSV; ``reading.tables`` takes the apostrophe off again.

    >>> import polars as pl
    >>> csv_text(pl.DataFrame({"model": ["=1+1", "a\u202eb"], "top1": [-0.5, 1.0]}))
    "model,top1\n'=1+1,-0.5\nab,1.0\n"
    """
    import polars as pl
    import polars.selectors as cs

    def guarded(texts: pl.Series) -> pl.Series:
        odd = texts.str.contains(r"[\p{C}\p{Zl}\p{Zp}]")
        if odd.any():
            texts = texts.map_elements(plain_lines, return_dtype=pl.String)
        return texts.str.replace(f"({FORMULA})", "'${1}")

    names = guarded(pl.Series(frame.columns, dtype=pl.String)).to_list()
    texts = frame.with_columns(cs.by_dtype(pl.Null, pl.Categorical, pl.Enum).cast(pl.String))
    texts = texts.with_columns(cs.string().map_batches(guarded, return_dtype=pl.String))
    if len(set(names)) == len(names):
        texts.columns = names
    return texts.write_csv()


def readable(text: str, called: Mapping[str, str]) -> str:
    """A text in which models of a recipe are called as people do; checkpoints by their run, too.

    >>> readable("failed: wide-898fff6cc4e4@150", {"wide-898fff6cc4e4": "wide · seed 0"})
    'failed: wide · seed 0 · step 150'
    """

    def name(found: re.Match[str]) -> str:
        run, _, step = found[0].partition("@")
        if found[0] in called or run not in called:
            return called.get(found[0], found[0])
        return f"{called[run]} · step {step}"

    return _HASHED.sub(name, text)


def terminal() -> "Console":
    """Where tables are printed; a pipe or a file has no width to fit into."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE)


def _parts(text: str) -> list[str]:
    """What must not be broken: words, a number with its stars, and an interval as a whole."""
    return [text] if _INTERVAL.search(text) else _STARRED.sub("\u00a0", text).split(" ")


def _short(text: str, most: int) -> str:
    if _INTERVAL.search(text):
        return text.replace(" ", "\u00a0")
    return " ".join(middle(word, most) for word in _STARRED.sub("\u00a0", text).split(" "))


def _one(texts: Sequence[str]) -> bool:
    return len(set(texts)) == 1


def _line(widths: Sequence[int]) -> int:
    """Characters of a line with columns of these widths."""
    return sum(widths) + 3 * (len(widths) - 1) + 2


def middle(text: str, most: int) -> str:
    """A long name shortened in the middle: both its ends say what it is.

    >>> middle("resnet50_imagenet_100percent", 16), middle("resnet50", 16)
    ('resnet50…percent', 'resnet50')
    """
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


def _coloured(text: str, style: str = "") -> "Text":
    from rich.text import Text

    found = Text(text, style=style)
    for words, style in _COLOURS.items():
        found.highlight_regex(words, style)
    return found


def schema(text: str) -> dict[str, Any]:
    """The columns of a polars frame, by their types.

    >>> schema("model: str; low high: float")
    {'model': String, 'low': Float64, 'high': Float64}
    """
    import polars as pl

    kinds: dict[str, Any] = {"str": pl.String, "int": pl.Int64, "float": pl.Float64}
    kinds |= {"bool": pl.Boolean, "texts": pl.List(pl.String)}
    parts = (part.split(":") for part in text.split(";"))
    return {name: kinds[kind.strip()] for names, kind in parts for name in names.split()}


def plain(value: Any) -> Any:
    """Frames as rows and tuples as lists, as JSON has them."""
    if hasattr(value, "iter_rows"):
        return records(value)
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.tolist() if hasattr(value, "tolist") else value


def clean(value: Any) -> Any:
    """JSON has no NaN or infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: clean(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [clean(one) for one in value]
    return value


def records(frame: "pl.DataFrame", columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Rows of a polars frame as dictionaries."""
    return list((frame.select(columns) if columns else frame).iter_rows(named=True))


def percent(value: float | None, digits: int = 2) -> str:
    """An accuracy as a percentage.

    >>> percent(0.7613)
    '76.13'
    """
    return "" if _missing(value) else f"{100 * value:.{digits}f}"  # type: ignore[operator]


def points(value: float | None, digits: int = 2) -> str:
    """A difference of accuracies in points, with its sign.

    >>> points(0.0111)
    '+1.11'
    """
    return "" if _missing(value) else f"{100 * value:+.{digits}f}"  # type: ignore[operator]


def interval(low: float | None, high: float | None) -> str:
    """
    >>> interval(-0.01, 0.02)
    '-1.00 … +2.00'
    """
    return between(low, high, points)


def between(low: float | None, high: float | None, form: Callable[[Any], str] = percent) -> str:
    """
    >>> between(0.701, 0.712), between(None, None)
    ('70.10 … 71.20', '')
    """
    return "" if _missing(low) or _missing(high) else f"{form(low)} … {form(high)}"


def against_zero(low: float | None, high: float | None, zero: str = "the line") -> str:
    """
    >>> against_zero(0.01, 0.02), against_zero(-0.01, 0.02)
    ('above the line', 'not significantly off the line')
    """
    if low is None or high is None or _missing(low) or _missing(high):
        return "without an interval"
    side = "above" if low > 0 else "below" if high < 0 else "not significantly off"
    return f"{side} {zero}"


def number(value: float | None, digits: int = 4) -> str:
    return "" if _missing(value) else f"{value:.{digits}f}"


def p_value(value: float | None) -> str:
    """A p-value that never prints as zero.

    >>> p_value(1e-7), p_value(0.0312)
    ('<0.0001', '0.0312')
    """
    if _missing(value):
        return ""
    return "<0.0001" if value < 1e-4 else f"{value:.4f}"  # type: ignore[operator]


def counted(n: int, what: str) -> str:
    """
    >>> counted(1, "pair"), counted(1557, "pair")
    ('1 pair', '1,557 pairs')
    """
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def _missing(value: float | None) -> bool:
    return value is None or not math.isfinite(value)


def _text(row: Row, cell: Cell) -> str:
    if isinstance(cell, str):
        found = row[cell]
    elif isinstance(cell, tuple):
        found = cell[1](row[cell[0]])
    else:
        found = cell(row)
    return "" if found is None else str(found)


def _cells(tag: str, texts: Iterable[str], sides: Iterable[str]) -> str:
    pairs = zip(texts, sides, strict=True)
    return "".join(
        f'<{tag} style="text-align:{side}">{escape(text)}</{tag}>' for text, side in pairs
    )
