"""Linear probes: a network's head replaced by logistic regression on its own features.

andreassen2021 (Appendix B.2) fine-tunes CLIP so: L-BFGS, ten log-spaced penalties between 10⁻⁶ and
10⁷, the best on the validation set. Minimised is

    Σᵢ −log softmax(W xᵢ + b)_{yᵢ} + (λ/2)·‖W‖²

over W (K, D) and the bias b (K,), which is not penalised: λ = 1/C of scikit-learn's
``LogisticRegression``. Optimised in double precision; the sum of b over classes, which changes
nothing, is zero. Features are computed once and kept (``features.py``).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp
from torch import nn

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.display import Result, Table, between, percent, records
from shiftbed.engine.evaluate import evaluate, images_of
from shiftbed.engine.open_setting import OpenSetting, open_setting
from shiftbed.engine.plan import ModelSpec
from shiftbed.engine.testbed_file import plan_setting
from shiftbed.errors import InputError
from shiftbed.evaluation.memory import reused_memory
from shiftbed.evaluation.models import Model, TorchModel, model
from shiftbed.results.scores import score_table
from shiftbed.store import PredictionStore
from shiftbed.training.arguments import checked_start
from shiftbed.training.features import backbone_digest, cached_features
from shiftbed.training.forgetting import become
from shiftbed.training.networks import Network, as_network, make_network
from shiftbed.training.recipe import short_hash
from shiftbed.training.weights import write_weights

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
PENALTIES: tuple[float, ...] = tuple(float(p) for p in np.logspace(-6, 7, 10))
"""Ten log-spaced values of λ from 10⁻⁶ to 10⁷."""


class Accuracy(NamedTuple):
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
        return Accuracy(value, float(low), float(high), len(y))

    def as_layer(self) -> nn.Linear:
        """The same as a float32 layer of torch, to be the head of a network."""
        layer = nn.Linear(self.weights.shape[1], self.weights.shape[0])
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(self.weights))
            layer.bias.copy_(torch.from_numpy(self.bias))
        return layer


class PenaltyFit(NamedTuple):
    """One penalty of the sweep."""

    model: Logistic
    validation: Accuracy


@dataclass(frozen=True, kw_only=True, eq=False)
class PenaltySweep:
    """The fits from the largest penalty down."""

    fits: tuple[PenaltyFit, ...]

    @property
    def best(self) -> PenaltyFit:
        """The one of highest validation accuracy, of equals that of the largest penalty."""
        return max(self.fits, key=lambda one: one.validation.value)

    @property
    def at_the_edge(self) -> bool:
        """Whether the best penalty is the first or last one tried: a wider sweep may do better."""
        ends = [one.model.penalty for one in self.fits]
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


def sweep_penalties(
    train: tuple[ArrayLike, ArrayLike],
    validation: tuple[ArrayLike, ArrayLike],
    *,
    penalties: Sequence[float] = PENALTIES,
    classes: int | None = None,
    level: float = 0.95,
    **options: Any,
) -> PenaltySweep:
    """Fit at every penalty, from the largest down, each search starting from the one before."""
    if not len(penalties):
        raise InputError("the sweep needs at least one penalty")
    x, y = _checked(*train, classes)
    held_x, held_y = _checked(*validation, None)
    k = classes or int(max(y.max(), held_y.max())) + 1
    fits: list[PenaltyFit] = []
    for penalty in sorted(penalties, reverse=True):
        start = fits[-1].model if fits else None
        model = fit_logistic(x, y, penalty, classes=k, start=start, **options)
        fits.append(PenaltyFit(model, model.accuracy(held_x, held_y, level)))
    return PenaltySweep(fits=tuple(fits))


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


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LinearProbed(Result):
    """A network with the head of a linear probe; ``frame`` has its accuracy per setting."""

    json_keys = "model=name file n_train penalty sweep.at_the_edge"
    name: str
    """What the model is called in the store."""
    model: TorchModel
    sweep: PenaltySweep
    n_train: int
    n_validation: int
    file: str | None
    """Where the whole network was written."""
    level: float = 0.95

    @property
    def penalty(self) -> float:
        """The λ that was chosen."""
        return self.sweep.best.model.penalty

    def _swept(self) -> list[dict[str, Any]]:
        return [
            {
                "penalty": fit.penalty,
                "validation": reached.value,
                **{name: getattr(reached, name) for name in ("low", "high", "n")},
                "iterations": fit.iterations,
                "converged": fit.converged,
            }
            for fit, reached in self.sweep.fits
        ]

    def to_dict(self) -> dict[str, Any]:
        settings = records(self.frame.drop("model"))
        return super().to_dict() | {"sweep": self._swept(), "settings": settings}

    def answer(self) -> Iterable[str]:
        reached = {fit.penalty: one for fit, one in self.sweep.fits}[self.penalty]
        yield (
            f"Best on validation: λ = {self.penalty:.3g}, {percent(reached.value)} % "
            f"({between(reached.low, reached.high)})."
        )

    def tables(self) -> Iterable[Table]:
        edge = "; it is the first or last one tried" if self.sweep.at_the_edge else ""
        yield Table.of(
            f"{self.name}: penalty λ chosen on {self.n_validation:,} images, fitted on "
            f"{self.n_train:,}",
            self._swept(),
            {
                "λ": lambda row: f"{row['penalty']:.3g}",
                "validation": ("validation", percent),
                f"{100 * self.level:g} % interval": lambda row: (
                    f"{percent(row['low'])} … {percent(row['high'])}"
                ),
                "iterations": "iterations",
                "": lambda row: "" if row["converged"] else "stopped before it converged",
            },
            notes=[f"Chosen: λ = {self.penalty:.3g}{edge}."],
        )
        yield score_table("", self.frame, self.level)


@reused_memory()
def linear_probe(
    source: str | Model | nn.Module,
    test_sets: Any,
    *,
    train: Any,
    validation: Any,
    start: str | None = None,
    penalties: Sequence[float] = PENALTIES,
    iterations: int = 1000,
    store: str | Path | PredictionStore | None = None,
    features: str | Path | None = None,
    out: str | Path | None = None,
    name: str | None = None,
    seed: int = 0,
    device: str = "cpu",
    level: float = 0.95,
) -> LinearProbed:
    """Logistic regression on a network's features: L-BFGS, ten penalties, chosen on validation.

    ``source`` is a line of text, whose weights ``start`` names ("pretrained" if it is left out,
    "random" with ``seed``, or "file:WEIGHTS"); or a model or torch module, which is copied as it
    is. ``test_sets``, ``train`` and ``validation`` are ``TestSet``s or paths. ``store`` keeps the
    predictions and ``features`` (a folder) the features; ``out`` is a file for the whole network.
    """
    if isinstance(source, str):
        checked_start(source, start or "pretrained")
    elif start is not None:
        raise InputError(f"start ({start!r}) goes with a line of text: a model has its weights")
    fitted_on, chosen_on = (_opened(one) for one in (train, validation))
    classes = _classes(fitted_on)
    if isinstance(source, str):
        network = make_network(source, classes, start or "pretrained", seed=seed, device=device)
    else:
        network = as_network(model(source, device=device), classes, seed=seed)
    if fitted_on.test_set.fingerprint == chosen_on.test_set.fingerprint:
        raise InputError("training and validation images are the same: hold some out")
    backbone = backbone_digest(network)
    x, y = _features(network, fitted_on, features, backbone)
    held_x, held_y = _features(network, chosen_on, features, backbone)
    found = sweep_penalties(
        (x, y),
        (held_x, held_y),
        penalties=penalties,
        classes=network.classes,
        level=level,
        iterations=iterations,
    )
    install(network, found.best.model)
    network.module.eval()
    if out is not None:
        write_weights(network.module.network.state_dict(), out)
    parts = [backbone, network.preprocessing.describe(), list(penalties), iterations]
    parts += [fitted_on.test_set.fingerprint, chosen_on.test_set.fingerprint]
    id = short_hash(parts)
    probed = network.as_model(name or f"{network.spec}+linear@{id}")
    about = {
        "kind": "standard",
        "architecture": network.spec,
        "start": network.start,
        "tune": "linear probe",
        "n_train": len(y),
        "penalty": found.best.model.penalty,
    }
    details = {"spec": network.spec, "identity": f"linear:{id}"}
    kept = store if isinstance(store, PredictionStore) else PredictionStore(store)
    evaluated = evaluate(
        [ModelSpec(source=probed, name=probed.id, info=about, details=details)],
        test_sets,
        shifts=(),
        store=kept,
        name=str(kept.about().get("name", "linear")),
        level=level,
        batch_size=256,
        backend="torch",
        device=device,
    )
    for (_, setting), why in evaluated.failed.items():
        raise InputError(f"{setting}: {why}")
    return LinearProbed(
        frame=evaluated.frame,
        name=probed.id,
        model=probed,
        sweep=found,
        n_train=len(y),
        n_validation=len(held_y),
        file=None if out is None else str(out),
        level=level,
    )


def _opened(source: Any) -> OpenSetting:
    (images,) = images_of(source)
    return open_setting(plan_setting(images, {}))


def _classes(setting: OpenSetting) -> int:
    """As many as the training images have: named ones, or the largest label."""
    stored = setting.stored
    if stored.label_sets is not None:
        raise InputError(f"{setting.id}: a linear probe needs one label per image")
    return stored.classes or int(np.max(stored.labels)) + 1


def _features(
    network: Network, setting: OpenSetting, folder: str | Path | None, backbone: str
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features and labels of the images that can be read and have a label."""
    decoded = setting.decode(network.preprocessing)
    fingerprint = setting.test_set.fingerprint
    found = cached_features(network, fingerprint, lambda: decoded.pixels, folder, digest=backbone)
    if found is None:
        raise InputError(f"{network.spec} does more to its features than a linear head would")
    labels = setting.stored.labels
    known = decoded.readable & (labels >= 0)
    if not known.any() or labels[known].max() >= network.classes:
        raise InputError(f"{setting.id}: labels must lie in 0 … {network.classes - 1}")
    return found[known], labels[known]


def install(network: Network, model: Logistic) -> None:
    """Give a network the fitted head."""
    if len(network.heads) != 1 or network.heads[0].bias is None:
        raise InputError(f"{network.spec} has no single head with a bias, which a probe needs")
    become(network.heads[0], model.as_layer())
