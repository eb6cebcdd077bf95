"""``shiftbed run``, ``eval``, ``score``: models on test sets, into a store, and out of it.

``corrupt`` writes corrupted test sets.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

from typer import Argument, Option

import shiftbed as sb
from shiftbed.cli import options as opt
from shiftbed.cli.commands import Command
from shiftbed.cli.imports import class_indices
from shiftbed.cli.output import call, show, values
from shiftbed.cli.progress import MINUTE, Progress, progress
from shiftbed.display import counted
from shiftbed.errors import InputError
from shiftbed.places import shown_place, url_of

_COLUMN = "The column, array or field of {}, where the usual names do not decide."


def run(
    testbed: Path = Argument(help="A testbed.toml."),
    runner: opt.Runner = "local",
    workers: opt.Workers = 2,
    address: opt.Address = None,
    shard: str | None = Option(
        None, help="i/n: only every n-th cell, from the i-th; n such commands do it all."
    ),
    batch_size: opt.BatchSize = None,
    backend: opt.Backend = None,
    on_unreadable: opt.Unreadable = None,
    dry_run: bool = Option(False, "--dry-run", help="List what is left to do, and an estimate."),
    allow_code: opt.AllowCode = False,
    fresh: opt.Fresh = False,
    same: opt.Same = False,
    quiet: opt.Quiet = False,
    json: opt.AsJson = False,
) -> None:
    """Run a testbed: every model in every setting. The same command again continues."""
    given = locals()
    if dry_run:
        from shiftbed.engine.evaluate import left_to_do

        show(left_to_do(testbed), json)
        return
    with Progress(quiet=json or quiet) as bars:
        own = {"dry_run": None, "quiet": None, "report": bars.part, "announce": bars.cells}
        done = call(sb.run, given, **own)
    show(done, json, failed=done.incomplete)


def eval_(
    models: list[str] = Argument(
        metavar="MODEL… TEST_SET…",
        help="Models, such as timm:resnet18 or onnx:FILE, then test sets: folders, .npz, .csv, "
        ".tar …, or NAME@DIR.",
    ),
    store: Path = Option(Path("store"), help="Where predictions are kept (and found again)."),
    name: opt.NameInStore = None,
    weights: opt.Weights = None,
    batch_size: opt.BatchSize = None,
    backend: opt.Backend = None,
    device: opt.Device = "cpu",
    precision: str = Option("float32", help="float32, bfloat16 or float16."),
    on_unreadable: opt.Unreadable = None,
    classes: str | None = Option(
        None,
        help="The test sets' classes in order: a file with a name per line, or imagenet-1k.",
    ),
    image_column: str | None = Option(None, help=_COLUMN.format("images")),
    label_column: str | None = Option(None, help=_COLUMN.format("labels")),
    group_column: str | None = Option(None, help=_COLUMN.format("groups")),
    id_column: str | None = Option(None, help=_COLUMN.format("ids")),
    root: Path | None = Option(None, help="Where the paths in a .csv or .tsv start."),
    layout: str | None = Option(None, help="NHWC or NCHW, where an array's shape allows both."),
    preprocessing: list[str] | None = Option(
        None, help="KEY=VALUE: change the model's own, such as interpolation=bicubic."
    ),
    subset: str | None = Option(
        None, help="Only these classes of the model: 1,5,7 or a file of indices."
    ),
    class_map: Path | None = Option(
        None, help="JSON file of targets with lists of the model's classes: many classes to one."
    ),
    how: opt.How = None,
    labels: str | None = Option(
        None,
        help="The images' labels are the numbers of the 'model' 's classes, or with --subset and "
        "--class-map those of the 'target' (default).",
    ),
    policy: str | None = Option(
        None,
        help="Of NAME@DIR: its label policy as the catalogue has it, or 'full': all classes.",
    ),
    through: str | None = Option(
        None,
        help="Classes of the model (imagenet) that are mapped to NAME@DIR's (cifar-10, …) by "
        "--how.",
    ),
    corruptions: list[str] | None = Option(
        None,
        "--corruption",
        help="NAME[:SEVERITIES] in memory, such as fog:1-5, all:3 or python:module:function:2.",
    ),
    attacks: list[str] | None = Option(
        None, "--attack", help="Such as pgd-linf:2/255; taori2020 for its four."
    ),
    attack_options: list[str] | None = Option(
        None, "--attack-option", help="KEY=VALUE, such as steps=20."
    ),
    share: float | None = Option(None, help="Only this share of every class, such as 0.1."),
    seed: int = Option(0, help="Seed of corruptions, attacks and the share.", min=0),
    frost: opt.Frost = None,
    keep_logits: bool = Option(
        False, "--keep-logits", help="Keep all logits, not the best classes only."
    ),
    check: bool = Option(
        False, "--check", help="Compare with the published accuracy, and try the causes."
    ),
    published: float | None = Option(
        None, help="That accuracy, a fraction (default: the shipped timm table's)."
    ),
    images: int = Option(2000, help="Images to check on.", min=10),
    metrics: opt.Metrics = None,
    level: opt.Level = 0.95,
    allow_code: opt.AllowCode = False,
    fresh: opt.Fresh = False,
    same: opt.Same = False,
    quiet: opt.Quiet = False,
    json: opt.AsJson = False,
) -> None:
    """Evaluate models on test sets; predictions are kept, and found again the next time."""
    from shiftbed.engine.plan import ModelSpec

    lines, test_sets = _models_first(models)
    if len(lines) > 1:
        alone = {"--name": name, "--weights": weights, "--check": check or None}
        for option in (key for key, value in alone.items() if value is not None):
            raise InputError(f"{option} goes with one model, not with {len(lines)}")
    columns = {"image_column": image_column, "label_column": label_column}
    columns |= {"group_column": group_column, "id_column": id_column, "classes": classes}
    reading: dict[str, Any] = columns | {"root": root, "layout": layout}
    reading = {key: value for key, value in reading.items() if value is not None}

    opening: dict[str, Any] = {} if weights is None else {"weights": str(weights)}
    if preprocessing:
        opening["preprocessing"] = values(preprocessing, "--preprocessing")
    running: dict[str, Any] = {"device": device, "precision": precision, "level": level}
    if check:
        if len(test_sets) != 1:
            raise InputError("--check takes one test set: the ID set of the published accuracy")
        running |= {"published": published, "images": images, "allow_code": allow_code}
        images_to_check = sb.TestSet.open(test_sets[0], **reading) if reading else test_sets[0]
        show(sb.check(lines[0], images_to_check, **running, **opening), json)
        return
    running |= {"batch_size": batch_size, "backend": backend, "on_unreadable": on_unreadable}
    running |= {"corruptions": corruptions, "attacks": attacks, "share": share, "seed": seed}
    running |= {"frost": frost, "keep_logits": keep_logits, "store": store, "metrics": metrics}
    with Progress(quiet=json or quiet) as bars:
        done = call(
            sb.evaluate,
            running,
            models=[ModelSpec.of_line(one, name, options=opening) for one in lines],
            reading=reading or None,
            allow_code=allow_code,
            fresh=fresh,
            same=same,
            test_sets=test_sets,
            attack_options=values(attack_options, "--attack-option"),
            labels=_labels(subset, class_map, how, labels, policy, through),
            shifts=(),
            report=bars.part,
            announce=bars.cells,
        )
    if not (json or quiet) and (sys.stderr.isatty() or done.summary.seconds >= MINUTE):
        print(_summary(done.summary, store), file=sys.stderr)
    show(done, json, failed=done.incomplete)


def _models_first(words: list[str]) -> tuple[list[str], list[str]]:
    """Models and test sets: the first word is a model, and so are those after it that begin so.

    >>> _models_first(["timm:resnet18", "onnx:own.onnx", "images/val", "digits.npz:faint"])
    (['timm:resnet18', 'onnx:own.onnx'], ['images/val', 'digits.npz:faint'])
    >>> _models_first(["hf:owner/net", "hf://datasets/owner/set/test.parquet"])
    (['hf:owner/net'], ['hf://datasets/owner/set/test.parquet'])
    """
    from shiftbed.evaluation.models.registry import kinds

    def is_model(word: str) -> bool:
        kind, colon, _ = word.partition(":")
        return bool(colon) and kind in known and url_of(word) is None

    known, count = kinds(), 1
    while count < len(words) and is_model(words[count]):
        count += 1
    if count == len(words):
        raise InputError("give a test set after the models: a folder, .npz, .csv, .tar or NAME@DIR")
    return words[:count], words[count:]


def _summary(summary: Any, store: Path) -> str:
    """How an evaluation ended, and what can be done next."""
    cells = counted(len(summary.complete), "cell")
    speed = summary.images_per_second if summary.seconds >= MINUTE else None
    rate = f", {summary.images:,} images at {speed:,.0f}/s" if speed else ""
    return (
        f"{cells} kept in {shown_place(store)}{rate}. "
        f"Next: shiftbed score {shown_place(store)} --metric top5 --metric ece"
    )


score = Command("Score a store: any metric of any cell, from the predictions kept.")


def _labels(
    subset: str | None,
    class_map: Path | None,
    how: str | None,
    labels: str | None,
    policy: str | None,
    through: str | None,
) -> dict[str, Any]:
    """How the model's classes and the labels meet, as a setting of testbed.toml says it."""
    if sum(one is not None for one in (subset, class_map, through)) > 1:
        raise InputError("give one of --subset, --class-map and --through")
    if how is not None and class_map is None and through is None:
        raise InputError("--how goes with --class-map or --through")
    if labels not in (None, "model") and subset is None and class_map is None:
        raise InputError("--labels target goes with --subset or --class-map")
    found: dict[str, Any] = {"policy": policy, "through": through, "map": class_map, "how": how}
    if subset is not None:
        found["subset"] = class_indices(subset)
    if subset is not None or class_map is not None:
        found["labels"] = labels or "target"
    elif labels is not None:
        found["labels"] = labels
    return {key: value for key, value in found.items() if value is not None}


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
    quiet: opt.Quiet = False,
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
    own = {"as_is": None, "sheet": None, "quiet": None, "size": None if as_is else size}
    function = partial(sb.corrupt, size=None) if as_is else sb.corrupt
    with progress(quiet=json or quiet) as report:
        made = call(function, given, **own, report=report)
    show(made, json, failed=made.unreadable)
