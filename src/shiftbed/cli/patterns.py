"""``shiftbed patterns``: the shape of OOD over ID accuracy, pair by pair."""

from typing import Annotated, Any

import typer

from shiftbed.cli.factors import Only
from shiftbed.cli.lines import ScaleName
from shiftbed.cli.output import AsJson, Level, as_json, number, pairs, percent, records, table
from shiftbed.cli.study import Draws, Kinds, Seed, Source, Tasks, counted, open_study, write
from shiftbed.cli.tablefile import Figure, Output, check_files
from shiftbed.errors import InputError, unknown


def patterns(
    source: Source,
    classes: Annotated[
        list[str] | None,
        typer.Option(help="Number of classes, for all tasks or as TASK=N: chance is 1/N."),
    ] = None,
    images: Annotated[
        list[str] | None,
        typer.Option(help="SETTING=N: size of a test set, where the source does not know it."),
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="Recipe column whose values could have lines of their own.")
    ] = None,
    scale: ScaleName = "logit",
    kind: Kinds = None,
    task: Tasks = None,
    only: Only = None,
    bootstrap: Draws = 200,
    seed: Seed = 0,
    level: Level = 0.95,
    output: Output = None,
    figure: Figure = None,
    draw: Annotated[
        str, typer.Option(help="What --figure shows: scatters (the first 24) or counts.")
    ] = "scatters",
    json: AsJson = False,
) -> None:
    """Which shape has OOD over ID accuracy: line, vertical, horizontal, decreasing, none?"""
    from shiftbed.results.patterns import chosen_networks, pattern_counts, pattern_table

    if draw not in ("scatters", "counts"):
        raise unknown("figure", draw, ("scatters", "counts"))
    check_files(output, figure)
    study = chosen_networks(open_study(source, kind, task), only or ())
    found = pattern_table(
        study,
        classes=_classes(classes or [], {pair.task for pair in study}),
        images=_images(source, study, images or []),
        groups=groups,
        scale=scale,
        bootstrap=bootstrap,
        level=level,
        seed=seed,
    )
    counts = pattern_counts(found, level)
    write(found, output)
    if figure is not None:
        from shiftbed.page import save
        from shiftbed.results.charts.factors import count_bars, pattern_panels

        title = f"{source}: patterns of OOD over ID accuracy"
        save(
            count_bars(counts, title=title)
            if draw == "counts"
            else pattern_panels(study, found, title=title),
            figure,
        )
    if json:
        as_json(
            {
                "source": source,
                "scale": scale,
                "level": level,
                "pairs": records(found),
                "counts": records(counts),
            }
        )
        return
    _print_patterns(source, records(found), records(counts), level)


def _classes(texts: list[str], tasks: set[str]) -> dict[str, int]:
    """``10`` for all tasks, ``PACS=7`` for one."""
    found = {}
    plain = [text for text in texts if "=" not in text]
    if len(plain) > 1:
        raise InputError("--classes: one number for all tasks, or TASK=N for each")
    given = pairs([text for text in texts if "=" in text], "--classes", "N or TASK=N")
    if plain:
        given[""] = plain[0]
    for name, text in given.items():
        if name and name not in tasks:
            raise unknown("task", name, sorted(tasks))
        found[name] = _whole(text, "--classes", 2)
    return found


def _images(source: str, study: Any, texts: list[str]) -> dict[str, int]:
    """Test-set sizes: those given, and those that a testbed or store knows."""
    from shiftbed.testbed import open_testbed

    settings = {name for pair in study for name in (pair.source, pair.target)}
    found = {}
    for name, text in pairs(texts, "--images", "SETTING=N").items():
        if name not in settings:
            raise unknown("setting", name, sorted(settings))
        found[name] = _whole(text, "--images", 1)
    try:
        bed = open_testbed(source)
    except InputError:  # a plain file knows no sizes
        return found
    known = {name: bed.usual_size(name) for name in settings if name in bed.settings}
    return known | found


def _whole(text: str, option: str, least: int) -> int:
    if not text.isdigit() or int(text) < least:
        raise InputError(f"{option}: expected a whole number of at least {least}, got {text!r}")
    return int(text)


def _print_patterns(source: str, rows: list[Any], counts: list[Any], level: float) -> None:
    table(
        f"{source}: OOD over ID accuracy of {counted(len(rows), 'pair')}",
        ["task", "ID → OOD", "pattern", "nearest", "margin", "share", "rank", "n", "line", "why"],
        [
            (
                r["task"],
                f"{r['id']} → {r['ood']}",
                r["pattern"],
                r["nearest"],
                number(r["margin"], 1),
                percent(r["share"], 0),
                number(r["rank"], 2),
                r["n"],
                "trusted" if r["trusted"] else "not trusted",
                r["reason"] if r["pattern"] != "increasing" else r["why_not"] or r["reason"],
            )
            for r in rows
        ],
        left=4,
        notes=[
            "margin: standard errors between the nearest measure and the threshold beyond which "
            "the pattern would be the nearest one; share: of resampled networks with the same "
            "pattern (%); rank: Spearman's r. --json has all measures with their intervals.",
            *sorted({r["note"].split("; ")[0] + "." for r in rows if r["note"]}),
        ],
    )
    table(
        "Patterns by task",
        ["task", "pattern", "pairs", "of", "share (%)", f"{100 * level:g} % interval", "trusted"],
        [
            (
                c["task"],
                c["pattern"],
                c["pairs"],
                c["of"],
                percent(c["share"], 1),
                f"{percent(c['low'], 1)} … {percent(c['high'], 1)}",
                c["trusted"],
            )
            for c in counts
        ],
        left=2,
    )
