"""Which testbeds come with the package, and what is in one (``testbeds``)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from shiftbed.display import Cell, Result, Table, percent, records
from shiftbed.results.lines import Source
from shiftbed.testbed import PUBLISHED, Testbed, open_testbed, published


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Listed(Result):
    """The published testbeds, a row of ``frame`` each."""

    json_keys = "testbeds=frame"

    def tables(self) -> Iterable[Table]:
        columns: dict[str, Cell] = {
            "testbed": "testbed",
            "what": "title",
            "models": "n_models",
            "settings": "n_settings",
            "shifts": "n_shifts",
            "licence": "licence",
        }
        return [Table.of("Published testbeds", self.frame, columns, notes=self.notes, left=2)]


def testbeds() -> Listed:
    """The published testbeds with their sizes, sources, licences and citations.

    >>> testbeds().frame["testbed"].to_list()
    ['imagenet-testbed-2020', 'imagenet-testbed-2023', 'robustnets-2022', 'timm', 'openclip']
    """
    return Listed(
        frame=pl.DataFrame([_summary(published(name)) for name in PUBLISHED]),
        notes=("'shiftbed testbeds show TESTBED' lists its shifts, settings and citation.",),
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Described(Result):
    """What is in a testbed; ``frame`` has a row per shift."""

    testbed: Testbed
    settings: bool
    models: bool

    def tables(self) -> Iterable[Table]:
        bed = self.testbed
        columns: dict[str, Cell] = {
            "shift": "shift",
            "kind": "kind",
            "ID": lambda row: " + ".join(row["id_settings"]),
            "OOD": "ood_setting",
            "n OOD": lambda row: bed.usual_size(row["ood_setting"]) or "",
        }
        yield Table.of(f"{bed.name}: {bed.title}", self.frame, columns, left=4)
        if self.settings:
            columns = {
                "setting": "setting",
                "title": "title",
                "metric": "metric",
                "n": lambda row: row["n"] or "unknown",
            }
            yield Table.of("Settings", _settings(bed), columns, left=3)
        if self.models:
            first = bed.shifts[0].source[0] if bed.shifts else bed.settings[0]
            columns = {
                "model": "model",
                "kind": "kind",
                "in fit set": lambda row: "yes" if row["in_fit_set"] else "",
                "family": lambda row: row.get("family") or "",
                bed.title_of(first): ("accuracy", percent),
            }
            rows = bed.models.with_columns(pl.Series("accuracy", bed.accuracy(first)))
            yield Table.of("Models", rows, columns, left=4)
        yield Table(notes=self.notes)

    def to_dict(self) -> dict[str, Any]:
        return {
            **_summary(self.testbed),
            "shifts": records(self.frame),
            "settings": _settings(self.testbed),
            "models": self.testbed.models.to_dicts(),
        }


def describe(testbed: Source, *, settings: bool = False, models: bool = False) -> Described:
    """A testbed's shifts, fit set, source and citation; its settings and models on request.

    >>> describe("openclip").frame["shift"][0]
    'imagenet-v2'
    """
    bed = open_testbed(testbed)
    shifts = [
        {
            "shift": shift.name,
            "kind": shift.kind,
            "id_settings": list(shift.source),
            "ood_setting": shift.target,
            "full_id": shift.full_source,
            "title": shift.title,
        }
        for shift in bed.shifts
    ]
    fit_set = int(bed.models["in_fit_set"].sum())
    notes = [f"{len(bed.models)} models, {fit_set} of them in the fit set of its {bed.line}."]
    if bed.source:
        notes.append(f"Source: {bed.source} ({bed.licence}).")
    if bed.citation:
        notes.append(f"Cite: {bed.citation}")
    return Described(
        frame=pl.DataFrame(shifts),
        notes=tuple(notes),
        citation=bed.citation,
        testbed=bed,
        settings=settings,
        models=models,
    )


def _settings(bed: Testbed) -> list[dict[str, Any]]:
    return [
        {
            "setting": setting,
            "title": bed.title_of(setting),
            "n": bed.usual_size(setting) or None,
            "metric": bed.metrics.get(setting, "accuracy"),
        }
        for setting in bed.settings
    ]


def _summary(bed: Testbed) -> dict[str, Any]:
    return {
        "testbed": bed.name,
        "title": bed.title,
        "n_models": len(bed.models),
        "n_settings": len([s for s in bed.settings if s not in bed.derived]),
        "n_shifts": len(bed.shifts),
        "fit_set": int(bed.models["in_fit_set"].sum()),
        "source": bed.source,
        "licence": bed.licence,
        "citation": bed.citation,
    }
