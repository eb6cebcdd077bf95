"""``shiftbed groups`` and ``correlate``: across models, and across shifts."""

from typing import Annotated

import typer

from shiftbed.cli.fitting import FitOn, ScaleName
from shiftbed.cli.output import (
    AsJson,
    Level,
    TestbedName,
    as_json,
    interval,
    number,
    percent,
    points,
    records,
    table,
)
from shiftbed.errors import InputError

Shifts = Annotated[list[str] | None, typer.Option("--shift", "-s", help="Only these shifts.")]


def groups(
    testbed: TestbedName = "imagenet-testbed-2020",
    by: Annotated[str, typer.Option(help="Column of models that makes the groups.")] = "kind",
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
    from shiftbed.cli.output import pairs
    from shiftbed.results.groups import (
        group_table,
        rank_agreement,
        scale_table,
        single_and_multi,
        without_mixed,
    )
    from shiftbed.testbed import open_testbed

    bed = open_testbed(testbed)
    options = {"scale": scale, "models": fit_on or None}
    if (ids and not ood) or (ood and not ids):
        raise InputError("--id and --ood go together")
    if (own_id or mixed) and not ids:
        raise InputError("--own-id and --mixed need --id and --ood")
    result = {}
    if ids and ood:
        result["fits"] = single_and_multi(bed, ids, ood, **options)
        if own_id:
            own = pairs(own_id, "--own-id", "GROUP=SETTING")
            result["rank_agreement"] = rank_agreement(bed, own, ood, by=by, **options)
        if mixed:
            result["without_mixed"] = without_mixed(bed, ids, ood, mixed, **options)
    else:
        wanted = shift or [s.name for s in bed.shifts]
        result["groups"] = group_table(bed, wanted, by=by, level=level, **options)
        result["scales"] = scale_table(
            bed, wanted, models=fit_on or None, knee=None, on_boundary="drop"
        )
    if json:
        as_json({key: records(frame) for key, frame in result.items()})
        return
    for key, frame in result.items():
        rows = list(frame.iter_rows(named=True))
        if key == "groups":
            table(
                f"{bed.name}: ρ by {by} (points)",
                ["shift", by, "mean ρ", "± std", f"{100 * level:g} % of the mean", "n"],
                [
                    (
                        r["shift"],
                        r["group"],
                        points(r["mean"]),
                        percent(r["std"]),
                        interval(r["low"], r["high"]),
                        r["n"],
                    )
                    for r in rows
                ],
                left=2,
            )
        else:
            titles = {
                "scales": "Fit quality by scale (no knee)",
                "fits": "Single-ID and multi-ID fits",
                "rank_agreement": "Kendall's τ of single-ID and multi-ID ρ",
                "without_mixed": "The plane without the mixed models",
            }
            cells = [[number(v) if isinstance(v, float) else v for v in r.values()] for r in rows]
            texts = sum(not isinstance(v, int | float) for v in rows[0].values()) if rows else 1
            table(titles[key], frame.columns, cells, left=texts)


def correlate(
    testbed: TestbedName = "imagenet-testbed-2020",
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
    from shiftbed.results.correlation import synthetic_natural
    from shiftbed.testbed import open_testbed

    bed = open_testbed(testbed)
    found = synthetic_natural(
        bed,
        synthetic=synthetic,
        natural=natural,
        models=models or "kind!=standard",
        level=level,
    )
    if json:
        as_json({"testbed": bed.name, "correlations": records(found)})
        return
    columns = found["natural"].unique(maintain_order=True).to_list()
    cells = {(r["synthetic"], r["natural"]): r for r in found.iter_rows(named=True)}
    rows = [
        (name, *(number(cells[name, column]["r"], 2) for column in columns))
        for name in found["synthetic"].unique(maintain_order=True)
    ]
    ns = [r["n"] for r in cells.values()]
    table(
        f"{bed.name}: Pearson's r of ρ, synthetic × natural",
        ["synthetic", *columns],
        rows,
        notes=[
            f"Over {min(ns)} to {max(ns)} models each; --json has every r with its n and its "
            f"{100 * level:g} % interval."
        ],
    )
