"""``shiftbed factors``: what do many metrics measure?"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbed.cli.output import AsJson, Level, as_json, number, records, table
from shiftbed.cli.study import Draws, Kinds, Seed, Source, Tasks, counted, open_study, write
from shiftbed.cli.tablefile import Figure, Output, check_files
from shiftbed.errors import unknown

if TYPE_CHECKING:
    from shiftbed.analysis.factors import Factors


Only = Annotated[
    list[str] | None,
    typer.Option(help="Only networks with COLUMN=PATTERN in their recipe; several must all hold."),
]


def factors(
    source: Source,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Only these metrics, such as ood:error (default: ID, corrupted, OOD)."),
    ] = None,
    columns: Annotated[
        str,
        typer.Option(
            help="metrics: OOD metrics averaged over a network's OOD sets; settings: each metric "
            "on each test set is a column."
        ),
    ] = "metrics",
    number_of: Annotated[
        int | None, typer.Option("--factors", help="How many factors (default: --choose-by).")
    ] = None,
    choose_by: Annotated[
        str, typer.Option(help="How many: eigenvalue (at least 1) or parallel (above chance).")
    ] = "eigenvalue",
    extraction: Annotated[
        str, typer.Option(help="minimum-residual, principal-axis or components.")
    ] = "minimum-residual",
    rotation: Annotated[str, typer.Option(help="equamax, varimax, quartimax or none.")] = "equamax",
    kaiser: Annotated[
        bool, typer.Option(help="Give all metrics equal weight in the rotation.")
    ] = True,
    resample: Annotated[
        str, typer.Option(help="What intervals resample: network, model or source.")
    ] = "network",
    kind: Kinds = None,
    task: Tasks = None,
    also: Annotated[
        list[str] | None, typer.Option(help="Settings of a testbed that are further ID metrics.")
    ] = None,
    only: Only = None,
    bootstrap: Draws = 500,
    seed: Seed = 0,
    level: Level = 0.95,
    output: Output = None,
    figure: Figure = None,
    json: AsJson = False,
) -> None:
    """What do many metrics measure? Factor analysis over networks, with intervals."""
    from shiftbed.analysis.factors import factor_analysis
    from shiftbed.analysis.pairs import COLUMNS, network_table, settings_table
    from shiftbed.results.factors import loading_table
    from shiftbed.results.patterns import chosen_networks

    if columns not in COLUMNS:
        raise unknown("kind of columns", columns, COLUMNS)
    check_files(output, figure)
    study = chosen_networks(open_study(source, kind, task, also), only or ())
    networks = (network_table if columns == "metrics" else settings_table)(study, metric or None)
    found = factor_analysis(
        networks,
        factors=number_of,
        choose_by=choose_by,
        extraction=extraction,
        rotation=rotation,
        kaiser=kaiser,
        bootstrap=bootstrap,
        resample=resample,
        level=level,
        seed=seed,
    )
    notes = _factor_notes(found, repeated=len(set(networks.models)) < len(networks.models))
    write(loading_table(found), output)
    if figure is not None:
        from shiftbed.page import save
        from shiftbed.results.charts.factors import factor_panels

        save(factor_panels(found, title=f"{source}: {counted(found.k, 'factor')}"), figure)
    if json:
        _factor_json(source, found, notes)
        return
    _print_factors(source, found, notes)


def _factor_notes(found: "Factors", *, repeated: bool) -> list[str]:
    turned = "not rotated" if found.rotation == "none" else f"{found.rotation} rotation"
    notes = [
        f"{counted(found.n, 'network')}, {len(found.columns)} metrics; "
        f"{found.by_eigenvalue} eigenvalues ≥ 1, {found.by_parallel} above chance (parallel "
        f"analysis, 95 %). {found.extraction}, {turned}; correlations are "
        f"reproduced to {found.rmsr:.3f} (root mean square).",
        f"Intervals ({100 * found.level:g} %): {found.interval_note}.",
    ]
    if found.left_out:
        notes.append(f"{counted(found.left_out, 'network')} left out: a metric is missing.")
    notes += [f"Dropped: {name}: {reason}." for name, reason in found.dropped]
    if repeated and found.resampled == "network":
        notes.append(
            "Models occur with several ID sets; if these are the same weights, their rows are not "
            "independent: --resample model."
        )
    heywood = [c for c, flagged in zip(found.columns, found.heywood, strict=True) if flagged]
    if heywood:
        notes.append(
            f"Heywood case: {', '.join(heywood)}: the factors explain all of it and would more; "
            "there may be too many factors, or metrics that copy each other."
        )
    return notes + [f"{text}." for text in found.warnings]


def _print_factors(source: str, found: "Factors", notes: list[str]) -> None:
    table(
        f"{source}: eigenvalues of the correlations of {len(found.columns)} metrics",
        ["rank", "eigenvalue", "interval", "by chance", "factor"],
        [
            (
                i + 1,
                number(value, 3),
                _span(found.eigenvalues_low[i], found.eigenvalues_high[i]),
                number(found.chance[i], 3),
                "kept" if i < found.k else "",
            )
            for i, value in enumerate(found.eigenvalues)
        ],
    )
    rows: list[Any] = []
    for i, name in enumerate(found.columns):
        cells = []
        for j in range(found.k):
            cells += [number(found.loadings[i, j], 2), _span(found.low[i, j], found.high[i, j], 2)]
        mark = "Heywood" if found.heywood[i] else ""
        rows.append((name, *cells, number(found.communality[i], 2), mark))
    ends = zip(found.variance, found.variance_low, found.variance_high, strict=True)
    shares = [cell for v, low, high in ends for cell in (number(v, 2), _span(low, high, 2))]
    rows.append(("of all variance", *shares, number(float(found.variance.sum()), 2), ""))
    heads = [head for j in range(found.k) for head in (f"factor {j + 1}", "interval")]
    title = f"Loadings of {counted(found.k, 'factor')}"
    table(title, ["metric", *heads, "communality", ""], rows, notes=notes)


def _span(low: float, high: float, digits: int = 3) -> str:
    return "" if not low <= high else f"{low:.{digits}f} … {high:.{digits}f}"


def _factor_json(source: str, found: "Factors", notes: list[str]) -> None:
    from shiftbed.results.factors import eigenvalue_table, loading_table

    as_json(
        {
            "source": source,
            "n": found.n,
            "metrics": list(found.columns),
            "factors": found.k,
            "chosen_by": found.chosen_by,
            "by_eigenvalue": found.by_eigenvalue,
            "by_parallel": found.by_parallel,
            "extraction": found.extraction,
            "rotation": found.rotation,
            "kaiser": found.kaiser,
            "level": found.level,
            "eigenvalues": records(eigenvalue_table(found)),
            "loadings": records(loading_table(found)),
            "variance": {
                "value": found.variance.tolist(),
                "low": found.variance_low.tolist(),
                "high": found.variance_high.tolist(),
            },
            "rmsr": found.rmsr,
            "converged": found.converged,
            "left_out": found.left_out,
            "dropped": dict(found.dropped),
            "resampled": {"unit": found.resampled, "units": found.units, "draws": found.draws},
            "notes": notes,
        }
    )
