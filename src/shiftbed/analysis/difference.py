"""The difference of two models' effective robustness, which shares the line and the images."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from shiftbed.analysis.baseline import Baseline
from shiftbed.analysis.intervals import off_boundary, two_sided_p
from shiftbed.analysis.noise import ImageNoise, Paired, joint_noise
from shiftbed.analysis.robustness import find_fitted, independent_errors, place_on

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """ρ(A) − ρ(B)."""

    effective: float
    low: float
    high: float
    p_value: float
    paired: bool
    interval: str | None
    """What the interval comes from: ``paired``, ``modelled`` or ``independent``."""


def difference(
    baseline: Baseline,
    x: Floats,
    y: Floats,
    rows: tuple[int, int],
    *,
    n_id: Floats,
    n_ood: Floats,
    position: NDArray[np.int64],
    images: ImageNoise | None = None,
    like: ArrayLike | None = None,
    level: float = 0.95,
) -> Difference:
    """ρ(A) − ρ(B) of the models ``rows`` among accuracies x (M, k) and y (M,).

    The line's error moves both models, so only the difference of their pulls counts: with
    u = s_A a_A − s_B a_B, s = dβ/dη, the fit adds uᵀVu. Images are shared as ``images`` says (see
    ``effective_robustness``); without it their noise is independent. The difference is measured
    against the line freed of attenuation, as ρ itself is.
    """
    pair = np.array(rows)
    inner_x, inner_y = off_boundary(x, n_id), off_boundary(y, n_ood)
    served = baseline.line_of(x[pair])
    shares = np.ones(len(y), bool) if like is None else np.asarray(like, bool) | (position >= 0)
    rho, corrected, noises = np.zeros(2), np.zeros(2), []
    for i, line in enumerate(baseline.lines):
        here = np.flatnonzero(served == i)
        if not len(here):
            continue
        chosen = pair[here]
        placed = place_on(
            line, baseline.scale, inner_x[chosen], inner_y[chosen], n_id[chosen], n_ood[chosen]
        )
        if images is None:
            noise = independent_errors(line, baseline.scale, placed)
        else:
            given = (line, baseline.scale, inner_x, inner_y, chosen, find_fitted(line, position))
            which = {"shares": shares[chosen], "carries": shares[chosen]}
            noise = joint_noise(*given, images, **which)
        noises.append((line, noise))
        rho[here] = y[chosen] - placed.beta
        corrected[here] = y[chosen] - baseline.scale.inverse(placed.a @ noise.coefficients)
    if len(noises) == 2:  # one model on each side of a knee
        fit = sum(float(noise.var_fit[0]) for _, noise in noises)
        total = fit + sum(float(n.var_id[0] + n.var_ood[0]) for _, n in noises)
    else:
        noise = noises[0][1]
        u = noise.reach[0] - noise.reach[1]
        fit = float(u @ noise.fit_covariance @ u)
        if images is None:
            total = fit + float((noise.var_id + noise.var_ood).sum())
        else:
            among = noise.matrix(images, pair)
            total = max(float(among[0, 0] + among[1, 1] - among[0, 1] - among[1, 0]), fit)
    spread = float(np.sqrt(total))
    dof = min(line.covariance_dof for line, _ in noises) * (min(total / max(fit, 1e-300), 1e6) ** 2)
    half = float(stdtrit(dof, 0.5 + level / 2)) * spread if spread > 0 else 0.0
    delta, centre = float(rho[0] - rho[1]), float(corrected[0] - corrected[1])
    other = delta if images is None or abs(centre - delta) > half else centre
    known = bool((n_id[pair] > 0).all() and (n_ood[pair] > 0).all())
    # A model and itself, measured on the same images: nothing differs.
    nearest = min((centre, other), key=abs)
    p_value = float(two_sided_p(nearest / spread, dof)) if spread > 1e-12 else 1.0
    joint = "paired" if isinstance(images, Paired) else "modelled"
    kind = joint if images is not None and shares[pair].all() else "independent"
    return Difference(
        effective=delta,
        low=min(centre, other) - half if known else float("nan"),
        high=max(centre, other) + half if known else float("nan"),
        p_value=p_value if known else float("nan"),
        paired=kind == "paired",
        interval=kind if known else None,
    )
