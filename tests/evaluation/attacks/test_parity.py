"""As strong as the reference packages: same model, images, size and steps."""

import copy
import warnings

import numpy as np
import pytest
import torch

from shiftbed.evaluation.attacks import APGD, FGSM, PGD
from shiftbed.evaluation.compat import ensure_torchvision
from tests.evaluation.attacks.victims import Trained, coloured, digits

POINTS = 0.005 + 1e-9


def robust(found) -> float:
    return 1 - float(found.fooled.mean())


def autoattack(victim: Trained, norm: str, eps: float, loss: str, seed: int = 0) -> float:
    """Robust accuracy under AutoAttack's own APGD, 100 iterations."""
    base = pytest.importorskip("pyautoattack.autopgd_base")
    attack = base.APGDAttack(
        victim.model.module, n_iter=100, norm={"linf": "Linf", "l2": "L2"}[norm], eps=eps,
        loss=loss, seed=seed, device="cpu",
    )  # fmt: skip
    with seeded_outside(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = attack.perturb(torch.from_numpy(victim.x), torch.from_numpy(victim.y))
    return float(np.mean(victim.model.logits(found.detach().numpy()).argmax(1) == victim.y))


def foolbox(victim: Trained, norm: str, eps: float, step: float) -> float:
    """Robust accuracy under foolbox's PGD, 100 steps."""
    ensure_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fb = pytest.importorskip("foolbox")
        kind = fb.attacks.LinfPGD if norm == "linf" else fb.attacks.L2PGD
        model = fb.PyTorchModel(victim.model.module, bounds=(0, 1))
        x, y = torch.from_numpy(victim.x), torch.from_numpy(victim.y)
        with seeded_outside():
            _, _, fooled = kind(abs_stepsize=step, steps=100)(model, x, y, epsilons=eps)
    return 1 - float(fooled.float().mean())


def seeded_outside():
    from shiftbed.evaluation.models.torch_model import seeded

    return seeded(0)


@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.1), ("l2", 0.5)])
def test_apgd_ce_against_autoattack(norm, eps):
    victim = digits()
    found = APGD(norm=norm, eps=eps)(victim.model, victim.x, victim.y, victim.ids)
    assert 0.3 < robust(found) < 0.9  # a size that tells attacks apart
    assert robust(found) <= autoattack(victim, norm, eps, "ce") + POINTS


@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.1), ("l2", 0.5)])
def test_apgd_dlr_against_autoattack(norm, eps):
    # one seed differs from the next by half a point: two of each, and within a point
    victim, ours, theirs = digits(), [], []
    for seed in (0, 1):
        attack = APGD(norm=norm, eps=eps, loss="dlr", seed=seed)
        ours.append(robust(attack(victim.model, victim.x, victim.y, victim.ids)))
        theirs.append(autoattack(victim, norm, eps, "dlr", seed))
    assert np.mean(ours) <= np.mean(theirs) + 0.01


@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.1), ("l2", 0.5)])
def test_pgd_against_foolbox(norm, eps):
    victim = digits()
    attack = PGD(norm=norm, eps=eps)
    found = attack(victim.model, victim.x, victim.y, victim.ids)
    assert 0.3 < robust(found) < 0.9
    assert robust(found) <= foolbox(victim, norm, eps, attack.step_size) + POINTS


def test_fgsm_against_foolbox_pixel_by_pixel():
    victim = digits()
    ensure_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fb = pytest.importorskip("foolbox")
        model = fb.PyTorchModel(victim.model.module, bounds=(0, 1))
        x, y = torch.from_numpy(victim.x), torch.from_numpy(victim.y)
        fast = fb.attacks.LinfFastGradientAttack(random_start=False)
        theirs = fast(model, x, y, epsilons=0.07)[1].numpy()
    ours = FGSM(norm="linf", eps=0.07)(victim.model, victim.x, victim.y, victim.ids)
    right = ours.clean_logits.argmax(1) == victim.y  # elsewhere a wrong image may stay as it is
    truth = fast_in_float64(victim, 0.07)
    assert np.mean(np.abs(ours.pixels - truth)[right] < 1e-6) > 0.9995
    # float32 cross-entropy, as there, loses signs where the model is sure
    unsure = right & (np.exp(ours.clean_logits - ours.clean_logits.max(1)[:, None]).sum(1) > 1.001)
    assert unsure.sum() > 50
    assert np.mean(np.abs(ours.pixels - theirs)[unsure] < 1e-6) > 0.9995


def fast_in_float64(victim: Trained, eps: float):
    """x + ε sign ∇ cross-entropy with all arithmetic in float64."""
    network = copy.deepcopy(victim.model.module.network).double()
    x = torch.from_numpy(victim.x).double().requires_grad_()
    loss = torch.nn.functional.cross_entropy(
        network((x - 0.5) / 0.25), torch.from_numpy(victim.y), reduction="sum"
    )
    (gradient,) = torch.autograd.grad(loss, x)
    return (x + eps * gradient.sign()).clamp(0, 1).detach().numpy()


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.01), ("linf", 0.02), ("l2", 0.2)])
def test_colour_images_of_cifars_size(norm, eps):
    victim = coloured()
    pgd = PGD(norm=norm, eps=eps)
    found = pgd(victim.model, victim.x, victim.y, victim.ids, batch_size=100)
    assert robust(found) <= foolbox(victim, norm, eps, pgd.step_size) + POINTS
    found = APGD(norm=norm, eps=eps)(victim.model, victim.x, victim.y, victim.ids, batch_size=100)
    assert robust(found) <= autoattack(victim, norm, eps, "ce") + POINTS
