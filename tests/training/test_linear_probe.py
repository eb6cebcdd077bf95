"""Linear probes: parity with scikit-learn, the sweep and what it chooses."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.errors import InputError
from shiftbed.evaluation.models import model
from shiftbed.training.linear_probe import (
    PENALTIES,
    fit_logistic,
    linear_probe,
    objective,
    sweep_penalties,
)
from tests.training import own_weights


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The matrices are too small for two."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def parts():  # type: ignore[no-untyped-def]
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x, y = images[order] / 16, labels[order]
    return (x[:900], y[:900]), (x[900:1300], y[900:1300]), (x[1300:], y[1300:])


def test_the_sweep_is_the_papers() -> None:
    assert len(PENALTIES) == 10
    assert PENALTIES[0] == pytest.approx(1e-6)
    assert PENALTIES[-1] == pytest.approx(1e7)
    np.testing.assert_allclose(np.diff(np.log10(PENALTIES)), 13 / 9)


@pytest.mark.parametrize("penalty", [1e-2, 1.0, 100.0, 1e7])
def test_same_as_scikit_learn(parts, penalty: float) -> None:  # type: ignore[no-untyped-def]
    """Against its L-BFGS, which stops a little early: probabilities within 1e-3, the objective
    never above its own and within 1e-6. Against its Newton: within 1e-4."""
    (x, y), (held, _), _ = parts
    ours = fit_logistic(x, y, penalty, tolerance=1e-8, iterations=5000)
    assert ours.converged
    z = ours.logits(held)
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    for solver, tolerance in (("lbfgs", 1e-3), ("newton-cholesky", 1e-4)):
        theirs = LogisticRegression(C=1 / penalty, solver=solver, tol=1e-8, max_iter=5000).fit(x, y)
        np.testing.assert_allclose(p, theirs.predict_proba(held), atol=tolerance)
        assert (z.argmax(1) == theirs.predict(held)).mean() > 0.997
        solved = np.concatenate([theirs.coef_, theirs.intercept_[:, None]], axis=1)
        there = objective(solved.ravel(), x, y, 10, penalty)[0] * len(x)
        assert ours.objective == pytest.approx(there, rel=1e-6)
        assert ours.objective <= there * (1 + 1e-9)


def test_two_classes_are_multinomial_too(parts) -> None:  # type: ignore[no-untyped-def]
    """Two weight vectors share the penalty: λ here is half of the one-vector form's."""
    (x, y), _, _ = parts
    two = y < 2
    ours = fit_logistic(x[two], y[two], 1.0, tolerance=1e-8)
    theirs = LogisticRegression(C=2.0, tol=1e-8, max_iter=2000).fit(x[two], y[two])
    np.testing.assert_allclose(ours.weights[1] - ours.weights[0], theirs.coef_[0], atol=1e-4)


def test_gradient_is_that_of_theobjective() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 3)), rng.integers(0, 4, 12)
    theta = rng.normal(size=16)
    numeric = approx_fprime(theta, lambda t: objective(t, x, y, 4, 0.7)[0], 1e-7)
    np.testing.assert_allclose(objective(theta, x, y, 4, 0.7)[1], numeric, atol=1e-6)


def test_the_sweep_chooses_on_validation(parts) -> None:  # type: ignore[no-untyped-def]
    train, validation, test = parts
    found = sweep_penalties(train, validation, iterations=300)
    assert [t.model.penalty for t in found.fits] == sorted(PENALTIES, reverse=True)
    best = max(t.validation.value for t in found.fits)
    assert found.best.validation.value == best
    equals = [t.model.penalty for t in found.fits if t.validation.value == best]
    assert found.best.model.penalty == max(equals)
    assert not found.at_the_edge
    reached = found.best.model.accuracy(*test)
    assert reached.value > 0.93
    assert reached.n == len(test[1])
    low, high = clopper_pearson(reached.value, reached.n)
    assert (reached.low, reached.high) == (float(low), float(high))
    strongest = found.fits[0]
    assert np.abs(strongest.model.weights).max() < 1e-3  # λ = 10⁷ leaves the bias only


def test_as_a_layer_of_torch(parts) -> None:  # type: ignore[no-untyped-def]
    train, _, (x, _) = parts
    model = fit_logistic(*train, 10.0)
    layer = model.as_layer()
    with torch.no_grad():
        found = layer(torch.from_numpy(x).float()).numpy()
    np.testing.assert_allclose(found, model.logits(x), atol=1e-4)


def test_a_head_that_cannot_hold_the_probe_is_said(parts) -> None:  # type: ignore[no-untyped-def]
    from shiftbed.training.linear_probe import install
    from shiftbed.training.networks import make_network

    model = fit_logistic(np.zeros((2, 64)), [0, 9], 1.0, classes=10)
    network = make_network("nets:resnet8?size=8", 10)
    install(network, model)
    assert torch.equal(
        network.heads[0].bias.double(), torch.from_numpy(model.bias).float().double()
    )
    with pytest.raises(InputError, match="single head with a bias"):
        install(make_network("nets:conv8?size=16", 10), model)


def test_a_class_without_examples_and_a_stop_are_said() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 2)), rng.integers(0, 2, 30)
    model = fit_logistic(x, y, 0.1, classes=3)
    assert model.logits(x).shape == (30, 3)
    assert (model.logits(x).argmax(1) < 2).all()
    assert not fit_logistic(x, y, 1e-6, iterations=1).converged


@pytest.mark.parametrize(
    ("features", "labels", "options", "said"),
    [
        (np.zeros((3, 2)), [0, 1], {}, r"\(N, D\)"),
        (np.zeros((2, 2)), [0.0, 1.0], {}, "whole numbers"),
        (np.zeros((2, 2)), [0, 5], {"classes": 3}, "0 … 2"),
        (np.full((2, 2), np.nan), [0, 1], {}, "finite"),
        (np.zeros((2, 2)), [0, 0], {}, "at least 2"),
        (np.zeros((2, 2)), [0, 1], {"penalty": -1.0}, "penalty"),
    ],
)
def test_wrong_input_is_said(features, labels, options, said) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=said):
        fit_logistic(features, labels, **({"penalty": 1.0} | options))


def test_two_files_of_one_python_network_are_two_probes(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The head is fitted on the features of the file: those of a dead first layer tell nothing."""
    own_weights.place(tmp_path)
    dead = own_weights.weights(1.0) | {"1.weight": torch.zeros(8, 16)}
    torch.save(dead, tmp_path / "dead.pt")
    sets = {"train": own_weights.shades("more", 1), "validation": own_weights.shades("held", 2)}
    line = f"python:{tmp_path / 'own.py'}:net()"
    reached = {}
    for name in ("right", "dead"):
        found = linear_probe(line, own_weights.shades(), start=f"file:{tmp_path}/{name}.pt", **sets)
        (reached[name],) = found.frame["value"].to_list()
        assert found.to_dict()["file"] is None
        module = own_weights.network()
        module.load_state_dict(torch.load(tmp_path / f"{name}.pt", weights_only=True))
        same = linear_probe(module, own_weights.shades(), **sets)
        assert same.frame["value"].to_list() == [reached[name]]
        assert same.to_dict()["sweep"] == found.to_dict()["sweep"]
    assert reached == {"right": 1.0, "dead": 0.5}
    with pytest.raises(InputError, match="does not fit the architecture"):
        linear_probe(line, own_weights.shades(), start=f"file:{tmp_path}/strange.pt", **sets)
    with pytest.raises(InputError, match="a model has its weights"):
        linear_probe(module, own_weights.shades(), start="random", **sets)


def test_a_probe_keeps_what_it_is_asked_to(tmp_path) -> None:  # type: ignore[no-untyped-def]
    module = own_weights.network()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    sets = {"train": own_weights.shades("more", 1), "validation": own_weights.shades("held", 2)}
    found = linear_probe(
        model(module, name="mine"),
        own_weights.shades(),
        features=tmp_path / "features",
        out=tmp_path / "probed.pt",
        **sets,
    )
    assert found.name.startswith("mine+linear@")
    assert len(list((tmp_path / "features").iterdir())) == 2
    written = torch.load(tmp_path / "probed.pt", weights_only=True)
    assert torch.equal(written["1.weight"], before["1.weight"])
    assert not torch.equal(written["3.weight"], before["3.weight"])
    assert all(torch.equal(module.state_dict()[name], before[name]) for name in before)
    assert "penalty λ chosen on 40 images" in str(found)
