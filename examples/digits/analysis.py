"""The analysis: every command of the toolkit on the study's store, the findings, the report."""

import json
from dataclasses import asdict, replace
from typing import Any

from examples.digits.findings import Finding, findings, opening
from examples.digits.study import Study, command
from shiftbed.atomic import write_atomically

__all__ = ["COMMANDS", "analyse"]

COMMANDS: dict[str, tuple[str, ...]] = {
    "scores": ("score", "STORE", "--metric", "top1", "--metric", "nll", "--metric", "ece"),
    "disparity": ("score", "STORE", "--metric", "disparity", "--setting", "mnist"),
    "fit-digits": ("fit", "--testbed", "STORE", "--shift", "digits"),
    "fit-rendered": ("fit", "--testbed", "STORE", "--shift", "rendered"),
    "fit-two": ("fit", "--testbed", "STORE", "--shift", "two-to-THIRD", "--choose-ids"),
    "one-or-two": (
        *("groups", "--testbed", "STORE"),
        *("--id", "mnist", "--id", "digits", "--ood", "THIRD"),
    ),
    "rank-digits": ("rank", "--testbed", "STORE", "--shift", "digits", "-n", "0"),
    "groups": ("groups", "--testbed", "STORE", "--by", "kind", "--shift", "digits"),
    "synthetic-natural": (
        *("correlate", "--testbed", "STORE", "--natural", "digits"),
        *("--models", "training_data=mnist"),
    ),
    "similarity": ("similarity", "STORE", "--setting", "digits"),
    "predictors": ("predictors", "STORE"),
    "predictiveness": ("predictiveness", "STORE"),
    "factors": ("factors", "STORE"),
    "patterns": ("patterns", "STORE"),
}
"""Table → command; STORE and THIRD are the study's."""


def analyse(study: Study) -> None:
    """Write tables/, findings.json, opening.txt and report.html."""
    tables = study.folder / "tables"
    tables.mkdir(exist_ok=True)
    for name, parts in COMMANDS.items():
        given = [w.replace("STORE", study.store).replace("THIRD", study.third) for w in parts]
        command(*given, "--json", into=tables / f"{name}.json")
    found = findings(study)
    _write(study, "findings.json", json.dumps([_record(one) for one in found], indent=1))
    words_of = opening(study, found)
    _write(study, "opening.txt", "\n\n".join(words_of) + "\n")
    print("\n" + "\n\n".join(words_of))
    plots = (("digits", "scatter"), ("digits", "trajectories"))
    for shift, chart in plots:
        picture = str(study.folder / f"{chart}.png")
        command("plot", "--testbed", study.store, "--shift", shift, "--chart", chart, "-o", picture)
    page, words = str(study.folder / "report.html"), str(study.folder / "opening.txt")
    command("report", study.store, "-o", page, "--opening", words)


def _record(finding: Finding) -> dict[str, Any]:
    """A finding with its numbers, without their resamples."""
    kept = ("value", "low", "high", "n")
    numbers = {k: {name: getattr(v, name) for name in kept} for k, v in finding.numbers.items()}
    return asdict(replace(finding, numbers={})) | {"numbers": numbers}


def _write(study: Study, name: str, text: str) -> None:
    with write_atomically(study.folder / name) as file:
        file.write(text.encode())
