"""``shiftbed similarity``: how alike models answer."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbed.cli.output import (
    AsJson,
    Level,
    as_json,
    number,
    p_value,
    pairs,
    percent,
    points,
    records,
    table,
)
from shiftbed.cli.tablefile import Figure, Output, check_files
from shiftbed.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from shiftbed.results.answers import JointAnswers


OnlyModels = Annotated[list[str] | None, typer.Option("--model", "-m", help="Only these models.")]
Most = Annotated[int, typer.Option("--most", "-n", help="How many rows to print.", min=1)]


def similarity(
    source: Annotated[
        str, typer.Argument(help="A .npz file of predictions, a prediction store or testbed file.")
    ],
    setting: Annotated[
        str | None, typer.Option(help="Which setting, if there are several.")
    ] = None,
    model: OnlyModels = None,
    pairwise: Annotated[
        bool, typer.Option("--pairs", help="Every pair, with McNemar's exact test.")
    ] = False,
    unsolved: Annotated[
        bool,
        typer.Option("--unsolved", help="Examples no baseline model gets right, and who does."),
    ] = False,
    baseline: Annotated[
        list[str] | None,
        typer.Option(help="Baseline models by name or pattern, for --unsolved (default: all)."),
    ] = None,
    difficulty: Annotated[
        bool, typer.Option("--difficulty", help="Do groups of models find the same examples hard?")
    ] = False,
    group: Annotated[
        list[str] | None,
        typer.Option(help="NAME=PATTERN of a group, for --difficulty (default: by accuracy)."),
    ] = None,
    triplets: Annotated[
        str | None,
        typer.Option(help="OOD file, store or setting: triplet probabilities ID against OOD."),
    ] = None,
    cone: Annotated[float, typer.Option(help="Factor c of the cone p/c ≤ q ≤ c·p.")] = 2.0,
    most: Most = 20,
    level: Level = 0.95,
    output: Output = None,
    figure: Figure = None,
    json: AsJson = False,
) -> None:
    """Dominance, agreement and error consistency of every two models on the same examples.

    Agreement is the share of examples with the same predicted class; on correctness, the share
    that both get right or both wrong, which κ corrects for chance. -o writes the table of pairs.
    """
    from shiftbed.analysis.similarity import mean_dominance
    from shiftbed.analysis.similarity import similarity as measure
    from shiftbed.cli.answers import open_answers
    from shiftbed.cli.tablefile import write_table
    from shiftbed.results.similarity import model_table, pair_table

    check_files(output, figure)
    if baseline and not unsolved:
        raise InputError("--baseline goes with --unsolved")
    if group and not difficulty:
        raise InputError("--group goes with --difficulty")
    answers = open_answers(source, setting)
    answers = answers.of(model) if model else answers
    right = answers.judged()
    found = measure(right, answers.classes)
    by_model = model_table(answers.models, found, level)
    mean = mean_dominance(found, right, level)
    by_pair = pair_table(answers.models, found, level)
    extra = _extra(answers, unsolved, baseline, difficulty, group, level)
    closeness = None if triplets is None else _triplets(answers, source, triplets, cone, level)
    if output is not None:
        write_table(by_pair, output)
    if figure is not None:
        _draw(answers, found, closeness, figure)
    notes = _notes(answers, found, mean, level)
    if json:
        result: dict[str, Any] = {
            "setting": answers.setting,
            "models": list(answers.models),
            "n": found.n,
            "accuracy": found.accuracy.tolist(),
            "dominance": found.dominance.tolist(),
            "agreement": None if found.agreement is None else found.agreement.tolist(),
            "agreement_on_correctness": found.agreement_on_correctness.tolist(),
            "kappa": found.kappa.tolist(),
            "mean_dominance": vars(mean) | {"ratio": mean.ratio},
            **({"pairs": records(by_pair)} if pairwise else {}),
            **{name: records(frame) for name, (_, frame) in extra.items()},
            **({} if closeness is None else {"triplets": closeness[1]}),
            "notes": notes,
        }
        as_json(result)
        return
    _print_models(answers, by_model, most, notes)
    if pairwise or len(answers.models) == 2:
        _print_pairs(by_pair, most)
    for title, frame in extra.values():
        _print_plain(title, frame, most)
    if closeness is not None:
        print(closeness[1]["reading"])
    for path in filter(None, (output, figure)):
        print(f"wrote {path}")


def _notes(answers: "JointAnswers", found: Any, mean: Any, level: float) -> list[str]:
    notes = [
        f"Mean dominance of {mean.pairs:,} pairs: {percent(mean.value)} % "
        f"({100 * level:g} % interval {percent(mean.low)} … {percent(mean.high)} over "
        f"{mean.n:,} examples), at most {percent(mean.largest)} %."
    ]
    if mean.independent > 0:
        notes.append(
            f"Models of these accuracies that err independently would have "
            f"{percent(mean.independent)} %: it is {100 * mean.ratio:.0f} % of that."
        )
    if found.agreement is None:
        notes.append("No agreement on classes: only right and wrong are kept here.")
    undefined = int((found.kappa != found.kappa).sum())
    if undefined:
        notes.append("κ is undefined (null) for models that are right, or wrong, on every example.")
    if answers.left_out:
        notes.append(
            f"{answers.left_out} examples left out: unlabelled, or not read by every model."
        )
    return notes


def _extra(
    answers: "JointAnswers",
    unsolved: bool,
    baseline: list[str] | None,
    difficulty: bool,
    group: list[str] | None,
    level: float,
) -> "dict[str, tuple[str, pl.DataFrame]]":
    """Titles and tables of --unsolved and --difficulty."""
    import numpy as np

    from shiftbed.analysis.similarity import unsolved as measure
    from shiftbed.results.similarity import (
        accuracy_groups,
        class_table,
        difficulty_table,
        unsolved_table,
    )

    found: dict[str, tuple[str, pl.DataFrame]] = {}
    if unsolved:
        chosen = np.ones(len(answers.models), dtype=bool)
        if baseline:
            chosen = np.logical_or.reduce([_like(answers, one, "--baseline") for one in baseline])
        result = measure(answers.judged(), answers.labels, chosen, level)
        count, n = int(result.unsolved.sum()), answers.n
        title = (
            f"{answers.setting}: {count:,} of {n:,} examples ({percent(count / n)} %) are right "
            f"for none of {int(chosen.sum())} baseline models; solved of those that no other "
            "baseline model gets right"
        )
        found["unsolved"] = title, unsolved_table(answers, result, chosen)
        if answers.labels is not None:
            found["unsolved_by_class"] = "By class", class_table(answers, result, level)
    if difficulty:
        if group:
            named = pairs(group, "--group", "NAME=PATTERN")
            groups = {name: _like(answers, one, "--group") for name, one in named.items()}
        else:
            groups = accuracy_groups(answers)
        title = "Difficulty (share of models right): Spearman's ρ between groups"
        found["difficulty"] = title, difficulty_table(answers, groups, level)
    return found


def _like(answers: "JointAnswers", pattern: str, option: str) -> Any:
    """(M,): models of that name, or whose name matches the pattern."""
    from fnmatch import fnmatchcase

    import numpy as np

    chosen = np.array([name == pattern or fnmatchcase(name, pattern) for name in answers.models])
    if not chosen.any():
        raise InputError(f"{option}: no model is called, or matches, {pattern!r}")
    return chosen


def _triplets(
    answers: "JointAnswers", source: str, other: str, cone: float, level: float
) -> tuple[Any, dict[str, Any]]:
    """The triplets against another file or, if there is no such file, another setting."""
    from shiftbed.analysis.joint_counts import triplets
    from shiftbed.cli.answers import open_answers
    from shiftbed.results.answers import matched

    is_file = Path(other).exists() or "://" in other or other.endswith(".npz")
    ood = open_answers(other) if is_file else open_answers(source, other)
    first, second = matched(answers, ood)
    found = triplets(first.judged(), second.judged(), factor=cone, level=level)
    reading = (
        f"Triplets, {first.setting} against {second.setting}: {found.inside:,} of "
        f"{found.events:,} pattern probabilities of {found.triplets:,} triplets lie in the cone "
        f"p/{cone:g} ≤ q ≤ {cone:g}·p ({100 * found.share_inside:.4g} %); "
        f"{found.clearly_outside:,} lie outside beyond image noise ({100 * level:g} % each). "
        + (
            "No cone holds 99.8 %: some patterns occur on one side only."
            if math.isinf(found.factor_for(0.998))
            else f"99.8 % lie in the cone of factor {found.factor_for(0.998):.3g}."
        )
    )
    about = {
        "id": first.setting,
        "ood": second.setting,
        "models": found.models,
        "triplets": found.triplets,
        "events": found.events,
        "cone": found.factor,
        "inside": found.inside,
        "share_inside": found.share_inside,
        "inside_by_right": found.by_pattern.tolist(),
        "clearly_outside": found.clearly_outside,
        "cone_for_95_percent": found.factor_for(0.95),
        "cone_for_99.8_percent": found.factor_for(0.998),
        "n_id": found.n_id,
        "n_ood": found.n_ood,
        "no_interval": "events of triplets share models and examples",
        "reading": reading,
    }
    return (found, first.setting, second.setting), about


def _draw(answers: "JointAnswers", found: Any, closeness: Any, figure: Path) -> None:
    from shiftbed.figures.charts import Dots, Heatmap, Panels
    from shiftbed.page import save
    from shiftbed.results.charts.similarity import (
        dominance_against_difference,
        dominance_map,
        triplet_chart,
    )

    charts: list[Heatmap | Dots] = [
        dominance_map(answers.models, found),
        dominance_against_difference(answers.models, found),
    ]
    if closeness is not None:
        charts.append(triplet_chart(*closeness[0]))
    whole = Panels(
        title=f"Similarity of models on {answers.setting}",
        reading=" ".join(chart.reading for chart in charts),
        notes=tuple(note for chart in charts for note in chart.notes),
        citation=charts[0].citation,
        panels=tuple(charts),
    )
    save(whole, figure)


def _print_models(
    answers: "JointAnswers", frame: "pl.DataFrame", most: int, notes: list[str]
) -> None:
    rows = [
        (
            r["model"],
            percent(r["accuracy"]),
            percent(r["mean_dominance"]),
            percent(r["largest_dominance"]),
            number(r["dominance_to_independent"], 2),
            percent(r["mean_agreement"]),
            number(r["mean_kappa"], 3),
        )
        for r in frame.head(most).iter_rows(named=True)
    ]
    if len(frame) > most:
        notes = [f"The {most} most accurate of {len(frame)} models; -n shows more.", *notes]
    table(
        f"{answers.setting}: similarity of {len(frame)} models on {answers.n:,} examples (%)",
        ["model", "accuracy", "dominance", "largest", "÷ indep.", "agreement", "κ"],
        rows,
        notes=notes,
    )


def _print_pairs(frame: "pl.DataFrame", most: int) -> None:
    shown = frame.sort("dominance", descending=True).head(most)
    table(
        "Pairs, the largest dominance first; McNemar's exact test",
        ["more accurate", "less accurate", "Δ", "dominance", "agreement", "κ", "p", "Holm", "BH q"],
        [
            (
                r["model_a"],
                r["model_b"],
                points(r["difference"]),
                f"{percent(r['dominance'])} [{percent(r['dominance_low'])}, "
                f"{percent(r['dominance_high'])}]",
                percent(r["agreement"]),
                number(r["kappa"], 3),
                *(p_value(r[name]) for name in ("p_value", "p_holm", "q_value")),
            )
            for r in shown.iter_rows(named=True)
        ],
        notes=[f"{len(shown)} of {len(frame)} pairs."] if len(frame) > 1 else [],
        left=2,
    )


def _print_plain(title: str, frame: "pl.DataFrame", most: int) -> None:
    kinds = [str(kind) == "String" for kind in frame.dtypes]
    rows = [
        [number(cell, 4) if isinstance(cell, float) else _short(cell) for cell in row]
        for row in frame.head(most).iter_rows()
    ]
    more = [f"{most} of {len(frame)} rows; -n shows more."] if len(frame) > most else []
    table(title, frame.columns, rows, notes=more, left=kinds.index(False) or 1)


def _short(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "…"
