"""``shiftbed corrupt`` and ``mce``: corrupted test sets on disk, and the error over all."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shiftbed.cli.output import AsJson, Level, as_json, percent, records, table
from shiftbed.errors import InputError


def corrupt(
    source: Annotated[
        str | None, typer.Argument(help="A test set: a folder of classes, .npz, …")
    ] = None,
    destination: Annotated[Path | None, typer.Argument(help="Where the tree goes.")] = None,
    corruption: Annotated[
        list[str] | None,
        typer.Option(help="NAME[:SEVERITIES], such as fog:1-5 or snow:3; default: all of them."),
    ] = None,
    size: Annotated[int, typer.Option(help="Side of the images.", min=8)] = 224,
    resize: Annotated[
        int | None,
        typer.Option(help="Shorter side before the central crop (default 256/224 of the size)."),
    ] = None,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Neither resize nor crop, as in CIFAR-10-C.")
    ] = False,
    format: Annotated[str, typer.Option(help="jpeg, as the original, or png.")] = "jpeg",
    quality: Annotated[int, typer.Option(help="Of the JPEGs.")] = 85,
    seed: Annotated[int, typer.Option(help="Of what is random.", min=0)] = 0,
    frost: Annotated[
        Path | None, typer.Option(help="A folder of frost pictures (default: synthesized).")
    ] = None,
    workers: Annotated[int, typer.Option(help="Worker processes.", min=1)] = 1,
    sheet: Annotated[
        Path | None, typer.Option(help="Draw the contact sheet into this file instead.")
    ] = None,
    image: Annotated[Path | None, typer.Option(help="The picture on the sheet.")] = None,
    json: AsJson = False,
) -> None:
    """Write an ImageNet-C-style tree NAME/SEVERITY/CLASS/FILE. The same command again continues."""
    if sheet is not None:
        if source is not None or destination is not None or corruption:
            raise InputError("--sheet shows all corruptions of one picture: give --image only")
        _sheet(sheet, image, size, seed, frost, json)
        return
    if source is None or destination is None:
        raise InputError("give a test set and the folder to write, or --sheet FILE")
    if image is not None:
        raise InputError("--image goes with --sheet")
    from shiftbed.evaluation.corrupt_files import corrupt_tree
    from shiftbed.evaluation.corrupt_part import TreeOptions
    from shiftbed.evaluation.data import open_test_set
    from shiftbed.evaluation.perturbations import spelled_out

    options = TreeOptions(
        size=None if as_is else size,
        resize=resize,
        format=format,
        quality=quality,
        seed=seed,
        frost=None if frost is None else str(frost),
    )
    test_set, wanted = open_test_set(source), corruption or ["all"]
    total = len(test_set) * len(spelled_out(wanted))
    with _Bar(total, quiet=json) as bar:
        made = corrupt_tree(
            test_set, destination, wanted, options, workers=workers, report=bar.advance
        )
    found = {
        "destination": str(destination),
        "images": len(test_set),
        "settings": spelled_out(wanted),
        "written": made.written,
        "kept": made.kept,
        "unreadable": list(made.unreadable),
    }
    if json:
        as_json(found)
    else:
        print(
            f"{destination}: {made.written:,} files written, {made.kept:,} were there already; "
            f"{len(found['settings'])} settings of {len(test_set):,} images."  # type: ignore[arg-type]
        )
        for line in made.unreadable:
            print(f"unreadable: {line}")
    if made.unreadable:
        raise typer.Exit(1)


def _sheet(
    path: Path, image: Path | None, size: int, seed: int, frost: Path | None, json: bool
) -> None:
    from shiftbed.atomic import write_atomically
    from shiftbed.evaluation.corruptions import NAMES
    from shiftbed.evaluation.sheet import contact_sheet, sheet_picture

    drawn = contact_sheet(
        sheet_picture(image, size), seed=seed, frost=None if frost is None else str(frost)
    )
    with write_atomically(path) as file:
        drawn.save(file, format="PNG")
    if json:
        as_json({"sheet": str(path), "corruptions": list(NAMES), "size": list(drawn.size)})
    else:
        print(f"{path}: {len(NAMES)} corruptions, {drawn.size[0]} × {drawn.size[1]} pixels.")


class _Bar:
    """Files done of all; quiet where nobody watches."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        self.total = total
        self.shown = not quiet and sys.stderr.isatty()
        self.bars: Any = None

    def __enter__(self) -> "_Bar":
        if self.shown:
            from rich.console import Console
            from rich.progress import Progress

            self.bars = Progress(console=Console(stderr=True))
            self.bars.start()
            self.task = self.bars.add_task("images", total=self.total)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bars is not None:
            self.bars.stop()

    def advance(self, files: int) -> None:
        if self.bars is not None:
            self.bars.update(self.task, advance=files)


def mce(
    testbed: Annotated[
        str, typer.Argument(help="A prediction store, a testbed file or a published testbed.")
    ] = "imagenet-testbed-2020",
    where: Annotated[
        str | None, typer.Option(help="memory or disk; needed where both are there.")
    ] = None,
    clean: Annotated[
        str | None, typer.Option(help="The ID setting the corrupted ones were made of.")
    ] = None,
    reference: Annotated[
        str, typer.Option(help="alexnet-2019 (published errors), or a model of the testbed.")
    ] = "alexnet-2019",
    corruption: Annotated[
        list[str] | None, typer.Option(help="Only these (default: the benchmark's fifteen).")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="Only these models.")] = None,
    most: Annotated[int, typer.Option(help="Models to print.", min=1)] = 20,
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Mean corruption error and relative mCE of models (100 = the reference)."""
    from shiftbed.results.corruption_error import mce_table
    from shiftbed.testbed import open_testbed

    bed = open_testbed(testbed)
    found = mce_table(
        bed,
        where=where,
        clean=clean,
        reference=reference,
        corruptions=corruption,
        models=model,
        level=level,
    )
    if json:
        as_json({"testbed": bed.name, "reference": reference, "models": records(found)})
        return
    shown = found.head(most)
    rows = [
        (
            row["model"],
            percent(row["clean_error"]),
            percent(row["mce"]),
            _ends(row["low"], row["high"]),
            percent(row["relative_mce"]),
            _ends(row["relative_low"], row["relative_high"]),
            row["n"],
            row["note"],
        )
        for row in shown.iter_rows(named=True)
    ]
    ends = f"{100 * level:g} % interval"
    source = (
        "AlexNet's errors on ImageNet-C as published by Hendrycks and Dietterich (2019); they mean "
        "little for other images than ImageNet's."
        if reference == "alexnet-2019"
        else f"{reference} of this testbed."
    )
    table(
        f"{bed.name}: mean corruption error over {len(corruption or []) or 15} corruptions",
        ["model", "clean error", "mCE", ends, "relative mCE", ends, "n", "note"],
        rows,
        notes=[f"100 is the reference: {source}"]
        + ([f"{len(found) - most} more; --most shows them."] if len(found) > most else []),
    )


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{percent(low)} … {percent(high)}"
