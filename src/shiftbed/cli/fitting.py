"""Options of a fit, shared by the commands that make one."""

from typing import Annotated, Any

import typer

from shiftbed.errors import InputError

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
Weighted = Annotated[
    bool, typer.Option("--weighted", help="Weigh baseline models by their test-set sizes.")
]
Boundary = Annotated[
    str,
    typer.Option(
        "--on-boundary", help="Accuracies of exactly 0 or 1 in the fit: raise, drop or clip."
    ),
]
ShiftName = Annotated[str | None, typer.Option("--shift", "-s", help="A shift of the testbed.")]
Ids = Annotated[
    list[str] | None, typer.Option("--id", help="An ID setting (several make a plane).")
]
Ood = Annotated[str | None, typer.Option("--ood", help="The OOD setting, with --id.")]


def chosen_shift(testbed: Any, shift: str | None, ids: list[str] | None, ood: str | None) -> Any:
    """The shift of that name, or one made of --id and --ood."""
    from shiftbed.records import Shift

    if shift is not None:
        if ids or ood:
            raise InputError("give either --shift, or --id and --ood")
        return testbed.shift(shift)
    if not ids or not ood:
        raise InputError("give --shift, or at least one --id and an --ood")
    return testbed.shift(Shift(name=ood, kind="natural-dataset", source=tuple(ids), target=ood))


def fit_options(
    scale: str,
    fit_on: list[str] | None,
    threshold: float | None = None,
    knee: str = "published",
    weighted: bool = False,
    on_boundary: str = "raise",
) -> dict[str, Any]:
    """The options as ``Testbed.fit`` takes them."""
    if on_boundary not in ("raise", "drop", "clip"):
        raise InputError(f"--on-boundary must be raise, drop or clip, got {on_boundary!r}")
    if threshold is not None and not 0.0 <= threshold <= 1.0:
        raise InputError(f"--threshold must be a fraction in [0, 1], got {threshold:g}")
    at: float | str | None = knee
    if knee == "none":
        at = None
    elif knee != "published":
        try:
            at = float(knee)
        except ValueError:
            raise InputError(f"--knee must be published, none or a number, got {knee!r}") from None
        if not 0.0 < at < 1.0:
            raise InputError(f"--knee must be a fraction between 0 and 1, got {knee}")
    return {
        "scale": scale,
        "models": fit_on or None,
        "threshold": threshold,
        "knee": at,
        "weighted": weighted,
        "on_boundary": on_boundary,
    }
