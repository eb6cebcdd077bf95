"""Should the line through an (ID, OOD) scatter be trusted at all?

Effective robustness is the distance from a line (taori2020, Section 2), and wenzel2022 (Section
4.2) shows scatters that have none. Each check compares one property of the fit with a stated limit;
the line is trusted if none fails. A check that cannot be made says why and does not fail.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import fdtrc

from shiftbed.analysis.baseline import Baseline, Line, fit_baseline
from shiftbed.analysis.intervals import beside, check_fractions, quadratic
from shiftbed.analysis.residuals import (
    bend,
    hidden_outliers,
    skewness,
    spread_trend,
    standardised,
)
from shiftbed.errors import InputError
from shiftbed.scales import LOGIT, Scale
from shiftbed.scales import scale as scale_of

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """From where on a property of a fit speaks against it."""

    models: int = 10
    """At least so many."""
    on_boundary: float = 0.1
    """At most this share of models at exactly 0 or 1, which the scale cannot place."""
    r2: float = 0.7
    """R² at least this."""
    support: float = 0.05
    """ID accuracies range over at least this."""
    leverage: float = 0.5
    """No model with a larger hat value."""
    influence: float = 1.0
    """No model with a larger Cook's distance."""
    reliability: float = 0.8
    """At least this share of the variance of S(x) is not image noise."""
    p_value: float = 0.01
    curvature: float = 0.02
    """A square term that is significant at ``p_value`` adds less than this to R²."""
    skewness: float = 1.5
    """Skewness of the residuals, significant at ``p_value``, at most this to either side."""
    spread: float = 0.4
    """Rank correlation of |residual| with ID accuracy, significant at ``p_value``, at most this."""
    outliers: float = 0.04
    """At most this share of models (and at most 2) lie 4 standard deviations off a robust fit."""
    groups: float = 0.05
    """Lines by group, significantly better at ``p_value``, add less than this to R²."""


LIMITS = Limits()
"""The one rule of trust, whatever asks: a line of a report, a verdict, a scatter's pattern."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One property of a fit against its limit."""

    name: str
    value: float | None
    limit: float
    passed: bool | None
    """None if the check cannot be made."""
    text: str


@dataclass(frozen=True, kw_only=True)
class Trust:
    """Whether a line should be trusted, and why not."""

    trusted: bool
    reasons: tuple[str, ...]
    """What speaks against the line; empty if it is trusted."""
    checks: tuple[Check, ...]
    n: int
    """Models fitted."""


def trust_line(
    x: ArrayLike,
    y: ArrayLike,
    *,
    models: Sequence[str] | None = None,
    groups: Sequence[str | float | None] | None = None,
    sizes: tuple[int, int] | None = None,
    scale: str | Scale = LOGIT,
    pattern: str | None = None,
    limits: Limits | None = None,
    line: Baseline | None = None,
) -> Trust:
    """Check the line through ID accuracies x (n,) and OOD accuracies y (n,); NaN is missing.

    ``groups`` (n,) are architectures or anything else that could have lines of its own;
    ``sizes`` the images of the two test sets; ``pattern`` the scatter's, where only
    ``increasing`` is a line to trust; ``line`` the line through these models, if it is fitted
    already.

    >>> x = np.linspace(0.5, 0.9, 40)
    >>> trust_line(x, 0.8 * x + 0.01 * np.sin(40 * x), scale="linear").trusted
    True
    >>> trust_line(x, (x - 0.4) ** 4 + 0.1).reasons[0][:38]
    'curved: a curve explains a further 5.9'
    """
    limits = limits or LIMITS
    points = np.column_stack([check_fractions(x), check_fractions(y)])
    there = np.asarray(np.isfinite(points).all(axis=1), dtype=bool)
    names = list(models) if models is not None else [f"model {i}" for i in range(len(points))]
    if len(names) != len(points) or (groups is not None and len(groups) != len(points)):
        raise InputError(f"models and groups must have {len(points)} entries, one per accuracy")
    chosen = scale_of(scale)
    edge = there & (np.asarray((points <= 0) | (points >= 1)).any(axis=1) & (not chosen.bounded))
    checks = [_pattern(pattern)] if pattern is not None else []
    checks.append(_boundary(int(edge.sum()), int(there.sum()), chosen, limits))
    n = int((there & ~edge).sum())
    enough = f"{n} models, at least {limits.models} are wanted"
    checks.append(_check("models", float(n), limits.models, n >= limits.models, enough))
    try:
        line = line or fit_baseline(
            points[:, 0],
            points[:, 1],
            models=names,
            scale=chosen,
            sizes=None if sizes is None else np.broadcast_to(sizes, (len(points), 2)),
            on_boundary="drop",
            bootstrap=0,
        )
    except InputError as error:
        text = str(error).split(" for ")[0]
        checks.append(_check("fit", None, 0.0, False, text))
    else:
        kept = line.lines[0].fitted
        checks += _of_fit(line, limits)
        checks.append(_noise(line, sizes is not None, limits))
        checks.append(_groups(line, None if groups is None else [groups[i] for i in kept], limits))
    return _trust(checks, n)


@lru_cache(maxsize=64)
def trust_baseline(line: Baseline, *, edge: int = 0, limits: Limits = LIMITS) -> Trust:
    """Check a fitted baseline: a line, a line with a knee (each side), or a plane.

    ``edge`` counts the chosen models that are at exactly 0 or 1 and were left out.

    >>> x = np.linspace(0.5, 0.9, 40)
    >>> trust_baseline(fit_baseline(x, 0.8 * x + 0.01 * np.sin(40 * x), scale="linear")).trusted
    True
    """
    checks = [_boundary(edge, line.n + edge, line.scale, limits)]
    least = min(piece.n for piece in line.lines)
    enough = f"{least} models, at least {limits.models} are wanted"
    checks.append(_check("models", float(least), limits.models, least >= limits.models, enough))
    checks += _of_fit(line, limits)
    checks.append(_noise(line, bool((line.sizes[:-1] > 0).all()), limits))
    return _trust(checks, line.n)


def _trust(checks: Sequence[Check], n: int) -> Trust:
    failed = tuple(check.text for check in checks if check.passed is False)
    return Trust(trusted=not failed, reasons=failed, checks=tuple(checks), n=n)


def _check(name: str, value: float | None, limit: float, passed: bool | None, text: str) -> Check:
    return Check(name=name, value=value, limit=float(limit), passed=passed, text=text)


def _pattern(pattern: str) -> Check:
    held = pattern == "increasing"
    text = "the scatter is an increasing line" if held else f"the scatter is {pattern}, not a line"
    return _check("pattern", None, 0.0, held, text)


def _boundary(edge: int, n: int, scale: Scale, limits: Limits) -> Check:
    share, most = edge / n if n else 0.0, limits.on_boundary
    text = f"{edge} of {n} models are at exactly 0 or 1 and have no {scale.name}"
    return _check("boundary", share, most, share <= most, text)


def _of_fit(line: Baseline, limits: Limits) -> list[Check]:
    """R², range of x, leverage, influence, curvature."""
    reach = float((line.support[:, 1] - line.support[:, 0]).min())
    r2 = line.r2 if np.isfinite(line.r2) else None
    about_r2 = "all OOD accuracies are the same" if r2 is None else f"R² is {r2:.2f}"
    about_reach = f"ID accuracies range over {100 * reach:.1f} points only"
    return [
        _check("r2", r2, limits.r2, r2 is not None and r2 >= limits.r2, about_r2),
        _check("support", reach, limits.support, reach >= limits.support, about_reach),
        *_single_models(line, limits),
        _curvature(line, limits),
        *_scatter(line, limits),
    ]


def _scatter(line: Baseline, limits: Limits) -> list[Check]:
    """Is scatter skewed, uneven, or due to models that hide each other?"""
    if min(piece.n for piece in line.lines) < limits.models:
        text = "too few models to look at their scatter"
        return [
            _check(name, None, getattr(limits, name), None, text)
            for name in ("skewness", "spread", "outliers")
        ]
    residuals = [standardised(piece) for piece in line.lines]
    skews = [skewness(r) for r in residuals]
    trends = [
        spread_trend(piece.design[:, 1], r) for piece, r in zip(line.lines, residuals, strict=True)
    ]
    found = []
    for name, parts, about in (
        (
            "skewness",
            skews,
            "baseline models scatter to one side (skewness {:.1f}, p = {:.2g}): "
            "p-values are too small there",
        ),
        (
            "spread",
            trends,
            "baseline models scatter more at one end of ID accuracy (rank "
            "correlation {:.2f}, p = {:.2g}): p-values are too small there",
        ),
    ):
        limit = getattr(limits, name)
        worst = max(parts, key=lambda one: (one.p_value < limits.p_value) * abs(one.effect))
        passed = not (worst.p_value < limits.p_value and abs(worst.effect) > limit)
        text = about.format(worst.effect, worst.p_value)
        found.append(_check(name, worst.effect, limit, passed, text))
    names = [
        line.models[sum(p.n for p in line.lines[:i]) + int(at)]
        for i, piece in enumerate(line.lines)
        for at in hidden_outliers(piece)
    ]
    share = len(names) / line.n
    passed = len(names) <= 2 or share <= limits.outliers
    listed = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    text = f"{len(names)} models are far from a robust fit and may hide each other: {listed}"
    return [*found, _check("outliers", share, limits.outliers, passed, text)]


def _single_models(line: Baseline, limits: Limits) -> list[Check]:
    """Does one model, by its leverage h or Cook's distance r²h/(pσ²(1−h)²), turn the line?"""
    hats, cooks = [], []
    for piece in line.lines:
        a = piece.design * np.sqrt(piece.row_weights)[:, None]
        hat = quadratic(a, piece.gram_inverse)
        variance = len(piece.coefficients) * max(piece.sigma**2, 1e-30)
        squares = piece.row_weights * piece.residuals**2
        hats.append(hat)
        cooks.append(squares * hat / (variance * np.maximum(1.0 - hat, 1e-12) ** 2))
    found = []
    for name, values, about in (
        ("leverage", np.concatenate(hats), "one model is far from all others on ID data"),
        ("influence", np.concatenate(cooks), "one model turns the line"),
    ):
        limit, most = getattr(limits, name), float(values.max())
        text = f"{about}: {line.models[int(values.argmax())]}"
        found.append(_check(name, most, limit, most <= limit, text))
    return found


def _curvature(line: Baseline, limits: Limits) -> Check:
    """Are square terms significant, and do they explain more than a little?"""
    worst: tuple[float, float] | None = None
    for piece in line.lines:
        y = piece.design @ piece.coefficients + piece.residuals
        z = piece.design[:, 1:] - piece.design[:, 1:].mean(axis=0)
        gain, f, dof = _added(piece.design, z**2, y)
        if dof >= 1:
            p = float(fdtrc(z.shape[1], dof, f))
            ranges = _ranges(piece, y, limits)
            if ranges is not None and ranges[0] > gain:
                gain, p = ranges
            bent = p < limits.p_value and gain >= limits.curvature
            if worst is None or (bent, gain) > (worst[1] < limits.p_value, worst[0]):
                worst = (gain, p)
    if worst is None:
        text = "too few models to test for curvature"
        return _check("curvature", None, limits.curvature, None, text)
    gain, p = worst
    passed = not (p < limits.p_value and gain >= limits.curvature)
    text = f"curved: a curve explains a further {100 * gain:.1f} % (p = {p:.2g})"
    return _check("curvature", gain, limits.curvature, passed, text)


def _ranges(piece: Line, y: Floats, limits: Limits) -> tuple[float, float] | None:
    """Gain in R² from five ranges of x, and the p-value of the rank test, if it is significant."""
    if piece.n < 25:
        return None
    found = bend(piece.design[:, 1], piece.residuals)
    if found.p_value >= limits.p_value:
        return None
    total = max(float(((y - y.mean()) ** 2).sum()), 1e-300)
    return found.effect * float((piece.residuals**2).sum()) / total, found.p_value


def _groups(line: Baseline, groups: Sequence[str | float | None] | None, limits: Limits) -> Check:
    """Do groups of at least 5 models have lines of their own?"""
    names = np.array(["" if g is None else str(g) for g in groups or ()])
    large = [g for g in np.unique(names) if g and (names == g).sum() >= 5]
    if len(large) < 2:
        text = "fewer than two groups of 5 or more models" if groups else "no groups were given"
        return _check("groups", None, limits.groups, None, text)
    piece = line.lines[0]
    y = piece.design @ piece.coefficients + piece.residuals
    dummies = np.column_stack([names == g for g in large[1:]]).astype(np.float64)
    inside = np.isin(names, large)
    extra = np.column_stack([dummies, dummies * piece.design[:, 1:2]])[inside]
    gain, f, dof = _added(piece.design[inside], extra, y[inside])
    if dof < 1:
        return _check("groups", None, limits.groups, None, "too few models to test for groups")
    p = float(fdtrc(extra.shape[1], dof, f))
    passed = not (p < limits.p_value and gain >= limits.groups)
    text = f"{len(large)} groups lie on lines of their own, which explain a further "
    return _check("groups", gain, limits.groups, passed, f"{text}{100 * gain:.1f} % (p = {p:.2g})")


def _added(design: Floats, extra: Floats, y: Floats) -> tuple[float, float, int]:
    """Gain in R² from further columns, their F statistic, and its residual degrees of freedom."""
    given = beside(extra, y)
    given = given - design @ np.linalg.solve(design.T @ design, design.T @ given)
    apart, left = given[:, :-1], given[:, -1]  # what the line does not explain
    gram, moment = apart.T @ apart, apart.T @ left
    kept = np.diagonal(gram) > 1e-24 * (extra**2).sum(axis=0)
    if len(gram) == 1 and kept[0]:
        rank, rest = 1, left - apart[:, 0] * (moment[0] / gram[0, 0])
    else:
        fit, _, rank, _ = np.linalg.lstsq(apart[:, kept], left, rcond=None)
        rest = left - apart[:, kept] @ fit
    dof = len(y) - design.shape[1] - int(rank)
    centred = y - y.mean()
    total = float(centred @ centred)
    if dof < 1 or total <= 0:
        return 0.0, 0.0, min(dof, 0)
    gained = max(float(left @ left - rest @ rest), 0.0)
    f = gained / extra.shape[1] / max(float(rest @ rest) / dof, 1e-30)
    return gained / total, f, dof


def _noise(line: Baseline, known: bool, limits: Limits) -> Check:
    """Share of the variance of S(x) that is not image noise: noise flattens the slope."""
    least = limits.reliability
    if not known:
        text = "test-set sizes are unknown: image noise is not checked"
        return _check("reliability", None, least, None, text)
    shares = []
    for piece in line.lines:
        variance = np.var(piece.design[:, 1:], axis=0, ddof=1)
        shares.append(np.maximum(1.0 - piece.noise.mean(axis=0) / variance, 0.0).min())
    share = float(min(shares))
    text = f"{100 * (1 - share):.0f} % of the variance of ID accuracy is image noise"
    return _check("reliability", share, least, share >= least, text)
