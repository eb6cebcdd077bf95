"""``shiftbed corrupt`` and ``mce``: corrupted test sets on disk, and the error over all."""

from pathlib import Path
from typing import Annotated

import typer

from shiftbed.cli.output import AsJson, Level, progress, show
from shiftbed.errors import InputError

SIZE = 224


def corrupt(
    source: Annotated[
        str | None, typer.Argument(help="A test set: a folder of classes, .npz, …")
    ] = None,
    destination: Annotated[Path | None, typer.Argument(help="Where the tree goes.")] = None,
    corruption: Annotated[
        list[str] | None,
        typer.Option(help="NAME[:SEVERITIES], such as fog:1-5 or snow:3; default: all of them."),
    ] = None,
    size: Annotated[int, typer.Option(help="Side of the images.", min=8)] = SIZE,
    resize: Annotated[
        int | None,
        typer.Option(help="Shorter side before the central crop (default 256/224 of the size)."),
    ] = None,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Neither resize nor crop, as in CIFAR-10-C.")
    ] = False,
    format: Annotated[str, typer.Option(help="jpeg, as the original, or png.")] = "jpeg",
    quality: Annotated[int | None, typer.Option(help="Quality of the JPEGs (default 85).")] = None,
    seed: Annotated[int, typer.Option(help="Seed of what is random.", min=0)] = 0,
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
        of_trees = (source, destination, corruption, resize, as_is, format, quality, workers)
        if of_trees != (None, None, None, None, False, "jpeg", None, 1):
            raise InputError(
                "--sheet shows all corruptions of one picture: give --image, --size, --seed and "
                "--frost only"
            )
        from shiftbed.evaluation.contact_sheet import write_sheet

        show(write_sheet(sheet, image, size=size, seed=seed, frost=frost), json)
        return
    if source is None or destination is None:
        raise InputError("give a test set and the folder to write, or --sheet FILE")
    if image is not None:
        raise InputError("--image goes with --sheet")
    if as_is and size != SIZE:
        raise InputError("--as-is keeps the size of every picture: give no --size")
    from shiftbed.evaluation.corrupt_tree import corrupt as corrupt_

    with progress(quiet=json) as report:
        made = corrupt_(
            source,
            destination,
            corruption or "all",
            size=None if as_is else size,
            resize=resize,
            format=format,
            quality=quality,
            seed=seed,
            frost=frost,
            workers=workers,
            report=report,
        )
    show(made, json)
    if made.unreadable:
        raise typer.Exit(1)


def mce(
    testbed: Annotated[
        str, typer.Argument(help="A prediction store, a testbed file or a published testbed.")
    ] = "imagenet-testbed-2020",
    where: Annotated[
        str | None, typer.Option(help="memory or disk; needed where the testbed has both.")
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
    from shiftbed.results.corruption_error import mce as mce_

    found = mce_(
        testbed,
        where=where,
        clean=clean,
        reference=reference,
        corruptions=corruption,
        models=model,
        most=most,
        level=level,
    )
    show(found, json)
