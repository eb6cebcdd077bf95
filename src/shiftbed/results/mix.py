"""Mixed classifiers and ensembles of stored predictions: ``mix``, their chord and their ρ."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.analysis.baseline import Baseline, fit_baseline
from shiftbed.analysis.mixing import majority_vote, mean_probability, mixed, robustness_of
from shiftbed.analysis.robustness import Robustness
from shiftbed.display import Table, interval, p_value, percent, points, records
from shiftbed.errors import InputError
from shiftbed.results.charts import Charted
from shiftbed.results.joint_answers import (
    JointAnswers,
    Source,
    matched,
    mean_probabilities,
    open_two,
)
from shiftbed.scales import LOGIT, Scale
from shiftbed.scales import scale as scale_of
from shiftbed.store import PredictionStore

if TYPE_CHECKING:
    from shiftbed.figures.charts import Dots


def mix(
    source: Source,
    target: Source | None = None,
    *,
    id: str | None = None,
    ood: str | None = None,
    model: Sequence[str] | None = None,
    scale: str | Scale = LOGIT,
    level: float = 0.95,
) -> "MadeClassifiers":
    """Classifiers made of stored predictions: mixed ones on the chord, majority votes; their ρ.

    With two models in ``model``: the mixed classifiers between them. Without: ensembles of the best
    3, 5, 10 and all models, by vote and, where a store kept the logits, by mean probability.
    ``source``, ``target``, ``id`` and ``ood`` as in ``estimate``.
    """
    if model and len(model) != 2:
        raise InputError(f"a mixed classifier needs two --model, got {len(model)}")
    scale = scale_of(scale)
    first, second = matched(*open_two(source, target, id, ood))
    if model:
        frame = mixed_table(first, second, model[0], model[1], scale=scale, level=level)
    else:
        store = None
        if target is None and first.kept is not None:
            store = (
                source
                if isinstance(source, PredictionStore)
                else PredictionStore.existing(str(source))
            )
        frame = ensemble_table(first, second, store=store, scale=scale, level=level)
    return MadeClassifiers(
        frame=frame,
        source=first.setting,
        target=second.setting,
        scale=scale.name,
        models=len(first.models),
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MadeClassifiers(Charted):
    """Classifiers made of others; ``frame`` has a row for each, with accuracies and ρ."""

    source: str
    target: str
    scale: str
    models: int
    """Models that the line goes through."""

    def to_dict(self) -> dict[str, Any]:
        about = {"id": self.source, "ood": self.target, "scale": self.scale}
        return about | {"models": self.models, "classifiers": records(self.frame)}

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


def mixed_table(
    source: JointAnswers,
    target: JointAnswers,
    a: str,
    b: str,
    *,
    alphas: Sequence[float] = tuple(np.linspace(0, 1, 11).round(3).tolist()),
    scale: str | Scale = LOGIT,
    level: float = 0.95,
) -> pl.DataFrame:
    """The chord from B (α = 0) to A (α = 1): expected accuracies and ρ of mixed classifiers.

    The baseline goes through all models that both settings share; intervals are paired, over
    images. andreassen2021, Appendix D.1.
    """
    source, target = matched(source, target)
    if a == b:
        raise InputError(f"a mixed classifier needs two models, got {a!r} twice")
    baseline = _baseline(source, target, scale)
    rows = []
    for side in (source, target):
        of_a, of_b = side.of([a, b]).judged()
        rows.append(mixed(of_a, of_b, alphas).T)
    names = [f"{alpha:g}·{a} + {1 - alpha:g}·{b}" for alpha in alphas]
    columns: dict[str, list[Any]] = {"classifier": names, "alpha": list(alphas)}
    return _table(columns, source, target, baseline, rows, level)


def ensemble_table(
    source: JointAnswers,
    target: JointAnswers,
    members: Mapping[str, Sequence[str]] | None = None,
    *,
    store: PredictionStore | None = None,
    scale: str | Scale = LOGIT,
    level: float = 0.95,
) -> pl.DataFrame:
    """Ensembles: majority votes of top-1 answers and, where logits were kept, mean probabilities.

    ``members`` names the models of each ensemble, the most trusted first (it wins ties); by
    default the best 3, 5 and 10 and all models by ID accuracy. ``store`` is where both settings
    come from, if they do: mean probabilities need the probabilities of all classes.
    """
    source, target = matched(source, target)
    if source.classes is None or target.classes is None:
        raise InputError("a vote needs the predicted classes, and only right and wrong are there")
    if members is None:
        order = np.argsort(-source.judged().mean(axis=1), kind="stable")
        best = [source.models[int(i)] for i in order]
        sizes = [size for size in (3, 5, 10) if size < len(best)]
        members = {f"best {size} on {source.setting}": best[:size] for size in sizes}
        members |= {f"all {len(best)}": best}
    baseline = _baseline(source, target, scale)
    sides = (source, target)
    made = [
        (name, "majority vote", len(one), [_vote(side, one) for side in sides])
        for name, one in members.items()
    ]
    for name, one in members.items() if store is not None else ():
        means = [_average(store, side, one) for side in sides]
        if all(mean is not None for mean in means):
            made.append((name, "mean probability", len(one), [np.asarray(m) for m in means]))
    columns: dict[str, list[Any]] = {
        "classifier": [one[0] for one in made],
        "rule": [one[1] for one in made],
        "members": [one[2] for one in made],
    }
    rows = [np.stack([one[3][side] for one in made]) for side in (0, 1)]
    return _table(columns, source, target, baseline, rows, level)


def _average(
    store: PredictionStore | None, side: JointAnswers, members: Sequence[str]
) -> NDArray[np.bool_] | None:
    """(N,): whether the class of the highest mean probability is right, if that can be told."""
    if store is None or side.labels is None or (side.labels < 0).any():
        return None
    mean = mean_probabilities(store, side, members)
    return None if mean is None else np.asarray(mean_probability(mean[None]) == side.labels)


def _vote(side: JointAnswers, members: Sequence[str]) -> NDArray[np.bool_]:
    """(N,): whether the vote is right. A class is right for an example if it is for one model."""
    some = side.of(members)
    assert some.classes is not None
    winner = majority_vote(some.classes)
    return np.asarray(((some.classes == winner) & some.judged()).any(axis=0))


def _baseline(source: JointAnswers, target: JointAnswers, scale: str | Scale) -> Baseline:
    sides = [side.judged().mean(axis=1) for side in (source, target)]
    return fit_baseline(
        *sides,
        models=source.models,
        id_settings=[source.setting],
        ood_setting=target.setting,
        scale=scale,
        sizes=np.broadcast_to([source.n, target.n], (len(source.models), 2)),
        on_boundary="clip",
        bootstrap=0,
    )


def _table(
    columns: dict[str, list[Any]],
    source: JointAnswers,
    target: JointAnswers,
    baseline: Baseline,
    rows: list[NDArray[Any]],
    level: float,
) -> pl.DataFrame:
    found: Robustness = robustness_of(
        baseline, rows[0], rows[1], source.judged(), target.judged(), level=level
    )
    return pl.DataFrame(
        {
            **columns,
            "id_accuracy": rows[0].mean(axis=1),
            "ood_accuracy": rows[1].mean(axis=1),
            "predicted": found.predicted,
            "effective": found.effective,
            "low": found.low,
            "high": found.high,
            "p_value": found.p_value,
            "extrapolated": found.extrapolated,
            "n_id": np.full(len(rows[0]), source.n),
            "n_ood": np.full(len(rows[0]), target.n),
        },
        nan_to_null=True,
    )
