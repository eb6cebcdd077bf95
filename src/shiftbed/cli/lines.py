"""Lines, and models against them: place, fit, rank, compare, groups, correlate, plan."""

from typer import Argument, Option

import shiftbed as sb
from shiftbed.cli import options as opt
from shiftbed.cli.output import call, check_files, pairs, show, write_and_show
from shiftbed.errors import InputError


def place(
    testbed: opt.TestbedName = opt.TESTBED,
    id: list[str] | None = Option(
        None, help="SETTING=ACCURACY, such as val=0.7613 or val=38065/50000."
    ),
    ood: list[str] | None = Option(None, help="SETTING=ACCURACY (or SHIFT=ACCURACY), likewise."),
    model: str | None = Option(None, help="Place a model that the testbed already has."),
    from_: list[str] | None = Option(
        None,
        "--from",
        help="Place every model of a file: CSV, JSON, JSONL, Parquet (several are merged), a "
        "testbed or a store.",
    ),
    columns: opt.Columns = None,
    unit: str | None = Option(None, help="Of --from: percent or fraction."),
    models: list[str] | None = Option(
        None, help="A table that describes the models of --from: model, kind, …"
    ),
    own_images: bool = Option(
        False, "--own-images", help="Measured on other images than the testbed's."
    ),
    predictions: list[str] | None = Option(
        None, help="SETTING=FILE.npz: your predictions on the testbed's own images."
    ),
    name: str = Option("your model", help="What to call your model."),
    parent: str | None = Option(None, help="The model it derives from, for relative robustness."),
    multi: bool = Option(
        False, "--multi", help="Control for all given ID settings at once (a plane)."
    ),
    scale: opt.ScaleName = "logit",
    fit_on: opt.FitOn = None,
    threshold: opt.Threshold = None,
    knee: opt.Knee = "published",
    on_boundary: opt.Boundary = "raise",
    level: opt.Level = 0.95,
    fdr: opt.Fdr = 0.05,
    sensitivity: bool = Option(False, "--sensitivity", help="ρ under every defensible choice."),
    output: opt.Output = None,
    json: opt.AsJson = False,
) -> None:
    """Place your model: its effective robustness per shift, with intervals, and what to cite.

    With --from, every model of a file on every shift that it has the accuracies for.
    """
    given = locals()
    check_files(output)
    if not from_ and (columns or unit or models):
        raise InputError("--column, --unit and --models go with --from")
    if from_:
        single = ("id", "ood", "model", "predictions", "parent", "multi", "sensitivity")
        for one in [*single, *(["name"] if name != "your model" else [])]:
            if given[one]:
                raise InputError(f"--from places the models of a file; it takes no --{one}")
        never = dict.fromkeys((*single, "name", "from_", "output"))
        read = {"columns": opt.columns_by_role(columns), "models": models or ()}
        many = call(sb.place_all, given, results=from_, **read, **never)
        write_and_show(many, output, json)
        return
    found = call(
        sb.place,
        given,
        from_=None,
        output=None,
        columns=None,
        models=None,
        id=pairs(id, "--id", "SETTING=ACCURACY"),
        ood=pairs(ood, "--ood", "SETTING=ACCURACY"),
        predictions=pairs(predictions, "--predictions", "SETTING=FILE.npz"),
    )
    write_and_show(found, output, json)


def fit(
    testbed: opt.TestbedName = opt.TESTBED,
    shift: opt.ShiftName = None,
    id: opt.Ids = None,
    ood: opt.Ood = None,
    scale: opt.ScaleName = "logit",
    fit_on: opt.FitOn = None,
    threshold: opt.Threshold = None,
    full_id: opt.FullId = False,
    knee: opt.Knee = "published",
    weighted: bool = Option(
        False, "--weighted", help="Weigh baseline models by their test-set sizes."
    ),
    families: opt.Families = "known",
    estimator: opt.Estimator = "least-squares",
    on_boundary: opt.Boundary = "raise",
    by: str | None = Option(None, help="One line per value of this column of models."),
    choose_ids: bool = Option(
        False, "--choose-ids", help="Which of several --id to control for? Collinearity."
    ),
    bootstrap: int = Option(1000, help="Resamples of the models for the band."),
    seed: opt.ResamplingSeed = 0,
    level: opt.Level = 0.95,
    json: opt.AsJson = False,
) -> None:
    """Fit the baseline of a shift: a line through one ID setting, a plane through several."""
    show(call(sb.fit, locals()), json)


def rank(
    testbed: opt.TestbedName = opt.TESTBED,
    shift: opt.ShiftName = None,
    id: opt.Ids = None,
    ood: opt.Ood = None,
    scale: opt.ScaleName = "logit",
    fit_on: opt.FitOn = None,
    threshold: opt.Threshold = None,
    full_id: opt.FullId = False,
    knee: opt.Knee = "published",
    on_boundary: opt.Boundary = "raise",
    others: opt.Others = None,
    only: list[str] | None = Option(None, help="Show only these models: COLUMN=PATTERN."),
    by: str = Option("effective", help="Sort by effective, relative, p_value or target."),
    most: int | None = Option(
        None,
        "--most",
        "-n",
        help="How many rows; 0 for all (default 15; JSON has all with --with).",
    ),
    level: opt.Level = 0.95,
    fdr: opt.Fdr = 0.05,
    json: opt.AsJson = False,
) -> None:
    """Rank a testbed's models by effective robustness on a shift (or on all, without --shift)."""
    show(call(sb.rank, locals()), json)


def compare(
    a: str = Argument(help="A model of the testbed."),
    b: str = Argument(help="Another one."),
    testbed: opt.TestbedName = opt.TESTBED,
    shift: opt.Shifts = None,
    scale: opt.ScaleName = "logit",
    fit_on: opt.FitOn = None,
    on_boundary: opt.Boundary = "raise",
    others: opt.Others = None,
    level: opt.Level = 0.95,
    fdr: opt.Fdr = 0.05,
    json: opt.AsJson = False,
) -> None:
    """Compare two models: accuracies, ρ of each, and the difference with its interval."""
    show(call(sb.compare, locals()), json)


def groups(
    testbed: opt.TestbedName = opt.TESTBED,
    by: str | None = Option(None, help="Column of models that makes the groups (default: kind)."),
    shift: opt.Shifts = None,
    id: list[str] | None = Option(
        None, help="Two or more ID settings: fits and groups by each of them and by all."
    ),
    ood: list[str] | None = Option(None, help="OOD settings, with --id."),
    own_id: list[str] | None = Option(
        None, help="GROUP=SETTING: each group's own ID set, for Kendall's τ."
    ),
    mixed: list[str] | None = Option(
        None, help="COLUMN=PATTERN of mixed models, for the fit that leaves them out."
    ),
    scale: opt.ScaleName = "logit",
    fit_on: opt.FitOn = None,
    threshold: float | None = Option(
        None,
        help="Fit only models with at least this ID accuracy; with --id, leave out those below it "
        "on the first one.",
    ),
    on_boundary: opt.Boundary = "raise",
    others: opt.Others = None,
    level: opt.Level = 0.95,
    json: opt.AsJson = False,
) -> None:
    """ρ by group of models; R² by scale; and, with --id, single-ID against multi-ID fits."""
    show(call(sb.groups, locals(), own_id=pairs(own_id, "--own-id", "GROUP=SETTING")), json)


def correlate(
    testbed: opt.TestbedName = opt.TESTBED,
    synthetic: list[str] | None = Option(None, help="Only these synthetic shifts."),
    natural: list[str] | None = Option(None, help="Only these natural shifts."),
    models: list[str] | None = Option(None, help="Over which models (default kind!=standard)."),
    unit: str = Option("run", help="What intervals take as independent: run or model."),
    on_boundary: opt.Boundary = "raise",
    level: opt.Level = 0.95,
    json: opt.AsJson = False,
) -> None:
    """Does ρ on synthetic shifts go with ρ on natural ones? Pearson's r for every pair."""
    show(call(sb.correlate, locals()), json)


def plan(
    delta: float = Option(help="The ρ to detect, a fraction such as 0.01."),
    testbed: opt.TestbedName = opt.TESTBED,
    shift: str = Option("imagenet-v2", "--shift", "-s", help="A shift of the testbed."),
    power: float = Option(0.8, help="The wanted probability of detecting it."),
    accuracy: float | None = Option(None, help="The model's ID accuracy (default: the median's)."),
    models: int | None = Option(None, help="Baseline models."),
    id_images: int | None = Option(None, help="ID test images."),
    ood_images: int | None = Option(None, help="OOD test images."),
    paired: bool | None = Option(
        None,
        "--paired/--unlike",
        help="Answers per image will be kept; or the model will be unlike the baseline models.",
    ),
    families: int | None = Option(None, help="Families among the baseline models."),
    simulate: int = Option(0, help="Check the power by so many simulations."),
    level: opt.Level = 0.95,
    json: opt.AsJson = False,
) -> None:
    """How many test images and baseline models it takes to detect ρ = delta."""
    show(call(sb.plan, locals()), json)
