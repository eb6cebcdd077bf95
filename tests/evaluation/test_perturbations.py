"""Perturbations by name: what they are, what belongs to their identity, how they act on a model."""

import numpy as np
import pytest
import torch
from torch import nn

from shiftbed.errors import InputError
from shiftbed.evaluation.models.base import FunctionModel
from shiftbed.evaluation.models.modules import UnderPolicy
from shiftbed.evaluation.models.torch_model import wrap
from shiftbed.evaluation.perturbations import (
    NotApplicable,
    attacks_spelled_out,
    parse_perturbation,
    spelled_out,
)
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.labels import class_map, subset

SMALL = Preprocessing(size=(8, 8), mean=(0.4,), std=(0.3,))
PLAIN = FunctionModel(
    id="python:mean", classes=3, preprocessing=SMALL, function=lambda x: x.mean(axis=(2, 3))
)


def linear(classes=5, seed=0):
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, classes))
    return wrap(network, id="python:linear", preprocessing=SMALL, facts={})


def images(n=6):
    x = np.random.default_rng(0).random((n, 3, 8, 8), dtype=np.float32)
    return x, [f"{i}.png" for i in range(n)]


def test_a_corruption_looks_at_pixels_and_ids_only():
    x, ids = images()
    perturb = parse_perturbation("gaussian_noise:2", seed=5).on(PLAIN)
    y = perturb(x, np.zeros(6, np.int64), ids)
    assert y.shape == x.shape
    assert not np.array_equal(x, y)
    backwards = perturb(x[::-1], np.full(6, -1), ids[::-1])
    np.testing.assert_array_equal(backwards[::-1], y)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("fog:2", {}), ("fog:3", {})),
        (("fog:2", {}), ("fog:2", {"seed": 1})),
        (("pgd-linf:2/255", {}), ("pgd-linf:2/255", {"steps": 7})),
        (("pgd-linf:2/255", {}), ("pgd-linf:2/255", {"seed": 7})),
        (("apgd-ce-l2:0.5", {}), ("apgd-dlr-l2:0.5", {})),
    ],
)
def test_what_changes_the_result_is_in_the_description(one, other):
    first, second = (parse_perturbation(name, **options) for name, options in (one, other))
    assert first.describe() != second.describe()
    assert parse_perturbation(one[0], **one[1]).describe() == first.describe()


def test_frost_pictures_are_known_by_their_contents(tmp_path):
    from PIL import Image

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.effect_noise((64, 64), 60).save(tmp_path / name / "frost.png")
    found = {parse_perturbation("frost:3").describe()["frost"]}
    found |= {
        parse_perturbation("frost:3", frost=str(tmp_path / n)).describe()["frost"] for n in "ab"
    }
    assert len(found) == 3


class TestAttacks:
    def test_pixels_stay_in_the_ball_and_the_loss_rises(self):
        x, ids = images(40)
        model = linear()
        labels = model.logits(x).argmax(axis=1)
        y = parse_perturbation("pgd-linf:8/255", steps=10).on(model)(x, labels, ids)
        assert np.abs(y - x).max() <= 8 / 255 + 1e-6
        assert 0 <= y.min() <= y.max() <= 1
        assert (model.logits(y).argmax(axis=1) == labels).mean() < 0.6

    def test_images_without_a_label_are_left_alone(self):
        x, ids = images()
        labels = np.array([-1, 0, -1, 1, -1, 2])
        y = parse_perturbation("pgd-linf:8/255", steps=3).on(linear())(x, labels, ids)
        np.testing.assert_array_equal(y[labels < 0], x[labels < 0])
        assert (y[labels >= 0] != x[labels >= 0]).any(axis=(1, 2, 3)).all()
        none = parse_perturbation("fgsm-l2:1").on(linear())(x, np.full(6, -1), ids)
        np.testing.assert_array_equal(none, x)

    def test_a_model_without_gradients_is_not_applicable(self):
        with pytest.raises(NotApplicable, match="needs gradients"):
            parse_perturbation("pgd-linf:2/255").on(PLAIN)

    def test_warnings_are_heard_once(self):
        flat = wrap(
            nn.Sequential(nn.Flatten(), _Constant(3)), id="x", preprocessing=SMALL, facts={}
        )
        x, ids = images()
        heard = []
        perturb = parse_perturbation("pgd-linf:8/255", steps=3).on(flat, None, heard.append)
        perturb(x, np.zeros(6, np.int64), ids)
        assert heard
        assert len(set(heard)) == len(heard)

    def test_the_policy_is_attacked_not_the_whole_model(self):
        """Under a subset the labels are those of the subset."""
        x, ids = images(40)
        model, policy = linear(), subset([3, 1])
        labels = policy.apply(model.logits(x)).argmax(axis=1)
        perturb = parse_perturbation("pgd-linf:16/255", steps=20).on(model, policy)
        fooled = policy.apply(model.logits(perturb(x, labels, ids))).argmax(axis=1) != labels
        assert fooled.mean() > 0.5


class _Constant(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 0).sum(dim=1, keepdim=True) + torch.arange(self.classes).flip(0)


@pytest.mark.parametrize("how", ["max", "mean", "sum", "max-logit"])
def test_a_policy_as_a_layer_is_the_policy(how):
    rng = np.random.default_rng(0)
    logits = (5 * rng.normal(size=(20, 7))).astype(np.float32)
    policy = class_map({"a": [0, 3], "b": [2], "c": [1, 5, 6]}, how, targets=["a", "b", "no", "c"])
    x = torch.from_numpy(logits).requires_grad_()
    found = UnderPolicy(nn.Identity(), policy)(x)
    filled = [0, 1, 3]
    np.testing.assert_allclose(
        found.detach().numpy()[:, filled], policy.apply(logits)[:, filled], atol=1e-5
    )
    assert (found[:, 2] < -1e8).all()
    nn.functional.cross_entropy(found, torch.zeros(20, dtype=torch.int64)).backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad[:, 4].abs().max() < 1e-6  # mapped to nothing
    assert x.grad[:, 2].abs().max() > 1e-3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fogg:3", "did you mean 'fog'"),
        ("fog:6", "severity must be 1 to 5"),
        ("fog:three", "NAME:SEVERITY"),
        ("pgd-linf", "needs a size"),
        ("python:no_such_module:f:1", "no module 'no_such_module'"),
        ("python:math:pi:1", "not a function"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(InputError, match=message):
        parse_perturbation(text)


def test_options_of_corruptions_are_few():
    with pytest.raises(InputError, match="unknown option of fog:3 'steps'"):
        parse_perturbation("fog:3", steps=2)
    with pytest.raises(InputError, match="of no use to fog"):
        parse_perturbation("fog:3", frost="x")


def test_short_ways_to_write_many():
    assert len(spelled_out(["all"])) == 96
    assert spelled_out(["fog", "fog:1"]) == [f"fog:{level}" for level in range(1, 6)]
    assert len(spelled_out(["all:3"])) == 19
    assert len(attacks_spelled_out(["taori2020", "wenzel2022"])) == 6
