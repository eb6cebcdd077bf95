"""Lines, and models against them: place, fit, rank, compare, groups, correlate, plan."""

from collections.abc import Callable
from typing import Annotated, Any

from typer import Argument, Option

import shiftbed as sb
from shiftbed.cli import options as opt
from shiftbed.cli.commands import Default, Study, named, study
from shiftbed.errors import InputError


def _place(function: Callable[..., Any], given: dict[str, Any]) -> None:
    from_ = given.pop("from_")
    reading = {key: given.pop(key) for key in ("columns", "unit", "models")}
    if not from_:
        if any(reading.values()):
            raise InputError("--column, --unit and --models go with --from")
        study(function, given)
        return
    for one in ("id", "ood", "model", "predictions", "parent", "multi", "sensitivity", "name"):
        if given.pop(one) not in (None, False, "your model"):
            raise InputError(f"--from places the models of a file; it takes no --{one}")
    reading["columns"] = opt.columns_by_role(reading["columns"])
    study(sb.place_all, given | reading | {"results": from_})


place = Study(
    """Place your model: its effective robustness per shift, with intervals, and what to cite.

    With --from, every model of a file on every shift that it has the accuracies for.
    """,
    _place,
    id=named("SETTING=ACCURACY", "SETTING=ACCURACY, such as val=0.7613 or val=38065/50000."),
    ood=named("SETTING=ACCURACY", "SETTING=ACCURACY (or SHIFT=ACCURACY), likewise."),
    model="Place a model that the testbed already has.",
    predictions=named(
        "SETTING=FILE.npz", "SETTING=FILE.npz: your predictions on the testbed's own images."
    ),
    name="What to call your model.",
    parent="The model it derives from, for relative robustness.",
    multi="Control for all given ID settings at once (a plane).",
    own_images="Measured on other images than the testbed's.",
    sensitivity="ρ under every defensible choice.",
    from_=Annotated[
        list[str],
        Option(
            "--from",
            help="Place every model of a file: CSV, JSON, JSONL, Parquet (several are merged), a "
            "testbed or a store.",
        ),
    ],
    columns=Annotated[list[str], opt.SHARED["columns"]],
    unit="Of --from: percent or fraction.",
    models=Annotated[
        list[str], Option(help="A table that describes the models of --from: model, kind, …")
    ],
)
fit = Study(
    "Fit the baseline of a shift: a line through one ID setting, a plane through several.",
    weighted="Weigh baseline models by their test-set sizes.",
    by="One line per value of this column of models.",
    choose_ids="Which of several --id to control for? Collinearity.",
    bootstrap=Option(help="Resamples of the models for the band.", min=0),
)
rank = Study(
    "Rank a testbed's models by effective robustness on a shift (or on all, without --shift).",
    only="Show only these models: COLUMN=PATTERN.",
    by="Sort by effective, relative, p_value or target.",
    most=Option(
        "--most",
        "-n",
        help="How many rows; 0 for all (default 15; JSON has all with --with).",
        min=0,
    ),
)
compare = Study(
    "Compare two models: accuracies, ρ of each, and the difference with its interval.",
    a=Argument(help="A model of the testbed."),
    b=Argument(help="Another one."),
    shift=opt.Shifts,
)
groups = Study(
    "ρ by group of models; R² by scale; and, with --id, single-ID against multi-ID fits.",
    by="Column of models that makes the groups (default: kind).",
    shift=opt.Shifts,
    id="Two or more ID settings: fits and groups by each of them and by all.",
    ood="OOD settings, with --id.",
    own_id=named("GROUP=SETTING", "GROUP=SETTING: each group's own ID set, for Kendall's τ."),
    mixed="COLUMN=PATTERN of mixed models, for the fit that leaves them out.",
    threshold="Fit only models with at least this ID accuracy; with --id, leave out those below it "
    "on the first one.",
)
correlate = Study(
    "Does ρ on synthetic shifts go with ρ on natural ones? Pearson's r for every pair.",
    synthetic="Only these synthetic shifts.",
    natural="Only these natural shifts.",
    models=Option(help="Over which models (default kind!=standard)."),
    unit="What intervals take as independent: run or model.",
)
plan = Study(
    "How many test images and baseline models it takes to detect ρ = delta.",
    delta="The ρ to detect, a fraction such as 0.01.",
    power="The wanted probability of detecting it.",
    accuracy="The model's ID accuracy (default: the median's).",
    models="Baseline models.",
    id_images="ID test images.",
    ood_images="OOD test images.",
    paired=Default(
        Annotated[
            bool | None,
            Option(
                "--paired/--unlike",
                help="Answers per image will be kept; or the model will be unlike the baseline "
                "models.",
            ),
        ]
    ),
    families="Families among the baseline models.",
    simulate="Check the power by so many simulations.",
)
