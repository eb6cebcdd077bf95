"""``shiftbed place`` and ``plan``: your own model against a testbed."""

from typing import Annotated, Any

import typer

from shiftbed.cli.fitting import FitOn, Knee, ScaleName, Threshold, fit_options
from shiftbed.cli.lines import CONSERVATIVE
from shiftbed.cli.output import (
    AsJson,
    Level,
    TestbedName,
    as_json,
    interval,
    measured,
    p_value,
    pairs,
    percent,
    points,
    records,
    table,
)
from shiftbed.errors import InputError

_CONTRACT = [
    "shift",
    "predicted",
    "effective",
    "low",
    "high",
    "prediction_low",
    "prediction_high",
    "p_value",
    "extrapolated",
    "q_value",
    "out_of_line",
    "paired",
    "fit_share",
    "id_share",
    "ood_share",
    "source",
    "target",
    "n_id",
    "n_ood",
    "relative",
    "reference",
    "share_of_gap",
    "boundary",
]


def place(
    testbed: TestbedName = "imagenet-testbed-2020",
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
    fdr: Annotated[float, typer.Option(help="False discovery rate of 'out of line'.")] = 0.05,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="ρ under every defensible choice.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Place your model: its effective robustness per shift, with intervals, and what to cite."""
    import polars as pl

    from shiftbed.results.place import nearest, of_model, shifts_of, with_measured
    from shiftbed.results.place import place as placed_on
    from shiftbed.testbed import open_testbed

    bed = open_testbed(testbed)
    options = fit_options(scale, fit_on, threshold, knee) | {"level": level, "fdr": fdr}
    if model is not None:
        if ids or ood or predictions or multi:
            raise InputError("--model places a model of the testbed; it takes no accuracies")
        name = bed.model_names[bed.model_index(model)]
        table_ = of_model(bed, name, **options)
        bigger, shifts = bed, [s for s in bed.shifts if s.name in set(table_["shift"])]
    else:
        given_id, given_ood = _given(bed, ids or [], ood or [], predictions or [])
        table_ = placed_on(
            bed, given_id, given_ood, name=name, parent=parent, multi=multi, **options
        )
        bigger = with_measured(bed, name, {**given_id, **given_ood}, parent)
        shifts = [] if multi else shifts_of(bed, list(given_id), list(given_ood))
    tried = [_sensitivity(bigger, name, s, level) for s in shifts] if sensitivity else []
    close: list[dict[str, Any]] = []
    if len(table_) and shifts:
        near = nearest(bed, shifts[0], table_["source"][0], **options)
        near = near.filter(pl.col("model") != name)
        close = records(near, ["model", "kind", "shift", "source", "target", "effective"])
    if json:
        as_json(
            {
                "model": name,
                "testbed": bed.name,
                "level": level,
                "shifts": records(table_, _CONTRACT),
                "nearest": close,
                **({"sensitivity": tried} if sensitivity else {}),
                "citation": bed.citation,
            }
        )
        return
    _show(bed, name, table_, close, tried, level)


def _given(
    bed: Any, ids: list[str], ood: list[str], predictions: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the options say, as (ID, OOD) measurements by setting."""
    from shiftbed.analysis.intervals import check_fractions
    from shiftbed.results.place import Measured, resolve_ood

    found: list[dict[str, Any]] = []
    for texts, option in ((ids, "--id"), (ood, "--ood")):
        side: dict[str, Any] = {}
        for setting, text in pairs(texts, option, "SETTING=ACCURACY").items():
            where = f"{option} {setting}"
            accuracy, n = measured(text, where)
            resolved = resolve_ood(bed, setting) if option == "--ood" else setting
            bed.setting_index(resolved)
            check_fractions([accuracy], where)
            if resolved in side:
                raise InputError(f"{option}: {resolved!r} is given twice")
            side[resolved] = Measured(accuracy=accuracy, n=n)
        found.append(side)
    sources = {s for shift in bed.shifts for s in (*shift.source, shift.full_source)}
    for setting, file in pairs(predictions, "--predictions", "SETTING=FILE.npz").items():
        resolved = resolve_ood(bed, setting)
        side = found[0] if resolved in sources else found[1]
        if resolved in found[0] or resolved in found[1]:
            raise InputError(f"{resolved!r} is given twice")
        side[resolved] = _predicted(bed, resolved, file)
    return found[0], found[1]


def _predicted(bed: Any, setting: str, file: str) -> Any:
    """One model's predictions on the testbed's images of that setting."""
    from shiftbed.importing import read_predictions
    from shiftbed.results.place import Measured

    if setting not in bed.results:
        raise InputError(
            f"{bed.name} has no per-image results in {setting!r}; "
            "make a testbed that has with 'shiftbed import'"
        )
    rows = read_predictions(file, setting)
    if len(rows) != 1:
        raise InputError(f"{file}: expected the predictions of one model, got {len(rows)}")
    _, _, right, fingerprint = rows[0]
    if fingerprint != bed.results[setting].images:
        raise InputError(
            f"{file}: its labels are not those of {setting!r} in {bed.name} (other images, or "
            "another order)"
        )
    return Measured(accuracy=float(right.mean()), n=len(right), right=right)


def _sensitivity(bed: Any, name: str, shift: Any, level: float) -> dict[str, Any]:
    from shiftbed.results.sensitivity import sensitivity

    found = sensitivity(bed, name, shift, level=level)
    return {
        "shift": found.shift,
        "choices": len(found.values),
        "low": found.low,
        "high": found.high,
        "sign_survives": found.sign_survives,
        "out_of_line": found.out_of_line,
        "rows": records(found.choices),
    }


def _show(
    bed: Any,
    name: str,
    placed: Any,
    close: list[dict[str, Any]],
    tried: list[dict[str, Any]],
    level: float,
) -> None:
    width = f"{100 * level:g} % interval"
    rows = list(placed.iter_rows(named=True))
    table(
        f"{name} on {bed.name}",
        ["shift", "ID", "OOD", "predicted", "ρ", width, "baseline models", "p", "verdict"],
        [
            (
                row["shift"],
                percent(row["source"]),
                percent(row["target"]),
                percent(row["predicted"]),
                points(row["effective"]),
                interval(row["low"], row["high"]),
                interval(row["prediction_low"], row["prediction_high"]),
                p_value(row["p_value"]),
                _verdict(row),
            )
            for row in rows
        ],
        notes=_notes(bed, rows),
    )
    for one in tried:
        verdict = "survives" if one["sign_survives"] else "does NOT survive"
        table(
            f"{one['shift']}: ρ under {one['choices']} choices, {points(one['low'])} to "
            f"{points(one['high'])}; its sign {verdict}; out of line under {one['out_of_line']}",
            ["fit set", "scale", "ID", "x ≥", "knee", "n", "R²", "ρ", width, "p"],
            [
                (
                    r["fit_set"],
                    r["scale"],
                    r["id"],
                    percent(r["threshold"], 0),
                    percent(r["knee"]),
                    r["n"],
                    "" if r["r2"] is None else f"{r['r2']:.3f}",
                    points(r["effective"]) or r["why"],
                    interval(r["low"], r["high"]),
                    p_value(r["p_value"]),
                )
                for r in one["rows"]
            ],
            left=3,
        )
    if close:
        table(
            f"Nearest by ID accuracy ({close[0]['shift']})",
            ["model", "kind", "ID", "OOD", "ρ"],
            [
                (
                    c["model"],
                    c["kind"],
                    percent(c["source"]),
                    percent(c["target"]),
                    points(c["effective"]),
                )
                for c in close
            ],
            left=2,
        )
    if bed.citation:
        print(f"Cite: {bed.citation}")


def _verdict(row: dict[str, Any]) -> str:
    words = []
    if row["out_of_line"]:
        words.append("out of line")
    elif row["low"] is not None and not row["low"] <= 0 <= row["high"]:
        words.append("off the line, as baseline models are")
    else:
        words.append("on the line")
    if row["extrapolated"]:
        words.append("extrapolated")
    if row["boundary"]:
        words.append("0 or 1")
    return ", ".join(words)


def _notes(bed: Any, rows: list[dict[str, Any]]) -> list[str]:
    notes = [
        f"All in points. ρ = OOD − what the {bed.line} predicts from ID. The interval says how "
        "precisely ρ is measured; 'baseline models' is where ρ of another baseline model would "
        "fall (p and 'out of line' come from it)."
    ]
    if rows:
        shares = [
            f"{row['shift']}: fit {100 * row['fit_share']:.0f} %, ID images "
            f"{100 * row['id_share']:.0f} %, OOD images {100 * row['ood_share']:.0f} %"
            for row in rows[:3]
            if row["fit_share"] is not None
        ]
        if shares:
            notes.append("Variance of ρ from " + "; ".join(shares) + ".")
    if not all(row["paired"] for row in rows):
        notes.append(CONSERVATIVE)
    return notes


def plan(
    delta: Annotated[float, typer.Option(help="The ρ to detect, a fraction such as 0.01.")],
    testbed: TestbedName = "imagenet-testbed-2020",
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
    from shiftbed.analysis.intervals import check_fractions, check_level
    from shiftbed.analysis.planning import power as power_of
    from shiftbed.analysis.planning import simulated_power, smallest
    from shiftbed.results.plan import design
    from shiftbed.testbed import open_testbed

    check_level(level)
    check_level(power)
    if accuracy is not None:
        check_fractions([accuracy], "--accuracy")
    for given, option in (
        (models, "--models"),
        (id_images, "--id-images"),
        (ood_images, "--ood-images"),
    ):
        if given is not None and given < 4:
            raise InputError(f"{option} must be at least 4, got {given}")
    if not 0.0 < abs(delta) < 1.0:
        raise InputError(f"--delta must be a fraction such as 0.01 (one point), got {delta:g}")
    bed = open_testbed(testbed)
    made = design(
        bed,
        shift,
        accuracy=accuracy,
        models=models,
        id_images=id_images,
        ood_images=ood_images,
        level=level,
    )
    answers = []
    for question in ("measured", "out-of-line"):
        answer: dict[str, Any] = {"question": question, "power": power_of(made, delta, question)}
        found = smallest(made, delta, question, power)
        answer |= {
            "ood_images_needed": found["ood_images"],
            "models_needed": found["models"],
            "smallest_delta": found["delta"],
        }
        if simulate:
            answer["simulated_power"] = simulated_power(made, delta, question, simulations=simulate)
        answers.append(answer)
    if json:
        as_json(
            {
                "testbed": bed.name,
                "shift": shift,
                "delta": delta,
                "wanted_power": power,
                "level": level,
                "accuracy": made.accuracy,
                "models": made.models,
                "id_images": made.id_images,
                "ood_images": made.ood_images,
                "scatter": made.scatter,
                "answers": answers,
            }
        )
        return
    never = "no number is enough"
    table(
        f"Detecting ρ = {points(delta)} on {shift} with power {power:g} at level {level:g}",
        [
            "question",
            "power now",
            "OOD images needed",
            "baseline models needed",
            "smallest ρ detected",
            *(["simulated"] if simulate else []),
        ],
        [
            (
                a["question"],
                f"{a['power']:.3f}",
                (f"{a['ood_images_needed']:,}" if a["ood_images_needed"] else never)
                if a["question"] == "measured"
                else "set by the scatter",
                f"{a['models_needed']:,}" if a["models_needed"] else never,
                points(a["smallest_delta"]),
                *([f"{a['simulated_power']:.3f}"] if simulate else []),
            )
            for a in answers
        ],
        notes=[
            f"Now: {made.models} baseline models, {made.id_images:,} ID and "
            f"{made.ood_images:,} OOD images, ID accuracy {percent(made.accuracy)}.",
            "measured: the interval of ρ leaves out 0 (conservative, images independent); "
            "out-of-line: unusual among the baseline models.",
        ],
    )
