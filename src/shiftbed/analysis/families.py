"""Models come in families, and the members of one err to the same side of the line.

ResNets, EfficientNets and models trained on the same extra data share what ID accuracy does not
explain, so 78 models say less about a line than 78 independent ones would. The line's
uncertainty is therefore taken from leaving out whole families: with θ₍g₎ the coefficients without
family g, V = (F−1)/F Σ_g (θ₍g₎ − θ)(θ₍g₎ − θ)ᵀ over F families (the cluster jackknife, CV3;
MacKinnon, Nielsen and Webb 2023, with F − 1 degrees of freedom). It assumes nothing about how
members of a family are related; it needs families that are independent of each other, and enough
of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shiftbed.analysis.intervals import PerLine

Floats = NDArray[np.float64]
ENOUGH = 8
"""With fewer families the jackknife is too unsure of itself: results are flagged."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Families:
    """What leaving out each of F families does to a fit of m models with p coefficients.

    In a stack of lines (``analysis.stacks``) all but names and codes have a further axis in front.
    """

    names: tuple[str, ...]
    codes: NDArray[np.int64]
    """(m,): the family of each fitted model, as a position in ``names``."""
    covariance: Floats
    """V (p, p) of the coefficients."""
    pulls: Floats
    """(F, p): θ − θ₍g₎, what each family does to the coefficients."""
    gram_inverse: Floats
    """(F, p, p): (AᵀWA)⁻¹ without family g."""
    covariance_without: Floats
    """(F, p, p): V of the fit without family g, from the other families' pulls."""
    left_out: Floats
    """(m,): the residual of each model about the fit without its family."""
    correlation: PerLine
    """Of residuals within a family (intraclass), at least 0."""
    variance: PerLine
    """Of a new family's new model about the line, in scaled space: between and within families."""
    variance_without: Floats
    """(F,): the same, without family g."""
    variance_dof: PerLine
    """Degrees of freedom of that variance: with sizes n_g and intraclass correlation c,
    m²/(m + c² Σ n_g(n_g − 1)) − p (Satterthwaite)."""

    @property
    def n(self) -> int:
        return len(self.names)

    def sums(self, values: Floats) -> Floats:
        """(F, c): values (m, c) summed by family."""
        return np.asarray(_indicator(self.codes, self.n) @ values)

    def quadratic_without(self, design: Floats) -> Floats:
        """aᵢᵀV₍g₎aᵢ for the rows of the fitted models' design (…, m, p), g the family of each."""
        own = self.covariance_without[..., self.codes, :, :]
        return np.asarray(np.einsum("...ij,...ijk,...ik->...i", design, own, design))

    @property
    def dof(self) -> int:
        return self.n - 1


def leave_families_out(
    design: Floats,
    residuals: Floats,
    weights: Floats,
    gram_inverse: Floats,
    families: Sequence[str],
) -> Families | None:
    """The fit without each family, in closed form; None if there is no fit without some family.

    ``design`` (m, p), ``residuals`` and ``weights`` (m,) and ``gram_inverse`` = (AᵀWA)⁻¹ are those
    of the whole fit. θ − θ₍g₎ = (T − T_g)⁻¹ A_gᵀW_g r_g, T = AᵀWA; the residuals of a family about
    the fit without it are r_g + A_g(θ − θ₍g₎).

    >>> rng = np.random.default_rng(0)
    >>> a = np.column_stack([np.ones(12), rng.normal(size=12)])
    >>> y = a @ [0.0, 1.0] + rng.normal(size=12)
    >>> g = np.linalg.inv(a.T @ a)
    >>> found = leave_families_out(a, y - a @ (g @ a.T @ y), np.ones(12), g, list("abcdefabcdef"))
    >>> rest = [i for i in range(12) if i % 6]  # without family "a"
    >>> without = np.linalg.lstsq(a[rest], y[rest], rcond=None)[0]
    >>> bool(np.allclose(g @ a.T @ y - found.pulls[0], without)), found.dof
    (True, 5)
    """
    names = sorted(set(families))
    at = {name: i for i, name in enumerate(names)}
    codes = np.array([at[name] for name in families], dtype=np.int64)
    m, p = design.shape
    count = len(names)
    sizes = np.bincount(codes, minlength=count)
    if count < 3 or m - sizes.max() <= p:
        return None
    weighted = design * weights[:, None]
    gram = weighted.T @ design
    outer = (weighted[:, :, None] * design[:, None, :]).reshape(m, p * p)
    indicator = _indicator(codes, count)
    rest = gram - (indicator @ outer).reshape(count, p, p)
    try:
        inverse = np.asarray(np.linalg.inv(rest), np.float64)
    except np.linalg.LinAlgError:
        return None
    if not (np.abs(rest).sum(axis=(1, 2)) * np.abs(inverse).sum(axis=(1, 2)) < 1e12).all():
        return None
    score = indicator @ (weighted * residuals[:, None])  # A_gᵀW_g r_g
    pulls = np.einsum("gij,gj->gi", inverse, score)
    left_out = residuals + np.einsum("ij,ij->i", design, pulls[codes])
    covariance = (count - 1) / count * pulls.T @ pulls

    # Without family g: its own pull is left out, and the others act on a smaller Gram matrix.
    moved = pulls @ gram
    spread = moved.T @ moved - moved[:, :, None] * moved[:, None, :]
    without = (count - 2) / (count - 1) * inverse @ spread @ inverse

    squares = weights * left_out**2
    by_line = weights * np.einsum("ij,ijk,ik->i", design, without[codes], design)
    own = indicator @ (squares - by_line)
    kept = m - sizes
    within = weights * residuals * left_out  # RSS without g is RSS − Σ_g w r ẽ
    total = float(weights @ residuals**2)
    least = (total - indicator @ within) / np.maximum(kept - p, 1)
    variance = max(float(own.sum()) / m, total / (m - p))
    pairs = float((sizes * (sizes - 1)).sum())
    scaled = np.sqrt(weights) * left_out
    products = float(((indicator @ scaled) ** 2).sum() - squares.sum())
    correlation = products / pairs / max(float(squares.mean()), 1e-300) if pairs else 0.0
    correlation = min(max(correlation, 0.0), 1.0)
    return Families(
        names=tuple(names),
        codes=codes,
        covariance=covariance,
        pulls=pulls,
        gram_inverse=inverse,
        covariance_without=without,
        left_out=left_out,
        correlation=correlation,
        variance=variance,
        variance_without=np.maximum((own.sum() - own) / kept, np.maximum(least, 0.0)),
        variance_dof=max(m**2 / (m + correlation**2 * pairs) - p, 1.0),
    )


def _indicator(codes: NDArray[np.int64], count: int) -> Floats:
    """(F, m): 1 where model j is of family g."""
    return np.asarray(codes == np.arange(count)[:, None], dtype=np.float64)


def family_flags(families: Sequence[str] | None, used: bool) -> tuple[str, ...]:
    """What a reader must know of the families of fitted models."""
    if families is None:
        return ()
    count = len(set(families))
    if not used and count < len(families):
        return (
            f"{count} families of models are too few to leave one out: models count as "
            "independent and intervals may be too narrow",
        )
    if count < ENOUGH:
        return (f"only {count} families of models: intervals may be too narrow",)
    return ()
