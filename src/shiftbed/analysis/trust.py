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

from shiftbed.analysis.baseline import Baseline, Line, fit_baseline
from shiftbed.analysis.intervals import check_fractions
from shiftbed.analysis.residuals import (
    TestedEffect,
    added,
    curvature,
    hidden_outliers,
    influence,
    leverage,
    skewness,
    spread_trend,
    standardised,
)
from shiftbed.analysis.stacks import Stack
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
        checks += _of_fit(line, _measured([line], limits)[0], sizes is not None, limits)
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
    return trust_alike([line], [edge], limits)[0]


def trust_alike(
    baselines: Sequence[Baseline], edges: Sequence[int], limits: Limits = LIMITS
) -> list[Trust]:
    """``trust_baseline`` of each of these, which are ``alike`` (``analysis.stacks``)."""
    found = []
    for line, edge, pieces in zip(baselines, edges, _measured(baselines, limits), strict=True):
        least = min(piece.n for piece in line.lines)
        enough = f"{least} models, at least {limits.models} are wanted"
        known = bool((line.sizes[:-1] > 0).all())
        checks = [
            _boundary(edge, line.n + edge, line.scale, limits),
            _check("models", float(least), limits.models, least >= limits.models, enough),
            *_of_fit(line, pieces, known, limits),
        ]
        found.append(_trust(checks, line.n))
    return found


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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Piece:
    """What is checked of one line."""

    n: int
    leverage: tuple[float, int]
    """The largest, and whose it is."""
    influence: tuple[float, int]
    reliability: float
    curvature: TestedEffect
    skewness: TestedEffect
    spread: TestedEffect
    outliers: list[int]


def _measured(baselines: Sequence[Baseline], limits: Limits) -> list[list[_Piece]]:
    """What is checked of the lines of each baseline, for all at once."""
    by_piece = [_pieces(line, limits) for line in Stack.of(baselines).lines]
    return [list(pieces) for pieces in zip(*by_piece, strict=True)]


def _pieces(line: Line, limits: Limits) -> list[_Piece]:
    """Of each line of a stack."""
    hats, cooks, scatter = leverage(line), influence(line), standardised(line)
    variance = np.var(line.design[..., 1:], axis=-2, ddof=1)
    # The share of the variance of S(x) that is not image noise, which flattens the slope.
    shares = np.maximum(1.0 - line.noise.mean(axis=-2) / variance, 0.0).min(axis=-1)
    curved, skewed = curvature(line, limits.p_value), skewness(scatter)
    uneven, far = spread_trend(line.design[..., 1], scatter), hidden_outliers(line)
    return [
        _Piece(
            n=line.n,
            leverage=(float(hats[i].max()), int(hats[i].argmax())),
            influence=(float(cooks[i].max()), int(cooks[i].argmax())),
            reliability=float(shares[i]),
            curvature=curved[i],
            skewness=skewed[i],
            spread=uneven[i],
            outliers=np.flatnonzero(far[i]).tolist(),
        )
        for i in range(len(hats))
    ]


def _of_fit(line: Baseline, pieces: Sequence[_Piece], sized: bool, limits: Limits) -> list[Check]:
    """R², range of x, leverage, influence, curvature, scatter, and noise where n is known."""
    reach = float((line.support[:, 1] - line.support[:, 0]).min())
    r2 = line.r2 if np.isfinite(line.r2) else None
    about_r2 = "all OOD accuracies are the same" if r2 is None else f"R² is {r2:.2f}"
    about_reach = f"ID accuracies range over {100 * reach:.1f} points only"
    return [
        _check("r2", r2, limits.r2, r2 is not None and r2 >= limits.r2, about_r2),
        _check("support", reach, limits.support, reach >= limits.support, about_reach),
        *_single_models(line, pieces, limits),
        _curvature(pieces, limits),
        *_scatter(line, pieces, limits),
        _noise(pieces, sized, limits),
    ]


def _name(line: Baseline, pieces: Sequence[_Piece], i: int, at: int) -> str:
    """Of the fitted model at that place of line i."""
    return line.models[sum(piece.n for piece in pieces[:i]) + at]


def _scatter(line: Baseline, pieces: Sequence[_Piece], limits: Limits) -> list[Check]:
    """Is scatter skewed, uneven, or due to models that hide each other?"""
    if min(piece.n for piece in pieces) < limits.models:
        text = "too few models to look at their scatter"
        return [
            _check(name, None, getattr(limits, name), None, text)
            for name in ("skewness", "spread", "outliers")
        ]
    found = []
    for name, parts, about in (
        (
            "skewness",
            [piece.skewness for piece in pieces],
            "baseline models scatter to one side (skewness {:.1f}, p = {:.2g}): "
            "p-values are too small there",
        ),
        (
            "spread",
            [piece.spread for piece in pieces],
            "baseline models scatter more at one end of ID accuracy (rank "
            "correlation {:.2f}, p = {:.2g}): p-values are too small there",
        ),
    ):
        limit = getattr(limits, name)
        worst = max(parts, key=lambda one: (one.p_value < limits.p_value) * abs(one.effect))
        passed = not (worst.p_value < limits.p_value and abs(worst.effect) > limit)
        text = about.format(worst.effect, worst.p_value)
        found.append(_check(name, worst.effect, limit, passed, text))
    names = [_name(line, pieces, i, at) for i, piece in enumerate(pieces) for at in piece.outliers]
    share = len(names) / line.n
    passed = len(names) <= 2 or share <= limits.outliers
    listed = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    text = f"{len(names)} models are far from a robust fit and may hide each other: {listed}"
    return [*found, _check("outliers", share, limits.outliers, passed, text)]


def _single_models(line: Baseline, pieces: Sequence[_Piece], limits: Limits) -> list[Check]:
    """Does one model turn the line, by its leverage or Cook's distance?"""
    found = []
    for name, values, about in (
        ("leverage", [p.leverage for p in pieces], "one model is far from all others on ID data"),
        ("influence", [p.influence for p in pieces], "one model turns the line"),
    ):
        limit, i = getattr(limits, name), max(range(len(values)), key=lambda i: values[i][0])
        most, at = values[i]
        text = f"{about}: {_name(line, pieces, i, at)}"
        found.append(_check(name, most, limit, most <= limit, text))
    return found


def _curvature(pieces: Sequence[_Piece], limits: Limits) -> Check:
    """Are square terms significant, and do they explain more than a little?"""
    tested = [piece.curvature for piece in pieces if np.isfinite(piece.curvature.p_value)]
    if not tested:
        text = "too few models to test for curvature"
        return _check("curvature", None, limits.curvature, None, text)

    def bent(one: TestedEffect) -> bool:
        return bool(one.p_value < limits.p_value and one.effect >= limits.curvature)

    worst = max(tested, key=lambda one: (bent(one), one.effect))
    text = (
        f"curved: a curve explains a further {100 * worst.effect:.1f} % (p = {worst.p_value:.2g})"
    )
    return _check("curvature", worst.effect, limits.curvature, not bent(worst), text)


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
    found = added(piece.design[inside], extra, y[inside])
    gain, p = found.effect, found.p_value
    if not np.isfinite(p):
        return _check("groups", None, limits.groups, None, "too few models to test for groups")
    passed = not (p < limits.p_value and gain >= limits.groups)
    text = f"{len(large)} groups lie on lines of their own, which explain a further "
    return _check("groups", gain, limits.groups, passed, f"{text}{100 * gain:.1f} % (p = {p:.2g})")


def _noise(pieces: Sequence[_Piece], known: bool, limits: Limits) -> Check:
    """How much of the variance of ID accuracy is not image noise."""
    least = limits.reliability
    if not known:
        text = "test-set sizes are unknown: image noise is not checked"
        return _check("reliability", None, least, None, text)
    share = min(piece.reliability for piece in pieces)
    text = f"{100 * (1 - share):.0f} % of the variance of ID accuracy is image noise"
    return _check("reliability", share, least, share >= least, text)
