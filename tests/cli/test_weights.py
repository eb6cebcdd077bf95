"""``interpolate`` and ``soup`` as a user types them, on digits."""

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from shiftbed.store import PredictionStore
from tests.cli.in_process import shiftbed
from tests.training.minimal import one_thread

__all__ = ["one_thread"]

NETS = """
from torch import nn

def net():
    made = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(),
        nn.Linear(6 * 64, 10),
    )
    made.preprocessing = {"size": (8, 8), "mode": "L", "crop": "none"}
    return made
"""
ARCH = "arch=python:own_nets.py:net"


def network() -> nn.Module:
    space: dict[str, object] = {}
    exec(NETS, space)
    return space["net"]()  # type: ignore[operator]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):  # type: ignore[no-untyped-def]
    """Three nets from one start and one from another; a test set, a faint one, a held-out one."""
    place = tmp_path_factory.mktemp("weights")
    (place / "own_nets.py").write_text(NETS)
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order].reshape(-1, 8, 8), labels[order]
    pixels = (images * 15.9375).round().astype(np.uint8)
    np.savez(place / "seen.npz", images=pixels[900:1200], labels=labels[900:1200])
    np.savez(place / "faintly.npz", images=pixels[900:1200] // 3, labels=labels[900:1200])
    np.savez(place / "kept_out.npz", images=pixels[1200:], labels=labels[1200:])
    for name, start, seed in (("a", 0, 1), ("b", 0, 2), ("c", 0, 3), ("other", 9, 4)):
        torch.manual_seed(start)
        net = network()
        torch.manual_seed(seed)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        x = torch.from_numpy(pixels[:900]).float().div(255)[:, None]
        y = torch.from_numpy(labels[:900])
        for rows in torch.randperm(900).repeat(2).split(50):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            optimiser.step()
        torch.save(net.state_dict(), place / f"{name}.pt")
    return place


def test_the_path_is_a_run_in_the_store_and_its_ends_are_the_models(folder) -> None:  # type: ignore[no-untyped-def]
    lines = [f"torch:{name}.pt?{ARCH}" for name in ("a", "other")]
    sets = ["seen.npz", "faintly.npz"]
    command = ["interpolate", *lines, *sets, "--alphas", "0,0.25,0.5,1", "--store", "kept"]
    done = shiftbed(*command, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["run"] == "a-to-other"
    assert [(r["alpha"], r["setting"]) for r in found["path"]] == [
        (alpha, name) for alpha in (0, 0.25, 0.5, 1) for name in ("faintly", "seen")
    ]
    assert all(r["n"] == 300 and r["low"] <= r["value"] <= r["high"] for r in found["path"])
    for line, name in zip(lines, ("a", "other"), strict=True):
        one = ["eval", line, *sets, "--store", "kept", "--name", name, "--backend", "torch"]
        assert shiftbed(*one, cwd=folder).returncode == 0
    store = PredictionStore(folder / "kept")
    for setting in ("seen", "faintly"):
        for step, name in (("a-to-other@0", "a"), ("a-to-other@1", "other")):
            assert store.read(step, setting).equals(store.read(name, setting))
    record = store.cell("a-to-other@0.25", "seen")
    assert (record["info"]["step"], record["info"]["alpha"]) == (250, 0.25)
    assert record["info"]["in_fit_set"] is False
    again = shiftbed(*command, "--json", cwd=folder)
    assert json.loads(again.stdout) == found
    assert "α" in shiftbed(*command, cwd=folder).stdout


def test_effective_robustness_along_alpha_can_be_drawn(folder) -> None:  # type: ignore[no-untyped-def]
    sets = ["seen.npz", "faintly.npz"]
    for name in ("a", "b", "c", "other"):
        line = f"torch:{name}.pt?{ARCH}"
        one = ["--store", "drawn", "--name", name, "--backend", "torch"]
        assert shiftbed("eval", line, *sets, *one, cwd=folder).returncode == 0
    ends = [f"torch:{name}.pt?{ARCH}" for name in ("b", "other")]
    options = ["--store", "drawn", "--weights", "mixes", "--alphas", "0,0.5,1"]
    assert shiftbed("interpolate", *ends, *sets, *options, cwd=folder).returncode == 0
    drawn = shiftbed(
        *("plot", "--testbed", "drawn", "--chart", "trajectories", "--shift", "faintly"),
        *("-o", "rho.svg"),
        cwd=folder,
    )
    assert drawn.returncode == 0, drawn.stderr
    assert "b-to-other" in (folder / "rho.svg").read_text()


def test_a_greedy_soup_is_no_worse_than_the_best(folder) -> None:  # type: ignore[no-untyped-def]
    lines = [f"torch:{name}.pt?{ARCH}" for name in ("a", "b", "c", "other")]
    command = ["soup", *lines, "--held-out", "kept_out.npz"]
    done = shiftbed(*command, "-o", "greedy.pt", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    alone = {t["model"]: t["alone"]["value"] for t in found["trials"]}
    assert found["accuracy"]["value"] >= max(alone.values())
    assert found["members"][0] == max(alone, key=lambda k: alone[k])
    assert found["accuracy"]["n"] == 597
    line = f"torch:greedy.pt?{ARCH}"
    checked = shiftbed("eval", line, "kept_out.npz", "--store", "soup", "--json", cwd=folder)
    reached = json.loads(checked.stdout)["settings"][0]["value"]
    assert reached == found["accuracy"]["value"]
    shown = shiftbed(*command, "-o", "again.pt", cwd=folder).stdout
    assert "n = 597" in shown


def test_a_uniform_soup_of_one_is_the_model(folder) -> None:  # type: ignore[no-untyped-def]
    done = shiftbed("soup", f"torch:a.pt?{ARCH}", "--how", "uniform", "-o", "one.pt", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Not evaluated" in done.stdout
    one, a = (torch.load(folder / f, weights_only=True) for f in ("one.pt", "a.pt"))
    assert list(one) == list(a)
    assert all(torch.equal(one[n], a[n]) for n in a)
    lines = [f"torch:{name}.pt?{ARCH}" for name in ("a", "b")]
    many = shiftbed(
        *(
            "soup",
            *lines,
            "--how",
            "uniform",
            "--held-out",
            "kept_out.npz",
            "-o",
            "two.pt",
            "--json",
        ),
        cwd=folder,
    )
    assert json.loads(many.stdout)["members"] == lines


def test_weights_named_by_a_key_and_a_side_car(folder) -> None:  # type: ignore[no-untyped-def]
    from shiftbed.training import networks

    for seed in (1, 2):
        torch.manual_seed(seed)
        torch.save(networks.build("resnet8", channels=1).state_dict(), folder / f"r{seed}.pt")
    lines = [f"nets:resnet8?weights=r{seed}.pt&size=8&mode=L" for seed in (1, 2)]
    options = ["--alphas", "0,1", "--store", "nets", "--json"]
    done = shiftbed("interpolate", *lines, "seen.npz", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["path"]) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["interpolate", "torch:a.pt", "torch:b.pt", "seen.npz"], "architecture"),
        (["interpolate", "timm:resnet10t", "timm:resnet10t", "seen.npz"], "names no file"),
        (["interpolate", "A", "B?size=9", "seen.npz"], "same line but for the file"),
        (["interpolate", "A", "B", "seen.npz", "--alphas", "0,x"], "--alphas"),
        (["interpolate", "A", "B", "seen.npz", "--alphas", "0,0"], "each once"),
        (["interpolate", "A", "B", "seen.npz", "--backend", "fast"], "backend"),
        (["interpolate", "A", "torch:none.pt?" + ARCH, "seen.npz"], "no such file"),
        (["interpolate", "A", "B", "no.npz", "--store", "none"], "no.npz"),
        (["soup", "A", "-o", "x.pt"], "held_out"),
        (["soup", "A", "-o", "x.pt", "--how", "best"], "greedy or uniform"),
    ],
)
def test_mistakes_are_said_in_one_line(folder, arguments, said) -> None:  # type: ignore[no-untyped-def]
    names = {"A": f"torch:a.pt?{ARCH}", "B": f"torch:b.pt?{ARCH}"}
    names["B?size=9"] = f"torch:b.pt?{ARCH}&size=9"
    done = shiftbed(*(names.get(one, one) for one in arguments), cwd=folder)
    assert done.returncode == 2
    assert said in done.stderr
    assert "\n" not in done.stderr
