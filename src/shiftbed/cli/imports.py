"""Files in and out: ``shiftbed import``, ``captions``, and ``store`` with its verbs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbed.cli.output import AsJson, Level, pairs, show
from shiftbed.cli.progress import Progress
from shiftbed.errors import InputError

if TYPE_CHECKING:
    from shiftbed.labels import LabelPolicy
    from shiftbed.records import Shift

store = typer.Typer(help="Check, clean and exchange prediction stores.", no_args_is_help=True)
Where = Annotated[str, typer.Argument(help="A prediction store.")]
Column = Annotated[str | None, typer.Option(help="Its column, if the name is unusual.")]
SubsetText = Annotated[
    str | None, typer.Option("--subset", help="Only these classes: 1,5,7 or a file of indices.")
]
ClassMapFile = Annotated[
    Path | None,
    typer.Option(
        "--class-map",
        help="A JSON file, {target: classes} or {class: target}: many classes to one.",
    ),
]
Like = Annotated[
    str | None,
    typer.Option(help="The classes of a test set of the catalogue, such as imagenet-a."),
]
How = Annotated[
    str | None,
    typer.Option(help="Combine mapped classes by max (default), mean, sum or max-logit."),
]


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Wide or long CSV, Parquet or JSONL; timm or open_clip result files; "
            ".npz predictions per image."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The testbed file to write.")],
    name: Annotated[str | None, typer.Option(help="The testbed's name.")] = None,
    unit: Annotated[
        list[str] | None,
        typer.Option(
            help="fraction or percent, for files that do not say; NAME=fraction or NAME=percent "
            "of one setting, model or file."
        ),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(help="wide, long, timm, open_clip or predictions (default: recognised)."),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="ROLE=COLUMN: what a column is, such as model=estimator."),
    ] = None,
    models: Annotated[
        list[Path] | None,
        typer.Option(help="A table that describes the models: model, kind, in_fit_set, …"),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(help="A testbed whose shifts, fit set and test-set sizes hold here too."),
    ] = None,
    n: Annotated[
        list[str] | None, typer.Option("--n", help="SETTING=IMAGES: test-set sizes.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--setting", help="NAME=SETTING: rename a setting (or a file's)."),
    ] = None,
    shift: Annotated[
        list[str] | None,
        typer.Option("--shift", help="NAME=ID:OOD or NAME=ID+ID2:OOD: a shift to remember."),
    ] = None,
    fit_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fit", "--fit-on", help="Which models are baseline models: all, COLUMN=PATTERN."
        ),
    ] = None,
    info: Annotated[
        list[str] | None,
        typer.Option(help="A column of numbers that describes models and is no setting."),
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="A column not to read.")] = None,
    source: Annotated[str, typer.Option(help="Where the results come from.")] = "",
    licence: Annotated[str, typer.Option(help="Their licence.")] = "",
    citation: Annotated[str, typer.Option(help="What to cite.")] = "",
    json: AsJson = False,
) -> None:
    """Import results into a testbed file that every command takes as --testbed."""
    from shiftbed.importing import import_results, save_testbed

    bare = [one for one in unit or [] if "=" not in one]
    named = [one for one in unit or [] if "=" in one]
    if len(bare) > 1:
        raise InputError(f"--unit: {' and '.join(bare)}; the others need names, NAME={bare[1]}")
    bed = import_results(
        files,
        name=name or output.stem,
        unit=next(iter(bare), None),
        units=pairs(named, "--unit", "NAME=percent"),
        layout=layout,
        columns=pairs(column or [], "--column", "ROLE=COLUMN"),
        models=models or (),
        like=like,
        sizes=_sizes(n or []),
        setting_names=pairs(setting or [], "--setting", "NAME=SETTING"),
        shifts=_shifts(shift or []),
        fit=fit_on or None,
        info=info or (),
        ignore=ignore or (),
        source=source,
        licence=licence,
        citation=citation,
    )
    show(save_testbed(bed, output), json)


def _sizes(texts: list[str]) -> dict[str, int]:
    sizes = {}
    for setting, text in pairs(texts, "--n", "SETTING=IMAGES").items():
        if not text.isdigit() or int(text) == 0:
            raise InputError(f"--n {setting}: expected a number of images, got {text!r}")
        sizes[setting] = int(text)
    return sizes


def _shifts(texts: list[str]) -> "list[Shift]":
    from shiftbed.records import Shift

    shifts = []
    for name, text in pairs(texts, "--shift", "NAME=ID:OOD").items():
        ids, colon, ood = text.partition(":")
        if not colon or not ids or not ood:
            raise InputError(f"--shift {name}: expected ID:OOD, got {text!r}")
        shifts.append(
            Shift(name=name, kind="natural-dataset", source=tuple(ids.split("+")), target=ood)
        )
    return shifts


def captions(
    sources: Annotated[
        list[str],
        typer.Argument(help=".csv, .tsv, .parquet or .tar files of image–text pairs, or globs."),
    ],
    classes: Annotated[
        str, typer.Option(help="Names and synonyms: a .csv, .json or .txt file, or imagenet-1k.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the test set.")],
    min_matches: Annotated[int, typer.Option(help="Fewest matches of a class.", min=1)] = 100,
    per_class: Annotated[int, typer.Option(help="Test images per class.", min=1)] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
    text_column: Column = None,
    tags_column: Column = None,
    id_column: Column = None,
    json: AsJson = False,
) -> None:
    """Make a balanced ID test set of captioned images, and the rows to keep out of training."""
    from shiftbed.captioning import captions

    with _Rows(quiet=json) as bar:
        made = captions(
            sources,
            classes,
            output,
            min_matches=min_matches,
            per_class=per_class,
            seed=seed,
            text_column=text_column,
            tags_column=tags_column,
            id_column=id_column,
            progress=bar.rows,
        )
    show(made, json)
    if not made.test_examples:
        raise typer.Exit(1)


class _Rows(Progress):
    """A bar per pass over the captions."""

    def rows(self, stage: str, done: int, total: int | None) -> None:
        """How many rows a pass has read."""
        if self.bars is None:
            return
        if (stage, "") not in self.tasks:
            self.tasks[stage, ""] = self.bars.add_task(stage, total=total, rate="rows")
        self.bars.update(self.tasks[stage, ""], completed=done, total=total)


@store.command()
def verify(store: Where, json: AsJson = False) -> None:
    """Find missing, duplicate or damaged rows. Exit code 1 if there are any."""
    from shiftbed.results.stores import verify_store

    found = verify_store(store)
    show(found, json)
    if not found.whole:
        raise typer.Exit(1)


@store.command()
def gc(store: Where, json: AsJson = False) -> None:
    """Remove leftovers, orphans and damaged parts; a run computes them again."""
    from shiftbed.results.stores import clean_store

    show(clean_store(store), json)


@store.command()
def export(
    store: Where,
    output: Annotated[Path, typer.Option("--output", "-o", help="A .npz or .csv file.")],
    setting: Annotated[str, typer.Option(help="Which setting.")],
    model: Annotated[list[str] | None, typer.Option(help="Only these models.")] = None,
) -> None:
    """Export predictions: .npz (models, top1, labels) or .csv (model, file, class, probability)."""
    from shiftbed.importing.exchange import export_predictions

    written = export_predictions(store, output, setting=setting, models=model)
    print(f"wrote {output}: {written} predictions")


@store.command("import")
def import_predictions(
    store: Where,
    files: Annotated[list[Path], typer.Argument(help=".npz or .csv files of predictions.")],
    setting: Annotated[
        str | None, typer.Option(help="The setting they are of (default: the file's name).")
    ] = None,
) -> None:
    """Import predictions per image into a store."""
    from shiftbed.importing.exchange import import_predictions

    count = import_predictions(store, files, setting=setting)
    print(f"{store}: {count} cells imported")


@store.command()
def twin(
    store: Where,
    setting: Annotated[str, typer.Option(help="The setting whose twin is made, such as val.")],
    subset: SubsetText = None,
    class_map: ClassMapFile = None,
    like: Like = None,
    how: How = None,
    name: Annotated[
        str | None, typer.Option(help="The twin's name (default: SETTING@CLASSES).")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="Only these models.")] = None,
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Make a setting's class twin from stored predictions; no model runs again.

    Exit code 1 if some images of some model are not decided by what is stored.
    """
    from shiftbed.results.stores import twins

    policy = policy_of(subset, class_map, how, like)
    named = name or (f"{setting}@{like}-classes" if like else None)
    found = twins(store, setting, policy, name=named, models=model, level=level)
    show(found, json)
    if not found.decided:
        raise typer.Exit(1)


def policy_of(
    subset: str | None, class_map: Path | None, how: str | None, like: str | None = None
) -> "LabelPolicy":
    """The label policy that the options name; exactly one of them must be given."""
    from shiftbed import catalogue, labels

    if sum(one is not None for one in (subset, class_map, like)) != 1:
        raise InputError("give one of --subset, --class-map and --like")
    if how is not None and class_map is None:
        raise InputError("--how goes with --class-map")
    if subset is not None:
        return labels.subset(class_indices(subset))
    if class_map is not None:
        return labels.read_class_map(class_map, how or "max")
    return catalogue.policy_of(str(like))


def class_indices(text: str) -> list[int]:
    path = Path(text)
    try:
        source = path.read_text(encoding="utf-8") if path.is_file() else text
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--subset: {text} cannot be read: {error}") from None
    words = source.replace(",", " ").strip("[] \n").split()
    if not words or not all(word.isdigit() for word in words):
        raise InputError(f"--subset: expected class indices such as 1,5,7 or a file, got {text!r}")
    return [int(word) for word in words]
