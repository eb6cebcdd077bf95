"""``shiftbed testbeds``: which testbeds there are, and what is in one."""

from typing import TYPE_CHECKING, Annotated

import typer

from shiftbed.cli.output import AsJson, as_json, percent, table

if TYPE_CHECKING:
    from shiftbed.testbed import Testbed


app = typer.Typer(help="List the published testbeds; 'testbeds show T' lists what is in one.")


@app.callback(invoke_without_command=True)
def list_(context: typer.Context, json: AsJson = False) -> None:
    """List the published testbeds."""
    if context.invoked_subcommand is not None:
        return
    from shiftbed.testbed import PUBLISHED, published

    found = [published(name) for name in PUBLISHED]
    if json:
        as_json({"testbeds": [_summary(one) for one in found]})
        return
    rows = [
        (one.name, one.title, len(one.models), len(_settings(one)), len(one.shifts), one.licence)
        for one in found
    ]
    table(
        "Published testbeds",
        ["testbed", "what", "models", "settings", "shifts", "licence"],
        rows,
        left=2,
        notes=["'shiftbed testbeds show TESTBED' lists its shifts, settings and citation."],
    )


@app.command()
def show(
    testbed: Annotated[str, typer.Argument(help="A published testbed's name, or a testbed file.")],
    json: AsJson = False,
    settings: Annotated[bool, typer.Option("--settings", help="List the settings too.")] = False,
    models: Annotated[bool, typer.Option("--models", help="List the models too.")] = False,
) -> None:
    """Show a testbed's shifts (and settings, models), its fit set, source and citation."""
    from shiftbed.testbed import open_testbed

    found = open_testbed(testbed)
    if json:
        as_json(
            {
                **_summary(found),
                "shifts": [
                    {
                        "shift": s.name,
                        "kind": s.kind,
                        "id_settings": list(s.source),
                        "ood_setting": s.target,
                        "full_id": s.full_source,
                        "title": s.title,
                    }
                    for s in found.shifts
                ],
                "settings": [
                    {
                        "setting": s,
                        "n": found.usual_size(s) or None,
                        "metric": found.metrics.get(s, "accuracy"),
                    }
                    for s in found.settings
                ],
                "models": found.models.to_dicts(),
            }
        )
        return
    table(
        f"{found.name}: {found.title}",
        ["shift", "kind", "ID", "OOD", "n OOD"],
        [
            (s.name, s.kind, " + ".join(s.source), s.target, found.usual_size(s.target) or "")
            for s in found.shifts
        ],
        left=4,
    )
    if settings:
        rows = [
            (s, found.metrics.get(s, "accuracy"), found.usual_size(s) or "unknown")
            for s in found.settings
        ]
        table("Settings", ["setting", "metric", "n"], rows, left=2)
    if models:
        first = found.shifts[0].source[0] if found.shifts else found.settings[0]
        values = found.accuracy(first)
        models_ = [
            (m["model"], m["kind"], "yes" if m["in_fit_set"] else "", percent(values[i]))
            for i, m in enumerate(found.models.iter_rows(named=True))
        ]
        table("Models", ["model", "kind", "in fit set", first], models_, left=3)
    fit = int(found.models["in_fit_set"].sum())
    print(f"{len(found.models)} models, {fit} of them in the fit set of its {found.line}.")
    if found.source:
        print(f"Source: {found.source} ({found.licence}).")
    if found.citation:
        print(f"Cite: {found.citation}")


def _settings(testbed: "Testbed") -> list[str]:
    return [s for s in testbed.settings if s not in testbed.derived]


def _summary(testbed: "Testbed") -> dict[str, object]:
    return {
        "testbed": testbed.name,
        "title": testbed.title,
        "n_models": len(testbed.models),
        "n_settings": len(_settings(testbed)),
        "n_shifts": len(testbed.shifts),
        "fit_set": int(testbed.models["in_fit_set"].sum()),
        "source": testbed.source,
        "licence": testbed.licence,
        "citation": testbed.citation,
    }
