"""Effective robustness of a testbed's models: from names and results per image to arrays and back.

Which image noise a model gets: *paired* where it and all fitted models have answers per image;
*modelled* where it answered the same images as the fitted models, is like them, and all sizes are
known; *independent* for the rest.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtri

from shiftbed.analysis.baseline import Baseline
from shiftbed.analysis.difference import Difference, difference
from shiftbed.analysis.intervals import benjamini_hochberg, beside, off_boundary, with_ones
from shiftbed.analysis.means import Errors
from shiftbed.analysis.modelled import Modelled
from shiftbed.analysis.noise import ImageNoise, Paired, image_covariance, joint_noise
from shiftbed.analysis.robustness import FEW, Robustness, effective_robustness, find_fitted
from shiftbed.analysis.scatter import line_tails
from shiftbed.errors import InputError

if TYPE_CHECKING:
    from shiftbed.testbed.record import Testbed

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
LIKE = ("own", "intervention")
"""Kinds whose errors are like those of the fitted models, besides the fitted models' own kinds."""


@lru_cache(maxsize=16)
def arrays(
    testbed: "Testbed", baseline: Baseline
) -> tuple[Floats, Floats, NDArray[np.int64], NDArray[np.int64]]:
    """ID accuracies (M, k), OOD accuracies (M,) and the sizes of both."""
    *ids, ood = (testbed.setting_index(s) for s in (*baseline.id_settings, baseline.ood_setting))
    return testbed.value[:, ids], testbed.value[:, ood], testbed.n[:, ids], testbed.n[:, ood]


@lru_cache(maxsize=16)
def positions(testbed: "Testbed", baseline: Baseline) -> NDArray[np.int64]:
    """For each model its row among those given to the fit, −1 if it was not fitted."""
    found = np.full(len(testbed.models), -1)
    given = np.concatenate([line.fitted for line in baseline.lines])
    rows = testbed.rows_of(baseline.models)
    found[rows[rows >= 0]] = given[rows >= 0]
    return found


def known_answers(testbed: "Testbed", baseline: Baseline) -> Bools:
    """Models with per-image results in every setting of the baseline."""
    known = np.ones(len(testbed.models), dtype=bool)
    for setting in (*baseline.id_settings, baseline.ood_setting):
        if setting not in testbed.results:
            return np.zeros(len(testbed.models), dtype=bool)
        known &= testbed.results[setting].known
    return known


def paired_noise(testbed: "Testbed", baseline: Baseline, rows: NDArray[np.int64]) -> Paired:
    """Joint covariance of those models' accuracies in the baseline's settings."""
    results = [testbed.results[s] for s in (*baseline.id_settings, baseline.ood_setting)]
    right, images = [r.right[rows] for r in results], [r.images for r in results]
    ids = [None if r.ids is None else (r.pool or r.images, r.ids) for r in results]
    return Paired(covariance=image_covariance(right, images, ids), models=len(rows))


def like_fitted(testbed: "Testbed", position: NDArray[np.int64]) -> Bools:
    """Models whose errors may be taken to fall on the images that fitted models err on."""
    fitted = position >= 0
    return _of_kind(testbed, (*LIKE, *sorted(set(testbed.kinds[fitted])))) | fitted


@lru_cache(maxsize=16)
def _of_kind(testbed: "Testbed", kinds: tuple[str, ...]) -> Bools:
    """(models,): of one of these kinds."""
    return np.array([kind in kinds for kind in testbed.kinds], dtype=bool)


def on_own_images(
    testbed: "Testbed", baseline: Baseline, position: NDArray[np.int64], named: Sequence[str]
) -> Bools:
    """Models named so, and those with another number of images than the fitted models have."""
    _, _, n_id, n_ood = arrays(testbed, baseline)
    n = beside(n_id, n_ood)
    usual = baseline.sizes
    own = ((n > 0) & (usual > 0) & (n != usual)).any(axis=1)
    own[[testbed.model_index(name) for name in named]] = True
    return np.asarray(own & (position < 0))


@lru_cache(maxsize=16)
def modelled_noise(testbed: "Testbed", baseline: Baseline) -> Modelled | None:
    """Covariances from accuracies alone; None if a fitted model's sizes are not known."""
    _, _, n_id, n_ood = arrays(testbed, baseline)
    fitted = positions(testbed, baseline) >= 0
    if not fitted.any() or min(n_id[fitted].min(), n_ood[fitted].min()) <= 0:
        return None
    return _settings_noise(testbed, baseline)


@lru_cache(maxsize=4)
def _whole_noise(testbed: "Testbed") -> Modelled:
    """The model's parts for every setting."""
    return Modelled.of(testbed.value, testbed.n.astype(np.float64))


def _settings_noise(testbed: "Testbed", baseline: Baseline) -> Modelled:
    settings = (*baseline.id_settings, baseline.ood_setting)
    return _whole_noise(testbed).settings([testbed.setting_index(s) for s in settings])


def judge(
    testbed: "Testbed", baseline: Baseline, *, level: float, own_images: Sequence[str] = ()
) -> Robustness:
    """ρ of every model of the testbed against a baseline."""
    x, y, n_id, n_ood = arrays(testbed, baseline)
    position, known = positions(testbed, baseline), known_answers(testbed, baseline)
    apart = on_own_images(testbed, baseline, position, own_images)
    like = like_fitted(testbed, position)

    def placed(rows: Any, images: ImageNoise | None, alike: Bools) -> Robustness:
        sizes: dict[str, Any] = {"n_id": n_id[rows], "n_ood": n_ood[rows], "level": level}
        sizes |= {"position": position[rows], "covariance": images}
        sizes |= {"like": alike[rows], "own_images": apart[rows]}
        return effective_robustness(baseline, x[rows], y[rows], **sizes)

    whole = placed(slice(None), modelled_noise(testbed, baseline), like)
    if not (known[position >= 0].all() and (known & ~apart).any()):
        return whole
    rows = np.flatnonzero(known & ~apart)
    paired = placed(rows, paired_noise(testbed, baseline, rows), np.ones(len(like), bool)).columns()
    merged = {name: values.copy() for name, values in whole.columns().items()}
    for name, values in merged.items():
        values[rows] = paired[name]
    return Robustness(**merged)


def errors_of(testbed: "Testbed", baseline: Baseline, rows: NDArray[np.int64]) -> Errors | None:
    """How the errors of ρ of these models vary together; None if a size is not known."""
    x, y, n_id, n_ood = arrays(testbed, baseline)
    if min(n_id[rows].min(), n_ood[rows].min()) <= 0:
        return None
    position, known = positions(testbed, baseline), known_answers(testbed, baseline)
    apart = on_own_images(testbed, baseline, position, ())
    like = like_fitted(testbed, position) & ~apart
    every = np.arange(len(y))
    images: ImageNoise | None = modelled_noise(testbed, baseline)
    if known[rows].all() and known[position >= 0].all() and not apart[rows].any():
        every = np.flatnonzero(known & ~apart)
        images, like = paired_noise(testbed, baseline, every), np.ones(len(y), bool)
    if images is None:
        return None
    at = np.searchsorted(every, rows)
    inner = off_boundary(x, n_id)[every], off_boundary(y, n_ood)[every]
    matrix, fit = np.zeros((2, len(rows), len(rows)))
    corrected, served = np.zeros(len(rows)), baseline.line_of(x[rows])
    for i, line in enumerate(baseline.lines):
        here = np.flatnonzero(served == i)
        if not len(here):
            continue
        shares = like[rows[here]]
        noise = joint_noise(
            line,
            baseline.scale,
            *inner,
            at[here],
            find_fitted(line, position[every]),
            images,
            shares=shares,
            carries=shares | apart[rows[here]],
        )
        block = np.ix_(here, here)
        matrix[block] = noise.matrix(images, at[here])
        fit[block] = noise.reach @ noise.fit_covariance @ noise.reach.T
        design = with_ones(baseline.scale.forward(inner[0][at[here]]))
        corrected[here] = y[rows[here]] - baseline.scale.inverse(design @ noise.coefficients)
    joint = "paired" if isinstance(images, Paired) else "modelled"
    kind = joint if like[rows].all() else "independent"
    dof = float(min(line.covariance_dof for line in baseline.lines))
    return Errors(matrix=matrix, fit=fit, corrected=corrected, dof=dof, interval=kind)


def difference_of(
    testbed: "Testbed",
    baseline: Baseline,
    a: str,
    b: str,
    *,
    level: float,
    own_images: Sequence[str] = (),
) -> Difference:
    """ρ(a) − ρ(b) against a baseline."""
    pair = np.array([testbed.model_index(a), testbed.model_index(b)])
    x, y, n_id, n_ood = arrays(testbed, baseline)
    for model, missing in zip((a, b), ~np.isfinite(x[pair, 0] + y[pair]), strict=True):
        if missing:
            raise InputError(f"{model!r} was not evaluated on {baseline.shift!r}")
    position, known = positions(testbed, baseline), known_answers(testbed, baseline)
    apart = on_own_images(testbed, baseline, position, own_images)
    like = like_fitted(testbed, position) & ~apart
    rows = np.arange(len(y))
    images: ImageNoise | None = modelled_noise(testbed, baseline)
    if known[pair].all() and known[position >= 0].all() and not apart[pair].any():
        rows = np.flatnonzero(known & ~apart)
        images, like = paired_noise(testbed, baseline, rows), np.ones(len(y), bool)
    at = np.searchsorted(rows, pair)
    return difference(
        baseline,
        x[rows],
        y[rows],
        (int(at[0]), int(at[1])),
        n_id=n_id[rows].astype(np.float64),
        n_ood=n_ood[rows].astype(np.float64),
        position=position[rows],
        images=images,
        like=like[rows],
        level=level,
    )


def robustness_table(
    testbed: "Testbed",
    baselines: Sequence[Baseline],
    *,
    level: float,
    fdr: float,
    own_images: Sequence[str] = (),
) -> pl.DataFrame:
    """One frame from the baselines' columns, with false discoveries controlled over all rows.

    Rows without an accuracy on either side are left out.
    """
    models, parts = testbed.models, []
    for one in baselines:
        placed = judge(testbed, one, level=level, own_images=own_images)
        parts.append(_columns(testbed, one, placed, level))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    there = np.isfinite(joined["effective"])
    row = np.tile(np.arange(len(models)), len(parts))[there]
    which = np.repeat(np.arange(len(parts)), len(models))[there]
    q = benjamini_hochberg(joined["p_value"])
    joined["q_value"], joined["out_of_line"] = q, q <= fdr
    about = {
        "model": models["model"][row],
        "kind": models["kind"][row],
        "shift": pl.Series([one.shift for one in baselines], dtype=pl.String)[which],
        "parent": models["parent"][row],
    }
    few = joined.pop("few")[there]
    numbers = {name: values[there] for name, values in joined.items()}
    numbers["interval"] = pl.Series("interval", numbers["interval"].tolist(), dtype=pl.String)
    trust = [testbed.trust(one).trusted for one in baselines]
    of_line = {
        "families": pl.Series([one.families for one in baselines], dtype=pl.Int64),
        "r2": pl.Series([one.r2 for one in baselines], dtype=pl.Float64),
        "trusted": pl.Series(trust, dtype=pl.Boolean),
        "id_settings": pl.Series(
            [list(one.id_settings) for one in baselines], dtype=pl.List(pl.String)
        ),
    }
    flags = [flags_of(one, is_few) for one in baselines for is_few in (False, True)]
    texts = pl.Series("flags", flags, dtype=pl.List(pl.String))[2 * which + few]
    lines = {name: values[which] for name, values in of_line.items()}
    return pl.DataFrame({**about, **numbers, **lines, "flags": texts}, nan_to_null=True)


def _relative_interval(
    testbed: "Testbed", baseline: Baseline, relative: Floats, level: float
) -> dict[str, Floats]:
    """τ ± z √(Var y + Var y₀ − 2 Cov(y, y₀)): a model and its parent on the same OOD images."""
    low, high = np.full((2, len(relative)), np.nan)
    x, y, _, n_ood = arrays(testbed, baseline)
    child = np.flatnonzero(np.isfinite(relative))
    parent = testbed.parent_rows[child]
    child = child[(n_ood[child] > 0) & (n_ood[parent] > 0)]
    parent = testbed.parent_rows[child]
    if len(child):
        n = n_ood.astype(np.float64)
        noise = _settings_noise(testbed, baseline)
        alike = (testbed.kinds[child] == testbed.kinds[parent]) | _of_kind(testbed, LIKE)[child]
        alike &= n[child] == n[parent]
        at = x.shape[1]
        together = np.where(alike, noise.between(at, child, parent), 0.0)
        results = testbed.results.get(baseline.ood_setting)
        if results is not None:
            known = results.known[child] & results.known[parent]
            right = results.right
            both = [float((right[a] & right[b]).mean()) for a, b in zip(child, parent, strict=True)]
            exact = (np.array(both) - y[child] * y[parent]) / max(right.shape[1] - 1, 1)
            together = np.where(known, exact, together)
        own = noise.spread[:, at] ** 2
        spread = np.sqrt(np.maximum(own[child] + own[parent] - 2.0 * together, 0.0))
        half = float(ndtri(0.5 + level / 2)) * spread
        low[child], high[child] = relative[child] - half, relative[child] + half
    return {"relative_low": low, "relative_high": high}


def _columns(
    testbed: "Testbed", baseline: Baseline, placed: Robustness, level: float
) -> dict[str, NDArray[Any]]:
    source, target = baseline.id_settings[0], baseline.ood_setting
    y, parents = testbed.accuracy(target), testbed.parent_rows
    relative = np.where(parents >= 0, y - y[np.maximum(parents, 0)], np.nan)
    x, _, n_id, n_ood = arrays(testbed, baseline)
    values, n = np.column_stack([x, y]), beside(n_id, n_ood)
    with np.errstate(invalid="ignore"):
        few = ((n > 0) & (np.minimum(values, 1 - values) * n < FEW - 1e-9)).any(axis=1)
    return {
        "fitted": positions(testbed, baseline) >= 0,
        "source": testbed.accuracy(source),
        "target": y,
        "n_id": testbed.size(source),
        "n_ood": testbed.size(target),
        **placed.columns(),
        "relative": relative,
        **_relative_interval(testbed, baseline, relative, level),
        "few": few,
    }


def flags_of(baseline: Baseline, few: bool) -> list[str]:
    """What weakens the statistics of a row: short plain sentences."""
    said = list(baseline.flags)
    heavy = [tails.nu for tails in map(line_tails, baseline.lines) if np.isfinite(tails.nu)]
    if heavy:
        said.append(
            f"baseline models scatter with heavy tails: p-values are from t with ν = {min(heavy):g}"
        )
    return said + [f"fewer than {FEW} errors or right answers"] * few
