"""Attacks, against bare passes and against foolbox, torchattacks, ART and AutoAttack.

    python -m benchmarks.attacks [--quick] [--json]

Every round times all of them on the same network, images, labels, sizes and steps, in changing
order; a ratio is the median over rounds with a bootstrap interval.

- ``cost``: PGD-100 over 100 bare forward and backward passes (at most 1.05 wanted). The rest is the
  random start, the clean pass, the last look, the steps themselves and the search for warnings.
- the others: their time over ours (at least 1 wanted), until it is known which images are fooled:
  foolbox and this package say it, after the others one more forward pass is made. APGD is compared
  on images the model has right, as AutoAttack leaves out the others.
- ``early_stop``: the whole attack over one that drops what is fooled, at equal robust accuracy.

A small convolutional network at 32 px, batch 64 (16 with ``--quick``); in the full run also
ResNet-18 at 224 px: batch 64, PGD-100 from runs of 2 and 12 steps, and batch 8, in both memory
layouts (the packages take plain batches, so they are compared in that). Weights are random: speed
does not depend on them. ``--quick`` does the small network, ℓ∞ only.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.common import arguments, report
from shiftbed.evaluation.attacks import APGD, PGD, Attack
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.models import TorchModel
from shiftbed.evaluation.models.torch_model import seeded, wrap
from shiftbed.evaluation.preprocessing import Preprocessing

Work = dict[str, Callable[[], Any]]
EPS = {"linf": 2 / 255, "l2": 0.5}
SHORT, LONG = 2, 12


def small_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(2048, 10),
    )  # fmt: skip


def network(name: str, channels_last: bool) -> TorchModel:
    """Pixels in, logits out, with random weights."""
    ensure_torchvision()
    with seeded(0):
        if name == "small":
            made, size = small_network(), 32
        else:
            import torchvision

            made, size = torchvision.models.resnet18(num_classes=1000), 224
    half = Preprocessing(size=(size, size), mean=(0.5,), std=(0.25,))
    return wrap(made, id=name, preprocessing=half, facts={}, channels_last=channels_last)


def batch(model: TorchModel, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise, labelled as the model sees it."""
    shape = (count, 3, *model.preprocessing.size)
    x = model.tensor(np.random.default_rng(0).random(shape, dtype=np.float32))
    with torch.no_grad():
        return x, model.module(x).argmax(1)


def timed(work: Work, rounds: int) -> dict[str, np.ndarray[Any, Any]]:
    """Seconds of each, by rounds in which the order changes."""
    found: dict[str, list[float]] = {name: [] for name in work}
    names = list(work)
    for i in range(rounds):
        turn = names[i % len(names) :] + names[: i % len(names)]
        for name in turn if i % 2 else reversed(turn):
            start = time.perf_counter()
            work[name]()
            found[name].append(time.perf_counter() - start)
    return {name: np.array(times) for name, times in found.items()}


def ratio(over: np.ndarray[Any, Any], under: np.ndarray[Any, Any]) -> dict[str, float | int]:
    """Median of the rounds' ratios, with a bootstrap interval."""
    each = over / under
    draws = np.random.default_rng(0).choice(each, (2000, len(each)))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return {
        "ratio": float(np.median(each)), "low": float(low), "high": float(high),
        "rounds": len(each),
    }  # fmt: skip


def bare(model: TorchModel, x: torch.Tensor, y: torch.Tensor, steps: int) -> Callable[[], Any]:
    def run() -> None:
        pixels = x.clone().requires_grad_()
        for _ in range(steps):
            loss = nn.functional.cross_entropy(model.module(pixels), y, reduction="sum")
            torch.autograd.grad(loss, pixels)

    return run


def ours(attack: Attack, model: TorchModel, x: torch.Tensor, y: torch.Tensor) -> Callable[[], Any]:
    pixels, labels, ids = x.numpy(), y.numpy(), [str(i) for i in range(len(x))]
    return lambda: attack(model, pixels, labels, ids)


def pgd_peers(attack: PGD, model: TorchModel, x: torch.Tensor, y: torch.Tensor) -> Work:
    import foolbox
    import torchattacks
    from art.attacks.evasion.projected_gradient_descent import (
        projected_gradient_descent_pytorch as art_pgd,
    )
    from art.estimators.classification import PyTorchClassifier

    eps, step, sup = attack.eps, attack.step_size, attack.norm == "linf"
    kind = foolbox.attacks.LinfPGD if sup else foolbox.attacks.L2PGD
    theirs = kind(abs_stepsize=step, steps=attack.steps)
    wrapped = foolbox.PyTorchModel(model.module, bounds=(0, 1), device="cpu")
    kind = torchattacks.PGD if sup else torchattacks.PGDL2
    other = kind(model.module, eps=eps, alpha=step, steps=attack.steps, random_start=True)
    classifier = PyTorchClassifier(
        model.module, nn.CrossEntropyLoss(), tuple(x.shape[1:]), model.classes,
        clip_values=(0, 1), device_type="cpu",
    )  # fmt: skip
    third = art_pgd.ProjectedGradientDescentPyTorch(
        classifier, norm=np.inf if sup else 2, eps=eps, eps_step=step, max_iter=attack.steps,
        num_random_init=1, batch_size=len(x), verbose=False,
    )  # fmt: skip
    pixels, labels = x.numpy(), y.numpy()
    return {
        "foolbox": lambda: theirs(wrapped, x, y, epsilons=eps),
        "torchattacks": lambda: fooled(model, other(x, y), y),
        "art": lambda: fooled(model, torch.from_numpy(third.generate(pixels, labels)), y),
    }


def fooled(model: TorchModel, pixels: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.module(pixels).argmax(1) != y


def apgd_peers(attack: APGD, model: TorchModel, x: torch.Tensor, y: torch.Tensor) -> Work:
    import torchattacks
    from pyautoattack.autopgd_base import APGDAttack

    norm = {"linf": "Linf", "l2": "L2"}[attack.norm]
    theirs = APGDAttack(
        model.module, n_iter=attack.steps, norm=norm, eps=attack.eps, loss=attack.loss, seed=0,
        device="cpu",
    )  # fmt: skip
    other = torchattacks.APGD(
        model.module, norm=norm, eps=attack.eps, steps=attack.steps, loss=attack.loss
    )
    return {
        "autoattack": lambda: fooled(model, theirs.perturb(x, y), y),
        "torchattacks": lambda: fooled(model, other(x, y), y),
    }


def compare(name: str, count: int, norm: str, steps: int, rounds: int) -> dict[str, Any]:
    """One network and norm: cost of PGD, and the packages over ours."""
    model = network(name, channels_last=False)
    x, y = batch(model, count)
    pgd = PGD(norm=norm, eps=EPS[norm], steps=steps)
    apgd = APGD(norm=norm, eps=EPS[norm], steps=steps)
    work = {"ours": ours(pgd, model, x, y), "bare": bare(model, x, y, steps)}
    seconds = timed(work | pgd_peers(pgd, model, x, y), rounds)
    mine = seconds.pop("ours")
    result = {"cost": ratio(mine, seconds.pop("bare"))}
    result |= {f"pgd_{peer}": ratio(times, mine) for peer, times in seconds.items()}
    seconds = timed({"ours": ours(apgd, model, x, y)} | apgd_peers(apgd, model, x, y), rounds)
    mine = seconds.pop("ours")
    return result | {f"apgd_{peer}": ratio(times, mine) for peer, times in seconds.items()}


def hundred(name: str, count: int, norm: str, rounds: int) -> dict[str, Any]:
    """PGD-100 where a hundred steps take minutes: from runs of ``SHORT`` and ``LONG`` steps.

    Time is fixed + steps × each; both come from the two runs of a round, and the ratio of a round
    is that of the times for a hundred steps.
    """
    model = network(name, channels_last=False)
    x, y = batch(model, count)
    work: Work = {}
    for steps in (SHORT, LONG):
        pgd = PGD(norm=norm, eps=EPS[norm], steps=steps)
        some = {"ours": ours(pgd, model, x, y), "bare": bare(model, x, y, steps)}
        some |= pgd_peers(pgd, model, x, y)
        work |= {f"{peer} {steps}": call for peer, call in some.items()}
    work[f"bare {SHORT}"]()
    seconds = timed(work, rounds)
    whole = {}
    for peer in ("ours", "bare", "foolbox", "torchattacks", "art"):
        short, long = seconds[f"{peer} {SHORT}"], seconds[f"{peer} {LONG}"]
        each = (long - short) / (LONG - SHORT)
        whole[peer] = short + (100 - SHORT) * each
    mine = whole.pop("ours")
    found = {"cost": ratio(mine, whole.pop("bare"))}
    return found | {f"pgd_{peer}": ratio(times, mine) for peer, times in whole.items()}


def layouts(name: str, count: int, steps: int, rounds: int) -> dict[str, Any]:
    """PGD over bare passes with batches laid out as convolutions prefer."""
    model = network(name, channels_last=True)
    x, y = batch(model, count)
    pgd = PGD(norm="linf", eps=EPS["linf"], steps=steps)
    seconds = timed({"ours": ours(pgd, model, x, y), "bare": bare(model, x, y, steps)}, rounds)
    return ratio(seconds["ours"], seconds["bare"])


def early(name: str, count: int, steps: int, rounds: int) -> dict[str, Any]:
    """What dropping fooled images saves, where an attack of 8/255 fools them all soon."""
    model = network(name, channels_last=False)
    x, y = batch(model, count)
    whole = PGD(norm="linf", eps=8 / 255, steps=steps)
    stopped = PGD(norm="linf", eps=8 / 255, steps=steps, early_stop=True)
    seconds = timed(
        {"whole": ours(whole, model, x, y), "early": ours(stopped, model, x, y)}, rounds
    )
    robust = [1 - float(ours(one, model, x, y)().fooled.mean()) for one in (whole, stopped)]
    found = ratio(seconds["whole"], seconds["early"])
    return found | {"robust_whole": robust[0], "robust_early": robust[1], "n": count}


def warm(name: str, count: int) -> None:
    """Import the packages and prepare convolutions, untimed."""
    compare(name, count, "linf", 1, 1)


def main() -> None:
    options = arguments(__doc__)
    warnings.simplefilter("ignore")
    result: dict[str, Any] = {"threads": torch.get_num_threads(), "steps": 100}
    warm("small", 16 if options.quick else 64)
    if options.quick:
        result["small_linf"] = compare("small", 16, "linf", 100, 3)
    else:
        for norm in EPS:
            result[f"small_{norm}"] = compare("small", 64, norm, 100, 10)
        result["small_channels_last_cost"] = layouts("small", 64, 100, 10)
        result["small_early_stop"] = early("small", 64, 100, 10)
        result["resnet18_linf_batch_64"] = hundred("resnet18", 64, "linf", 3)
        warm("resnet18", 8)
        for norm in EPS:
            result[f"resnet18_{norm}"] = compare("resnet18", 8, norm, 20, 4)
        result["resnet18_channels_last_cost"] = layouts("resnet18", 8, 100, 4)
        result["resnet18_note"] = "20 steps per run beside the packages, 100 beside bare passes"
    report(result, options.json)


if __name__ == "__main__":
    main()
