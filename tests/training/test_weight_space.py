"""``interpolate`` and ``soup``: weights of files and of objects, strictly; nothing is ignored."""

import contextlib

import pytest
import torch
from polars.testing import assert_frame_equal

from shiftbed.errors import InputError
from shiftbed.evaluation.models import model
from shiftbed.training.weight_space import interpolate, soup
from shiftbed.training.weights import interpolated
from tests.training import own_weights as own
from tests.training.minimal import one_thread

__all__ = ["one_thread"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return own.place(tmp_path_factory.mktemp("own"))


@pytest.fixture
def lines(folder):
    with contextlib.chdir(folder):
        yield [f"{own.LINE}?weights={name}.pt" for name in ("right", "wrong")]


def accuracies(found):
    return dict(found.frame.select("alpha", "value").iter_rows())


def test_two_files_of_one_python_network_give_their_two_accuracies(lines, folder):
    ends = interpolate(*lines, own.shades(), alphas=[0, 1])
    assert accuracies(ends) == {0.0: 1.0, 1.0: 0.0}
    assert accuracies(interpolate(*lines[::-1], "seen.npz", alphas=[0, 1])) == {0.0: 0.0, 1.0: 1.0}
    assert ends.run == "right-to-wrong"
    assert ends.to_dict()["store"] is None
    assert not (folder / "interpolated").exists()
    again = interpolate(*lines, own.shades(), alphas=[0, 1])
    for name in ("right-to-wrong@0", "right-to-wrong@1"):
        one, other = (found.store.read(name, "seen") for found in (again, ends))
        assert_frame_equal(one, other)  # classes exactly, scores within 1e-5 of float32's


def test_modules_models_and_state_dicts_are_the_same_as_their_files(lines):
    want = accuracies(interpolate(*lines, own.shades(), alphas=[0, 0.3, 1]))
    states = [own.weights(1.0), own.weights(-1.0)]
    modules = [own.network() for _ in states]
    for module, state in zip(modules, states, strict=True):
        module.load_state_dict(state)
    named = [model(module, name=f"m{k}") for k, module in enumerate(modules)]
    for ends, network in ((modules, None), (named, None), (states, named[1]), (states, modules[0])):
        found = interpolate(*ends, own.shades(), alphas=[0, 0.3, 1], network=network)
        assert accuracies(found) == want
    assert interpolate(*named, own.shades(), alphas=[0]).run == "m0-to-m1"


def test_files_are_written_where_they_are_wanted(lines, tmp_path):
    found = interpolate(
        *lines,
        [own.shades(), own.shades("more", 1)],
        alphas=[0.5],
        store=tmp_path / "store",
        weights=tmp_path / "mixed",
        name="mine",
    )
    assert found.to_dict()["run"] == "mine"
    assert sorted(r["setting"] for r in found.to_dict()["path"]) == ["more", "seen"]
    (file,) = (tmp_path / "mixed").iterdir()
    assert file.name == "mine-0.5.pt"
    read = torch.load(file, weights_only=True)
    half = interpolated(own.weights(1.0), own.weights(-1.0), 0.5)
    assert all(torch.equal(read[name], half[name]) for name in half)
    assert [s["name"] for s in found.store.about()["shifts"]] == ["more"]


def test_a_soup_of_objects_needs_no_file(lines, tmp_path):
    states = [own.weights(-1.0), own.weights(1.0), own.weights(1.0, seed=5)]
    network = model(own.network(), name="net")
    found = soup(states, network=network, held_out=own.shades("held", 2))
    assert found.members == ("model 2",)  # equal ones gain nothing
    assert [t["alone"]["value"] for t in found.to_dict()["trials"]] == [1.0, 1.0, 0.0]
    assert (found.accuracy["value"], found.accuracy["n"]) == (1.0, own.N)
    assert found.to_dict()["file"] is None
    assert found.held_out == "held"
    assert all(torch.equal(found.state[k], v) for k, v in states[1].items())
    uniform = soup([states[1]], how="uniform", network=network)
    assert uniform.accuracy is None
    assert "Not evaluated" in str(uniform)
    pixels, labels = own.images()
    assert (found.model.logits(pixels[:, None]).argmax(1) == labels).all()
    by_file = soup(lines, held_out="held.npz", out=tmp_path / "soup.pt")
    assert by_file.members == (lines[0],)
    assert by_file.accuracy == found.accuracy
    assert (tmp_path / "soup.pt").is_file()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda a, b: interpolate(a, f"{own.LINE}?weights=strange.pt", "seen.npz"),
            "model 2 is of",
        ),
        (lambda a, b: interpolate(a, b, "seen.npz", alphas=[]), "one or more numbers"),
        (lambda a, b: interpolate(own.weights(1), own.weights(1), "seen.npz"), "need network"),
        (lambda a, b: interpolate(a, 3, "seen.npz"), "a state dict, got int"),
        (lambda a, b: soup([]), "held_out"),
        (lambda a, b: soup([], how="uniform"), "at least one"),
        (lambda a, b: soup([a], how="best"), "greedy or uniform"),
        (
            lambda a, b: soup([{"other": torch.zeros(1)}], how="uniform", network=own.network()),
            "missing.*not in the architecture",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(lines, call, said):
    with pytest.raises(InputError, match=said) as caught:
        call(*lines)
    assert "\n" not in str(caught.value)
