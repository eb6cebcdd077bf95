"""Options that several commands share, by the name of the parameter, each declared once.

A help text alone: its option is called as the parameter is, and has the parameter's type.
"""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from shiftbed.errors import InputError

TESTBED = "imagenet-testbed-2020"

AsJson = Annotated[bool, Option("--json", help="Print JSON instead of a table.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress and no hints: the result only.")]
AllowCode = Annotated[
    bool,
    Option(
        "--allow-code",
        help="Execute code that files name: python: in a testbed.toml, a recipe.toml or a run's "
        "folder. Without it they are refused.",
    ),
]
Fresh = Annotated[
    bool,
    Option(
        "--fresh", help="Compute again what the store has, also of a model that has been changed."
    ),
]
Same = Annotated[
    bool,
    Option(
        "--same",
        help="Take what the store has where it cannot be known if the model is still the same.",
    ),
]
Level = Annotated[float, Option(help="Confidence level of intervals.")]
Store = Annotated[str, Argument(help="A prediction store.")]
StoreFolder = Annotated[Path, Option(help="Where predictions are kept.")]
Models = Annotated[list[str] | None, Option("--model", help="Only these models.")]
ModelsShort = Option("--model", "-m", help="Only these models.")
Subset = Annotated[
    str | None, Option("--subset", help="Only these classes: 1,5,7 or a file of indices.")
]
ClassMap = Annotated[
    Path | None,
    Option(
        "--class-map",
        help="A JSON file, {target: classes} or {class: target}: many classes to one.",
    ),
]
How = Annotated[
    str | None, Option(help="Combine mapped classes by max (default), mean, sum or max-logit.")
]
Shifts = Option("--shift", "-s", help="Only these shifts.")
Pairs = Annotated[
    str,
    Argument(
        help="A published testbed's name, a testbed file, a prediction store, or a plain file "
        "(CSV, Parquet, JSON) with the columns task, id, ood, model, where, metric and value."
    ),
]
NameInStore = Annotated[str | None, Option(help="The model's name in the store.")]
Weights = Annotated[Path | None, Option(help="A local file of weights.")]
Device = Annotated[str, Option(help="cpu, cuda, …")]
Runner = Annotated[str, Option(help="local, processes or ray.")]
Workers = Annotated[int, Option(help="Worker processes, or Ray workers.", min=1)]
Address = Annotated[
    str | None, Option(help="Ray cluster to use (auto for a running one); default: local.")
]
BatchSize = Annotated[int | None, Option(help="Images per batch.", min=1)]
Backend = Annotated[str | None, Option(help="auto, torch, compile or onnxruntime (default auto).")]
Unreadable = Annotated[str | None, Option("--on-unreadable", help="skip (listed by name) or stop.")]
Frost = Annotated[Path | None, Option(help="A folder of frost pictures (default: synthesized).")]
Metrics = Annotated[
    list[str] | None,
    Option(
        "--metric",
        help="top1, top5, nll, brier, ece, worst_class, worst_group, disparity (default top1); of "
        "probes amplitude_hff, phase_cd, pixel_within_hff, jacobian_norm, …",
    ),
]

SHARED: dict[str, Any] = {
    "json": AsJson,
    "output": Annotated[
        Path, Option("--output", "-o", help="Write the table: .parquet, .csv or .json.")
    ],
    "figure": Annotated[Path, Option(help="Draw it: .png, .svg, .pdf or .html.")],
    "level": "Confidence level of intervals.",
    "most": Option("--most", "-n", help="How many rows to print.", min=1),
    "bootstrap": Option(help="Resamples for intervals.", min=0),
    "seed": Option(help="Seed of the resampling.", min=0),
    "testbed": Option("--testbed", "-t", help="A published testbed's name, or a testbed file."),
    "shift": Option("--shift", "-s", help="A shift of the testbed."),
    "shifts": Shifts,
    "id": "An ID setting (several make a plane).",
    "ood": "The OOD setting, with --id.",
    "scale": "linear, probit or logit.",
    "fit_on": "Baseline models: fit-set (default), all, COLUMN=PATTERN or COLUMN!=PATTERN; several "
    "must all hold.",
    "threshold": "Fit only models with at least this ID accuracy.",
    "full_id": "Use the whole ID set as x, not its class twin.",
    "knee": "Where the line breaks in two: published, none, or an ID accuracy.",
    "families": "Models of a family count as related (known) or as independent of each other "
    "(none).",
    "estimator": Option(
        "--fit", help="least-squares, or a robust fit to compare with: huber, theil-sen."
    ),
    "on_boundary": "Accuracies of exactly 0 or 1 in the fit: raise, drop or clip.",
    "others": Option(
        "--with",
        help="Judge these models too: a published testbed's name, a testbed file, a store, or a "
        "CSV, JSON, JSONL or Parquet file of results; repeatable.",
    ),
    "fdr": "False discovery rate of 'out of line'.",
    "store": Store,
    "models": Option("--model", help="Only these models."),
    "settings": Option("--setting", help="Only these settings."),
    "metrics": Metrics,
    "kind": "Only these types of shift.",
    "task": "Only these tasks.",
    "also": "Settings of a testbed that are further ID metrics.",
    "only": "Only networks with COLUMN=PATTERN in their recipe; several must all hold.",
    "checkpoint": "Which checkpoint of a run is its network: last, or the one with the lowest ID "
    "error on validation or test data (id-validation, id-test).",
    "attacks": "Error under attacks: their mean, each one apart, or both.",
    "columns": Option(
        "--column",
        help="ROLE=COLUMN: what a column is, where its name does not say it, such as "
        "model=estimator (model, setting, value, correct, n, low, high, interval, metric, run, "
        "step, kind, in_fit_set, parent).",
    ),
}


def columns_by_role(texts: list[str] | None) -> dict[str, list[str]]:
    """Columns by role; several may be settings."""
    columns: dict[str, list[str]] = {}
    for text in texts or ():
        role, equals, column = text.partition("=")
        if not equals or not role.strip() or not column.strip():
            raise InputError(f"--column: expected ROLE=COLUMN, got {text!r}")
        columns.setdefault(role.strip(), []).append(column.strip())
    return columns
