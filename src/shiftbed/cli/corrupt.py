"""``shiftbed corrupt``: corrupted test sets on disk."""

from functools import partial
from pathlib import Path

from typer import Argument, Option

import shiftbed as sb
from shiftbed.cli import options as opt
from shiftbed.cli.output import call, show
from shiftbed.cli.progress import progress
from shiftbed.errors import InputError

SIZE = 224


def corrupt(
    test_set: str | None = Argument(None, help="A test set: a folder of classes, .npz, …"),
    folder: Path | None = Argument(None, help="Where the tree goes."),
    corruptions: list[str] | None = Option(
        None,
        "--corruption",
        help="NAME[:SEVERITIES], such as fog:1-5 or snow:3; default: all of them.",
    ),
    size: int = Option(SIZE, help="Side of the images.", min=8),
    resize: int | None = Option(
        None, help="Shorter side before the central crop (default 256/224 of the size)."
    ),
    as_is: bool = Option(False, "--as-is", help="Neither resize nor crop, as in CIFAR-10-C."),
    format: str = Option("jpeg", help="jpeg, as the original, or png."),
    quality: int | None = Option(None, help="Quality of the JPEGs (default 85)."),
    seed: int = Option(0, help="Seed of what is random.", min=0),
    frost: opt.Frost = None,
    workers: int = Option(1, help="Worker processes.", min=1),
    sheet: Path | None = Option(None, help="Draw the contact sheet into this file instead."),
    image: Path | None = Option(None, help="The picture on the sheet."),
    json: opt.AsJson = False,
) -> None:
    """Write an ImageNet-C-style tree NAME/SEVERITY/CLASS/FILE. The same command again continues."""
    given = locals()
    if sheet is not None:
        of_trees = (test_set, folder, corruptions, resize, as_is, format, quality, workers)
        if of_trees != (None, None, None, None, False, "jpeg", None, 1):
            raise InputError(
                "--sheet shows all corruptions of one picture: give --image, --size, --seed and "
                "--frost only"
            )
        from shiftbed.evaluation.contact_sheet import write_sheet

        show(write_sheet(sheet, image, size=size, seed=seed, frost=frost), json)
        return
    if test_set is None or folder is None:
        raise InputError("give a test set and the folder to write, or --sheet FILE")
    if image is not None:
        raise InputError("--image goes with --sheet")
    if as_is and size != SIZE:
        raise InputError("--as-is keeps the size of every picture: give no --size")
    own = {"as_is": None, "sheet": None, "size": None if as_is else size}
    function = partial(sb.corrupt, size=None) if as_is else sb.corrupt
    with progress(quiet=json) as report:
        made = call(function, given, **own, report=report)
    show(made, json, failed=made.unreadable)
