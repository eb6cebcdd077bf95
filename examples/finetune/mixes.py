"""One ID set or two (shi2023): fits side by side, and what can be concluded from so few networks.

A plane has R² no smaller than its lines on the networks it was fitted to, whatever the data: so the
comparison is of errors on networks left out. Seeds of one recipe are no independent networks: what
is resampled are recipes, within each kind of training data, with all their seeds and all fits anew.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from examples.tables import table
from shiftbed.analysis.baseline import Baseline
from shiftbed.analysis.id_sets import press
from shiftbed.display import interval, number, percent, points
from shiftbed.results.groups import group_table
from shiftbed.results.single_and_multi import single_and_multi, without_mixed
from shiftbed.testbed import Testbed
from shiftbed.testbed.select import Choice

__all__ = ["IDS", "LINES", "OOD", "PLANE", "SHIFTS", "compared", "quantities", "show"]

IDS, OOD = ("usps", "mnist"), "digits"
PLANE = "usps-and-mnist"
LINES = ("usps-alone", "mnist-alone")
SHIFTS = (*LINES, PLANE)
Rows = Mapping[str, dict[str, Any]]
"""Rows of ``compared`` by their quantity."""


def quantities(
    fits: Mapping[str, Baseline], groups: NDArray[Any], rows: NDArray[np.int64] | None = None
) -> dict[str, float]:
    """R², MAE, both on networks left out, and mean ρ of each group, for each fit; differences.

    ``rows`` are networks drawn, with repetition: everything is fitted anew on them. An error on a
    network left out (e/(1 − h), closed form) is always of the fit to all networks: in a resample a
    network's copies would stay. MAE and ρ are in accuracy, R² on the logit scale.
    """
    found: dict[str, float] = {}
    for name, fit in fits.items():
        piece = fit.lines[0]
        design, y = piece.design, piece.design @ piece.coefficients + piece.residuals
        out = press(design, y)
        if rows is not None:
            design, y, out = design[rows], y[rows], out[rows]
        theta = np.linalg.lstsq(design, y, rcond=None)[0]
        total = float(((y - y.mean()) ** 2).sum())
        accuracy = fit.scale.inverse(y)
        rho = accuracy - fit.scale.inverse(design @ theta)
        found[f"R² {name}"] = 1 - float(((y - design @ theta) ** 2).sum()) / total
        found[f"MAE {name}"] = float(np.abs(rho).mean())
        found[f"left-out R² {name}"] = 1 - float((out**2).sum()) / total
        found[f"left-out MAE {name}"] = float(np.abs(accuracy - fit.scale.inverse(y - out)).mean())
        own = groups if rows is None else groups[rows]
        for group in np.unique(groups):
            found[f"ρ of {group}, {name}"] = float(rho[own == group].mean())
        first, second = (found[f"ρ of {one}, {name}"] for one in IDS)
        found[f"ρ of {IDS[0]} less {IDS[1]}, {name}"] = first - second
    for line in LINES:
        for kind in ("R²", "MAE", "left-out R²", "left-out MAE"):
            of_plane, of_line = found[f"{kind} {PLANE}"], found[f"{kind} {line}"]
            found[f"{kind} {PLANE} less {line}"] = of_plane - of_line
    return found


def compared(bed: Testbed, draws: int = 2000, seed: int = 0, models: Choice = None) -> pl.DataFrame:
    """Every quantity with its 95 % interval: quantity, value, low, high, networks, recipes.

    ``models`` are the networks to take, by default all.
    """
    fits = {name: bed.fit(name, models=models, bootstrap=0, on_boundary="clip") for name in SHIFTS}
    about = bed.models.select("model", "training_data", "data_size", "mix", "grid")
    order = pl.DataFrame({"model": list(fits[PLANE].models)}).join(
        about, on="model", maintain_order="left"
    )
    groups = order["training_data"].to_numpy()
    recipe = order.select(
        pl.concat_str("grid", "training_data", "data_size", pl.col("mix").fill_null(""))
    )
    recipes = recipe.to_series().to_numpy()
    whole = quantities(fits, groups)
    drawn = [quantities(fits, groups, rows) for rows in _resamples(recipes, groups, draws, seed)]
    rows = []
    for name, value in whole.items():
        low, high = np.quantile([one[name] for one in drawn], [0.025, 0.975])
        rows.append((name, value, float(low), float(high), len(groups), len(set(recipes))))
    schema = ["quantity", "value", "low", "high", "networks", "recipes"]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _resamples(
    recipes: NDArray[Any], groups: NDArray[Any], draws: int, seed: int
) -> Iterator[NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    of_group = {group: np.unique(recipes[groups == group]) for group in np.unique(groups)}
    rows = {name: np.flatnonzero(recipes == name) for name in np.unique(recipes)}
    for _ in range(draws):
        chosen = [rng.choice(names, len(names)) for names in of_group.values()]
        yield np.concatenate([rows[name] for names in chosen for name in names])


def show(bed: Testbed) -> None:
    """All of it, printed."""
    frame = compared(bed)
    found = {row["quantity"]: row for row in frame.iter_rows(named=True)}
    _fits(bed, found)
    _groups(bed, found)
    differences = frame.filter(pl.col("quantity").str.contains(" less "))
    table(
        "What differs, with 95 % intervals",
        ["difference", "value", "95 %"],
        [_difference(row) for row in differences.iter_rows(named=True)],
        notes=[
            f"{frame['networks'][0]} networks of {frame['recipes'][0]} recipes; recipes resampled "
            "within each kind of training data, 2,000 times. MAE and ρ in points.",
            "R² and MAE without 'left-out' favour the plane by construction.",
        ],
    )
    mixed = without_mixed(bed, IDS, [OOD], "training_data=usps+mnist", on_boundary="clip").row(
        0, named=True
    )
    print(
        f"MAE of the {mixed['n_mixed']} mixed networks: {percent(mixed['mae_fitted'])} points in "
        f"the plane's fit, {percent(mixed['mae_left_out'])} in a plane through the other "
        f"{mixed['n_fitted']}."
    )


def _fits(bed: Testbed, found: Rows) -> None:
    quality = single_and_multi(bed, IDS, [OOD], on_boundary="clip")
    rows = []
    for name, row in zip(SHIFTS, quality.iter_rows(named=True), strict=True):
        cells = [row["evaluation"], row["id"], row["n"]]
        for kind in ("R²", "left-out R²", "MAE", "left-out MAE"):
            one = found[f"{kind} {name}"]
            form = percent if "MAE" in kind else number
            cells.append(f"{form(one['value'])} [{form(one['low'])}, {form(one['high'])}]")
        rows.append(cells)
    table(
        f"\nOne ID set or two, OOD = {OOD}",
        ["evaluation", "ID", "n", "R²", "R² left out", "MAE, points", "MAE left out"],
        rows,
        left=2,
        notes=[
            "Accuracies: "
            + "; ".join(
                f"{name} {percent(bed.accuracy(name).min())} to "
                f"{percent(bed.accuracy(name).max())} % (n = {bed.usual_size(name):,})"
                for name in (*IDS, OOD)
            )
        ],
    )


def _groups(bed: Testbed, found: Rows) -> None:
    spread = group_table(bed, SHIFTS, by="training_data", on_boundary="clip")
    rows = []
    for row in spread.filter(pl.col("shift").is_in(SHIFTS)).iter_rows(named=True):
        one = found[f"ρ of {row['group']}, {row['shift']}"]
        ends = interval(one["low"], one["high"])
        cells = (row["shift"], row["group"], points(row["mean"]), ends)
        rows.append((*cells, percent(row["std"]), row["n"]))
    table(
        "ρ by training data",
        ["fit", "trained on", "mean ρ, points", "95 %", "std", "networks"],
        rows,
        left=2,
    )


def _difference(row: dict[str, Any]) -> tuple[str, str, str]:
    if "R²" in row["quantity"]:
        return row["quantity"], f"{row['value']:+.3f}", f"{row['low']:+.3f} … {row['high']:+.3f}"
    return row["quantity"], points(row["value"]), interval(row["low"], row["high"])
