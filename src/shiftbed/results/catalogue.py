"""What comes with the package: published testbeds, and the catalogue of natural shifts.

``testbeds()`` lists the published testbeds, ``describe(testbed)`` what is in one. ``shifts()``
lists every shift, ``shift(name)`` explains one (or a test set, or a task of domains),
``check_data(directory)`` recognises test sets on disk and says what is missing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from shiftbed import catalogue
from shiftbed.catalogue import DomainTask, KnownShift, TestSetEntry
from shiftbed.display import Cell, Result, Table, counted, percent, records, schema
from shiftbed.errors import unknown
from shiftbed.places import only_here
from shiftbed.records import KINDS
from shiftbed.testbed import PUBLISHED, Source, Testbed, open_testbed, published

_COLUMNS = schema(
    "name kind task family source target: str; classes images: int; types held_out published: texts"
)
_FOUND = schema("name spec: str; complete: bool; images expected: int; missing: texts; layout: str")
_SHOWN = 10


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Shifts(Result):
    """Shifts of the catalogue, a row each."""

    single: tuple[KnownShift, ...]
    """Those that a person sees one by one."""
    tasks: tuple[DomainTask, ...]
    """Tasks of domains whose pairs are only counted for a person."""

    def tables(self) -> Iterator[Table]:
        yield Table.of(
            f"{len(self.frame)} shifts",
            [_facts(one) for one in self.single],
            {
                "shift": "name",
                "kind": "kind",
                "ID setting": "source",
                "OOD setting": "target",
                "classes": ("classes", _count),
                "images": ("images", _count),
            },
            left=4,
        )
        if self.tasks:
            yield Table(
                title="Tasks of domains",
                columns=("task", "domains (* artificial)", "classes", "pairs", "held-out OOD"),
                rows=tuple(_task_row(one) for one in self.tasks),
                notes=self.notes,
                left=2,
            )

    def to_dict(self) -> dict[str, Any]:
        return {"shifts": list(self.frame.iter_rows(named=True)), "pairs": self.notes[0]}


def shifts(task: str | None = None, kind: str | None = None) -> Shifts:
    """Every shift of the catalogue, or only those of a task of domains or of one kind.

    >>> shifts(task="pacs").frame["name"][0]
    'pacs/art_painting-to-cartoon'
    """
    if kind is not None and kind not in KINDS:
        raise unknown("kind of shift", kind, KINDS)
    only = None if task is None else catalogue.find_task(task).name
    found = [
        one
        for one in catalogue.shifts()
        if (only is None or one.family == only) and (kind is None or one.kind == kind)
    ]
    tasks = catalogue.tasks()
    names = {one.name for one in tasks}
    return Shifts(
        frame=pl.DataFrame([_facts(one) for one in found], schema=_COLUMNS),
        single=tuple(one for one in found if only is not None or one.family not in names),
        tasks=tasks if only is None and kind in (None, "natural-dataset") else (),
        notes=(
            catalogue.count_of_pairs(),
            "shiftbed shifts --task NAME lists a task's pairs, shiftbed shifts show NAME explains "
            "a test set, a task or a shift.",
        ),
    )


def _facts(one: KnownShift) -> dict[str, Any]:
    facts = {name: getattr(one, name) for name in _COLUMNS}
    facts |= {"source": str(one.source), "target": str(one.target)}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in facts.items()}


def _count(images: int | None) -> str:
    return "not known" if images is None else f"{images:,}"


def _task_row(task: DomainTask) -> tuple[str, ...]:
    domains = [d.name + ("*" if d.type == "artificial" else "") for d in task.domains]
    held = sum(bool(task.held_out(*pair)) for pair in task.pairs)
    return task.name, ", ".join(domains), f"{task.classes:,}", str(len(task.pairs)), str(held)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Explained(Result):
    """What is known of a test set, a task of domains or a shift, a row per fact."""

    title: str
    facts: dict[str, Any]

    def tables(self) -> Iterator[Table]:
        rows = tuple(self.frame.iter_rows())
        yield Table(title=self.title, columns=("", ""), rows=rows, left=2)

    def to_dict(self) -> dict[str, Any]:
        return dict(self.facts)


def shift(name: str) -> Explained:
    """What a shift, a test set or a task is: its ID twin, label policy, layout on disk, licence,
    citation and published lines.

    >>> shift("imagenet-a").facts["label_policy"]
    'subset of 200 of 1000 classes, logits sliced before argmax'
    """
    found = catalogue.look_up(name)
    if isinstance(found, DomainTask):
        facts = _task(found)
    elif isinstance(found, KnownShift):
        target = catalogue.find(found.target.test_set)
        facts = _facts(found) | {"layout": target.tree, "citation": target.citation}
        facts |= {"published": [_line(one) for one in found.published]}
    else:
        facts = _test_set(found)
    words = [(key, _words(value)) for key, value in facts.items()]
    return Explained(
        frame=pl.DataFrame(words, schema=["fact", "value"], orient="row"),
        title=found.title,
        facts=facts,
        citation=facts["citation"],
    )


def _test_set(entry: TestSetEntry) -> dict[str, Any]:
    policy = entry.policy
    own = f"all {entry.classes:,} classes of its own"
    return {
        "name": entry.name,
        "what": entry.about,
        "kind": entry.kind or "ID set",
        "classes": entry.classes,
        "images": entry.images,
        "id_twin": None if entry.twin is None else str(entry.twin),
        "label_policy": own if policy is None else policy.describe(),
        "layout": entry.tree,
        "parts": list(entry.parts),
        "licence": entry.licence,
        "citation": entry.citation,
        "published": [_line(one) for one in (*entry.published, *entry.consistent)],
        "checked_against": _checks(entry),
    }


def _line(name: str) -> dict[str, Any]:
    """A published line as the shipped testbed gives it; ``shiftbed fit`` has its intervals."""
    bed, _, shift = name.partition(":")
    fitted = published(bed).fit(shift)
    return {
        "line": name,
        "models": fitted.n,
        "scale": fitted.scale.name,
        "r2": fitted.r2,
        "pieces": [
            {"slope": piece.weights[0], "intercept": piece.intercept} for piece in fitted.lines
        ],
        "command": f"shiftbed fit --testbed {bed} --shift {shift}",
    }


def _checks(entry: TestSetEntry) -> list[str]:
    """What the set on disk is compared with when it is opened."""
    checks = [f"{one:,} images" for one in (entry.images, *entry.also) if one is not None]
    checks += [f"{entry.per_class:,} of each class"] if entry.per_class else []
    return checks + ([f"labels' fingerprint {entry.digest}"] if entry.digest else [])


def _task(task: DomainTask) -> dict[str, Any]:
    return {
        "name": task.name,
        "what": f"task of {len(task.domains)} domains over {task.classes:,} classes",
        "paper": f"wenzel2022, Table S1: {task.paper}" if task.paper else None,
        "kind": "natural-dataset",
        "classes": task.classes,
        "domains": [
            {"name": f"{task.name}/{d.name}", "type": d.type, "images": d.images}
            for d in task.domains
        ],
        "splits": list(task.splits),
        "pairs": len(task.pairs),
        "pairs_with_held_out": sum(bool(task.held_out(*pair)) for pair in task.pairs),
        "label_policy": f"all {task.classes:,} classes of its own",
        "layout": task.tree,
        "licence": task.licence,
        "citation": task.citation,
    }


def _words(value: Any) -> str:
    """A fact in a cell."""
    if value is None:
        return "none"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        some = [_item(one) if isinstance(one, dict) else str(one) for one in value]
        more = f" and {len(some) - _SHOWN} more" if len(some) > _SHOWN else ""
        return (", ".join(some[:_SHOWN]) + more) or "none"
    return str(value)


def _item(one: dict[str, Any]) -> str:
    """A domain, or a published line."""
    if "type" in one:
        return f"{one['name']} ({one['type']}, {_count(one['images'])} images)"
    form = " and ".join(f"{p['slope']:.3f}·x {p['intercept']:+.3f}" for p in one["pieces"])
    return f"{one['line']} ({form} on {one['scale']}, R² {one['r2']:.3f}, {one['models']} models)"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DataCheck(Result):
    """Test sets of the catalogue that were recognised in a directory, a row each."""

    json_keys = "directory found=frame gaps"
    directory: str
    gaps: tuple[str, ...]
    """What is missing of sets that have several parts."""

    @property
    def complete(self) -> bool:
        """Whether everything that is recognised is whole."""
        return bool(self.frame["complete"].all())

    def answer(self) -> Iterator[str]:
        if len(self.frame):
            whole = int(self.frame["complete"].sum())
            yield (
                f"{self.directory}: {whole} of {counted(len(self.frame), 'test set')} of the "
                "catalogue complete."
            )

    def tables(self) -> Iterator[Table]:
        if not len(self.frame):
            none = f"{self.directory}: no test set of the catalogue is recognised in it; "
            yield Table(notes=(f"{none}shiftbed shifts show NAME says how each lies on disk.",))
            return
        yield Table.of(
            "Test sets that are recognised",
            self.frame,
            {
                "test set": "spec",
                "state": ("complete", lambda yes: "complete" if yes else "incomplete"),
                "images": ("images", _count),
                "published": ("expected", _count),
                "missing or different": ("missing", "; ".join),
            },
            notes=self.notes,
            left=2,
        )


def check_data(directory: str | Path) -> DataCheck:
    """Recognise test sets of the catalogue in a directory, at any depth to four."""
    from shiftbed.evaluation.data.authors.recognise import gaps, recognise

    found = recognise(only_here(directory, "what is searched"))
    trees = [catalogue.find(one.name).tree for one in found]
    rows = [
        (one.name, one.spec, one.complete, one.images, one.expected, list(one.missing), tree)
        for one, tree in zip(found, trees, strict=True)
    ]
    absent = tuple(gaps(found))
    expected = (f"{row[0]}: expected {row[-1]}" for row in rows if row[-2])
    return DataCheck(
        frame=pl.DataFrame(rows, schema=_FOUND, orient="row"),
        directory=str(directory),
        gaps=absent,
        notes=(*absent, *expected),
    )


# --- testbeds ---


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
        called=bed.called,
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
