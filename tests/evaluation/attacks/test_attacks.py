"""Balls, closed forms, determinism, restarts, early stop, targets."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftbed.evaluation.attacks import APGD, FGSM, PGD
from shiftbed.evaluation.attacks.ascent import cross_entropy, logits_ratio
from shiftbed.evaluation.attacks.auto import check_points
from shiftbed.evaluation.attacks.balls import draw_starts
from shiftbed.evaluation.models.torch_model import seeded, wrap
from shiftbed.evaluation.preprocessing import Preprocessing
from tests.evaluation.attacks.victims import Linear, coloured_cnn, digits

KINDS = (PGD, FGSM, APGD)


def distances(changed, x, norm):
    far = (changed.astype(np.float64) - x.astype(np.float64)).reshape(len(x), -1)
    return np.abs(far).max(1) if norm == "linf" else np.linalg.norm(far, axis=1)


def images(seed, n, shape):
    """Uniform noise with many pixels at 0 and 1, where the box bites."""
    noise = np.random.default_rng(seed).uniform(-0.5, 1.5, (n, *shape))
    return noise.clip(0, 1).astype(np.float32)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(["linf", "l2"]),
    st.floats(1e-4, 1.0),
    st.integers(1, 12),
    st.booleans(),
    st.booleans(),
    st.tuples(st.sampled_from([1, 3]), st.integers(1, 9), st.integers(1, 9)),
    st.integers(0, 2**32 - 1),
)
def test_perturbations_stay_in_the_ball_and_the_box(
    kind, norm, eps, steps, early_stop, random_start, shape, seed
):
    rng = np.random.default_rng(seed)
    w = torch.from_numpy(rng.normal(size=(4, int(np.prod(shape)))).astype(np.float32))
    model = lambda x: torch.tanh(x.flatten(1) @ w.T)  # noqa: E731
    options = {} if kind is FGSM else {"steps": steps}
    attack = kind(
        norm=norm, eps=eps, early_stop=early_stop, random_start=random_start, seed=seed, **options
    )
    x = images(seed, 3, shape)
    for one in (attack, replace(attack, clamp=False)):
        found = one(model, x, rng.integers(0, 4, 3), ["a", "b", "c"])
        assert (distances(found.pixels, x, norm) <= eps + 1e-6).all()
        assert np.isfinite(found.pixels).all()
        if one.clamp:
            assert found.pixels.min() >= 0
            assert found.pixels.max() <= 1


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("kind", [FGSM, PGD, APGD])
def test_the_optimum_of_a_linear_model(kind, norm):
    # the margin w·x + b falls by ε‖w‖₁ (ℓ∞) or ε‖w‖₂ (ℓ2), and no further
    rng = np.random.default_rng(3)
    w = torch.from_numpy(rng.normal(size=(1, 3, 6, 6)).astype(np.float32))
    x = rng.uniform(0.3, 0.7, (8, 3, 6, 6)).astype(np.float32)  # the box does not bite
    eps = 0.2 if norm == "linf" else 0.25
    model = Linear(w, b=50.0)  # never fooled
    found = kind(norm=norm, eps=eps)(model, x, np.zeros(8, np.int64), list("abcdefgh"))
    fall = model.margin(torch.from_numpy(x)) - model.margin(torch.from_numpy(found.pixels))
    flat = w.double().flatten()
    best = eps * float(flat.abs().sum() if norm == "linf" else flat.norm())
    assert fall.numpy() == pytest.approx(best, rel=1e-5)
    assert not found.fooled.any()


def test_a_sure_model_is_no_robust_model():
    # float32 softmax of logits ±500 is exactly (1, 0): plain cross-entropy has no gradient left
    w = torch.ones(1, 1, 4, 4) * 1000
    model = Linear(w, b=-8000 + 500)
    x = np.full((2, 1, 4, 4), 0.5, np.float32)
    x[1] += 0.01
    for attack in (PGD(norm="linf", eps=0.1), APGD(norm="l2", eps=0.5), FGSM(norm="l2", eps=0.5)):
        found = attack(model, x, np.zeros(2, np.int64), ["a", "b"])
        assert found.fooled.all()
        plain = torch.from_numpy(x).requires_grad_()
        loss = torch.nn.functional.cross_entropy(model(plain), torch.zeros(2, dtype=torch.long))
        assert torch.autograd.grad(loss, plain)[0].abs().max() == 0


def test_losses_and_their_gradients():
    with seeded(0):
        z, y = torch.randn(50, 7, dtype=torch.float64), torch.randint(0, 7, (50,))
    for loss, reference in (
        (cross_entropy, lambda a: torch.special.log_ndtr(a.sum()) * 0),
        (logits_ratio, _ratio_by_definition(y)),
    ):
        value, pull = loss(z, y)
        if loss is cross_entropy:
            want = torch.nn.functional.cross_entropy(z, y, reduction="none")
            assert torch.allclose(torch.nn.functional.softplus(value), want)
            reference = lambda a: (a.exp().sum(1) - _at(a, y).exp()).log() - _at(a, y)  # noqa: E731
        leaf = z.clone().requires_grad_()
        want = reference(leaf)
        assert torch.allclose(value, want.detach(), atol=1e-9)
        assert torch.allclose(pull, torch.autograd.grad(want.sum(), leaf)[0], atol=1e-9)


def _at(z, y):
    return z.gather(1, y[:, None]).squeeze(1)


def _ratio_by_definition(y):
    def ratio(z):
        found = []
        for row, label in zip(z, y.tolist(), strict=True):
            ordered = row.sort(descending=True).values
            rival = torch.cat([row[:label], row[label + 1 :]]).max()
            found.append((rival - row[label]) / (ordered[0] - ordered[2] + 1e-12))
        return torch.stack(found)

    return ratio


def test_check_points_follow_the_recursion():
    for steps in (1, 5, 10, 37, 100, 1000):
        p = [0.0, 0.22]
        while p[-1] < 1:
            p.append(p[-1] + max(p[-1] - p[-2] - 0.03, 0.06))
        want = {int(np.ceil(round(one * steps, 9))) for one in p[1:] if one <= 1 + 1e-9}
        assert set(check_points(steps)) == want


def test_random_starts_fill_the_ball():
    ids = [str(i) for i in range(2000)]
    cube = draw_starts(ids, norm="linf", eps=0.3, shape=(1, 2, 2), seed=0, stream="s")
    assert np.abs(cube).max() <= 0.3
    assert abs(cube.mean()) < 0.01
    assert cube.std() == pytest.approx(0.3 / 3**0.5, rel=0.03)
    ball = draw_starts(ids, norm="l2", eps=0.3, shape=(1, 2, 2), seed=0, stream="s")
    radii = np.linalg.norm(ball.reshape(2000, -1), axis=1)
    assert radii.max() <= 0.3 * (1 + 1e-6)
    assert np.mean(radii < 0.15) == pytest.approx(0.5**4, abs=0.02)  # volume of half the radius
    again = draw_starts(ids[5:6], norm="l2", eps=0.3, shape=(1, 2, 2), seed=0, stream="s")
    assert (again[0] == ball[5]).all()
    other = draw_starts(ids[5:6], norm="l2", eps=0.3, shape=(1, 2, 2), seed=1, stream="s")
    assert not np.allclose(other[0], ball[5])


ATTACKS = [
    PGD(norm="linf", eps=0.08, steps=20),
    PGD(norm="l2", eps=0.4, steps=20),
    APGD(norm="linf", eps=0.08, steps=20),
    APGD(norm="l2", eps=0.4, steps=20, loss="dlr"),
    FGSM(norm="linf", eps=0.08),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.id)
def test_the_same_twice_and_close_in_other_batches(attack):
    victim = digits()
    x, y, ids = victim.x[:64], victim.y[:64], victim.ids[:64]
    once = attack(victim.model, x, y, ids)
    again = attack(victim.model, x, y, ids)
    assert (once.pixels == again.pixels).all()
    assert (once.logits == again.logits).all()
    split = attack(victim.model, x, y, ids, batch_size=7)
    order = np.random.default_rng(0).permutation(64)
    shuffled = attack(victim.model, x[order], y[order], [ids[i] for i in order])
    for other, rows in ((split, np.arange(64)), (shuffled, order)):
        assert np.mean(other.fooled != once.fooled[rows]) <= 1 / 64
        moved = np.abs(other.pixels - once.pixels[rows]).reshape(64, -1).max(1)
        assert np.mean(moved < 1e-3) > 0.8  # a turned sign near 0 sends a few another way
    if attack.random_start:
        other_seed = replace(attack, seed=1)(victim.model, x, y, ids)
        assert not np.array_equal(other_seed.pixels, once.pixels)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.id)
def test_logits_and_fooled_are_those_of_the_pixels(attack):
    victim = digits()
    for one in (attack, replace(attack, early_stop=True)):
        found = one(victim.model, victim.x, victim.y, victim.ids)
        again = victim.model.logits(found.pixels)
        assert np.allclose(found.logits, again, atol=1e-3)
        assert (found.fooled == (found.logits.argmax(1) != victim.y)).all()
        assert np.allclose(found.clean_logits, victim.model.logits(victim.x), atol=1e-4)


@pytest.mark.parametrize("attack", ATTACKS[:4], ids=lambda attack: attack.id)
def test_early_stop_fools_as_many_with_fewer_passes(attack):
    victim = digits()
    whole = attack(victim.model, victim.x, victim.y, victim.ids)
    early = replace(attack, early_stop=True)(victim.model, victim.x, victim.y, victim.ids)
    assert abs(whole.fooled.mean() - early.fooled.mean()) <= 1 / 400
    assert early.passes.sum() < whole.passes.sum()
    wrong = victim.model.logits(victim.x).argmax(1) != victim.y
    assert wrong.any()
    assert early.fooled[wrong].all()
    assert (early.passes[wrong] == 0).all()
    assert (early.pixels[wrong] == victim.x[wrong]).all()


def test_restarts_only_help_and_attack_only_what_resists():
    victim = digits()
    one = PGD(norm="linf", eps=0.1, steps=5)
    found = [replace(one, restarts=k)(victim.model, victim.x, victim.y, victim.ids) for k in (1, 4)]
    assert (found[1].fooled >= found[0].fooled).all()
    assert found[1].fooled.sum() > found[0].fooled.sum()
    assert (found[1].passes[found[0].fooled] == 5).all()
    assert (found[1].passes[~found[1].fooled] == 20).all()


def test_own_prediction():
    victim = digits()
    own = victim.model.logits(victim.x).argmax(1)
    attack = PGD(norm="linf", eps=0.08, steps=20, target="own")
    found = attack(victim.model, victim.x, None, victim.ids)
    told = replace(attack, target="label")(victim.model, victim.x, own, victim.ids)
    assert (found.pixels == told.pixels).all()
    assert (found.fooled == (found.logits.argmax(1) != own)).all()
    wrong = own != victim.y
    labels = replace(attack, target="label")(victim.model, victim.x, victim.y, victim.ids)
    assert not np.array_equal(labels.pixels[wrong], found.pixels[wrong])


def test_unclamped_leaves_the_box():
    victim = digits()
    attack = PGD(norm="l2", eps=0.5, steps=20, target="own", clamp=False, keep="last")
    found = attack(victim.model, victim.x, victim.y, victim.ids)
    assert found.pixels.min() < 0  # digits have black corners
    assert (distances(found.pixels, victim.x, "l2") <= 0.5 + 1e-6).all()
    inside = replace(attack, clamp=True, target="label", keep="worst")
    assert inside(victim.model, victim.x, victim.y, victim.ids).pixels.min() >= 0


def test_worst_is_never_milder_than_last():
    victim = digits()
    last = PGD(norm="linf", eps=0.1, steps=3, step=0.1, keep="last")
    worst = replace(last, keep="worst")
    a = last(victim.model, victim.x, victim.y, victim.ids)
    b = worst(victim.model, victim.x, victim.y, victim.ids)
    assert (b.fooled >= a.fooled).all()
    assert (b.pixels[a.fooled] == a.pixels[a.fooled]).all()


def test_layout_kept_and_parameters_untouched():
    seen = []
    network = coloured_cnn()
    network.to(memory_format=torch.channels_last)

    def model(x):
        seen.append(x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous())
        return network(x)

    x = np.random.default_rng(0).random((16, 8, 8, 3), dtype=np.float32).transpose(0, 3, 1, 2)
    y = np.arange(16) % 10
    for attack in (
        PGD(norm="l2", eps=2, steps=6, early_stop=True),
        APGD(norm="linf", eps=0.2, steps=6, early_stop=True),
    ):
        attack(model, x, y, [str(i) for i in range(16)])
    assert all(seen)
    assert all(one.grad is None and one.requires_grad for one in network.parameters())


def test_inside_inference_mode_and_for_tensors():
    victim = digits()
    attack = PGD(norm="linf", eps=0.08, steps=5)
    want = attack(victim.model, victim.x[:9], victim.y[:9], victim.ids[:9])
    with torch.inference_mode():
        found = attack(
            victim.model, torch.from_numpy(victim.x[:9]), torch.from_numpy(victim.y[:9]),
            victim.ids[:9],
        )  # fmt: skip
    assert (found.pixels == want.pixels).all()
    assert not np.shares_memory(found.pixels, victim.x)


def test_eight_bits_and_no_ids():
    victim = digits()
    levels = np.rint(victim.x[:30, 0] * 255).astype(np.uint8)  # (N, H, W)
    attack = PGD(norm="linf", eps=0.08, steps=5)
    found = attack(victim.model, levels, victim.y[:30])
    fractions = levels[:, None] / np.float32(255)
    want = attack(victim.model, fractions, victim.y[:30], [str(i) for i in range(30)])
    assert found.pixels.dtype == np.float32
    assert found.pixels.shape == (30, 1, 8, 8)
    assert (found.pixels == want.pixels).all()
    assert found.fooled.any()
    tensors = attack(victim.model, torch.from_numpy(levels[..., None]), victim.y[:30])
    assert (tensors.pixels == want.pixels).all()
    doubles = attack(victim.model, fractions.astype(np.float64), victim.y[:30])
    assert (doubles.pixels == want.pixels).all()


def test_a_module_and_its_wrapped_model_are_attacked_alike():
    network = coloured_cnn().eval()
    preprocessing = Preprocessing(size=(8, 8), mean=(0.5,) * 3, std=(0.25,) * 3)
    model = wrap(network, id="mine", preprocessing=preprocessing, facts={}, channels_last=False)
    x = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    y = np.arange(12) % 10
    attack = APGD(norm="l2", eps=0.5, steps=10)
    whole = attack(model, x, y)
    plain = attack(lambda pixels: network((pixels - 0.5) / 0.25), x, y)
    assert (whole.fooled == plain.fooled).all()
    assert np.abs(whole.pixels - plain.pixels).max() < 1e-4
