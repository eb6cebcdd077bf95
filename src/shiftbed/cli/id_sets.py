"""``shiftbed fit --choose-ids``: which of several ID settings to control for."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from shiftbed.cli.output import as_json, number, percent, table

if TYPE_CHECKING:
    from shiftbed.analysis.baseline import Baseline
    from shiftbed.analysis.id_sets import IdSets


def show_id_sets(line: "Baseline", fit: dict[str, Any], level: float, json: bool) -> None:
    """Subsets, ridge path and collinearity of the ID settings of a fit; ``fit`` is its JSON."""
    from scipy.special import stdtrit

    from shiftbed.analysis.id_sets import examine, partial_residuals

    found = examine(line)
    quantile = float(stdtrit(line.n - 1, 0.5 + level / 2))
    if json:
        as_json(_as_dict(found, fit, quantile) | {"partial_residuals": partial_residuals(line)})
        return
    _print_subsets(found, quantile, level)
    _print_ridge(found)
    table(
        "Can the ID settings be told apart?",
        ["ID setting", "VIF", *(f"r with {i + 1}" for i in range(len(line.id_settings)))],
        [
            (
                f"{i + 1}. {name}",
                number(found.collinearity.inflation[i], 1),
                *(number(float(r), 3) for r in found.collinearity.correlation[i]),
            )
            for i, name in enumerate(line.id_settings)
        ],
        notes=[
            f"Condition number {found.collinearity.condition:.1f}; n = {line.n} models.",
            *(f"Warning: {text}." for text in found.collinearity.warnings),
            "--json has the partial residuals of every model.",
        ],
    )


def _print_subsets(found: "IdSets", quantile: float, level: float) -> None:
    shown = [s for i, s in enumerate(found.subsets) if i < 15 or s.chosen]
    left = len(found.subsets) - len(shown)
    table(
        f"Which ID settings predict {found.baseline.ood_setting}? Leaving out one model at a time",
        ["ID settings", "PRESS", "R² left out", "R²", "MAE left out (points)", "worse by", ""],
        [
            (
                " + ".join(s.id_settings),
                number(s.press),
                number(s.loo_r2),
                number(s.r2),
                f"{percent(s.loo_mae)} ± {percent(quantile * s.loo_mae_se)}",
                "" if s.best else f"{s.worse:.5f} ± {s.worse_se:.5f}",
                " ".join(w for w, yes in (("best", s.best), ("chosen", s.chosen)) if yes),
            )
            for s in shown
        ],
        notes=[
            f"n = {found.best.n} models, the same for all. MAE with its {100 * level:g} % "
            "interval. worse by: mean squared leave-one-out error over the best one, ± its "
            "standard error. chosen: the fewest ID settings within one standard error of the best.",
            *([f"{left} more subsets are in --json."] if left else []),
        ],
    )


def _print_ridge(found: "IdSets") -> None:
    path = found.ridge
    steps = sorted({*range(0, len(path.penalties), 4), path.best})
    table(
        "Ridge: weights per standard deviation as the penalty grows",
        ["penalty", *found.baseline.id_settings, "effective weights", "PRESS", ""],
        [
            (
                f"{path.penalties[i]:.4g}",
                *(number(w) for w in path.weights[i]),
                number(path.degrees[i], 2),
                number(path.press[i]),
                "best" if i == path.best else "",
            )
            for i in steps
        ],
    )


def _as_dict(found: "IdSets", fit: dict[str, Any], quantile: float) -> dict[str, Any]:
    subsets = []
    for one in found.subsets:
        half = quantile * one.loo_mae_se
        subsets.append(
            asdict(one)
            | {"loo_mae_low": max(one.loo_mae - half, 0.0), "loo_mae_high": one.loo_mae + half}
        )
    return {
        "fit": fit,
        "n": found.baseline.n,
        "best": list(found.best.id_settings),
        "chosen": list(found.chosen.id_settings),
        "subsets": subsets,
        "ridge": {
            "id_settings": list(found.baseline.id_settings),
            "penalties": found.ridge.penalties.tolist(),
            "weights": found.ridge.weights.tolist(),
            "effective_weights": found.ridge.degrees.tolist(),
            "press": found.ridge.press.tolist(),
            "best": found.ridge.best,
        },
        "collinearity": {
            "vif": dict(
                zip(found.baseline.id_settings, found.collinearity.inflation.tolist(), strict=True)
            ),
            "condition": found.collinearity.condition,
            "correlation": found.collinearity.correlation.tolist(),
            "warnings": list(found.collinearity.warnings),
        },
    }
