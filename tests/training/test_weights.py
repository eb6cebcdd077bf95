"""Weight space: end points bit for bit, soups of one, greedy never below the best."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from shiftbed.errors import InputError
from shiftbed.training.objective import Hook
from shiftbed.training.prune import make
from shiftbed.training.weights import (
    greedy_soup,
    interpolated,
    read_weights,
    uniform_soup,
    write_weights,
)
from tests.training.minimal import accuracy, digits, loop, one_thread, small_net, train

__all__ = ["one_thread"]


def same_bits(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Equal bytes: −0 is not 0, NaN is NaN."""
    return list(a) == list(b) and all(
        a[n].dtype == b[n].dtype and a[n].numpy().tobytes() == b[n].numpy().tobytes() for n in a
    )


def trained(seed: int, steps: int = 25, start: int = 0) -> dict[str, Tensor]:
    """From a common start, on other batches for every seed."""
    run = loop(small_net(start), steps + seed)
    run.step = seed
    return copy.deepcopy(train(run, Hook()).network.state_dict())


def with_state(state: dict[str, Tensor]) -> nn.Module:
    network = small_net()
    network.load_state_dict(state)
    return network.eval()


@pytest.fixture(scope="module")
def ends() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    return trained(0), trained(9)


def test_end_points_are_bit_for_bit_and_so_are_their_predictions(ends) -> None:  # type: ignore[no-untyped-def]
    first, second = ends
    assert not same_bits(first, second)
    x = digits()[2]
    for alpha, end in ((0, first), (0.0, first), (1, second), (1.0, second)):
        found = interpolated(first, second, alpha)
        assert same_bits(found, end)
        with torch.inference_mode():
            assert torch.equal(with_state(found)(x), with_state(end)(x))


def test_end_points_survive_what_arithmetic_would_not() -> None:
    odd = {"w": torch.tensor([-0.0, float("inf"), float("nan"), 1e-45])}
    plain = {"w": torch.ones(4)}
    assert same_bits(interpolated(odd, plain, 0.0), odd)
    assert same_bits(interpolated(plain, odd, 1.0), odd)
    assert same_bits(uniform_soup([odd]), odd)


@settings(max_examples=60, deadline=None)
@given(
    alpha=st.floats(0, 1),
    values=st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=8),
)
def test_interpolation_is_the_formula_in_double_precision(
    alpha: float, values: list[float]
) -> None:
    a = np.array(values, np.float32)
    b = a[::-1].copy()
    found = interpolated({"w": torch.from_numpy(a)}, {"w": torch.from_numpy(b)}, alpha)["w"].numpy()
    want = (1 - alpha) * a.astype(float) + alpha * b.astype(float)
    np.testing.assert_allclose(found, want, rtol=1e-7, atol=1e-7 * float(np.abs(a).max()) + 1e-38)
    assert (found >= np.minimum(a, b)).all()
    assert (found <= np.maximum(a, b)).all()
    same = interpolated({"w": torch.from_numpy(a)}, {"w": torch.from_numpy(a)}, alpha)["w"]
    assert same.numpy().tobytes() == a.tobytes() or (same.numpy() == a).all()


def test_a_linear_model_between_is_the_mean_of_both() -> None:
    """Logits are linear in the weights of one layer: a closed form for the whole path."""
    torch.manual_seed(0)
    one, two = nn.Linear(64, 10), nn.Linear(64, 10)
    x = digits()[2].flatten(1)
    for alpha in np.linspace(0, 1, 5).tolist():
        mixed = nn.Linear(64, 10)
        mixed.load_state_dict(interpolated(one.state_dict(), two.state_dict(), alpha))
        torch.testing.assert_close(mixed(x), (1 - alpha) * one(x) + alpha * two(x))


def test_counts_are_rounded_and_other_integers_must_agree() -> None:
    a = {"bn.num_batches_tracked": torch.tensor(10), "index": torch.tensor([1, 2])}
    b = {"bn.num_batches_tracked": torch.tensor(21), "index": torch.tensor([1, 2])}
    mixed = interpolated(a, b, 0.5)
    assert mixed["bn.num_batches_tracked"].dtype == torch.int64
    assert int(mixed["bn.num_batches_tracked"]) == 16  # 15.5, to the even number
    assert mixed["index"].tolist() == [1, 2]
    with pytest.raises(InputError, match=r"'index'.*differs"):
        interpolated(a, b | {"index": torch.tensor([1, 3])}, 0.5)


def test_half_precision_is_rounded_once() -> None:
    a, b = torch.tensor([1.0], dtype=torch.bfloat16), torch.tensor([3.0], dtype=torch.bfloat16)
    found = interpolated({"w": a}, {"w": b}, 0.1)["w"]
    assert found.dtype == torch.bfloat16
    assert found == torch.tensor([1.2], dtype=torch.bfloat16)


def test_other_architectures_are_refused() -> None:
    a = {"w": torch.zeros(2), "v": torch.zeros(1)}
    with pytest.raises(InputError, match=r"1 names are in one only \(v\)"):
        interpolated(a, {"w": torch.zeros(2)}, 0.5)
    with pytest.raises(InputError, match="'w' of model 2"):
        uniform_soup([a, a | {"w": torch.zeros(3)}])
    with pytest.raises(InputError, match="finite"):
        interpolated(a, a, float("nan"))
    for soup in (uniform_soup, lambda states: greedy_soup(states, lambda _: 0.0)):
        with pytest.raises(InputError, match="at least one"):
            soup([])


def test_a_soup_of_one_is_the_model(ends) -> None:  # type: ignore[no-untyped-def]
    first = ends[0]
    assert same_bits(uniform_soup([first]), first)
    greedy = greedy_soup([first], lambda state: accuracy(with_state(state)))
    assert same_bits(greedy.state, first)
    assert greedy.members == (0,)


def test_a_uniform_soup_of_two_is_the_middle(ends) -> None:  # type: ignore[no-untyped-def]
    middle = interpolated(*ends, 0.5)
    assert same_bits(uniform_soup(list(ends)), middle)


def test_greedy_on_real_models_is_at_least_the_best(ends) -> None:  # type: ignore[no-untyped-def]
    states = [*ends, trained(3), trained(5, start=1)]  # the last has another start

    def held_out(state: dict[str, Tensor]) -> float:
        return accuracy(with_state(state))

    alone = [held_out(state) for state in states]
    soup = greedy_soup(states, held_out)
    assert soup.accuracy >= max(alone)
    assert soup.accuracy == held_out(soup.state)
    assert soup.members[0] == int(np.argmax(alone))
    assert [t.alone for t in soup.trials] == sorted(alone, reverse=True)
    assert 3 not in soup.members  # weights of another start do not mix


@settings(max_examples=80, deadline=None)
@given(values=st.lists(st.integers(0, 6), min_size=1, max_size=6), target=st.integers(0, 6))
def test_greedy_keeps_only_on_strict_gain(values: list[int], target: int) -> None:
    """One weight, accuracy falls with the distance from a target: every step can be followed."""
    states = [{"w": torch.tensor(float(v))} for v in values]

    def held_out(state: dict[str, Tensor]) -> float:
        return 1.0 - abs(float(state["w"]) - target) / 10

    soup = greedy_soup(states, held_out)
    assert soup.accuracy >= max(held_out(state) for state in states)
    best, members = None, []
    for trial in soup.trials:
        mean = np.mean([values[j] for j in (*members, trial.member)])
        reached = 1.0 - abs(np.float32(mean) - target) / 10
        assert trial.with_it == pytest.approx(reached)
        assert trial.kept == (best is None or trial.with_it > best)
        if trial.kept:
            best, members = trial.with_it, [*members, trial.member]
    assert tuple(members) == soup.members


def test_files_hold_tensors_and_masks_are_multiplied_in(tmp_path, ends) -> None:  # type: ignore[no-untyped-def]
    file = write_weights(ends[0], tmp_path / "deep" / "a.pt")
    assert same_bits(read_weights(file), dict(ends[0]))
    assert [p.name for p in file.parent.iterdir()] == ["a.pt"]
    hook = make(method="magnitude", sparsity=0.8, at=0.0)
    run = loop(small_net(), 3)
    hook.begin(run)  # type: ignore[arg-type]
    train(run, hook)
    plain = read_weights(write_weights(run.network.state_dict(), tmp_path / "pruned.pt"))
    assert set(plain) == set(ends[0])
    assert sum(int((plain[f"{i}.weight"] == 0).sum()) for i in (0, 4, 7)) == round(0.8 * 3088)
    with pytest.raises(InputError, match="no such file"):
        read_weights(tmp_path / "none.pt")
    (tmp_path / "bad.pt").write_bytes(b"no checkpoint")
    with pytest.raises(InputError):
        read_weights(tmp_path / "bad.pt")
