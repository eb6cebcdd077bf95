"""Linear probes: a network's head replaced by logistic regression on its own features.

andreassen2021 (Appendix B.2) fine-tunes CLIP so: L-BFGS, ten log-spaced penalties between 10⁻⁶ and
10⁷, the best on the validation set. Minimised is

    Σᵢ −log softmax(W xᵢ + b)_{yᵢ} + (λ/2)·‖W‖²

over W (K, D) and the bias b (K,), which is not penalised: λ = 1/C of scikit-learn's
``LogisticRegression``. Optimised in double precision; the sum of b over classes, which changes
nothing, is zero. Features are computed once and kept (``features.py``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.engine.open_setting import DecodedSetting
from shiftbed.errors import InputError
from shiftbed.training.features import backbone_digest, cached_features
from shiftbed.training.networks import Network
from shiftbed.training.recipe import short_hash

if TYPE_CHECKING:
    from torch import nn


Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
PENALTIES: tuple[float, ...] = tuple(float(p) for p in np.logspace(-6, 7, 10))
"""Ten log-spaced values of λ from 10⁻⁶ to 10⁷."""


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Right answers, with a Clopper–Pearson interval."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Logistic:
    """A fitted classifier."""

    weights: Floats
    """(K, D)."""
    bias: Floats
    """(K,)."""
    penalty: float
    """λ."""
    objective: float
    """What was minimised, at the end."""
    iterations: int
    converged: bool
    """Whether L-BFGS ended by its tolerance, not by the number of iterations."""

    def logits(self, features: ArrayLike) -> Floats:
        """(N, K) of (N, D) features."""
        x = np.asarray(features, dtype=np.float64)
        return x @ self.weights.T + self.bias

    def accuracy(self, features: ArrayLike, labels: ArrayLike, level: float = 0.95) -> Accuracy:
        """On these features, of n of them."""
        x, y = _checked(features, labels, len(self.bias))
        value = float(np.mean(self.logits(x).argmax(axis=1) == y))
        low, high = clopper_pearson(value, len(y), level)
        return Accuracy(value=value, low=float(low), high=float(high), n=len(y))

    def as_layer(self) -> "nn.Linear":
        """The same as a float32 layer of torch, to be the head of a network."""
        import torch
        from torch import nn

        layer = nn.Linear(self.weights.shape[1], self.weights.shape[0])
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(self.weights))
            layer.bias.copy_(torch.from_numpy(self.bias))
        return layer


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """One penalty of the sweep."""

    model: Logistic
    validation: Accuracy


@dataclass(frozen=True, kw_only=True, eq=False)
class Probe:
    """The sweep; ``best`` has the highest validation accuracy, of equals the largest penalty."""

    best: Trial
    trials: tuple[Trial, ...]

    @property
    def at_the_edge(self) -> bool:
        """Whether the best penalty is the first or last one tried: a wider sweep may do better."""
        ends = [trial.model.penalty for trial in self.trials]
        return self.best.model.penalty in (min(ends), max(ends))


def fit_logistic(
    features: ArrayLike,
    labels: ArrayLike,
    penalty: float,
    *,
    classes: int | None = None,
    start: Logistic | None = None,
    iterations: int = 1000,
    tolerance: float = 1e-5,
) -> Logistic:
    """Multinomial logistic regression by L-BFGS.

    ``start`` is where the search begins (default: zero). It ends when no partial derivative of the
    objective divided by n, in the units of ``_scales``, exceeds ``tolerance``, or after
    ``iterations``.

    >>> model = fit_logistic([[-1.0], [1.0]], [0, 1], 1.0)
    >>> model.logits([[2.0]]).argmax(), model.converged
    (np.int64(1), True)
    """
    if not penalty >= 0.0 or penalty == np.inf:
        raise InputError(f"penalty must be a finite number from 0, got {penalty}")
    x, y = _checked(features, labels, classes)
    k = classes or int(y.max()) + 1
    if k < 2:
        raise InputError(f"logistic regression needs at least 2 classes, got {k}")
    n, width = x.shape
    mean = x.mean(axis=0)
    centred = x - mean
    scale = _scales(centred, penalty)
    first = np.zeros((k, width + 1))
    if start is not None:
        if start.weights.shape != (k, width):
            raise InputError(f"start must have weights {(k, width)}, has {start.weights.shape}")
        first[:, :-1], first[:, -1] = start.weights * scale, start.bias + start.weights @ mean
    found = minimize(
        objective,
        first.ravel(),
        args=(centred / scale, y, k, penalty / scale**2),
        jac=True,
        method="L-BFGS-B",
        options={
            "maxiter": iterations,
            "maxfun": 2 * iterations,
            "gtol": tolerance,
            "ftol": 0.0,
            "maxcor": 20,
        },
    )
    solved = found.x.reshape(k, width + 1)
    weights = solved[:, :-1] / scale
    bias = solved[:, -1] - weights @ mean
    return Logistic(
        weights=weights,
        bias=bias - bias.mean(),
        penalty=float(penalty),
        objective=float(found.fun) * n,
        iterations=int(found.nit),
        converged=bool(np.abs(found.jac).max() <= tolerance),
    )


def _scales(centred: Floats, penalty: float) -> Floats:
    """(D,) units in which the objective is about equally curved along every weight.

    The curvature of w_kj is near ¼·mean(x_j²) + λ/n. Centring and scaling change the path to the
    minimum, not the minimum: the bias takes up the mean, the penalty is that of the weights.
    """
    curved = np.sqrt(0.25 * np.mean(centred**2, axis=0) + penalty / len(centred))
    return np.where(curved > 0.0, curved, 1.0)


def objective(
    theta: Floats, x: Floats, y: Labels, classes: int, penalties: Floats | float
) -> tuple[float, Floats]:
    """Objective and gradient, both divided by n; ``penalties`` are λ per column of W."""
    n, width = x.shape
    solved = theta.reshape(classes, width + 1)
    weights = solved[:, :-1]
    z = x @ weights.T + solved[:, -1]
    log_sum = logsumexp(z, axis=1)
    rows = np.arange(n)
    pulled = penalties * weights
    loss = float((log_sum - z[rows, y]).sum() + 0.5 * np.vdot(pulled, weights))
    residual = np.exp(z - log_sum[:, None])
    residual[rows, y] -= 1.0
    slope = np.empty_like(solved)
    slope[:, :-1] = residual.T @ x + pulled
    slope[:, -1] = residual.sum(axis=0)
    return loss / n, slope.ravel() / n


def probe(
    train: tuple[ArrayLike, ArrayLike],
    validation: tuple[ArrayLike, ArrayLike],
    *,
    penalties: Sequence[float] = PENALTIES,
    classes: int | None = None,
    level: float = 0.95,
    **options: Any,
) -> Probe:
    """Fit at every penalty, from the largest down, each search starting from the one before."""
    if not len(penalties):
        raise InputError("the sweep needs at least one penalty")
    x, y = _checked(*train, classes)
    held_x, held_y = _checked(*validation, None)
    k = classes or int(max(y.max(), held_y.max())) + 1
    trials: list[Trial] = []
    for penalty in sorted(penalties, reverse=True):
        start = trials[-1].model if trials else None
        model = fit_logistic(x, y, penalty, classes=k, start=start, **options)
        trials.append(Trial(model=model, validation=model.accuracy(held_x, held_y, level)))
    best = max(trials, key=lambda trial: trial.validation.value)
    return Probe(best=best, trials=tuple(trials))


def _checked(features: ArrayLike, labels: ArrayLike, classes: int | None) -> tuple[Floats, Labels]:
    x, y = np.asarray(features, dtype=np.float64), np.asarray(labels)
    if x.ndim != 2 or y.shape != (len(x),) or not len(x):
        raise InputError(f"features must be (N, D) with N labels, got {x.shape} and {y.shape}")
    if not np.issubdtype(y.dtype, np.integer):
        raise InputError(f"labels must be whole numbers, got {y.dtype}")
    if y.min() < 0 or (classes is not None and y.max() >= classes):
        raise InputError(f"labels must lie in 0 … {(classes or 0) - 1}, got {y.min()} … {y.max()}")
    if not np.isfinite(x).all():
        raise InputError("features must be finite numbers")
    return x, y.astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Probed:
    """A network with its new head, and how the head was chosen."""

    network: Network
    found: Probe
    id: str
    """Hash of all that the head depends on: backbone, images, penalties."""
    n_train: int
    n_validation: int


def probe_network(
    network: Network,
    train: DecodedSetting,
    validation: DecodedSetting,
    folder: str | Path,
    *,
    penalties: tuple[float, ...] = PENALTIES,
    level: float = 0.95,
    iterations: int = 1000,
) -> Probed:
    """Fit heads on the features of ``train``, keep the one that is best on ``validation``.

    The network is changed: it has that head afterwards. ``folder`` keeps the features.
    """
    if train.setting.test_set.fingerprint == validation.setting.test_set.fingerprint:
        raise InputError("training and validation images are the same: hold some out")
    backbone = backbone_digest(network)
    x, y = _features(network, train, folder, backbone)
    held_x, held_y = _features(network, validation, folder, backbone)
    found = probe(
        (x, y),
        (held_x, held_y),
        penalties=penalties,
        classes=network.classes,
        level=level,
        iterations=iterations,
    )
    install(network, found.best.model)
    parts = [backbone, network.preprocessing.describe(), list(penalties), iterations]
    parts += [train.setting.test_set.fingerprint, validation.setting.test_set.fingerprint]
    return Probed(
        network=network,
        found=found,
        id=short_hash(parts),
        n_train=len(y),
        n_validation=len(held_y),
    )


def _features(
    network: Network, opened: DecodedSetting, folder: str | Path, backbone: str
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features and labels of the images that can be read and have a label."""
    name = opened.setting.plan.images.name
    found = cached_features(
        network,
        opened.setting.test_set.fingerprint,
        lambda: opened.pixels,
        folder,
        digest=backbone,
    )
    if found is None:
        raise InputError(f"{network.spec} does more to its features than a linear head would")
    labels = opened.setting.stored.labels
    known = opened.readable & (labels >= 0)
    if not known.any() or labels[known].max() >= network.classes:
        raise InputError(f"{name}: labels must lie in 0 … {network.classes - 1}")
    return found[known], labels[known]


def install(network: Network, model: Logistic) -> None:
    """Give a network the fitted head."""
    if len(network.heads) != 1 or network.heads[0].bias is None:
        raise InputError(f"{network.spec} has no single head with a bias, which a probe needs")
    head, layer = network.heads[0], model.as_layer()
    with torch.no_grad():
        head.weight.copy_(layer.weight)
        head.bias.copy_(layer.bias)
