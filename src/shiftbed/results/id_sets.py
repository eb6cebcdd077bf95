"""Which of several ID settings to control for, as ``fit(choose_ids=True)`` shows it."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from scipy.special import stdtrit

from shiftbed.analysis.id_sets import IdSets, partial_residuals
from shiftbed.display import Row, Table, number, percent


def _table(title: str, rows: Sequence[Row], notes: Iterable[str] = ()) -> Table:
    """A table of finished rows: their keys are the columns."""
    return Table.of(title, rows, {key: key for key in rows[0]}, notes=notes)


def id_set_tables(found: IdSets, level: float) -> list[Table]:
    """Subsets, ridge path and collinearity of the ID settings of a fit."""
    shown = [s for i, s in enumerate(found.subsets) if i < 15 or s.chosen]
    left = len(found.subsets) - len(shown)
    quantile = float(stdtrit(found.baseline.n - 1, 0.5 + level / 2))
    subsets = [
        {
            "ID settings": " + ".join(s.id_settings),
            "PRESS": number(s.press),
            "R² left out": number(s.loo_r2),
            "R²": number(s.r2),
            "MAE left out (points)": f"{percent(s.loo_mae)} ± {percent(quantile * s.loo_mae_se)}",
            "worse by": "" if s.best else f"{s.worse:.5f} ± {s.worse_se:.5f}",
            "": " ".join(w for w, yes in (("best", s.best), ("chosen", s.chosen)) if yes),
        }
        for s in shown
    ]
    path, settings, alike = found.ridge, found.baseline.id_settings, found.collinearity
    ridge = [
        {
            "penalty": f"{path.penalties[i]:.4g}",
            **dict(zip(settings, map(number, path.weights[i].tolist()), strict=True)),
            "effective weights": number(float(path.degrees[i]), 2),
            "PRESS": number(float(path.press[i])),
            "": "best" if i == path.best else "",
        }
        for i in sorted({*range(0, len(path.penalties), 4), path.best})
    ]
    collinear = [
        {
            "ID setting": f"{i + 1}. {name}",
            "VIF": number(float(alike.inflation[i]), 1),
            **{
                f"r with {j + 1}": number(r, 3) for j, r in enumerate(alike.correlation[i].tolist())
            },
        }
        for i, name in enumerate(settings)
    ]
    return [
        _table(
            f"Which ID settings predict {found.baseline.ood_setting}? Leaving out one model at a "
            "time",
            subsets,
            [
                f"n = {found.best.n} models, the same for all. MAE with its {100 * level:g} % "
                "interval. worse by: mean squared leave-one-out error over the best one, ± its "
                "standard error. chosen: the fewest ID settings within one standard error of the "
                "best.",
                *([f"{left} more subsets are in the JSON."] if left else []),
            ],
        ),
        _table("Ridge: weights per standard deviation as the penalty grows", ridge),
        _table(
            "How far do the ID settings say the same?",
            collinear,
            [
                f"Condition number {alike.condition:.1f}; n = {found.baseline.n} models.",
                *(f"Warning: {text}." for text in alike.warnings),
                "The JSON has the partial residuals of every model.",
            ],
        ),
    ]


def id_set_dict(found: IdSets, level: float) -> dict[str, Any]:
    line, path, alike = found.baseline, found.ridge, found.collinearity
    quantile = float(stdtrit(line.n - 1, 0.5 + level / 2))
    subsets = []
    for one in found.subsets:
        half = quantile * one.loo_mae_se
        ends = {"loo_mae_low": max(one.loo_mae - half, 0.0), "loo_mae_high": one.loo_mae + half}
        subsets.append(asdict(one) | ends)
    return {
        "n": line.n,
        "best": list(found.best.id_settings),
        "chosen": list(found.chosen.id_settings),
        "subsets": subsets,
        "ridge": {
            "id_settings": list(line.id_settings),
            "penalties": path.penalties.tolist(),
            "weights": path.weights.tolist(),
            "effective_weights": path.degrees.tolist(),
            "press": path.press.tolist(),
            "best": path.best,
        },
        "collinearity": {
            "vif": dict(zip(line.id_settings, alike.inflation.tolist(), strict=True)),
            "condition": alike.condition,
            "correlation": alike.correlation.tolist(),
            "warnings": list(alike.warnings),
        },
        "partial_residuals": partial_residuals(line),
    }
