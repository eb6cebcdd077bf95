"""Lines, and models against them: place, fit, rank, compare, groups, correlate, plan."""

from typing import Annotated, Any

import typer

from shiftbed.cli.output import AsJson, Level, TestbedName, pairs, show

TESTBED = "imagenet-testbed-2020"
_FORM = "SETTING=ACCURACY"
ScaleName = Annotated[str, typer.Option("--scale", help="linear, probit or logit.")]
FitOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fit-on",
        help="Baseline models: fit-set (default), all, COLUMN=PATTERN or COLUMN!=PATTERN; "
        "several must all hold.",
    ),
]
Threshold = Annotated[
    float | None, typer.Option(help="Fit only models with at least this ID accuracy.")
]
FullId = Annotated[
    bool, typer.Option("--full-id", help="Use the whole ID set as x, not its class twin.")
]
Knee = Annotated[
    str, typer.Option(help="Where the line breaks in two: published, none, or an ID accuracy.")
]
Boundary = Annotated[
    str,
    typer.Option(
        "--on-boundary", help="Accuracies of exactly 0 or 1 in the fit: raise, drop or clip."
    ),
]
Fdr = Annotated[float, typer.Option(help="False discovery rate of 'out of line'.")]
ShiftName = Annotated[str | None, typer.Option("--shift", "-s", help="A shift of the testbed.")]
Shifts = Annotated[list[str] | None, typer.Option("--shift", "-s", help="Only these shifts.")]
Ids = Annotated[
    list[str] | None, typer.Option("--id", help="An ID setting (several make a plane).")
]
Ood = Annotated[str | None, typer.Option("--ood", help="The OOD setting, with --id.")]


def place(
    testbed: TestbedName = TESTBED,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", help="SETTING=ACCURACY, such as val=0.7613 or val=38065/50000."),
    ] = None,
    ood: Annotated[
        list[str] | None,
        typer.Option("--ood", help="SETTING=ACCURACY (or SHIFT=ACCURACY), likewise."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Place a model that the testbed already has.")
    ] = None,
    predictions: Annotated[
        list[str] | None,
        typer.Option(help="SETTING=FILE.npz: your predictions on the testbed's own images."),
    ] = None,
    name: Annotated[str, typer.Option(help="What to call your model.")] = "your model",
    parent: Annotated[
        str | None, typer.Option(help="The model it derives from, for relative robustness.")
    ] = None,
    multi: Annotated[
        bool, typer.Option("--multi", help="Control for all given ID settings at once (a plane).")
    ] = False,
    scale: ScaleName = "logit",
    fit_on: FitOn = None,
    threshold: Threshold = None,
    knee: Knee = "published",
    level: Level = 0.95,
    fdr: Fdr = 0.05,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="ρ under every defensible choice.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Place your model: its effective robustness per shift, with intervals, and what to cite."""
    from shiftbed.results.place import place

    own: dict[str, Any] = {"name": name, "model": model, "parent": parent, "multi": multi}
    own["predictions"] = pairs(predictions or [], "--predictions", "SETTING=FILE.npz")
    given: dict[str, Any] = {"scale": scale, "fit_on": fit_on, "threshold": threshold, "knee": knee}
    given |= {"level": level, "fdr": fdr, "sensitivity": sensitivity}
    own |= {"id": pairs(ids or [], "--id", _FORM), "ood": pairs(ood or [], "--ood", _FORM)}
    show(place(testbed, **own, **given), json)


def fit(
    testbed: TestbedName = TESTBED,
    shift: ShiftName = None,
    ids: Ids = None,
    ood: Ood = None,
    scale: ScaleName = "logit",
    fit_on: FitOn = None,
    threshold: Threshold = None,
    full_id: FullId = False,
    knee: Knee = "published",
    weighted: Annotated[
        bool, typer.Option("--weighted", help="Weigh baseline models by their test-set sizes.")
    ] = False,
    on_boundary: Boundary = "raise",
    by: Annotated[
        str | None, typer.Option(help="One line per value of this column of models.")
    ] = None,
    choose_ids: Annotated[
        bool,
        typer.Option("--choose-ids", help="Which of several --id to control for? Collinearity."),
    ] = False,
    bootstrap: Annotated[int, typer.Option(help="Resamples of the models for the band.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the resampling.")] = 0,
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Fit the baseline of a shift: a line through one ID setting, a plane through several."""
    from shiftbed.results.lines import fit

    given: dict[str, Any] = {"scale": scale, "threshold": threshold, "on_boundary": on_boundary}
    given |= {"knee": knee, "weighted": weighted, "bootstrap": bootstrap, "seed": seed}
    given |= {"full_id": full_id, "by": by, "choose_ids": choose_ids, "level": level}
    show(fit(testbed, shift, id=ids, ood=ood, fit_on=fit_on, **given), json)


def rank(
    testbed: TestbedName = TESTBED,
    shift: ShiftName = None,
    ids: Ids = None,
    ood: Ood = None,
    scale: ScaleName = "logit",
    fit_on: FitOn = None,
    threshold: Threshold = None,
    full_id: FullId = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Show only these models: COLUMN=PATTERN.")
    ] = None,
    by: Annotated[str, typer.Option(help="Sort by effective, relative, p_value or target.")] = (
        "effective"
    ),
    most: Annotated[int, typer.Option("--most", "-n", help="How many rows; 0 for all.")] = 15,
    level: Level = 0.95,
    fdr: Fdr = 0.05,
    json: AsJson = False,
) -> None:
    """Rank a testbed's models by effective robustness on a shift (or on all, without --shift)."""
    from shiftbed.results.ranking import rank

    given: dict[str, Any] = {"scale": scale, "threshold": threshold, "full_id": full_id}
    given |= {"by": by, "most": most, "level": level, "fdr": fdr, "only": only or "all"}
    show(rank(testbed, shift, id=ids, ood=ood, fit_on=fit_on, **given), json)


def compare(
    a: Annotated[str, typer.Argument(help="A model of the testbed.")],
    b: Annotated[str, typer.Argument(help="Another one.")],
    testbed: TestbedName = TESTBED,
    shift: Shifts = None,
    scale: ScaleName = "logit",
    fit_on: FitOn = None,
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Compare two models: accuracies, ρ of each, and the difference with its interval."""
    from shiftbed.results.ranking import compare

    show(compare(a, b, testbed, shift=shift, scale=scale, fit_on=fit_on, level=level), json)


def groups(
    testbed: TestbedName = TESTBED,
    by: Annotated[
        str | None, typer.Option(help="Column of models that makes the groups (default: kind).")
    ] = None,
    shift: Shifts = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", help="Two or more ID settings: single-ID against multi-ID fits."),
    ] = None,
    ood: Annotated[list[str] | None, typer.Option("--ood", help="OOD settings, with --id.")] = None,
    own_id: Annotated[
        list[str] | None,
        typer.Option(help="GROUP=SETTING: each group's own ID set, for Kendall's τ."),
    ] = None,
    mixed: Annotated[
        list[str] | None,
        typer.Option(help="COLUMN=PATTERN of mixed models, for the fit that leaves them out."),
    ] = None,
    scale: ScaleName = "logit",
    fit_on: FitOn = None,
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """ρ by group of models; R² by scale; and, with --id, single-ID against multi-ID fits."""
    from shiftbed.results.groups import groups

    own = pairs(own_id or [], "--own-id", "GROUP=SETTING")
    given: dict[str, Any] = {"own_id": own, "mixed": mixed, "scale": scale, "fit_on": fit_on}
    show(groups(testbed, by=by, shift=shift, id=ids, ood=ood, level=level, **given), json)


def correlate(
    testbed: TestbedName = TESTBED,
    synthetic: Annotated[
        list[str] | None, typer.Option(help="Only these synthetic shifts.")
    ] = None,
    natural: Annotated[list[str] | None, typer.Option(help="Only these natural shifts.")] = None,
    models: Annotated[
        list[str] | None, typer.Option(help="Over which models (default kind!=standard).")
    ] = None,
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Does ρ on synthetic shifts go with ρ on natural ones? Pearson's r for every pair."""
    from shiftbed.results.correlation import correlate

    over = models or "kind!=standard"
    given = {"synthetic": synthetic, "natural": natural}
    show(correlate(testbed, **given, models=over, level=level), json)


def plan(
    delta: Annotated[float, typer.Option(help="The ρ to detect, a fraction such as 0.01.")],
    testbed: TestbedName = TESTBED,
    shift: Annotated[str, typer.Option("--shift", "-s", help="A shift of the testbed.")] = (
        "imagenet-v2"
    ),
    power: Annotated[float, typer.Option(help="The wanted probability of detecting it.")] = 0.8,
    accuracy: Annotated[
        float | None, typer.Option(help="The model's ID accuracy (default: the median's).")
    ] = None,
    models: Annotated[int | None, typer.Option(help="Baseline models.")] = None,
    id_images: Annotated[int | None, typer.Option(help="ID test images.")] = None,
    ood_images: Annotated[int | None, typer.Option(help="OOD test images.")] = None,
    simulate: Annotated[int, typer.Option(help="Check the power by so many simulations.")] = 0,
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """How many test images and baseline models it takes to detect ρ = delta."""
    from shiftbed.results.plan import plan

    given: dict[str, Any] = {"models": models, "id_images": id_images, "ood_images": ood_images}
    given |= {"accuracy": accuracy, "power": power, "simulate": simulate, "level": level}
    show(plan(delta, testbed, shift, **given), json)
