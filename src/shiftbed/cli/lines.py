"""``shiftbed fit``, ``rank`` and ``compare``: lines, and models against them."""

from typing import Annotated, Any

import typer

from shiftbed.cli.fitting import (
    Boundary,
    FitOn,
    FullId,
    Ids,
    Knee,
    Ood,
    ScaleName,
    ShiftName,
    Threshold,
    Weighted,
    chosen_shift,
    fit_options,
)
from shiftbed.cli.output import (
    AsJson,
    Level,
    TestbedName,
    as_json,
    interval,
    number,
    p_value,
    percent,
    points,
    records,
    table,
)
from shiftbed.errors import InputError, unknown


def fit(
    testbed: TestbedName = "imagenet-testbed-2020",
    shift: ShiftName = None,
    ids: Ids = None,
    ood: Ood = None,
    scale: ScaleName = "logit",
    fit_on: FitOn = None,
    threshold: Threshold = None,
    full_id: FullId = False,
    knee: Knee = "published",
    weighted: Weighted = False,
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
    from shiftbed.analysis.intervals import check_level
    from shiftbed.testbed import open_testbed

    check_level(level)
    bed = open_testbed(testbed)
    one = chosen_shift(bed, shift, ids, ood)
    options = fit_options(scale, fit_on, threshold, knee, weighted, on_boundary)
    options |= {"full_source": full_id, "bootstrap": bootstrap, "seed": seed}
    if choose_ids and (by is not None or len(one.source) < 2):
        raise InputError("--choose-ids needs two or more --id, and no --by")
    lines = {"": bed.fit(one, **options)} if by is None else _by_group(bed, one, by, options)
    if choose_ids:
        from shiftbed.cli.id_sets import show_id_sets

        show_id_sets(lines[""], _fit_json(lines[""], level), level, json)
        return
    if json:
        found = {group: _fit_json(line, level) for group, line in lines.items()}
        as_json(found[""] if by is None else {"by": by, "groups": found})
        return
    rows = []
    for group, line in lines.items():
        for i, piece in enumerate(line.lines):
            where = (
                ""
                if len(line.lines) == 1
                else f"x {'<' if i == 0 else '>'} {piece.high if i == 0 else piece.low:g}"
            )
            rows.append(
                (
                    " ".join(part for part in (group, where) if part) or line.shift,
                    piece.n,
                    "  ".join(
                        _estimate(piece, j, level) for j in range(1, len(piece.coefficients))
                    ),
                    _estimate(piece, 0, level),
                    number(line.r2),
                    percent(line.mae),
                )
            )
    first = next(iter(lines.values()))
    left_out = sorted({m for line in lines.values() for m in line.left_out})
    notes = [
        f"{first.scale.name}(OOD) = weight · {first.scale.name}(ID) + intercept, "
        f"through {' + '.join(first.id_settings)} → {first.ood_setting}."
    ]
    if left_out:
        notes.append(f"Not fitted (missing, on the knee, or 0/1): {', '.join(left_out)}.")
    table(
        f"{bed.name}: {bed.line} of {first.shift}",
        ["fit", "n", "weight", "intercept", "R²", "MAE (points)"],
        rows,
        notes=notes,
    )


def _by_group(bed: Any, shift: Any, by: str, options: dict[str, Any]) -> dict[str, Any]:
    if by not in bed.models.columns:
        raise unknown("column of models", by, bed.models.columns)
    inside = bed.fit_set(shift, options.pop("models"))
    values = bed.models[by].cast(str).to_list()
    groups = sorted({v for v, keep in zip(values, inside, strict=True) if keep and v is not None})
    if not groups:
        raise InputError(f"no baseline model has a value in column {by!r}")
    import numpy as np

    return {
        group: bed.fit(shift, models=inside & np.array([v == group for v in values]), **options)
        for group in groups
    }


def _estimate(piece: Any, j: int, level: float) -> str:
    from scipy.special import stdtrit

    half = float(stdtrit(piece.dof, 0.5 + level / 2)) * piece.covariance[j, j] ** 0.5
    return f"{piece.coefficients[j]:.5f} ± {half:.5f}"


def _fit_json(line: Any, level: float) -> dict[str, Any]:
    pieces = []
    for piece in line.lines:
        one = {
            "from": piece.low,
            "to": piece.high,
            "weights": list(piece.weights),
            "intercept": piece.intercept,
            "n": piece.n,
            "sigma": piece.sigma,
            "covariance": piece.covariance.tolist(),
        }
        if len(piece.draws):
            import numpy as np

            tails = [(1 - level) / 2, (1 + level) / 2]
            ends = np.nanquantile(piece.draws, tails, axis=0).T.tolist()
            one["bootstrap"] = {"intercept": ends[0], "weights": ends[1:]}
        pieces.append(one)
    return {
        "shift": line.shift,
        "scale": line.scale.name,
        "id_settings": list(line.id_settings),
        "ood_setting": line.ood_setting,
        "n": line.n,
        "weights": list(line.weights),
        "intercept": line.intercept,
        "r2": line.r2,
        "mae": line.mae,
        "pieces": pieces,
        "support": line.support.tolist(),
        "models": list(line.models),
        "left_out": list(line.left_out),
    }


def rank(
    testbed: TestbedName = "imagenet-testbed-2020",
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
    fdr: Annotated[float, typer.Option(help="False discovery rate of 'out of line'.")] = 0.05,
    json: AsJson = False,
) -> None:
    """Rank a testbed's models by effective robustness on a shift (or on all, without --shift)."""
    import polars as pl

    from shiftbed.testbed import choose, open_testbed

    bed = open_testbed(testbed)
    several = shift is None and not ids and not ood
    wanted = None if several else chosen_shift(bed, shift, ids, ood)
    options = fit_options(scale, fit_on, threshold)
    found = bed.effective_robustness(wanted, level=level, fdr=fdr, full_source=full_id, **options)
    if only:
        names = bed.models.filter(pl.Series(choose(bed.models, only)))["model"]
        found = found.filter(pl.col("model").is_in(names.implode()))
    if by not in ("effective", "relative", "p_value", "target"):
        raise unknown("column to sort by", by, ["effective", "relative", "p_value", "target"])
    found = found.sort(by, descending=by != "p_value", nulls_last=True)
    total = len(found)
    found = found.head(most) if most > 0 else found
    if json:
        as_json({"n": total, "models": records(found)})
        return
    conservative = not found["paired"].all()
    table(
        f"{bed.name}: {'all shifts' if several else found['shift'][0] if total else ''}",
        ["model", "kind", "shift", "ID", "OOD", "ρ", f"{100 * level:g} % interval", "τ", "p", ""],
        [
            (
                row["model"],
                row["kind"],
                row["shift"],
                percent(row["source"]),
                percent(row["target"]),
                points(row["effective"]),
                interval(row["low"], row["high"]),
                points(row["relative"]),
                p_value(row["p_value"]),
                "out of line" if row["out_of_line"] else "",
            )
            for row in found.iter_rows(named=True)
        ],
        left=3,
        notes=[
            f"{len(found)} of {total} rows. ρ and τ in points. 'out of line': unusual among the "
            f"baseline models at a false discovery rate of {fdr:g}.",
            *([CONSERVATIVE] if conservative else []),
        ],
    )


CONSERVATIVE = (
    "Intervals are conservative: only accuracies are known, so the images that models share "
    "count as independent."
)


def compare(
    a: Annotated[str, typer.Argument(help="A model of the testbed.")],
    b: Annotated[str, typer.Argument(help="Another one.")],
    testbed: TestbedName = "imagenet-testbed-2020",
    shift: Annotated[
        list[str] | None, typer.Option("--shift", "-s", help="Only these shifts.")
    ] = None,
    scale: ScaleName = "logit",
    fit_on: FitOn = None,
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Compare two models: accuracies, ρ of each, and the difference with its interval."""
    import numpy as np

    from shiftbed.analysis.intervals import benjamini_hochberg
    from shiftbed.testbed import open_testbed

    bed = open_testbed(testbed)
    rows, columns = [bed.model_index(a), bed.model_index(b)], []
    options = fit_options(scale, fit_on)
    skipped = []
    for one in [bed.shift(s) for s in shift] if shift else bed.shifts:
        line = bed.fit(one, bootstrap=0, **options)
        values = bed.value[rows][:, [bed.setting_index(s) for s in (*one.source, one.target)]]
        if not np.isfinite(values).all():
            skipped.append(one.name)
            continue
        judged = bed.judge(line, level=level)
        gap = bed.difference(line, bed.model_names[rows[0]], bed.model_names[rows[1]], level=level)
        columns.append(
            {
                "shift": one.name,
                "id": values[:, 0].tolist(),
                "ood": values[:, -1].tolist(),
                "effective": judged.effective[rows].tolist(),
                "difference": gap.effective,
                "low": gap.low,
                "high": gap.high,
                "p_value": gap.p_value,
                "paired": gap.paired,
            }
        )
    for column, q in zip(columns, benjamini_hochberg([c["p_value"] for c in columns]), strict=True):
        column["q_value"] = float(q)
    if json:
        as_json(
            {
                "models": [bed.model_names[i] for i in rows],
                "shifts": columns,
                "not_evaluated": skipped,
            }
        )
        return
    table(
        f"{bed.name}: A = {bed.model_names[rows[0]]}, B = {bed.model_names[rows[1]]}",
        ["shift", "ID A", "ID B", "OOD A", "OOD B", "ρ A", "ρ B", "ρ A − ρ B", "interval", "q"],
        [
            (
                c["shift"],
                *map(percent, c["id"]),
                *map(percent, c["ood"]),
                *map(points, c["effective"]),
                points(c["difference"]),
                interval(c["low"], c["high"]),
                p_value(c["q_value"]),
            )
            for c in columns
        ],
        notes=[
            *([f"Not evaluated for both: {', '.join(skipped)}."] if skipped else []),
            *([CONSERVATIVE] if not all(c["paired"] for c in columns) else []),
        ],
    )
