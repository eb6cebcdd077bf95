"""Mixed classifiers and ensembles of stored predictions: ``mix``, their chord and their ρ."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.baseline import fit_baseline
from shiftbed.analysis.mixing import majority_vote, mixed, robustness_of
from shiftbed.display import Table, against_zero, interval, p_value, percent, points, records
from shiftbed.errors import InputError
from shiftbed.results.charts import Charted
from shiftbed.results.joint_answers import (
    JointAnswers,
    Source,
    matched,
    mean_probabilities,
    open_two,
)
from shiftbed.scales import Scale
from shiftbed.testbed import Testbed, choose, open_testbed, testbed_from_store
from shiftbed.testbed.select import Choice

if TYPE_CHECKING:
    from shiftbed.figures.charts import Dots


def mix(
    source: Source,
    target: Source | None = None,
    *,
    id: str | None = None,
    ood: str | None = None,
    model: Sequence[str] | None = None,
    scale: str | Scale = "logit",
    fit_on: Choice = None,
    level: float = 0.95,
) -> "MadeClassifiers":
    """Classifiers made of stored predictions: mixed ones on the chord, majority votes; their ρ.

    With two models in ``model``: the mixed classifiers between them. Without: ensembles of the best
    3, 5, 10 and all models, by vote and, where a store kept the logits, by mean probability.
    ``source``, ``target``, ``id`` and ``ood`` as in ``estimate``. The line is that of ``rank``:
    through the fit set of a store or testbed (or ``fit_on``), through all models of plain files.
    """
    if model and len(model) != 2:
        raise InputError(f"a mixed classifier needs two --model, got {len(model)}")
    sides = matched(*open_two(source, target, id, ood))
    about, made = _chord(sides, *model) if model else _ensembles(sides)
    rows, knee = _fit_set(source, sides, fit_on)
    right = [side.judged()[rows] for side in sides]
    names = tuple(name for name, fitted in zip(sides[0].models, rows, strict=True) if fitted)
    if not names:
        raise InputError("no model that answered both settings is left to fit the line on")
    line = fit_baseline(
        *(one.mean(axis=1) for one in right),
        models=names,
        id_settings=[sides[0].setting],
        ood_setting=sides[1].setting,
        scale=scale,
        knee=knee,
        sizes=np.broadcast_to([side.n for side in sides], (len(names), 2)),
        on_boundary="clip",
        bootstrap=0,
    )
    found = robustness_of(line, *made, *right, level=level).columns()
    shown = ("predicted", "effective", "low", "high", "p_value", "extrapolated")
    columns = {
        "id_accuracy": made[0].mean(axis=1),
        "ood_accuracy": made[1].mean(axis=1),
        **{name: found[name] for name in shown},
        "n_id": np.full(len(made[0]), sides[0].n),
        "n_ood": np.full(len(made[0]), sides[1].n),
    }
    return MadeClassifiers(
        frame=pl.DataFrame(about | columns, nan_to_null=True),
        called=sides[0].called,
        source=sides[0].setting,
        target=sides[1].setting,
        scale=line.scale.name,
        models=len(names),
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MadeClassifiers(Charted):
    """Classifiers made of others; ``frame`` has a row for each, with accuracies and ρ."""

    json_keys = "id=source ood=target scale models classifiers=frame"
    source: str
    target: str
    scale: str
    models: int
    """Models that the line goes through."""

    def answer(self) -> Iterable[str]:
        for row in records(self.frame.sort("effective", descending=True, nulls_last=True).head(1)):
            rule = f", {row['rule']}" if "rule" in row else ""
            yield (
                f"Most robust of {len(self.frame)}: {row['classifier']}{rule}, "
                f"{against_zero(row['low'], row['high'])} (ρ {points(row['effective'])} points, "
                f"{interval(row['low'], row['high'])})."
            )

    def tables(self) -> Iterable[Table]:
        notes = [
            f"ρ against the line through {self.models} models; intervals are paired over images."
        ]
        if self.frame["extrapolated"].any():
            notes.append("Some lie outside the fitted range.")
        votes = "rule" in self.frame.columns
        if votes and "mean probability" not in self.frame["rule"]:
            notes.append("No mean probabilities: they need a store that kept the logits.")
        yield Table.of(
            f"Made classifiers, {self.source} to {self.target}",
            self.frame,
            {
                "classifier": lambda r: (
                    f"{r['classifier']}, {r['rule']}" if votes else r["classifier"]
                ),
                f"{self.source} (%)": ("id_accuracy", percent),
                f"{self.target} (%)": ("ood_accuracy", percent),
                "predicted": ("predicted", percent),
                "ρ": ("effective", points),
                "interval": lambda row: interval(row["low"], row["high"]),
                "p": ("p_value", p_value),
            },
            notes=notes,
        )

    def chart(self) -> "Dots":
        """ρ of the classifiers against their ID accuracy."""
        from shiftbed.results.charts.similarity import made_chart

        return made_chart(self.frame, self.source, self.target)


def _fit_set(
    source: Source, sides: "Sides", fit_on: Choice
) -> tuple[NDArray[np.bool_], float | None]:
    """Which of the models the line goes through, and where it breaks in two, as ``rank`` has it."""
    names = list(sides[0].models)
    bed = source if isinstance(source, Testbed) else None
    if sides[0].store is not None:
        bed = testbed_from_store(sides[0].store)
    elif isinstance(source, str | Path) and Path(source).suffix.lower() != ".npz":
        bed = open_testbed(str(source))
    if bed is None:
        plain = pl.DataFrame({"model": names, "in_fit_set": [True] * len(names)})
        return choose(plain, fit_on), None
    ends = (sides[0].setting,), sides[1].setting
    known = [one for one in bed.shifts if (one.source, one.target) == ends]
    chosen = bed.fit_set(known[0], fit_on) if known else choose(bed.models, fit_on)
    fitted = {name for name, one in zip(bed.model_names, chosen, strict=True) if one}
    return np.array([name in fitted for name in names]), known[0].knee if known else None


Sides = tuple[JointAnswers, JointAnswers]
Made = tuple[dict[str, Any], list[NDArray[Any]]]
"""What the classifiers are, and (P, N) how right each is on every ID and OOD example."""


def _chord(sides: Sides, a: str, b: str) -> Made:
    """The chord from B (α = 0) to A (α = 1), by the expected accuracy of mixed classifiers.

    andreassen2021, Appendix D.1.
    """
    if a == b:
        raise InputError(f"a mixed classifier needs two models, got {a!r} twice")
    alphas = np.linspace(0, 1, 11).round(3).tolist()
    names = [f"{alpha:g}·{a} + {1 - alpha:g}·{b}" for alpha in alphas]
    both = [side.of([a, b]).judged() for side in sides]
    rows = [mixed(of_a, of_b, alphas).T for of_a, of_b in both]
    return {"classifier": names, "alpha": alphas}, rows


def _ensembles(sides: Sides) -> Made:
    """Majority votes of top-1 answers and, where logits were kept, mean probabilities.

    Of the best 3, 5 and 10 and of all models by ID accuracy, the best first (it wins ties).
    """
    if any(side.classes is None for side in sides):
        raise InputError("a vote needs the predicted classes, and only right and wrong are there")
    order = np.argsort(-sides[0].judged().mean(axis=1), kind="stable")
    best = [sides[0].models[int(i)] for i in order]
    sizes = [size for size in (3, 5, 10) if size < len(best)]
    members = {f"best {size} on {sides[0].setting}": best[:size] for size in sizes}
    members[f"all {len(best)}"] = best
    rules = {"majority vote": _vote, "mean probability": _average}
    made = [
        (name, rule, len(some), [make(side, some) for side in sides])
        for rule, make in rules.items()
        for name, some in members.items()
    ]
    made = [one for one in made if all(right is not None for right in one[3])]
    names = ("classifier", "rule", "members")
    about = {name: [one[i] for one in made] for i, name in enumerate(names)}
    return about, [np.array([one[3][side] for one in made], dtype=bool) for side in (0, 1)]


def _vote(side: JointAnswers, members: Sequence[str]) -> NDArray[np.bool_] | None:
    """(N,): whether the vote is right. A class is right for an example if it is for one model."""
    some = side.of(members)
    assert some.classes is not None
    winner = majority_vote(some.classes)
    return np.asarray(((some.classes == winner) & some.judged()).any(axis=0))


def _average(side: JointAnswers, members: Sequence[str]) -> NDArray[np.bool_] | None:
    """(N,): whether the class of the highest mean probability is right, if logits were kept."""
    if side.labels is None or (side.labels < 0).any():
        return None
    mean = mean_probabilities(side, members)
    return None if mean is None else np.asarray(mean.argmax(axis=1) == side.labels)
