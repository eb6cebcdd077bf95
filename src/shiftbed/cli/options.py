"""Options that several commands share, each declared once.

A parameter is named as the public function names it, whatever its option is called.
"""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from shiftbed.errors import InputError

TESTBED = "imagenet-testbed-2020"

AsJson = Annotated[bool, Option("--json", help="Print JSON instead of a table.")]
Level = Annotated[float, Option(help="Confidence level of intervals.")]
Output = Annotated[
    Path | None, Option("--output", "-o", help="Write the table: .parquet, .csv or .json.")
]
Figure = Annotated[Path | None, Option(help="Draw it: .png, .svg, .pdf or .html.")]
Most = Annotated[int, Option("--most", "-n", help="How many rows to print.", min=1)]
Resamples = Annotated[int, Option(help="Resamples for intervals.")]
ResamplingSeed = Annotated[int, Option("--seed", help="Seed of the resampling.")]

# Lines, and models against them
TestbedName = Annotated[
    str, Option("--testbed", "-t", help="A published testbed's name, or a testbed file.")
]
ShiftName = Annotated[str | None, Option("--shift", "-s", help="A shift of the testbed.")]
Shifts = Annotated[list[str] | None, Option("--shift", "-s", help="Only these shifts.")]
Ids = Annotated[list[str] | None, Option("--id", help="An ID setting (several make a plane).")]
Ood = Annotated[str | None, Option("--ood", help="The OOD setting, with --id.")]
ScaleName = Annotated[str, Option("--scale", help="linear, probit or logit.")]
FitOn = Annotated[
    list[str] | None,
    Option(
        "--fit-on",
        help="Baseline models: fit-set (default), all, COLUMN=PATTERN or COLUMN!=PATTERN; "
        "several must all hold.",
    ),
]
Threshold = Annotated[float | None, Option(help="Fit only models with at least this ID accuracy.")]
FullId = Annotated[bool, Option("--full-id", help="Use the whole ID set as x, not its class twin.")]
Knee = Annotated[
    str, Option(help="Where the line breaks in two: published, none, or an ID accuracy.")
]
Families = Annotated[
    str,
    Option(
        help="Models of a family count as related (known) or as independent of each other (none)."
    ),
]
Estimator = Annotated[
    str,
    Option("--fit", help="least-squares, or a robust fit to compare with: huber, theil-sen."),
]
Boundary = Annotated[
    str,
    Option("--on-boundary", help="Accuracies of exactly 0 or 1 in the fit: raise, drop or clip."),
]
Others = Annotated[
    list[str] | None,
    Option(
        "--with",
        help="Judge these models too: a published testbed's name, a testbed file, a store, or a "
        "CSV, JSON, JSONL or Parquet file of results; repeatable.",
    ),
]
Fdr = Annotated[float, Option(help="False discovery rate of 'out of line'.")]

# Stores, and answers per image
Store = Annotated[str, Argument(help="A prediction store.")]
StoreFolder = Annotated[Path, Option(help="Where predictions are kept.")]
Models = Annotated[list[str] | None, Option("--model", help="Only these models.")]
Settings = Annotated[list[str] | None, Option("--setting", help="Only these settings.")]
ModelsShort = Annotated[list[str] | None, Option("--model", "-m", help="Only these models.")]
Answers = Annotated[
    str, Argument(help="ID predictions: a .npz file, or a store or file with --id and --ood.")
]
OodAnswers = Annotated[str | None, Argument(help="OOD predictions; labels are not needed.")]
IdSetting = Annotated[str | None, Option("--id", help="ID setting.")]
OodSetting = Annotated[str | None, Option("--ood", help="OOD setting.")]

# Classes of a model, and of a test set
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

# (ID, OOD) pairs of many networks
Pairs = Annotated[
    str,
    Argument(
        help="A published testbed's name, a testbed file, a prediction store, or a plain file "
        "(CSV, Parquet, JSON) with the columns task, id, ood, model, where, metric and value."
    ),
]
Kinds = Annotated[list[str] | None, Option("--kind", help="Only these types of shift.")]
Tasks = Annotated[list[str] | None, Option("--task", help="Only these tasks.")]
Also = Annotated[
    list[str] | None, Option(help="Settings of a testbed that are further ID metrics.")
]
Only = Annotated[
    list[str] | None,
    Option(help="Only networks with COLUMN=PATTERN in their recipe; several must all hold."),
]

Checkpoint = Annotated[
    str,
    Option(
        help="Which checkpoint of a run is its network: last, or the one with the lowest ID error "
        "on validation or test data (id-validation, id-test)."
    ),
]
Attacks = Annotated[
    str | None,
    Option(help="Error under attacks: their mean, each one apart, or both."),
]

# Running models
ModelName = Annotated[
    str, Argument(metavar="MODEL", help="A model, such as timm:resnet18 or onnx:FILE.")
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
Columns = Annotated[
    list[str] | None,
    Option(
        "--column",
        help="ROLE=COLUMN: what a column is, where its name does not say it, such as "
        "model=estimator (model, setting, value, correct, n, low, high, interval, metric, run, "
        "step, kind, in_fit_set, parent).",
    ),
]


def columns_by_role(texts: list[str] | None) -> dict[str, list[str]]:
    """Columns by role; several may be settings."""
    columns: dict[str, list[str]] = {}
    for text in texts or ():
        role, equals, column = text.partition("=")
        if not equals or not role.strip() or not column.strip():
            raise InputError(f"--column: expected ROLE=COLUMN, got {text!r}")
        columns.setdefault(role.strip(), []).append(column.strip())
    return columns
