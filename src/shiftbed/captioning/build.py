"""``captions``: from image–text pairs to a labelled, balanced, held-out ID test set.

After shi2023, Section 5.1 and Appendix B.2. Two passes, each with a batch of rows in memory. The
first matches classes and keeps 12 bytes for every row that names one; then the images are drawn;
the second finds all rows of these images, so that no copy of a test image stays in training.
"""

import hashlib
import io
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.atomic import write_atomically
from shiftbed.captioning.classes import CaptionClass, read_classes
from shiftbed.captioning.match import AMBIGUOUS, NONE, Matcher, make_matcher
from shiftbed.captioning.selection import (
    Selection,
    check_sizes,
    class_counts,
    ranks,
    select,
    write_test_set,
)
from shiftbed.captioning.sources import Asked, Problems, batches, expand
from shiftbed.display import Result, Table, percent, records
from shiftbed.places import only_here

_SHOWN = 20
_COUNTED = ("rows", "empty", "unmatched", "ambiguous", "labelled")
RowsRead = Callable[[str, int, int | None], None]
"""Is told which pass it is, how many rows are done, and how many there are if that is known."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CaptionReport(Result):
    """What the captions came to; a row per class with its matches and its test examples."""

    sources: tuple[str, ...]
    rows: int
    empty: int
    """Rows with neither tags nor text."""
    unmatched: int
    ambiguous: int
    """Rows that name several classes."""
    labelled: int
    """Rows that name exactly one."""
    duplicates: int
    conflicts: int
    problems: dict[str, int]
    """Rows left out or read only in part, by reason."""
    classes: int
    kept_classes: int
    test_examples: int
    held_out_rows: int
    """Rows of the test examples, copies included: keep these out of training."""
    min_matches: int
    per_class: int
    seed: int
    shared_names: tuple[str, ...]
    """Names that several classes have, so that they decide nothing."""
    opens: str
    """The file that ``open_test_set`` opens."""
    root: str
    """Where its paths start."""
    note: str = ""

    @property
    def ambiguous_share(self) -> float | None:
        """Of the rows that name a class, the share that names several."""
        named = self.ambiguous + self.labelled
        return self.ambiguous / named if named else None

    def tables(self) -> Iterator[Table]:
        most = self.frame.sort("matches", descending=True, maintain_order=True).head(_SHOWN)
        columns = {"class": "class_name", "label": "label", "matches": "matches"}
        yield Table.of(
            f"{self.kept_classes:,} of {self.classes:,} classes have at least "
            f"{self.min_matches:,} matches",
            most,
            columns | {"test images": "test_examples"},
            notes=self.notes,
        )

    def summary(self) -> dict[str, Any]:
        """What report.json holds: all but the rows."""
        own = {k: v for k, v in vars(self).items() if k not in ("frame", "notes", "citation")}
        return own | {"ambiguous_share": self.ambiguous_share}

    def to_dict(self) -> dict[str, Any]:
        return self.summary() | {"per_class_counts": records(self.frame)}


def captions(
    sources: str | Path | Iterable[str | Path],
    classes: str | Path | Sequence[CaptionClass],
    output: str | Path,
    *,
    min_matches: int = 100,
    per_class: int = 50,
    seed: int = 0,
    text_column: str | None = None,
    tags_column: str | None = None,
    id_column: str | None = None,
    progress: RowsRead = lambda stage, done, total: None,
) -> CaptionReport:
    """An ID test set from image–text pairs (shi2023, Appendix B.2), and the rows to hold out.

    ``sources``: files, globs or ranges (.csv, .tsv, .parquet, .tar); ``classes``: a class file,
    ``imagenet-1k`` or the classes themselves. Of every class with ``min_matches`` images that name
    it alone, ``per_class`` are drawn. Writes test.csv (and test.tar), holdout.csv, classes.csv,
    kept.txt and, last, report.json into ``output``. A killed call continues with the first file it
    had not finished.
    """
    check_sizes(min_matches, per_class)
    paths = expand(sources)
    known = read_classes(classes) if isinstance(classes, str | Path) else tuple(classes)
    asked = Asked(text=text_column, tags=tags_column, id=id_column)
    matcher = make_matcher(known)
    folder = only_here(output, "a test set of captions")
    pieces = _first_pass(paths, matcher, asked, seed, folder / ".pieces", progress)
    drawn = select(
        ((one.rank, one.code) for one in pieces),
        len(known),
        min_matches=min_matches,
        per_class=per_class,
    )
    total = sum((one.counts for one in pieces), Counter[str]())
    held = _second_pass(paths, matcher, asked, seed, drawn, total["rows"], progress)
    counts = class_counts(known, drawn)
    written = write_test_set(folder, paths, known, drawn, held, counts)
    if not drawn.kept.any():
        best = int(drawn.matches.argmax())
        written["note"] = (
            f"no class has {min_matches} matches, so the test set is empty; "
            f"{known[best].name!r} has the most, {drawn.matches[best]}"
        )
    counted: dict[str, Any] = {name: total[name] for name in _COUNTED}
    report = CaptionReport(
        frame=counts,
        sources=tuple(map(str, paths)),
        **counted,
        duplicates=drawn.duplicates,
        conflicts=drawn.conflicts,
        problems={
            key.removeprefix("problem:"): count
            for key, count in sorted(total.items())
            if key.startswith("problem:") and count
        },
        classes=len(known),
        kept_classes=int(drawn.kept.sum()),
        test_examples=len(drawn.ranks),
        held_out_rows=len(held),
        min_matches=min_matches,
        per_class=per_class,
        seed=seed,
        shared_names=matcher.shared,
        **written,
    )
    with write_atomically(folder / "report.json") as file:
        file.write(json.dumps(report.summary(), indent=1, ensure_ascii=False).encode())
    shutil.rmtree(folder / ".pieces")
    return replace(report, notes=tuple(_words(report, folder)))


def _words(report: CaptionReport, folder: Path) -> Iterator[str]:
    """The report in sentences."""
    if len(report.frame) > _SHOWN:
        more = len(report.frame) - _SHOWN
        yield f"… and {more:,} more classes in {folder / 'classes.csv'}"
    yield (
        f"{report.rows:,} rows: {report.labelled:,} name one class, {report.ambiguous:,} several "
        f"({percent(report.ambiguous_share) or '–'} % of those that name any), "
        f"{report.unmatched:,} none, {report.empty:,} have no text."
    )
    yield (
        f"{report.duplicates:,} rows repeat an image; {report.conflicts:,} images were dropped "
        "because their rows name different classes."
    )
    for kind, count in report.problems.items():
        yield f"{count:,} rows: {kind.replace('_', ' ')}."
    start = f" (paths start at {report.root})" if report.root else ""
    yield (
        f"Test set: {report.test_examples:,} images of {report.kept_classes:,} classes, "
        f"{report.opens}{start}"
    )
    yield f"Keep out of training: {report.held_out_rows:,} rows, {folder / 'holdout.csv'}"
    if report.note:
        yield report.note


@dataclass(frozen=True, kw_only=True, eq=False)
class _Piece:
    """What the first pass keeps of one file."""

    rank: NDArray[np.uint64]
    code: NDArray[np.int32]
    counts: Counter[str]


def _first_pass(
    paths: Sequence[Path],
    matcher: Matcher,
    asked: Asked,
    seed: int,
    folder: Path,
    progress: RowsRead,
) -> list[_Piece]:
    pieces: list[_Piece] = []
    for path in paths:
        done = sum(one.counts["rows"] for one in pieces)

        def tell(rows: int, done: int = done) -> None:
            progress("match", done + rows, None)

        place = folder / f"{_fingerprint(path, matcher, asked, seed)}.npz"
        piece = _read_piece(place)
        if piece is None:
            piece = _match_file(path, matcher, asked, seed, tell)
            _write_piece(place, piece)
        pieces.append(piece)
        tell(piece.counts["rows"])
    return pieces


def _match_file(
    path: Path, matcher: Matcher, asked: Asked, seed: int, progress: Callable[[int], None]
) -> _Piece:
    problems, counts = Problems(), Counter[str]()
    rank, code = [np.zeros(0, dtype=np.uint64)], [np.zeros(0, dtype=np.int32)]
    for frame in batches(path, asked, problems):
        found = matcher(frame["words"])
        rows = np.flatnonzero(found != NONE)
        rank.append(ranks(frame["identity"][rows], seed))
        code.append(found[rows])
        empty = frame["words"].null_count()
        counts.update(
            rows=len(frame),
            empty=empty,
            unmatched=len(frame) - len(rows) - empty,
            ambiguous=int((found == AMBIGUOUS).sum()),
            labelled=int((found >= 0).sum()),
        )
        progress(counts["rows"])
    counts.update({f"problem:{kind}": n for kind, n in problems.items()})
    return _Piece(rank=np.concatenate(rank), code=np.concatenate(code), counts=counts)


def _second_pass(
    paths: Sequence[Path],
    matcher: Matcher,
    asked: Asked,
    seed: int,
    drawn: Selection,
    total: int,
    progress: RowsRead,
) -> pl.DataFrame:
    """All rows of the drawn images: source, row, id, …, rank and the class matched."""
    held, done = [], 0
    for number, path in enumerate(paths):
        for frame in batches(path, asked, Problems()):
            rank = ranks(frame["identity"], seed)
            inside = np.isin(rank, drawn.ranks)
            done += len(frame)
            progress("collect", done, total)
            if not inside.any():
                continue
            some = frame.filter(pl.Series(inside))
            some = some.with_columns(
                pl.lit(number, dtype=pl.Int64).alias("source"),
                pl.Series("rank", rank[inside]),
                pl.Series("code", matcher(some["words"])),
            ).drop("words", "identity")
            # copied, for what is filtered would keep the text of the whole batch
            held.append(pl.DataFrame(some.to_dict(as_series=False), schema=some.schema))
    return pl.concat(held) if held else pl.DataFrame()


def _fingerprint(path: Path, matcher: Matcher, asked: Asked, seed: int) -> str:
    """Changes with everything that the first pass's result depends on."""
    at = path.stat()
    parts = [str(path.absolute()), at.st_size, at.st_mtime_ns, asdict(asked), seed]
    parts += [matcher.patterns, matcher.classes.tolist()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _read_piece(place: Path) -> _Piece | None:
    if not place.is_file():
        return None
    try:
        with np.load(place, allow_pickle=False) as read:
            counts = Counter[str](json.loads(str(read["counts"])))
            return _Piece(rank=read["rank"], code=read["code"], counts=counts)
    except (OSError, ValueError, KeyError, EOFError):
        return None  # it is computed again


def _write_piece(place: Path, piece: _Piece) -> None:
    data = io.BytesIO()
    np.savez(data, rank=piece.rank, code=piece.code, counts=np.array(json.dumps(piece.counts)))
    with write_atomically(place) as file:
        file.write(data.getvalue())
