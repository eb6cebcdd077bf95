"""Pruning: exact sparsity for every method and scope, masks in files, weights that never change."""

import copy
import io
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from shiftbed.errors import InputError
from shiftbed.training.masks import (
    SCOPES,
    check_sparsity,
    folded,
    mask_lowest,
    pruned_layers,
    settle,
    sparsity_of,
    start,
    zeros_of,
)
from shiftbed.training.prune import METHODS, make, prune_by_magnitude, sparsities
from tests.training.minimal import Loop, accuracy, digits, loop, one_thread, small_net, train

FEW: dict[str, dict[str, Any]] = {
    "lottery-ticket": {"rounds": 2, "rewind": 0.25},
    "lr-rewinding": {"rounds": 2},
    "gradual": {"prunings": 5},
}
__all__ = ["one_thread"]


def run_one(method: str, sparsity: float, scope: str, steps: int = 8, seed: int = 0) -> Any:
    hook: Any = make(method=method, sparsity=sparsity, scope=scope, **FEW.get(method, {}))
    run = loop(small_net(seed), steps)
    hook.begin(run)
    train(run, hook)
    return run, hook


def saved(network: nn.Module) -> dict[str, torch.Tensor]:
    """A state dict through a file, read with weights_only."""
    file = io.BytesIO()
    torch.save(network.state_dict(), file)
    file.seek(0)
    found: dict[str, torch.Tensor] = torch.load(file, weights_only=True)
    return found


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sparsity", [0.5, 0.6, 0.8, 0.9, 0.95, 0.8137])
def test_sparsity_is_exact_to_the_weight(method: str, scope: str, sparsity: float) -> None:
    run, hook = run_one(method, sparsity, scope, steps=4)
    run.network.eval()
    with torch.no_grad():
        run.network(digits()[2][:2])
    used = [layer.module.weight for layer in pruned_layers(run.network)]
    assert len(used) == 3
    kept = [int(layer.mask.sum()) for layer in pruned_layers(run.network)]
    sizes = [w.numel() for w in used]
    wanted = (
        [round(sparsity * sum(sizes))]
        if scope == "global"
        else [round(sparsity * size) for size in sizes]
    )
    masked = [size - k for size, k in zip(sizes, kept, strict=True)]
    assert ([sum(masked)] if scope == "global" else masked) == wanted
    assert all(int((w == 0).sum()) >= m for w, m in zip(used, masked, strict=True))
    assert sparsity_of(run.network).zeros == sum(masked)
    assert hook.facts()["sparsity"] == sum(masked) / sum(sizes)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    sparsity=st.floats(0, 0.999),
    scope=st.sampled_from(SCOPES),
    levels=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_lowest_scores_are_masked_as_a_stable_sort_has_it(
    sizes: list[int], sparsity: float, scope: str, levels: int, seed: int
) -> None:
    """Many ties: the count stays exact, and the first of equal scores go."""
    rng = np.random.default_rng(seed)
    network = nn.ModuleList([nn.Linear(size, 1) for size in sizes])
    scores = [torch.from_numpy(rng.integers(0, levels, (1, n)).astype(np.float32)) for n in sizes]
    found = start(network)
    mask_lowest(found, scores, sparsity, scope)
    got = np.concatenate([layer.mask.numpy().ravel() for layer in found])
    groups = [np.arange(sum(sizes))]
    if scope == "layerwise":
        groups = np.split(groups[0], np.cumsum(sizes)[:-1])
    flat = np.concatenate([score.numpy().ravel() for score in scores])
    want = np.ones(len(flat))
    for group, zeros in zip(groups, zeros_of(sizes, sparsity, scope), strict=True):
        want[group[np.argsort(flat[group], kind="stable")[:zeros]]] = 0
    np.testing.assert_array_equal(got, want)


def test_magnitude_masks_as_torch_does() -> None:
    ours, theirs = small_net(), small_net()
    prune_by_magnitude(start(ours), 0.7, "global")
    layers = [(m, "weight") for m in theirs.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    torch.nn.utils.prune.global_unstructured(
        layers, torch.nn.utils.prune.L1Unstructured, amount=0.7
    )
    for layer, (module, _) in zip(pruned_layers(ours), layers, strict=True):
        assert torch.equal(layer.mask, module.weight_mask)


@pytest.mark.parametrize("method", METHODS)
def test_masks_survive_saving_and_loading(method: str) -> None:
    run, _ = run_one(method, 0.8, "layerwise")
    run.network.eval()
    x = digits()[2][:50]
    with torch.inference_mode():
        before = run.network(x)
    plain = small_net(8).eval()
    plain.load_state_dict(folded(saved(run.network)))
    with torch.inference_mode():
        assert torch.equal(plain(x), before)
    for layer in pruned_layers(run.network):
        zeros = plain.get_submodule(layer.name).weight == 0
        assert torch.equal(zeros, layer.mask == 0)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("method", ["edge-popup", "biprop"])
def test_edge_popup_never_changes_a_weight(method: str, scope: str) -> None:
    hook: Any = make(method=method, sparsity=0.7, scope=scope)
    run = loop(small_net(), 25)
    hook.begin(run)
    before = {n: p.detach().clone() for n, p in run.network.named_parameters()}
    masks = [layer.mask.detach().clone() for layer in pruned_layers(run.network)]
    train(run, hook)
    for name, parameter in run.network.named_parameters():
        if name.endswith("weight_score"):
            assert not torch.equal(parameter, before[name])
        else:
            assert torch.equal(parameter, before[name]), name
    now = [layer.mask for layer in pruned_layers(run.network)]
    assert any(not torch.equal(a, b) for a, b in zip(masks, now, strict=True))


def test_keep_takes_the_weights_as_they_come() -> None:
    plain = small_net(3)
    for method in ("edge-popup", "biprop"):
        hook: Any = make(method=method, sparsity=0.6, init="keep")
        run = loop(small_net(3), 5)
        hook.begin(run)
        train(run, hook)
        for layer in pruned_layers(run.network):
            assert torch.equal(layer.weights, plain.get_submodule(layer.name).weight)


def test_signed_constant_has_the_kaiming_size_and_the_old_sign() -> None:
    plain, run = small_net(), loop(small_net(), 2)
    make(method="edge-popup", sparsity=0.8).begin(run)  # type: ignore[arg-type]
    for layer in pruned_layers(run.network):
        old = plain.get_submodule(layer.name).weight
        size = (2 / (old[0].numel() * 0.2)) ** 0.5
        torch.testing.assert_close(layer.weights, size * old.sign(), rtol=1e-6, atol=0)


def test_scores_get_the_straight_through_gradient() -> None:
    """∂L/∂s = ∂L/∂w · w₀ · sign(s), ∂L/∂w taken from a plain network with the masked weights."""
    x, y, _, _ = digits()
    for method in ("edge-popup", "biprop"):
        hook: Any = make(method=method, sparsity=0.5)
        run = loop(small_net(), 3)
        hook.begin(run)
        torch.nn.functional.cross_entropy(run.network(x[:64]), y[:64]).backward()
        hook.after_backward(run)
        plain = small_net()
        plain.load_state_dict(folded(run.network.state_dict()))
        torch.nn.functional.cross_entropy(plain(x[:64]), y[:64]).backward()
        for layer, score in zip(hook.layers, hook.scores, strict=True):
            slope = plain.get_submodule(layer.name).weight.grad
            torch.testing.assert_close(score.grad, slope * layer.weights * score.sign())


def test_biprop_computes_with_one_value_and_its_negative() -> None:
    run, _ = run_one("biprop", 0.6, "layerwise", steps=10)
    settle(run.network)
    for layer in pruned_layers(run.network):
        used, mask = layer.module.weight, layer.mask.detach()
        values = used[mask == 1].unique()
        gain = (layer.weights * mask).abs().sum() / mask.sum()
        assert len(values) == 2
        assert float(values[0]) == -float(values[1])
        torch.testing.assert_close(values[1], gain.detach())
        assert torch.equal(used[mask == 1].sign(), layer.weights[mask == 1].sign())


def test_a_masked_weight_stays_masked_while_gradual_goes_on() -> None:
    hook: Any = make(method="gradual", sparsity=0.9, prunings=6, start=0.1, stop=0.8)
    run = loop(small_net(), 30)
    hook.begin(run)
    gone = [torch.zeros_like(layer.mask, dtype=torch.bool) for layer in hook.layers]
    seen = []
    for step in range(1, 31):
        train(run, hook, until=step)
        for old, layer in zip(gone, hook.layers, strict=True):
            assert not layer.mask[old].any()
            old |= layer.mask == 0
        seen.append(sparsity_of(run.network).value)
    assert seen[2] == 0.0  # nothing before the first pruning
    assert len(set(seen)) == 7
    steps = np.diff(sorted(set(seen)))
    assert (np.diff(steps) < 0).all()  # the cubic schedule takes less every time


def test_lottery_ticket_goes_back_to_the_early_weights() -> None:
    """After each round the network is the one of step k under a mask that only grows."""
    hook: Any = make(method="lottery-ticket", sparsity=0.8, rounds=2, rewind=0.3)
    run = loop(small_net(), 10)
    hook.begin(run)
    assert run.steps == 10 + 2 * 7
    train(run, hook, until=3)
    early = {n: t.clone() for n, t in run.network.state_dict().items()}
    rate = run.optimiser.param_groups[0]["lr"]
    for end, target in zip((10, 17), sparsities(0.8, 2), strict=True):
        train(run, hook, until=end)
        state = run.network.state_dict()
        assert all(torch.equal(state[n], early[n]) for n in early if not n.endswith("_mask"))
        assert run.optimiser.param_groups[0]["lr"] == rate
        assert not run.optimiser.state
        check_sparsity(run.network, target, "global")
    train(run, hook)
    assert run.seen_rates[3:10] == run.seen_rates[10:17] == run.seen_rates[17:24]
    assert hook.facts() | {"sparsity": 0} == {
        "pruning": "lottery-ticket", "scope": "global", "sparsity": 0, "round": 2, "rounds": 2,
    }  # fmt: skip


def test_learning_rate_rewinding_leaves_the_weights() -> None:
    hook: Any = make(method="lr-rewinding", sparsity=0.8, rounds=2)
    run = loop(small_net(), 6)
    first = {n: t.clone() for n, t in run.network.state_dict().items()}
    hook.begin(run)
    train(run, hook, until=6)
    weights = hook.layers[0].weights
    assert not torch.equal(weights, first["0.weight"])
    assert run.optimiser.param_groups[0]["lr"] == 0.1
    train(run, hook)
    assert run.step == 18
    assert run.seen_rates[:6] == run.seen_rates[6:12] == run.seen_rates[12:18]


def test_a_schedule_that_counts_epochs_is_rewound_too() -> None:
    """It moves after the step at which an epoch ends, so ``after_epoch`` puts it back."""
    network = small_net()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, gamma=0.5)
    run = Loop(network=network, optimiser=optimiser, schedule=schedule, steps=4)
    hook: Any = make(method="lr-rewinding", sparsity=0.5, rounds=1, rewind=0.5)
    hook.begin(run)
    rates = []
    for step in range(1, run.steps + 1):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        run.step = step
        hook.after_step(run)
        if step % 2 == 0:
            schedule.step()
            hook.after_epoch(run)
    assert rates == [0.1, 0.1, 0.05, 0.05, 0.05, 0.05]


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_run_goes_on_to_the_same_weights(method: str) -> None:
    """State through a file in the middle: as the loop does it, begin before weights are read."""
    whole, _ = run_one(method, 0.8, "global", steps=8)
    options = {"sparsity": 0.8, **FEW.get(method, {})}
    hook: Any = make(method=method, **options)
    run = loop(small_net(), 8)
    hook.begin(run)
    train(run, hook, until=run.steps // 2 + 1)
    file = io.BytesIO()
    states = (run.network, run.optimiser, run.schedule)
    torch.save([hook.state(), *(one.state_dict() for one in states)], file)
    file.seek(0)
    own, network, optimiser, schedule = torch.load(file, weights_only=True)
    again, fresh = loop(small_net(), 8), make(method=method, **options)
    again.step = run.step
    fresh.load_state(own)
    fresh.begin(again)  # type: ignore[arg-type]
    again.network.load_state_dict(network)
    again.optimiser.load_state_dict(optimiser)
    again.schedule.load_state_dict(schedule)
    assert again.steps == whole.steps
    train(again, fresh)
    want, got = whole.network.state_dict(), again.network.state_dict()
    assert list(want) == list(got)
    assert all(torch.equal(want[name], got[name]) for name in want)


def test_before_a_checkpoint_the_network_can_be_copied() -> None:
    for method in METHODS:
        hook: Any = make(method=method, sparsity=0.5, **FEW.get(method, {}))
        run = loop(small_net(), 4)
        hook.begin(run)
        train(run, hook, until=2)
        hook.before_checkpoint(run)
        twin = copy.deepcopy(run.network).eval()
        run.network.eval()
        x = digits()[2][:8]
        with torch.no_grad():
            assert torch.equal(twin(x), run.network(x))


def test_layers_can_be_left_dense() -> None:
    hook: Any = make(method="magnitude", sparsity=0.9, scope="layerwise", at=0.0, skip=["7"])
    run = loop(small_net(), 2)
    hook.begin(run)
    assert [layer.name for layer in pruned_layers(run.network)] == ["0", "4"]
    wrapped = nn.Module()
    wrapped.add_module("network", small_net())
    assert len(start(wrapped, ["7"])) == 2
    with pytest.raises(InputError, match="unknown layer"):
        start(small_net(), ["head"])


@pytest.mark.parametrize("method", METHODS)
def test_pruned_digits_are_still_read(method: str) -> None:
    """Half of the weights of a tiny net, a few hundred steps: far from chance."""
    hook: Any = make(method=method, sparsity=0.5, **FEW.get(method, {}))
    run = loop(small_net(), 150 if method not in ("lottery-ticket", "lr-rewinding") else 60)
    hook.begin(run)
    train(run, hook)
    assert accuracy(run.network) > 0.8


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "magnitud", "sparsity": 0.5}, "did you mean 'magnitude'"),
        ({"method": "magnitude", "sparsity": 80}, "write 0.8"),
        ({"method": "magnitude", "sparsity": "0.8"}, "must be a number"),
        ({"method": "magnitude", "sparsity": 0.8, "scope": "layer"}, "scope"),
        ({"method": "magnitude", "sparsity": 0.8, "at": 1.0}, "prune.at must be a number in"),
        ({"method": "gradual", "sparsity": 0.8, "start": 0.5, "stop": 0.5}, "above start"),
        ({"method": "gradual", "sparsity": 0.8, "prunings": 0}, "from 1"),
        ({"method": "lottery-ticket", "sparsity": 0.8, "rounds": 1.5}, "whole number"),
        ({"method": "edge-popup", "sparsity": 0.8, "init": "zero"}, "init"),
        ({"method": "biprop", "sparsity": 0.8, "at": 0.1}, "option of biprop"),
        ({"method": "magnitude", "sparsity": 0.8, "skip": "fc"}, "list of layer names"),
    ],
)
def test_wrong_options_are_said(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        make(**options)


def test_what_cannot_be_pruned_is_said() -> None:
    with pytest.raises(InputError, match="no convolution or linear"):
        start(nn.Sequential(nn.ReLU()))
    network = small_net()
    start(network)
    with pytest.raises(InputError, match="pruned already"):
        start(network)
    with pytest.raises(InputError, match="no masks"):
        sparsity_of(small_net())


def test_a_wrong_mask_is_found() -> None:
    run, _ = run_one("magnitude", 0.5, "global", steps=2)
    mask = pruned_layers(run.network)[0].mask
    mask.view(-1)[int(mask.view(-1).nonzero()[0])] = 0
    with pytest.raises(ValueError, match="zeros"):
        check_sparsity(run.network, 0.5, "global")
