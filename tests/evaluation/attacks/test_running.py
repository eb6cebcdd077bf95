"""Warnings where a robust number is not to be trusted, and inputs that are refused."""

import numpy as np
import pytest
import torch

from shiftbed.errors import InputError
from shiftbed.evaluation.attacks import APGD, FGSM, PGD
from shiftbed.evaluation.attacks.running import Evidence, diagnose
from shiftbed.evaluation.models import FunctionModel
from shiftbed.evaluation.preprocessing import Preprocessing
from tests.evaluation.attacks.victims import Linear, coloured_cnn, digits

ATTACK = PGD(norm="linf", eps=0.1, steps=10)
X = np.random.default_rng(0).random((4, 3, 8, 8), dtype=np.float32)
Y = np.array([0, 1, 0, 1])
IDS = ["a.png", "b.png", "c.png", "d.png"]


def said(warnings, words):
    return any(words in line for line in warnings)


def test_nothing_is_said_of_a_plain_network():
    victim = digits()
    for attack in (PGD(norm="linf", eps=0.05), APGD(norm="l2", eps=0.3)):
        assert attack(victim.model, victim.x, victim.y, victim.ids).warnings == ()


@pytest.mark.parametrize("kind", [PGD, APGD])
def test_zero_gradients(kind):
    victim = digits()
    found = kind(norm="linf", eps=0.1)(
        lambda x: victim.model.module(x.round()), victim.x, victim.y, victim.ids
    )
    assert said(found.warnings, "gradient is 0 for")
    robust = int((~found.fooled).sum())
    assert said(found.warnings, f"{robust} of {robust} robust images")


def test_the_loss_does_not_rise():
    victim = digits()
    found = PGD(norm="linf", eps=0.1)(
        lambda x: _turned(victim.model.module, x), victim.x, victim.y, victim.ids
    )
    assert said(found.warnings, "did not rise")
    assert said(found.warnings, "random noise has a higher loss")


class _Turn(torch.autograd.Function):
    """Gradients with the wrong sign: a mask."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def _turned(module, x):
    return module(_Turn.apply(x))


def test_one_step_beats_many():
    # steps of many times the ball on a loss that waves: where the walk ends is chance
    def model(x):
        waves = torch.sin(40 * x).flatten(1).sum(1, keepdim=True)
        return torch.cat([torch.full_like(waves, 999.0), waves], 1)

    found = PGD(norm="linf", eps=0.5, steps=20, step=0.4)(model, X, np.zeros(4, np.int64), IDS)
    assert said(found.warnings, "one step has a higher loss")


def test_gradients_that_are_no_numbers():
    def model(x):
        height = (x - x.detach()).flatten(1).sum(1, keepdim=True)
        return torch.cat([height.abs().sqrt(), 1 + 0 * height], 1)  # derivative of √ at 0

    found = ATTACK(model, X, np.ones(4, np.int64), IDS)
    assert said(found.warnings, "not finite for 4 of 4 images")
    assert np.isfinite(found.pixels).all()


def test_few_steps_and_restarts():
    victim = digits()
    short = PGD(norm="linf", eps=0.1, step=0.01, steps=10, random_start=False)
    found = short(victim.model, victim.x, victim.y, victim.ids)
    assert said(found.warnings, "last tenth of the steps")
    two = PGD(norm="linf", eps=0.1, step=0.03, steps=1, restarts=2)
    assert said(two(victim.model, victim.x, victim.y, victim.ids).warnings, "last restart")
    one = FGSM(norm="linf", eps=0.1)(victim.model, victim.x, victim.y, victim.ids)
    assert said(one.warnings, "one step only")


def test_training_mode():
    network = coloured_cnn().train()
    assert said(ATTACK(network, X, Y, IDS).warnings, "training mode")
    assert not said(ATTACK(network.eval(), X, Y, IDS).warnings, "training mode")


def test_evidence_adds_up():
    one = Evidence(images=10, robust=5, zero_gradient=1, notes=("a",))
    both = one + Evidence(images=990, robust=495, notes=("a", "b"))
    assert (both.images, both.robust, both.notes) == (1000, 500, ("a", "b"))
    assert said(diagnose(one), "1 of 5 robust")
    assert not said(diagnose(both), "robust images")  # 1 of 500 is below 1 %


def _onnx_like():
    return FunctionModel(
        id="onnx:net.onnx", classes=2, function=lambda x: x[:, :2, 0, 0],
        preprocessing=Preprocessing(size=(8, 8)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (_onnx_like(), "onnx:net.onnx has no gradients to attack along: it is no torch network"),
        (lambda x: x.detach().numpy()[:, :2, 0, 0], "it returns ndarray"),
        (lambda x: torch.from_numpy(x.numpy())[:, :2, 0, 0], "requires grad"),
        (lambda x: x.detach()[:, :2, 0, 0], "do not depend on pixels differentiably"),
        (lambda x: x[:, 0, 0, 0], "(N, classes) logits"),
        (lambda x: x[:, :1, 0, 0], "at least two classes"),
        (lambda x: x[:2, :2, 0, 0], "(N, classes) logits"),
        (lambda x: x[:, :2, 0, 0] * torch.nan, "not numbers"),
        ("resnet18", "a str is no model"),
    ],
)
def test_models_without_gradients(model, says):
    with pytest.raises(InputError) as caught:
        ATTACK(model, X, Y, IDS)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_logits_ratio_needs_three_classes():
    with pytest.raises(InputError, match="at least three classes"):
        APGD(norm="l2", eps=1, loss="dlr")(Linear(torch.ones(1, 3, 8, 8), -9), X, Y, IDS)


def _with(change):
    x = X.copy()
    change(x)
    return x


@pytest.mark.parametrize(
    ("x", "y", "ids", "says"),
    [
        (_with(lambda x: x[2].__setitem__((0, 0, 0), np.nan)), Y, IDS, "image c.png holds values"),
        (_with(lambda x: x[1].__setitem__((0, 0, 0), np.inf)), Y, IDS, "image b.png holds values"),
        (X * 255, Y, IDS, "[0, 1], got values up to 254."),
        (X - 0.5, Y, IDS, "must lie in [0, 1]"),
        ((X * 255).astype(np.int32), Y, IDS, "must be uint8, or float in [0, 1], got int32"),
        ((X[0, 0] * 255).astype(np.uint8), Y, None, "(N, H, W, C) or (N, H, W), got (8, 8)"),
        (X[0], Y, None, "(N, C, H, W)"),
        (X[:0], Y[:0], [], "not be empty"),
        (X[:, :, :0], Y, IDS, "not be empty"),
        ([[1.0]], Y, None, "an array or a tensor, got list"),
        (X, Y[:3], IDS, "labels must have shape (4,)"),
        (X, Y.astype(float), IDS, "whole numbers"),
        (X, Y - 1, IDS, "from 0, got -1"),
        (X, Y + 1, IDS, "label 2 is not among the 2 classes"),
        (X, None, IDS, "labels are needed"),
        (X, Y, IDS[:3], "4 images need 4 ids, got 3"),
        (X, Y, "abcd", "one id each"),
    ],
)
def test_bad_input(x, y, ids, says):
    with pytest.raises(InputError) as caught:
        ATTACK(Linear(torch.ones(1, 3, 8, 8), -90.0), x, y, ids)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_of_another_image_size():
    victim = digits()
    with pytest.raises(InputError, match=r"takes images of \(C, H, W\) = \(1, 8, 8\), got \(3,"):
        ATTACK(victim.model, X, Y)


def test_bad_batch_size():
    with pytest.raises(InputError, match="batch size"):
        ATTACK(Linear(torch.ones(1, 3, 8, 8)), X, Y, IDS, batch_size=0)
