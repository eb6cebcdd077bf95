"""``shiftbed estimate`` and ``mix``: accuracies without labels; classifiers made of others."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbed.cli.lines import ScaleName
from shiftbed.cli.output import AsJson, Level, as_json, p_value, percent, points, table
from shiftbed.cli.output import records as rows_of
from shiftbed.cli.similarity import Most, OnlyModels
from shiftbed.cli.tablefile import Figure, Output, check_files
from shiftbed.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from shiftbed.results.label_free import LabelFree


Source = Annotated[
    str, typer.Argument(help="ID predictions: a .npz file, or a store or file with --id and --ood.")
]
Target = Annotated[str | None, typer.Argument(help="OOD predictions; labels are not needed.")]
IdSetting = Annotated[str | None, typer.Option("--id", help="ID setting.")]
OodSetting = Annotated[str | None, typer.Option("--ood", help="OOD setting.")]


def estimate(
    source: Source,
    target: Target = None,
    ids: IdSetting = None,
    ood: OodSetting = None,
    model: OnlyModels = None,
    most: Most = 20,
    level: Level = 0.95,
    output: Output = None,
    figure: Figure = None,
    json: AsJson = False,
) -> None:
    """OOD accuracy without OOD labels: agreement-on-the-line, thresholded confidence and others.

    If OOD labels are there they only serve to say how far off each method is.
    """
    from shiftbed.cli.answers import open_two
    from shiftbed.cli.tablefile import write_table
    from shiftbed.page import save
    from shiftbed.results.charts.similarity import estimates_chart
    from shiftbed.results.label_free import label_free, rehearsal

    check_files(output, figure)
    first, second = open_two(source, target, ids, ood, scores=True)
    if model:
        first, second = first.of(model), second.of(model)
    found = label_free(first, second, level=level)
    rehearsed = rehearsal(first)
    if output is not None:
        write_table(found.estimates, output)
    if figure is not None:
        save(estimates_chart(found.estimates, found.source, found.target), figure)
    if json:
        as_json(_as_dict(found, rehearsed))
        return
    _print_estimates(found, rehearsed, most, level)
    for path in filter(None, (output, figure)):
        print(f"wrote {path}")


def _as_dict(found: "LabelFree", rehearsed: tuple[float, float, int] | str) -> dict[str, Any]:
    line = found.line
    lines: dict[str, Any] = {}
    if line is not None:
        lines["agreement_line"] = {
            "slope": line.slope,
            "slope_error": line.slope_error,
            "bias": line.bias,
            "bias_error": line.bias_error,
            "r2": line.r2,
            "pairs": line.pairs,
            "dropped_pairs": line.dropped,
            "scale": "probit",
        }
        lines["check"] = {"holds": line.holds, "reasons": list(line.reasons)}
    if found.accuracy_line is not None:
        slope, bias = found.accuracy_line
        lines["accuracy_line"] = {"slope": slope, "bias": bias, "scale": "probit"}
    if isinstance(rehearsed, str):
        lines["rehearsal"] = {"mae": None, "why": rehearsed}
    else:
        mae, r2, models = rehearsed
        lines["rehearsal"] = {"mae": mae, "r2": r2, "models": models}
    return {
        "id": found.source,
        "ood": found.target,
        "estimates": rows_of(found.estimates),
        "errors": rows_of(found.errors),
        **lines,
        "not_computable": found.not_computable,
    }


def _print_estimates(
    found: "LabelFree", rehearsed: tuple[float, float, int] | str, most: int, level: float
) -> None:
    import polars as pl

    methods = found.estimates["method"].unique(maintain_order=True).to_list()
    by_model = {(r["model"], r["method"]): r for r in found.estimates.iter_rows(named=True)}
    order = found.estimates.filter(pl.col("method") == "ID").sort("id_accuracy", descending=True)
    names = order["model"].to_list()
    shown = [name for name in methods if name != "ID"]
    judged = found.accuracy_line is not None or order["truth"].null_count() == 0
    rows = []
    for name in names[:most]:
        cells = [by_model.get((name, method)) for method in shown]
        rows.append(
            (
                name,
                percent(by_model[name, "ID"]["estimate"]),
                *([percent(by_model[name, "ID"]["truth"])] if judged else []),
                *("" if c is None else _with_interval(c) for c in cells),
            )
        )
    notes = _line_notes(found, rehearsed)
    if len(names) > most:
        notes.insert(0, f"The {most} most accurate of {len(names)} models; -n shows more.")
    table(
        f"Accuracy on {found.target} estimated from {found.source} without labels (%), "
        f"{100 * level:g} % intervals",
        ["model", f"on {found.source}", *(["measured"] if judged else []), *shown],
        rows,
        notes=notes,
    )
    if len(found.errors):
        table(
            "Against the labels (points)",
            ["method", "mean abs. error", "bias", "largest", "intervals that cover", "models"],
            [
                (
                    r["method"],
                    percent(r["mae"]),
                    points(r["bias"]),
                    percent(r["largest"]),
                    "" if r["covered"] is None else f"{percent(r['covered'], 0)} %",
                    r["models"],
                )
                for r in found.errors.iter_rows(named=True)
            ],
        )


def _with_interval(row: dict[str, Any]) -> str:
    if row["estimate"] is None:
        return "–"
    if row["low"] is None:
        return percent(row["estimate"])
    return f"{percent(row['estimate'])} [{percent(row['low'], 1)}, {percent(row['high'], 1)}]"


def _line_notes(found: "LabelFree", rehearsed: tuple[float, float, int] | str) -> list[str]:
    from shiftbed.analysis.label_free import TRUSTED_R2

    notes = []
    line = found.line
    if line is not None:
        notes.append(
            f"Line of agreements (probit, {line.pairs:,} pairs): slope {line.slope:.4f} ± "
            f"{line.slope_error:.4f}, bias {line.bias:.4f} ± {line.bias_error:.4f}, R² "
            f"{line.r2:.4f}: "
            + (
                "agreements lie on a line; whether accuracies share it only labels can tell."
                if line.holds
                else f"below {TRUSTED_R2}, agreements do not lie on a line: do not trust ALine."
            )
        )
        notes += [f"Mind: {reason}." for reason in line.reasons if line.holds or "R²" not in reason]
        if line.dropped:
            notes.append(f"{line.dropped} pairs agree always or never and are not in the line.")
    if found.accuracy_line is not None:
        slope, bias = found.accuracy_line
        notes.append(f"Line of accuracies, from the labels: slope {slope:.4f}, bias {bias:.4f}.")
    if isinstance(rehearsed, str):
        notes.append(f"Rehearsal on ID data: {rehearsed}.")
    else:
        mae, r2, _ = rehearsed
        notes.append(
            f"Rehearsal from half of the ID classes to the others, labels known: mean absolute "
            f"error {percent(mae)} points, R² {r2:.4f}."
        )
    notes += [f"{method} not computable: {why}." for method, why in found.not_computable.items()]
    notes.append("Intervals cover noise of images and models, not a premise that is wrong.")
    return notes


def mix(
    source: Source,
    target: Target = None,
    ids: IdSetting = None,
    ood: OodSetting = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="Two models: the mixed classifiers between them."),
    ] = None,
    scale: ScaleName = "logit",
    level: Level = 0.95,
    output: Output = None,
    figure: Figure = None,
    json: AsJson = False,
) -> None:
    """Classifiers made of stored predictions: mixed ones on the chord, majority votes; their ρ.

    With two --model: their chord. Without: ensembles of the best 3, 5, 10 and all models, by vote
    and, where a store kept the logits, by mean probability.
    """
    from shiftbed.cli.answers import open_two
    from shiftbed.cli.tablefile import write_table
    from shiftbed.page import save
    from shiftbed.results.answers import matched
    from shiftbed.results.charts.similarity import made_chart
    from shiftbed.results.mixing import ensemble_table, mixed_table
    from shiftbed.store import PredictionStore

    check_files(output, figure)
    if model and len(model) != 2:
        raise InputError(f"a mixed classifier needs two --model, got {len(model)}")
    first, second = matched(*open_two(source, target, ids, ood))
    if model:
        found = mixed_table(first, second, model[0], model[1], scale=scale, level=level)
    else:
        stored = target is None and first.kept is not None
        store = PredictionStore.existing(source) if stored else None
        found = ensemble_table(first, second, store=store, scale=scale, level=level)
    if output is not None:
        write_table(found, output)
    if figure is not None:
        save(made_chart(found, first.setting, second.setting), figure)
    if json:
        about = {"id": first.setting, "ood": second.setting, "scale": scale}
        as_json(about | {"models": len(first.models), "classifiers": rows_of(found)})
        return
    _print_made(found, first.setting, second.setting, len(first.models))
    for path in filter(None, (output, figure)):
        print(f"wrote {path}")


def _print_made(found: "pl.DataFrame", source: str, target: str, models: int) -> None:
    table(
        f"Made classifiers, {source} to {target}",
        ["classifier", f"{source} (%)", f"{target} (%)", "predicted", "ρ", "interval", "p"],
        [
            (
                r["classifier"] + (f", {r['rule']}" if "rule" in r else ""),
                percent(r["id_accuracy"]),
                percent(r["ood_accuracy"]),
                percent(r["predicted"]),
                points(r["effective"]),
                f"{points(r['low'])} … {points(r['high'])}",
                p_value(r["p_value"]),
            )
            for r in found.iter_rows(named=True)
        ],
        notes=[
            f"ρ against the line through {models} models; intervals are paired over images.",
            *(["Some lie outside the fitted range."] if found["extrapolated"].any() else []),
            *(
                ["No mean probabilities: they need a store that kept the logits."]
                if "rule" in found.columns and "mean probability" not in found["rule"]
                else []
            ),
        ],
    )
