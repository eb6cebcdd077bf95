"""Files in and out: ``shiftbed import``, ``captions``, and ``store`` with its verbs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from shiftbed.cli import options as opt
from shiftbed.cli.commands import Command, Default, Read
from shiftbed.cli.output import call, pairs, show
from shiftbed.cli.progress import progress
from shiftbed.errors import InputError
from shiftbed.places import local, shown_place

if TYPE_CHECKING:
    from shiftbed.labels import LabelPolicy
    from shiftbed.records import Shift

store = typer.Typer(help="Check, clean and exchange prediction stores.", no_args_is_help=True)


def _sizes(texts: list[str], _: str) -> dict[str, int]:
    sizes = {}
    for setting, text in pairs(texts, "--n", "SETTING=IMAGES").items():
        if not text.isdigit() or int(text) == 0:
            raise InputError(f"--n {setting}: expected a number of images, got {text!r}")
        sizes[setting] = int(text)
    return sizes


def _shifts(texts: list[str], _: str) -> "list[Shift]":
    from shiftbed.records import Shift

    given = pairs(texts, "--shift", "NAME=ID:OOD")
    return [Shift.of(f"{name}={text}") for name, text in given.items()]


def _import(function: Callable[..., Any], given: dict[str, Any]) -> None:
    from shiftbed.importing import save_testbed

    output, units = given.pop("output"), given.pop("unit") or []
    bare = [one for one in units if "=" not in one]
    of_one = [one for one in units if "=" in one]
    if len(bare) > 1:
        raise InputError(f"--unit: {' and '.join(bare)}; the others need names, NAME={bare[1]}")
    given |= {"name": given["name"] or output.stem, "unit": next(iter(bare), None)}
    bed = call(function, given, units=pairs(of_one, "--unit", "NAME=percent"))
    show(save_testbed(bed, output), given["json"])


import_ = Command(
    "Import results into a testbed file that every command takes as --testbed.",
    _import,
    "import_results",
    results=Annotated[
        list[Path],
        Argument(
            metavar="FILES",
            help="Tables of accuracies (CSV, TSV, JSON, JSONL, Parquet), wide or long; timm or "
            "open_clip result files; .npz predictions, logits or probabilities per image.",
        ),
    ],
    name="The testbed's name.",
    unit=Annotated[
        list[str],
        Option(
            help="fraction or percent (default: told by the numbers, file by file); NAME=fraction "
            "or NAME=percent of one setting, model or file.",
        ),
    ],
    units=None,
    layout="wide, long, timm, open_clip or predictions (default: recognised).",
    columns=Read(
        Annotated[list[str], opt.SHARED["columns"]], lambda texts, _: opt.columns_by_role(texts)
    ),
    models=Annotated[
        list[Path], Option(help="A table that describes the models: model, kind, in_fit_set, …")
    ],
    like="A testbed whose shifts, fit set and test-set sizes hold here too.",
    level="Confidence level of printed intervals, where n is missing.",
    sizes=Read(Option("--n", help="SETTING=IMAGES: test-set sizes."), _sizes),
    setting_names=Read(
        Option("--setting", help="NAME=SETTING: rename a setting (or a file's)."),
        lambda texts, _: pairs(texts, "--setting", "NAME=SETTING"),
    ),
    shifts=Read(
        Option("--shift", help="NAME=ID:OOD or NAME=ID+ID2:OOD: a shift to remember."), _shifts
    ),
    fit=Option("--fit", "--fit-on", help="Which models are baseline models: all, COLUMN=PATTERN."),
    info="A column of numbers that describes models and is no setting.",
    ignore="A column not to read.",
    source="Where the results come from.",
    licence="Their licence.",
    citation="What to cite.",
    output=Default(
        Annotated[Path, Option("--output", "-o", help="The testbed file to write.")], ...
    ),
)


def _captions(function: Callable[..., Any], given: dict[str, Any]) -> None:
    with progress(quiet=given["json"]) as report:
        made = call(function, given, progress=report)
    show(made, given["json"], failed=not made.test_examples)


_COLUMN = "Its column, if the name is unusual."
captions = Command(
    "Make a balanced ID test set of captioned images, and the rows to keep out of training.",
    _captions,
    sources=Argument(help=".csv, .tsv, .parquet or .tar files of image–text pairs, or globs."),
    classes=Annotated[
        str, Option(help="Names and synonyms: a .csv, .json or .txt file, or imagenet-1k.")
    ],
    output=Option("--output", "-o", help="Folder for the test set."),
    min_matches=Option(help="Fewest matches of a class.", min=1),
    per_class=Option(help="Test images per class.", min=1),
    seed=Option(help="Seed of the draw.", min=0),
    **dict.fromkeys(("text_column", "tags_column", "id_column"), _COLUMN),
    progress=None,
)


@store.command()
def verify(
    store: opt.Store,
    seal: bool = Option(False, "--seal", help="Add checksums that an older store lacks."),
    json: opt.AsJson = False,
) -> None:
    """Find missing, duplicate or damaged rows. Exit code 1 if there are any."""
    from shiftbed.results.stores import verify_store

    found = verify_store(store, seal=seal)
    show(found, json, failed=not found.whole)


@store.command()
def scrub(
    store: opt.Store,
    rebuild: bool = Option(
        False, "--rebuild", help="Put damaged files aside; the command that made them goes on."
    ),
    json: opt.AsJson = False,
) -> None:
    """Read everything again and compare checksums. Exit code 1 if something is wrong."""
    from shiftbed.results.stores import scrub_store

    found = scrub_store(store, rebuild=rebuild)
    show(found, json, failed=not found.whole)


@store.command()
def gc(
    store: opt.Store,
    minimum_age: float = Option(60.0, help="Leave files younger than so many minutes."),
    dry_run: bool = Option(False, "--dry-run", help="Only say what would be done."),
    json: opt.AsJson = False,
) -> None:
    """Move leftovers, orphans and damaged parts to quarantine/; a run computes them again."""
    from shiftbed.results.stores import clean_store

    show(clean_store(store, minimum_age=minimum_age, dry_run=dry_run), json)


@store.command()
def compact(store: opt.Store, json: opt.AsJson = False) -> None:
    """Put what is complete into few, large files; a run does it by itself where it is enough."""
    from shiftbed.results.stores import compact_store

    show(compact_store(store), json)


@store.command()
def export(
    store: opt.Store,
    output: Path = Option(..., "--output", "-o", help="A .npz or .csv file."),
    setting: str = Option(help="Which setting."),
    models: opt.Models = None,
) -> None:
    """Export predictions: .npz (models, top1, labels) or .csv (model, file, class, probability)."""
    from shiftbed.importing.exchange import export_predictions

    written = export_predictions(store, output, setting=setting, models=models)
    print(f"wrote {shown_place(output)}: {written} predictions")


@store.command("import")
def import_predictions(
    store: opt.Store,
    files: list[Path] = Argument(
        help=".npz (top1, logits or probabilities) or .csv files of predictions."
    ),
    setting: str | None = Option(None, help="The setting they are of (default: the file's name)."),
    shift: list[str] | None = Option(
        None, help="NAME=ID:OOD or NAME=ID+ID2:OOD: a shift to remember, for reports and lines."
    ),
) -> None:
    """Import predictions per image into a store."""
    from shiftbed.importing.exchange import import_predictions

    shifts = _shifts(shift or [], "--shift")
    count = import_predictions(store, files, setting=setting, shifts=shifts)
    print(f"{store}: {count} cells imported")
    if shifts:
        print(f"Next: shiftbed report {store} -o report.html")


@store.command()
def twin(
    store: opt.Store,
    setting: list[str] = Option(
        help="The setting whose twin is made, such as val; several without a policy get the "
        "classes that all of them have."
    ),
    subset: opt.Subset = None,
    class_map: opt.ClassMap = None,
    like: list[str] | None = Option(
        None,
        help="The classes of a test set of the catalogue, such as imagenet-a; of several, those "
        "that all have.",
    ),
    how: opt.How = None,
    name: str | None = Option(None, help="The twin's name (default: SETTING@CLASSES)."),
    models: opt.Models = None,
    level: opt.Level = 0.95,
    json: opt.AsJson = False,
) -> None:
    """Make a setting's class twin from stored predictions; no model runs again.

    Exit code 1 if some images of some model are not decided by what is stored.
    """
    from shiftbed.results.stores import twins

    policy = None
    if len(setting) < 2 or subset or class_map or like:
        policy = policy_of(subset, class_map, how, like)
    if like and len(setting) == 1:
        name = name or f"{setting[0]}@{'+'.join(like)}-classes"
    found = twins(store, setting, policy, name=name, models=models, level=level)
    show(found, json, failed=not found.decided)


def policy_of(
    subset: str | None,
    class_map: Path | None,
    how: str | None,
    like: Sequence[str] | None = None,
) -> "LabelPolicy":
    """The label policy that the options name; exactly one of them must be given."""
    from shiftbed import catalogue, labels

    if sum(bool(one) for one in (subset, class_map, like)) != 1:
        raise InputError("give one of --subset, --class-map and --like")
    if how is not None and class_map is None:
        raise InputError("--how goes with --class-map")
    if subset is not None:
        return labels.subset(class_indices(subset))
    if class_map is not None:
        return labels.read_class_map(class_map, how or "max")
    assert like is not None
    return catalogue.policy_of(like[0]) if len(like) == 1 else catalogue.common_classes(list(like))


def class_indices(text: str) -> list[int]:
    path = local(text)
    try:
        source = path.read_text(encoding="utf-8") if path.is_file() else text
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--subset: {text} cannot be read: {error}") from None
    words = source.replace(",", " ").strip("[] \n").split()
    if not words or not all(word.isdigit() for word in words):
        raise InputError(f"--subset: expected class indices such as 1,5,7 or a file, got {text!r}")
    return [int(word) for word in words]
