"""Effective robustness of a testbed's models: from names and results per image to arrays and back.

Which image noise a model gets: *paired* where it and all fitted models have answers per image;
*modelled* where it answered the same images as the fitted models, is like them, and all sizes are
known; *independent* for the rest.
"""

from collections.abc import Iterator, Sequence
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
from shiftbed.analysis.stacks import AT_ONCE, Stack, alike
from shiftbed.errors import InputError

if TYPE_CHECKING:
    from shiftbed.testbed.record import Testbed

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
LIKE = ("own", "intervention")
"""Kinds whose errors are like those of the fitted models, besides the fitted models' own kinds."""


def arrays(
    testbed: "Testbed", baseline: Baseline
) -> tuple[Floats, Floats, NDArray[np.int64], NDArray[np.int64]]:
    """ID accuracies (M, k), OOD accuracies (M,) and the sizes of both."""
    at = _columns_of(testbed, [baseline])[0]
    value, n = testbed.value[:, at], testbed.n[:, at]
    return value[:, :-1], value[:, -1], n[:, :-1], n[:, -1]


def _columns_of(testbed: "Testbed", baselines: Sequence[Baseline]) -> NDArray[np.int64]:
    """(S, k+1): the columns of the baselines' settings, OOD last."""
    return np.array(
        [
            [testbed.setting_index(s) for s in (*one.id_settings, one.ood_setting)]
            for one in baselines
        ]
    )


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
    right, images = [r.bits.take(rows) for r in results], [r.images for r in results]
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
    testbed: "Testbed",
    fit: Baseline | Stack,
    position: NDArray[np.int64],
    n: NDArray[np.int64],
    named: Sequence[str],
) -> Bools:
    """Models named so, and those with another number of images n (…, M, k+1) than the fitted."""
    usual = fit.sizes[..., None, :]
    own = ((n > 0) & (usual > 0) & (n != usual)).any(axis=-1)
    own[..., [testbed.model_index(name) for name in named]] = True
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
    return _whole_noise(testbed).settings(_columns_of(testbed, [baseline])[0])


def judge(
    testbed: "Testbed", baseline: Baseline, *, level: float, own_images: Sequence[str] = ()
) -> Robustness:
    """ρ of every model of the testbed against a baseline."""
    found = judge_all(testbed, [baseline], level=level, own_images=own_images)[0]
    return Robustness(**{name: values[0] for name, values in found.columns().items()})


def judge_all(
    testbed: "Testbed",
    baselines: Sequence[Baseline],
    *,
    level: float,
    own_images: Sequence[str] = (),
) -> tuple[Robustness, Floats]:
    """ρ of every model against each baseline, arrays (B, M), and ν (B,) of the heaviest tails.

    Baselines through the same models are judged together.
    """
    order: list[int] = []
    parts, tails = [], []
    for at in _together(testbed, baselines):
        some = [baselines[i] for i in at]
        stack = Stack.of(some)
        parts.append(_judge_stack(testbed, some, stack, level, own_images).columns())
        tails.append(np.min([line_tails(line).nu for line in stack.lines], axis=0))
        order += at
    back = np.argsort(order)
    joined = {name: np.concatenate([part[name] for part in parts])[back] for name in parts[0]}
    return Robustness(**joined), np.concatenate(tails)[back]


def _together(testbed: "Testbed", baselines: Sequence[Baseline]) -> Iterator[list[int]]:
    """Positions of baselines to judge at once: alike, and all or none with modelled noise."""
    for at in alike(baselines, AT_ONCE // len(testbed.models)):
        some = [baselines[i] for i in at]
        sized = _sizes_known(testbed, some)
        for chosen in (sized, ~sized):
            if chosen.any():
                yield [i for i, here in zip(at, chosen, strict=True) if here]


def _sizes_known(testbed: "Testbed", baselines: Sequence[Baseline]) -> Bools:
    """(S,): whether all sizes of the fitted models are known; baselines of the same models."""
    fitted = np.flatnonzero(positions(testbed, baselines[0]) >= 0)
    sizes = testbed.n[fitted[:, None, None], _columns_of(testbed, baselines)]
    return np.asarray((sizes > 0).all(axis=(0, 2)) & (len(fitted) > 0))


def _judge_stack(
    testbed: "Testbed",
    baselines: Sequence[Baseline],
    stack: Stack,
    level: float,
    own_images: Sequence[str],
) -> Robustness:
    """Arrays (S, M); models with answers per image are judged by these, baseline by baseline."""
    columns, position = _columns_of(testbed, baselines), positions(testbed, baselines[0])
    value = np.moveaxis(testbed.value[:, columns], 0, 1)  # (S, M, k+1)
    n = np.moveaxis(testbed.n[:, columns], 0, 1)
    apart = on_own_images(testbed, stack, position, n, own_images)
    sized = _sizes_known(testbed, baselines).all()
    whole = effective_robustness(
        stack,
        value[..., :-1],
        value[..., -1],
        n_id=n[..., :-1],
        n_ood=n[..., -1],
        position=position,
        covariance=_whole_noise(testbed).settings(columns) if sized else None,
        like=like_fitted(testbed, position),
        own_images=apart,
        level=level,
    )
    for i, one in enumerate(baselines):
        known = known_answers(testbed, one)
        if not (known[position >= 0].all() and (known & ~apart[i]).any()):
            continue
        rows = np.flatnonzero(known & ~apart[i])
        paired = effective_robustness(
            one,
            value[i, rows, :-1],
            value[i, rows, -1],
            n_id=n[i, rows, :-1],
            n_ood=n[i, rows, -1],
            position=position[rows],
            covariance=paired_noise(testbed, one, rows),
            level=level,
        ).columns()
        for name, values in whole.columns().items():
            values[i, rows] = paired[name]
    return whole


def errors_of(testbed: "Testbed", baseline: Baseline, rows: NDArray[np.int64]) -> Errors | None:
    """How the errors of ρ of these models vary together; None if a size is not known."""
    x, y, n_id, n_ood = arrays(testbed, baseline)
    if min(n_id[rows].min(), n_ood[rows].min()) <= 0:
        return None
    position, known = positions(testbed, baseline), known_answers(testbed, baseline)
    apart = on_own_images(testbed, baseline, position, beside(n_id, n_ood), ())
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
    apart = on_own_images(testbed, baseline, position, beside(n_id, n_ood), own_images)
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
    models = testbed.models
    placed, tails = judge_all(testbed, baselines, level=level, own_images=own_images)
    joined = _columns(testbed, baselines, placed, level)
    there = np.isfinite(joined["effective"])
    which, row = np.nonzero(there)
    q = benjamini_hochberg(joined["p_value"].ravel()).reshape(there.shape)
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
    trust = [one.trusted for one in testbed.trust_all(baselines)]
    of_line = {
        "families": pl.Series([one.families for one in baselines], dtype=pl.Int64),
        "r2": pl.Series([one.r2 for one in baselines], dtype=pl.Float64),
        "trusted": pl.Series(trust, dtype=pl.Boolean),
        "id_settings": pl.Series(
            [list(one.id_settings) for one in baselines], dtype=pl.List(pl.String)
        ),
    }
    flags = [
        flags_of(one, float(nu), is_few)
        for one, nu in zip(baselines, tails, strict=True)
        for is_few in (False, True)
    ]
    texts = pl.Series("flags", flags, dtype=pl.List(pl.String))[2 * which + few]
    lines = {name: values[which] for name, values in of_line.items()}
    return pl.DataFrame({**about, **numbers, **lines, "flags": texts}, nan_to_null=True)


def _columns(
    testbed: "Testbed", baselines: Sequence[Baseline], placed: Robustness, level: float
) -> dict[str, NDArray[Any]]:
    """The numbers of the table, each (B, M)."""
    settings = [_columns_of(testbed, [one])[0] for one in baselines]
    source, target = np.array([(at[0], at[-1]) for at in settings]).T
    y, parents = testbed.value.T[target], testbed.parent_rows
    with np.errstate(invalid="ignore"):
        right = np.minimum(testbed.value, 1 - testbed.value) * testbed.n
    few = (testbed.n > 0) & (right < FEW - 1e-9)
    return {
        "fitted": np.stack([positions(testbed, one) >= 0 for one in baselines]),
        "source": testbed.value.T[source],
        "target": y,
        "n_id": testbed.n.T[source],
        "n_ood": testbed.n.T[target],
        **placed.columns(),
        "relative": np.where(parents >= 0, y - y[:, np.maximum(parents, 0)], np.nan),
        **_relative_interval(testbed, target, level),
        "few": np.stack([few[:, at].any(axis=1) for at in settings]),
    }


def _relative_interval(
    testbed: "Testbed", target: NDArray[np.int64], level: float
) -> dict[str, Floats]:
    """τ ± z √(Var y + Var y₀ − 2 Cov(y, y₀)): a model and its parent on the same OOD images."""
    y, n = testbed.value.T[target], testbed.n.T[target]
    low, high = np.full((2, *y.shape), np.nan)
    child = np.flatnonzero(testbed.parent_rows >= 0)
    parent = testbed.parent_rows[child]
    noise = _whole_noise(testbed).settings(target[:, None])
    akin = (testbed.kinds[child] == testbed.kinds[parent]) | _of_kind(testbed, LIKE)[child]
    akin = akin & (n[:, child] == n[:, parent])
    together = np.where(akin, noise.between(0, child, parent), 0.0)
    for i, at in enumerate(target):
        results = testbed.results.get(testbed.settings[at])
        if results is not None:
            right = results.bits
            both = [float((right[a] & right[b]).mean()) for a, b in zip(child, parent, strict=True)]
            exact = (np.array(both) - y[i, child] * y[i, parent]) / max(right.columns - 1, 1)
            known = results.known[child] & results.known[parent]
            together[i] = np.where(known, exact, together[i])
    own = noise.spread[..., 0] ** 2
    spread = np.sqrt(np.maximum(own[:, child] + own[:, parent] - 2.0 * together, 0.0))
    known = (n[:, child] > 0) & (n[:, parent] > 0)
    half = np.where(known, float(ndtri(0.5 + level / 2)) * spread, np.nan)
    relative = y[:, child] - y[:, parent]
    low[:, child], high[:, child] = relative - half, relative + half
    return {"relative_low": low, "relative_high": high}


def flags_of(baseline: Baseline, nu: float, few: bool) -> list[str]:
    """What weakens the statistics of a row: short plain sentences. ν is of the tails."""
    said = list(baseline.flags)
    if np.isfinite(nu):
        said.append(
            f"baseline models scatter with heavy tails: p-values are from t with ν = {nu:g}"
        )
    return said + [f"fewer than {FEW} errors or right answers"] * few
