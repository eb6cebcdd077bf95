"""How many images and baseline models it takes to detect an effective robustness (``plan``)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from scipy.special import ndtri

from shiftbed.analysis.families import ENOUGH
from shiftbed.analysis.intervals import check_level
from shiftbed.analysis.planning import (
    QUESTIONS,
    Design,
    Question,
    own_scatter,
    power_of,
    smallest,
)
from shiftbed.display import Cell, Row, Table, counted, number, percent, points, records
from shiftbed.errors import InputError
from shiftbed.records import Bits, ImageResults, Shift
from shiftbed.results.charts import Charted
from shiftbed.results.lines import TESTBED
from shiftbed.testbed import Source, Testbed, open_testbed

if TYPE_CHECKING:
    from shiftbed.figures.charts import Curves


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Planned(Charted):
    """What it takes to detect ρ = delta.

    ``frame`` has a row per question (``measured``: is ρ ≠ 0? ``out-of-line``: is the model unusual
    among baseline models?): power as designed, OOD images and baseline models needed (null: no
    number is enough, or none matters) and the smallest ρ that is detected.
    """

    json_keys = (
        "testbed shift delta wanted_power design.level "
        "design.accuracy design.models design.id_images "
        "design.ood_images design.scatter design.interval "
        "design.families flags answers=frame"
    )
    testbed: str
    shift: str
    delta: float
    wanted_power: float
    design: Design
    flags: tuple[str, ...]
    """What is to be known about the promise."""

    def answer(self) -> Iterable[str]:
        asked = {"measured": "To measure it", "out-of-line": "To call the model out of line"}
        for row in records(self.frame):
            now = f"power {number(row['power'], 2)} for ρ = {points(self.delta)} points"
            if row["power"] >= self.wanted_power:
                yield f"{asked[row['question']]}: enough as it is ({now})."
                continue
            images, models = row["ood_images_needed"], row["models_needed"]
            ways = [counted(images, "OOD image")] if images else []
            ways += [counted(models, "baseline model")] if models else []
            needs = f"it needs {' or '.join(ways)}" if ways else "no number is enough"
            yield f"{asked[row['question']]}: not enough ({now}); {needs}."

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

    def chart(self) -> "Curves":
        """The power of both questions over ρ, as designed."""
        from shiftbed.figures.charts import Curve, Curves, Reference

        reach = [abs(self.delta), *self.frame["smallest_delta"].drop_nulls().to_list()]
        beta = self.design.predicted
        room = 0.99 - beta if self.delta > 0 else beta - 0.01
        rho = np.copysign(np.linspace(0.0, min(1.5 * max(reach), room), 41)[1:], self.delta)
        curves = tuple(
            Curve(
                name=question,
                x=100 * rho,
                y=np.array([power_of(self.design, float(one), question) for one in rho]),
                points=False,
            )
            for question in QUESTIONS
        )
        return Curves(
            title=f"Detecting ρ on {self.shift}",
            x_title="ρ (points)",
            y_title="power",
            curves=curves,
            lines=(Reference(name="wanted", intercept=self.wanted_power),),
            notes=self.notes,
            citation=self.citation,
        )


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
    paired: bool | None = None,
    families: int | None = None,
    simulate: int = 0,
    level: float = 0.95,
) -> Planned:
    """How many test images and baseline models it takes to detect ρ = ``delta`` (a fraction).

    What is not given is taken from the testbed: the median baseline model's ID accuracy, its number
    of baseline models and of their families, its test-set sizes. ``paired`` says that answers per
    image will be kept (True), or that the model will be unlike the baseline models, so that its
    errors are independent of theirs (False); else they are modelled. ``simulate`` checks the power
    by that many simulated studies: models and images are drawn, and the model is placed by
    ``place``.

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
    given |= {"id_images": id_images, "ood_images": ood_images, "families": families}
    given |= {"paired": paired}
    made = design(bed, shift, level=level, **given)  # type: ignore[arg-type]
    answers = []
    checked = simulated_power(made, delta, simulations=simulate) if simulate else {}
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
            answer["simulated_power"] = checked[question]
        answers.append(answer)
    related = "" if made.families is None else f" of {made.families} families"
    flags = tuple(_flags(made, delta))
    notes = (
        f"Now: {made.models} baseline models{related}, {made.id_images:,} ID and "
        f"{made.ood_images:,} OOD images, ID accuracy {percent(made.accuracy)}.",
        f"measured: the {made.interval} interval of ρ leaves out 0; "
        "out-of-line: unusual among the baseline models.",
        *(f"{flag[0].upper()}{flag[1:]}." for flag in flags),
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
        flags=flags,
    )


def _flags(made: Design, delta: float) -> Iterable[str]:
    if made.families is not None and made.families < ENOUGH:
        yield f"only {made.families} families: power may be less than said"
    rare = min(made.accuracy, 1 - made.accuracy) * made.id_images
    y = made.predicted + delta
    if min(rare, min(y, 1 - y) * made.ood_images) < 30:
        yield "fewer than 30 errors or right answers expected: power may be less than said"
    if made.interval == "independent":
        yield "an unlike model's errors are taken as independent of the baseline models'"


def design(
    testbed: Testbed,
    shift: str | Shift,
    *,
    accuracy: float | None = None,
    models: int | None = None,
    id_images: int | None = None,
    ood_images: int | None = None,
    paired: bool | None = None,
    families: int | None = None,
    level: float = 0.95,
) -> Design:
    """A design with what is not given taken from the testbed; of a broken line without its knee."""
    if accuracy is not None and not 0.0 < accuracy < 1.0:
        raise InputError(f"accuracy must be a fraction between 0 and 1, got {accuracy:g}")
    wanted = {"models": models, "id_images": id_images, "ood_images": ood_images}
    for name, value in wanted.items():
        if value is not None and value < 4:
            raise InputError(f"{name} must be at least 4, got {value}")
    if families is not None and families < 3:
        raise InputError(f"families must be at least 3, got {families}")
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
    m = models or line.n
    related = line.families
    if families is None and related is not None:
        families = min(max(round(related.n * m / line.n), 3), m)
    if families is not None and families > m:
        raise InputError(f"{m} models cannot have {families} families")
    kinds = {True: "paired", False: "independent", None: "modelled"}
    made = Design(
        accuracy=accuracy or float(baseline.scale.inverse(np.median(scaled))),
        slope=line.weights[0],
        intercept=line.intercept,
        scatter=line.sigma,
        spread=float(scaled.std()),
        centre=float(scaled.mean()),
        models=m,
        id_images=id_images or sizes[0],
        ood_images=ood_images or sizes[1],
        scale=baseline.scale,
        level=level,
        families=families,
        correlation=0.0 if families is None else 0.5 if related is None else related.correlation,
        interval=kinds[paired],
    )
    if not all(sizes):  # the scatter cannot be freed of image noise
        return made
    as_measured = replace(made, id_images=sizes[0], ood_images=sizes[1], models=line.n)
    return replace(made, scatter=own_scatter(as_measured, line.sigma))


SHIFT = Shift(name="planned", kind="natural-dataset", source=("id",), target="ood")
_LATENT = 0.87
"""How much two models' answers go together in simulated studies (tetrachoric correlation)."""


def simulated_power(
    design: Design, delta: float, *, simulations: int = 200, seed: int = 0
) -> dict[Question, float]:
    """The power of both questions by simulated studies, each placed by ``place``.

    Baseline models get scaled accuracies N(centre, spread²) and scatter about the line, both shared
    within families; images get difficulties, and a model is right where its ability exceeds
    √r·difficulty + √(1−r)·noise. None of the closed form's approximations is used.
    """
    from shiftbed.results.place import place

    rng = np.random.default_rng(seed)
    hits = dict.fromkeys(QUESTIONS, 0)
    for _ in range(simulations):
        row = place(_simulated(design, delta, rng), model="planned", level=design.level).frame
        low, high = row["low"][0], row["high"][0]
        hits["measured"] += not low <= 0.0 <= high
        hits["out-of-line"] += row["p_value"][0] < 1.0 - design.level
    return {question: hits[question] / simulations for question in QUESTIONS}


def _simulated(design: Design, delta: float, rng: np.random.Generator) -> Testbed:
    """A testbed of the design's size with a model ``planned`` whose true ρ is delta."""
    m = design.models
    family = np.arange(m) if design.families is None else np.arange(m) % design.families
    c = 0.0 if design.families is None else design.correlation

    def drawn(spread: float) -> Any:
        shared, alone = rng.normal(size=family.max() + 1)[family], rng.normal(size=m)
        return spread * (np.sqrt(c) * shared + np.sqrt(1.0 - c) * alone)

    x = design.centre + drawn(design.spread)
    y = design.intercept + design.slope * x + drawn(design.scatter)
    x, y = design.scale.inverse(x), design.scale.inverse(y)
    truth = np.append(x, design.accuracy), np.append(y, design.predicted + delta)
    sizes = design.id_images, design.ood_images
    right = [_answers(p, n, design, rng) for p, n in zip(truth, sizes, strict=True)]
    everyone = np.ones(m + 1, dtype=bool)
    results = {}
    if design.interval == "paired":
        results = {
            name: ImageResults(images=name, bits=Bits.of(one), known=everyone)
            for name, one in zip(("id", "ood"), right, strict=True)
        }
    unlike = design.interval == "independent"
    models = pl.DataFrame(
        {
            "model": [*(f"m{i}" for i in range(m)), "planned"],
            "kind": ["standard"] * m + ["unlike" if unlike else "own"],
            "in_fit_set": [True] * m + [False],
            "parent": pl.Series([None] * (m + 1), dtype=pl.String),
            "family": [*(f"f{i}" for i in family), "planned"],
        }
    )
    return Testbed(
        name="simulated",
        models=models,
        settings=("id", "ood"),
        value=np.column_stack([one.mean(axis=1) for one in right]),
        n=np.tile(sizes, (m + 1, 1)),
        shifts=(SHIFT,),
        results=results,
    )


def _answers(p: Any, n: int, design: Design, rng: np.random.Generator) -> Any:
    """(models, n): who is right; an unlike model's errors fall on images of their own."""
    ability = ndtri(p)[:, None].astype(np.float32)
    hard = rng.standard_normal(n, dtype=np.float32)
    noise = rng.standard_normal((len(p), n), dtype=np.float32)
    together = np.float32(_LATENT**0.5) * hard + np.float32((1 - _LATENT) ** 0.5) * noise
    if design.interval == "independent":
        together[-1] = noise[-1]
    return ability > together
