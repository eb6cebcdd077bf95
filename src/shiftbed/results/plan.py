"""How many images and baseline models it takes to detect an effective robustness (``plan``)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from shiftbed.analysis.intervals import check_level
from shiftbed.analysis.planning import QUESTIONS, Design, power_of, simulated_power, smallest
from shiftbed.display import Cell, Result, Row, Table, number, percent, points, records
from shiftbed.errors import InputError
from shiftbed.records import Shift
from shiftbed.results.lines import TESTBED, Source
from shiftbed.testbed import Testbed, open_testbed


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Planned(Result):
    """What it takes to detect ρ = delta.

    ``frame`` has a row per question (``measured``: is ρ ≠ 0? ``out-of-line``: is the model unusual
    among baseline models?): power as designed, OOD images and baseline models needed (null: no
    number is enough, or none matters) and the smallest ρ that is detected.
    """

    testbed: str
    shift: str
    delta: float
    wanted_power: float
    design: Design

    def tables(self) -> Iterable[Table]:
        def needed(row: Row, column: str) -> str:
            return "no number is enough" if row[column] is None else f"{row[column]:,}"

        def images(row: Row) -> str:
            by_scatter = row["question"] != "measured"
            return "set by the scatter" if by_scatter else needed(row, "ood_images_needed")

        columns: dict[str, Cell] = {
            "question": "question",
            "power now": lambda row: number(row["power"], 3),
            "OOD images needed": images,
            "baseline models needed": lambda row: needed(row, "models_needed"),
            "smallest ρ detected": lambda row: points(row["smallest_delta"]) or "none",
        }
        if "simulated_power" in self.frame.columns:
            columns["simulated"] = lambda row: number(row["simulated_power"], 3)
        title = (
            f"Detecting ρ = {points(self.delta)} on {self.shift} with power "
            f"{self.wanted_power:g} at level {self.design.level:g}"
        )
        return [Table.of(title, self.frame, columns, notes=self.notes)]

    def to_dict(self) -> dict[str, Any]:
        about = {"testbed": self.testbed, "shift": self.shift, "delta": self.delta}
        about |= {"wanted_power": self.wanted_power}
        keys = ("level", "accuracy", "models", "id_images", "ood_images", "scatter")
        about |= {key: getattr(self.design, key) for key in keys}
        return {**about, "answers": records(self.frame)}


def plan(
    delta: float,
    testbed: Source = TESTBED,
    shift: str | Shift = "imagenet-v2",
    *,
    power: float = 0.8,
    accuracy: float | None = None,
    models: int | None = None,
    id_images: int | None = None,
    ood_images: int | None = None,
    simulate: int = 0,
    level: float = 0.95,
) -> Planned:
    """How many test images and baseline models it takes to detect ρ = ``delta`` (a fraction).

    What is not given is taken from the testbed: the median baseline model's ID accuracy, its
    number of baseline models, its test-set sizes. ``simulate`` checks the power by that many
    simulated studies.

    >>> plan(0.05).frame["models_needed"].to_list()
    [4, 4]
    """
    check_level(level)
    check_level(power, "power")
    if not 0.0 < abs(delta) < 1.0:
        raise InputError(f"delta must be a fraction such as 0.01 (one point), got {delta:g}")
    if simulate < 0:
        raise InputError(f"simulate must not be negative, got {simulate}")
    bed = open_testbed(testbed)
    given = {"accuracy": accuracy, "models": models}
    given |= {"id_images": id_images, "ood_images": ood_images}
    made = design(bed, shift, level=level, **given)  # type: ignore[arg-type]
    answers = []
    for question in QUESTIONS:
        found = smallest(made, delta, question, power)
        answer: dict[str, Any] = {
            "question": question,
            "power": power_of(made, delta, question),
            "ood_images_needed": found["ood_images"],
            "models_needed": found["models"],
            "smallest_delta": found["delta"],
        }
        if simulate:
            answer["simulated_power"] = simulated_power(made, delta, question, simulations=simulate)
        answers.append(answer)
    notes = (
        f"Now: {made.models} baseline models, {made.id_images:,} ID and {made.ood_images:,} OOD "
        f"images, ID accuracy {percent(made.accuracy)}.",
        "measured: the interval of ρ leaves out 0 (conservative, images independent); "
        "out-of-line: unusual among the baseline models.",
    )
    return Planned(
        frame=pl.DataFrame(answers, schema_overrides={"ood_images_needed": pl.Int64}),
        notes=notes,
        citation=bed.citation,
        testbed=bed.name,
        shift=bed.shift(shift).name,
        delta=delta,
        wanted_power=power,
        design=made,
    )


def design(
    testbed: Testbed,
    shift: str | Shift,
    *,
    accuracy: float | None = None,
    models: int | None = None,
    id_images: int | None = None,
    ood_images: int | None = None,
    level: float = 0.95,
) -> Design:
    """A design with what is not given taken from the testbed; of a broken line without its knee."""
    if accuracy is not None and not 0.0 < accuracy < 1.0:
        raise InputError(f"accuracy must be a fraction between 0 and 1, got {accuracy:g}")
    wanted = {"models": models, "id_images": id_images, "ood_images": ood_images}
    for name, value in wanted.items():
        if value is not None and value < 4:
            raise InputError(f"{name} must be at least 4, got {value}")
    found = testbed.shift(shift)
    if len(found.source) > 1:
        raise InputError(f"planning is for one ID setting; {found.name!r} has several")
    dropped: dict[str, Any] = {"knee": None, "on_boundary": "drop"} if found.knee else {}
    baseline = testbed.fit(found, bootstrap=0, **dropped)
    line = baseline.lines[0]
    scaled = line.design[:, 1]
    sizes = [int(n) for n in baseline.sizes]
    for value, known, what in ((id_images, sizes[0], "id"), (ood_images, sizes[1], "ood")):
        if not (value or known):
            raise InputError(
                f"the {what.upper()} test-set size is unknown in {testbed.name}; give {what}_images"
            )
    return Design(
        accuracy=accuracy or float(baseline.scale.inverse(np.median(scaled))),
        slope=line.weights[0],
        intercept=line.intercept,
        scatter=line.sigma,
        spread=float(scaled.std()),
        centre=float(scaled.mean()),
        models=models or line.n,
        id_images=id_images or sizes[0],
        ood_images=ood_images or sizes[1],
        scale=baseline.scale,
        level=level,
    )
