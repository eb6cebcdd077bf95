"""``shiftbed import``: results you have, as a testbed file."""

from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

from shiftbed.cli.output import AsJson, as_json, pairs
from shiftbed.errors import InputError


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
        str | None, typer.Option(help="fraction or percent, for files that do not say.")
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(help="wide, long, timm, open_clip or predictions (default: recognised)."),
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
    from shiftbed.importing import import_results
    from shiftbed.testbed import write_testbed

    if output.suffix != ".parquet":
        raise InputError(f"--output must end in .parquet, got {output.name!r}")
    if unit not in (None, "fraction", "percent"):
        raise InputError(f"--unit must be fraction or percent, got {unit!r}")
    bed = import_results(
        files,
        name=name or output.stem,
        unit=cast(Literal["fraction", "percent"] | None, unit),
        layout=layout,
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
    write_testbed(bed, output)
    facts = {
        "testbed": bed.name,
        "file": str(output),
        "models": len(bed.models),
        "settings": len(bed.settings),
        "shifts": [s.name for s in bed.shifts],
        "fit_set": int(bed.models["in_fit_set"].sum()),
        "per_image": sorted(bed.results),
    }
    if json:
        as_json(facts)
        return
    per_image = f", per-image results in {len(bed.results)}" if bed.results else ""
    print(
        f"{output}: {facts['models']} models ({facts['fit_set']} in the fit set), "
        f"{facts['settings']} settings{per_image}, {len(bed.shifts)} shifts."
    )


def _sizes(texts: list[str]) -> dict[str, int]:
    sizes = {}
    for setting, text in pairs(texts, "--n", "SETTING=IMAGES").items():
        if not text.isdigit() or int(text) == 0:
            raise InputError(f"--n {setting}: expected a number of images, got {text!r}")
        sizes[setting] = int(text)
    return sizes


def _shifts(texts: list[str]) -> list[Any]:
    from shiftbed.records import Shift

    shifts: list[Any] = []
    for name, text in pairs(texts, "--shift", "NAME=ID:OOD").items():
        ids, colon, ood = text.partition(":")
        if not colon or not ids or not ood:
            raise InputError(f"--shift {name}: expected ID:OOD, got {text!r}")
        shifts.append(
            Shift(name=name, kind="natural-dataset", source=tuple(ids.split("+")), target=ood)
        )
    return shifts
