"""``shiftbed captions``: an ID test set from image–text pairs."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shiftbed.cli.output import AsJson, as_json, percent, table

Column = Annotated[str | None, typer.Option(help="Where the usual names do not decide.")]
_SHOWN = 20


def captions(
    sources: Annotated[
        list[str],
        typer.Argument(help=".csv, .tsv, .parquet or .tar files of image–text pairs, or globs."),
    ],
    classes: Annotated[
        str, typer.Option(help="Names and synonyms: a .csv, .json or .txt file, or imagenet-1k.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the test set.")],
    min_matches: Annotated[int, typer.Option(help="Keep classes with as many.", min=1)] = 100,
    per_class: Annotated[int, typer.Option(help="Test images per class.", min=1)] = 50,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
    text_column: Column = None,
    tags_column: Column = None,
    id_column: Column = None,
    json: AsJson = False,
) -> None:
    """Make a balanced ID test set of captioned images, and the rows to keep out of training."""
    from shiftbed.captioning import make_test_set

    with _Bar(quiet=json) as bar:
        report = make_test_set(
            sources,
            classes,
            output,
            min_matches=min_matches,
            per_class=per_class,
            seed=seed,
            text_column=text_column,
            tags_column=tags_column,
            id_column=id_column,
            hear=bar.hear,
        )
    if json:
        as_json(report.as_dict() | {"per_class_counts": _counts(output)})
    else:
        _show(report, output)
    if not report.test_examples:
        raise typer.Exit(1)


def _counts(output: Path) -> list[dict[str, Any]]:
    import polars as pl

    kinds = {"label": pl.Int64, "class_name": pl.String}
    read = pl.read_csv(output / "classes.csv", schema_overrides=kinds)
    return list(read.iter_rows(named=True))


def _show(report: Any, output: Path) -> None:
    counts = sorted(_counts(output), key=lambda one: -one["matches"])
    share = report.ambiguous_share
    notes = [
        f"{report.rows:,} rows: {report.labelled:,} name one class, {report.ambiguous:,} several "
        f"({percent(share) or '–'} % of those that name any), {report.unmatched:,} none, "
        f"{report.empty:,} have no text.",
        f"{report.duplicates:,} rows repeat an image; {report.conflicts:,} images were dropped "
        "because their rows name different classes.",
        *(f"{count:,} rows: {kind.replace('_', ' ')}." for kind, count in report.problems.items()),
        f"Test set: {report.test_examples:,} images of {report.kept_classes:,} classes, "
        f"{report.opens}" + (f" (paths start at {report.root})" if report.root else ""),
        f"Keep out of training: {report.held_out_rows:,} rows, {output / 'holdout.csv'}",
    ]
    if len(counts) > _SHOWN:
        notes.insert(0, f"… and {len(counts) - _SHOWN:,} more classes in {output / 'classes.csv'}")
    table(
        f"{report.kept_classes:,} of {report.classes:,} classes have at least "
        f"{report.min_matches:,} matches",
        ["class", "label", "matches", "test images"],
        [(c["class_name"], c["label"], c["matches"], c["test_examples"]) for c in counts[:_SHOWN]],
        notes=[*notes, *([report.note] if report.note else [])],
    )


class _Bar:
    """A progress bar per pass; quiet where nobody watches."""

    def __init__(self, *, quiet: bool) -> None:
        self.shown = not quiet and sys.stderr.isatty()
        self.bars: Any = None
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> "_Bar":
        if self.shown:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self.bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed:,} rows"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
            )
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bars is not None:
            self.bars.stop()

    def hear(self, stage: str, done: int, total: int | None) -> None:
        """What ``make_test_set`` says."""
        if self.bars is None:
            return
        if stage not in self.tasks:
            self.tasks[stage] = self.bars.add_task(stage, total=total)
        self.bars.update(self.tasks[stage], completed=done, total=total)
