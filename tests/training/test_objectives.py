"""Objectives: closed forms, exact counts, and what they do on real digits."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import rel_entr, softmax
from torch import nn
from torch.nn import functional

from shiftbed.errors import InputError
from shiftbed.evaluation.models.heads import caught
from shiftbed.training.class_map import Mapped, merged
from shiftbed.training.forgetting import Replay, TwoHeads, Watch, become
from shiftbed.training.loop import train
from shiftbed.training.objective import (
    AugMixLoss,
    CrossEntropy,
    MeanSquares,
    TrainingBatch,
    jensen_shannon,
    make_objective,
)
from tests.training.digit_runs import accuracy, digits, make_run, network, trained

GROUPS = [[0, 5], [1, 6], [2, 7], [3, 8], [4, 9]]


def batch_of(x: torch.Tensor, y: torch.Tensor, *views: torch.Tensor) -> TrainingBatch:
    return TrainingBatch(pixels=x, labels=y, rows=np.arange(len(y)), views=views)


def some(n: int = 6, classes: int = 10, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(n, classes, generator=generator),
        torch.randint(classes, (n,), generator=generator),
    )


@pytest.fixture(scope="module")
def pretrained():
    """A network that knows the ten digits; and its head."""
    module, head = network(10, seed=1)
    run = make_run(CrossEntropy(), made=(module, head), steps=120)
    trained(run)
    assert accuracy(module) > 0.9
    return module, head


def start(pretrained, classes: int):
    """The pretrained body with a new head, and the old head."""
    module, head = deepcopy(pretrained)
    old = deepcopy(head)
    torch.manual_seed(5)
    become(head, nn.Linear(head.in_features, classes))
    return (module, head), (old,)


# --- squared error and consistency ---------------------------------------------------------------


def test_gradient_of_squared_error_on_one_hot():
    """∂/∂z of the mean over B·K of (z − e_y)² is 2(z − e_y)/(B·K)."""
    z, y = some()
    z.requires_grad_(True)
    MeanSquares().loss(nn.Identity(), batch_of(z, y)).backward()
    wanted = 2 * (z.detach() - functional.one_hot(y, 10)) / z.numel()
    torch.testing.assert_close(z.grad, wanted)


@given(seed=st.integers(0, 10_000), k=st.integers(2, 4), scale=st.floats(0.1, 30))
@settings(max_examples=40)
def test_jensen_shannon_against_its_definition(seed, k, scale):
    z = np.random.default_rng(seed).normal(0, scale, (k, 5, 7))
    p = softmax(z, axis=2)
    wanted = rel_entr(p, p.mean(axis=0)).sum(axis=2).mean()
    found = float(jensen_shannon(tuple(torch.from_numpy(z))))
    assert found == pytest.approx(wanted, abs=1e-9)
    assert -1e-9 <= found <= np.log(k) + 1e-9


def test_jensen_shannon_is_zero_with_zero_gradient_where_views_agree():
    z, _ = some()
    views = [z.clone().requires_grad_(True) for _ in range(3)]
    found = jensen_shannon(tuple(views))
    found.backward()
    assert abs(found.item()) < 1e-6
    assert all(float(view.grad.abs().max()) < 1e-7 for view in views)


def test_the_consistency_loss_is_timms():
    from shiftbed.evaluation.compat import ensure_torchvision

    ensure_torchvision()
    from timm.loss import JsdCrossEntropy

    z, y = some(seed=1)
    views = [some(seed=seed)[0] for seed in (2, 3)]
    found = AugMixLoss(weight=12).loss(nn.Identity(), batch_of(z, y, *views))
    wanted = JsdCrossEntropy(num_splits=3, alpha=12, smoothing=0)(torch.cat([z, *views]), y)
    assert float(found) == pytest.approx(float(wanted), rel=1e-5)


def test_consistency_brings_views_together():
    steps = [{"name": "gaussian-noise", "sigma": 0.3}]
    apart = {}
    for weight in (1e-6, 12.0):
        run = make_run(AugMixLoss(weight), steps=60, augmentation=steps)
        trained(run)
        run.network.eval()
        with torch.inference_mode():
            batch = next(iter(run.stream.epoch(99)))
            apart[weight] = float(
                jensen_shannon(tuple(run.network(x) for x in (batch.pixels, *batch.views)))
            )
        assert accuracy(run.network) > 0.7
    assert apart[12.0] < 0.5 * apart[1e-6]


# --- replay --------------------------------------------------------------------------------------


def test_the_old_head_answers_as_before(pretrained):
    module, head = pretrained
    (new, new_head), old = start(pretrained, 5)
    both = TwoHeads(new, (new_head,), old).eval()
    x = torch.rand(4, 1, 8, 8)
    torch.testing.assert_close(both.old(x), module.eval()(x))
    assert both(x).shape == (4, 5)
    with caught((head,)) as inputs:
        module(x)
    assert inputs[0].shape == (4, 64)
    assert not new_head._forward_pre_hooks


@pytest.mark.parametrize("ratio", [1, 10, 100])
@pytest.mark.parametrize("together", [False, True])
def test_so_many_old_batches_per_new_batch(pretrained, ratio, together):
    made, old = start(pretrained, 5)
    objective = Replay("old", ratio, together)
    run = make_run(
        objective,
        made=made,
        old=old,
        classes=5,
        others={"old": digits(slice(0, 200))},
        steps=2,
        lr=1e-4,
    )
    trained(run)
    assert run.step == 2
    assert objective.served == 2 * ratio
    assert objective.state() == {"served": 2 * ratio}


def test_one_joint_step_is_on_the_mean_of_all_batches(pretrained):
    made, old = start(pretrained, 5)
    others = {"old": digits(slice(0, 128))}
    run = make_run(Replay("old", 2, True), made=made, old=old, classes=5, others=others)
    new = next(iter(run.stream.epoch(0)))
    stream = run.setup.stream(others["old"])
    parts = [functional.cross_entropy(run.network(new.pixels), new.labels)]
    for batch in stream.epoch(0):
        parts.append(functional.cross_entropy(run.network.old(batch.pixels), batch.labels))
    assert len(parts) == 3
    found = run.objective.loss(run.network, new)
    torch.testing.assert_close(found, sum(parts) / 3)


def test_both_heads_are_trained(pretrained):
    made, old = start(pretrained, 5)
    frozen = tuple(deepcopy(head).requires_grad_(False) for head in old)  # as the core hands them
    others = {"old": digits(slice(0, 200))}
    run = make_run(Replay("old"), made=made, old=frozen, classes=5, others=others, steps=3)
    before = deepcopy(made[1].weight.detach())
    trained(run)
    assert not torch.equal(run.network.old_heads[0].weight, old[0].weight)
    assert torch.equal(frozen[0].weight, old[0].weight)
    assert not torch.equal(made[1].weight, before)


def test_old_batches_go_on_where_they_stopped(pretrained):
    made, old = start(pretrained, 5)
    others = {"old": digits(slice(0, 300))}
    first, second = (
        make_run(Replay("old", 3), made=deepcopy(made), old=old, classes=5, others=others)
        for _ in range(2)
    )
    for _ in range(7):
        first.objective.next_old()
    second.objective.load_state(first.objective.state())
    for _ in range(8):
        one, other = first.objective.next_old(), second.objective.next_old()
        assert np.array_equal(one.rows, other.rows)


def test_replay_keeps_the_old_task_and_watch_logs_it_at_each_checkpoint(pretrained):
    """Fine-tuning on digits modulo 5 of half the classes forgets the ten; replay does not."""
    x = slice(0, 600)
    others = {"old": digits(x), "old-test": digits(slice(1200, None))}
    ends = {}
    for name in ("alone", "replay"):
        made, old = start(pretrained, 2)
        objective = CrossEntropy() if name == "alone" else Replay("old", 1)
        watch = Watch("old-test")
        run = make_run(
            objective,
            made=made,
            old=old,
            classes=2,
            others=others,
            hooks=(watch,),
            steps=150,
            lr=0.003,
        )
        stops = trained(run, (0, 50, 100))
        assert stops == [0, 50, 100, 150]
        assert [one["step"] for one in watch.log] == stops
        assert all(one["low"] < one["accuracy"] <= one["high"] for one in watch.log)
        assert {one["n"] for one in watch.log} == {597}
        assert watch.log[0]["accuracy"] == pytest.approx(accuracy(pretrained[0]))
        assert watch.facts() == {
            "old_data": "old-test",
            **{f"old_{key}": watch.log[-1][key] for key in ("accuracy", "low", "high", "n")},
        }
        ends[name] = watch.log[-1]
        evaluated = objective.evaluated(run.network)
        assert accuracy(evaluated, classes=2) > 0.9
    assert ends["alone"]["high"] < ends["replay"]["low"]
    assert ends["replay"]["accuracy"] > 0.9


def test_watch_survives_a_kill_and_may_look_at_fewer(pretrained):
    made, old = start(pretrained, 5)
    watch = Watch("old", limit=50)
    run = make_run(
        CrossEntropy(), made=made, old=old, classes=5, others={"old": digits()}, hooks=(watch,)
    )
    trained(run, (5,))
    assert {one["n"] for one in watch.log} == {50}
    again = Watch("old", limit=50)
    again.load_state(watch.state())
    assert again.log == watch.log


@pytest.mark.parametrize(
    ("objective", "options", "message"),
    [
        (Replay("old"), {"old": ()}, "needs the old head"),
        (Replay("few"), {}, "few has 5 classes, the old head 10"),
        (Mapped(GROUPS), {"old": ()}, "needs the old head"),
        (Mapped(GROUPS[:4]), {}, "class map has 4 classes, the data has 5"),
        (Mapped([*GROUPS[:4], [10]]), {}, "names old class 10, the old head has 10"),
    ],
)
def test_what_does_not_fit_is_said(pretrained, objective, options, message):
    made, old = start(pretrained, 5)
    others = {"old": digits(), "few": digits(classes=5)}
    with pytest.raises(InputError, match=message):
        make_run(objective, **{"made": made, "old": old, "classes": 5, "others": others} | options)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": "replay", "data": "old", "ratio": 0}, "ratio must be a whole number"),
        ({"name": "replay"}, "data"),
        ({"name": "class-map", "map": "cifar10"}, "did you mean 'cifar-10'"),
        ({"name": "class-map", "map": [[0], []]}, "class 1 has no old classes"),
        ({"name": "class-map", "map": [[0], [0]]}, "belongs to two new ones"),
        ({"name": "class-map", "map": GROUPS, "over": "al"}, "did you mean 'all'"),
        ({"name": "class-map", "map": GROUPS, "pull": -1}, "pull must be 0 or more"),
        ({"name": "augmix", "weight": 0}, "weight must be above 0"),
        ({"name": "contrastive", "templates": ["no place"]}, "must have {} once"),
        ({"name": "contrastive", "text_heads": 5}, "multiple of text_heads"),
    ],
)
def test_tables_that_cannot_be_used(table, message):
    with pytest.raises(InputError, match=message):
        make_objective(table)


# --- class maps --------------------------------------------------------------------------------


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25)
def test_merged_logits_are_maxima(seed):
    z, _ = some(4, 10, seed)
    index = torch.tensor([[0, 5, 2], [1, -1, -1], [9, 8, -1]])
    found = merged(z, index)
    wanted = torch.stack([z[:, [0, 5, 2]].amax(1), z[:, 1], z[:, [9, 8]].amax(1)], dim=1)
    assert torch.equal(found, wanted)


def mapped_run(pretrained, **options):
    made, old = start(pretrained, 5)
    objective = Mapped(GROUPS, **options)
    others = {"old": digits(slice(0, 300))}
    run = make_run(objective, made=made, old=old, classes=5, others=others, steps=20, lr=0.003)
    return run, objective


def test_the_loss_is_cross_entropy_on_merged_logits(pretrained):
    run, objective = mapped_run(pretrained)
    batch = next(iter(run.stream.epoch(0)))
    with torch.inference_mode():
        z = pretrained[0].eval()(batch.pixels)  # the old head was put back
        run.network.eval()
        found = objective.loss(run.network, batch)
        by_hand = torch.stack([z[:, own].amax(dim=1) for own in GROUPS], dim=1)
    assert float(found) == pytest.approx(float(functional.cross_entropy(by_hand, batch.labels)))


def test_over_all_old_classes_it_is_that_of_the_best_mapped_one(pretrained):
    run, objective = mapped_run(pretrained, over="all")
    batch = next(iter(run.stream.epoch(0)))
    with torch.inference_mode():
        z = run.network.old(batch.pixels)
        targets = [
            own[int(z[i, own].argmax())]
            for i, own in enumerate(GROUPS[label] for label in batch.labels.tolist())
        ]
        wanted = functional.cross_entropy(z, torch.tensor(targets))
        found = objective.loss(run.network, batch)
    assert float(found) == pytest.approx(float(wanted), abs=1e-6)


@pytest.mark.parametrize("pulled", ["head", "all"])
def test_the_pull_is_zero_at_the_start_and_two_lambda_times_the_way_afterwards(pretrained, pulled):
    run, objective = mapped_run(pretrained, pull=0.7, pulled=pulled)
    assert objective.distance().item() == 0
    head = run.setup.heads[0]
    batch = next(iter(run.stream.epoch(0)))
    free, _ = mapped_run(pretrained)
    pulling, without = (one.objective.loss(one.network, batch).item() for one in (run, free))
    assert pulling == pytest.approx(without)
    before = head.weight.detach().clone()
    with torch.no_grad():
        head.weight.add_(0.01)
    (0.7 * objective.distance()).backward()
    torch.testing.assert_close(head.weight.grad, 2 * 0.7 * (head.weight.detach() - before))
    assert len(objective.held) == (2 if pulled == "head" else len(list(run.network.parameters())))


def test_a_strong_pull_stays_nearer(pretrained):
    far = {}
    for pull in (1e-9, 1.0):
        run, objective = mapped_run(pretrained, pull=pull)
        trained(run)
        far[pull] = float(objective.distance().detach())
    assert far[1.0] < 0.2 * far[1e-9]


def test_the_shared_head_serves_old_and_new_data(pretrained):
    run, objective = mapped_run(pretrained, data="old", ratio=2)
    trained(run)
    assert objective.served == 40
    assert accuracy(run.network, classes=5) > 0.9
    assert accuracy(objective.written(run.network)) > 0.9
    assert objective.outputs(5) == 10
    again = objective.evaluated(objective.written(run.network))
    assert accuracy(again, classes=5) == accuracy(run.network, classes=5)


def test_a_shipped_map_names_imagenets_classes():
    objective = make_objective({"name": "class-map", "map": "cifar-10"})
    assert len(objective.groups) == 10
    assert sum(map(len, objective.groups)) == 142


def test_head_only_training_on_features_works_for_both(pretrained):
    """What the core does with tune = "head": features go in, and the layer itself is shared."""
    from shiftbed.evaluation.models.heads import HeadOnly

    for make in (lambda: Replay("old"), lambda: Mapped(GROUPS)):
        (module, head), old = start(pretrained, 5)
        alone = HeadOnly((head,))
        objective = make()
        assert objective.on_features
        run = make_run(objective, made=(alone, head), old=old, classes=5, others={"old": digits()})
        features = torch.randn(8, 64)
        loss = objective.loss(run.network, batch_of(features, torch.arange(8) % 5))
        loss.backward()
        assert head.weight.grad is not None
        assert objective.evaluated(run.network)(features).shape == (8, 5)
        assert module.eval()(torch.rand(2, 1, 8, 8)).shape == (2, objective.outputs(5))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Replay("old", 2),
        lambda: Mapped(GROUPS, pull=0.1, data="old"),
        lambda: AugMixLoss(),
        lambda: make_objective(
            {"name": "contrastive", "class_names": list("abcde"), "width": 8, "text_layers": 1}
        ),
    ],
    ids=["replay", "class map", "consistency", "contrastive"],
)
def test_a_killed_run_ends_with_the_same_weights(pretrained, make):
    def run():
        made, old = start(pretrained, 5)
        others = {"old": digits(slice(0, 300))}
        steps = [{"name": "gaussian-noise"}]
        return make_run(
            make(), made=made, old=old, classes=5, others=others, steps=9, augmentation=steps
        )

    states = {}
    whole = run()
    train(whole, [4, 9], lambda one: states.setdefault(one.step, deepcopy(one.state())))
    again = run()
    again.begin(states[4])
    train(again, [9], lambda one: None)
    ends = whole.network.state_dict(), again.network.state_dict()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
