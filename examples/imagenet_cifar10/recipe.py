"""The recipe of the study: a grid per kind of run, each named after it."""

from dataclasses import dataclass
from typing import Any

from shiftbed.training.recipe import canonical

__all__ = ["FULL", "QUICK", "Profile", "recipe_text"]

HEAD_STOPS = [0, 2, 4, 8, 16, 32, 64, 128, 256, 512]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Sizes of one way to run it."""

    train: int
    """Training images of each class."""
    test: int
    line_seeds: int
    line_steps: tuple[int, ...]
    head_seeds: int
    whole_seeds: int
    whole_stops: tuple[int, ...]
    backbones: tuple[int, ...]
    """Which of EfficientNet-Lite 0, 1 and 2."""


QUICK = Profile(
    train=300, test=150, line_seeds=3, line_steps=(40, 120, 300), head_seeds=3, whole_seeds=1,
    whole_stops=(0, 8, 40), backbones=(0,),
)  # fmt: skip
"""A quarter of an hour on two idle cores."""
FULL = Profile(
    train=2000, test=500, line_seeds=3, line_steps=(40, 200, 1000), head_seeds=5, whole_seeds=3,
    whole_stops=(0, 4, 10, 24, 60, 150, 400), backbones=(0, 1, 2),
)  # fmt: skip

TOP = """name = "imagenet-cifar10"
store = "store"
runs = "runs"
[data.cifar10]
path = "train.npz"
[[test_sets]]
name = "cifar10"
path = "cifar10.npz"
[[test_sets]]
name = "corrupted"
path = "corrupted.npz"
[[shifts]]
name = "corrupted"
id = "cifar10"
ood = "corrupted"
"""


def recipe_text(profile: Profile, backbones: tuple[str, ...], natural: dict[str, str]) -> str:
    """The recipe as text; ``natural`` are further OOD sets, name → path."""
    more = "".join(
        f'[[test_sets]]\nname = "{name}"\npath = "{path}"\n'
        f'[[shifts]]\nname = "{name}"\nid = "cifar10"\nood = "{name}"\n'
        for name, path in natural.items()
    )
    return TOP + more + "".join(map(_grid, _grids(profile, backbones)))


def _grids(profile: Profile, backbones: tuple[str, ...]) -> list[dict[str, Any]]:
    line = {
        "name": "line",
        "model": ["python:nets.py:residual()", "python:nets.py:plain()"],
        "data": {"name": "cifar10", "fraction": [0.2, 1.0]},
        "in_fit_set": "final",
        "optimiser": {"name": "AdamW", "lr": 0.005},
        "steps": list(profile.line_steps),
        "batch_size": 64,
        "augmentation": "crop-flip",
        "checkpoints": {"keep": "last"},
        "seed": list(range(profile.line_seeds)),
    }
    head = {
        "model": "python:nets.py:lite0()",
        "start": "pretrained",
        "data": "cifar10",
        "tune": "head",
        "kind": "more-data",
        "in_fit_set": "none",
        "optimiser": {"name": "AdamW", "lr": 0.001},
        "steps": HEAD_STOPS[-1],
        "batch_size": 64,
        "checkpoints": {"unit": "step", "at": [HEAD_STOPS], "keep": "last"},
        "seed": list(range(profile.head_seeds)),
    }
    scores = "difficulty.csv"
    mapped = {"name": "class-map", "map": "cifar-10"}

    def some(keep: str) -> dict[str, Any]:
        return {"name": "cifar10", "difficulty": {"scores": scores, "keep": keep, "count": 100}}

    whole = head | {
        "tune": "whole",
        "optimiser": {"name": "SGD", "lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4},
        "steps": profile.whole_stops[-1],
        "batch_size": 32,
        "checkpoints": {"unit": "step", "at": [list(profile.whole_stops)], "keep": "last"},
        "seed": list(range(profile.whole_seeds)),
    }
    return [
        line,
        *(head | {"name": f"head-{one}", "model": f"python:nets.py:{one}()"} for one in backbones),
        head | {"name": "head-mse", "objective": "mse"},
        head | {"name": "head-mapped", "objective": mapped},
        head | {"name": "head-pull-small", "objective": mapped | {"pull": 0.001}},
        head | {"name": "head-pull-large", "objective": mapped | {"pull": 0.1}},
        head | {"name": "head-easiest", "data": some("easiest")},
        head | {"name": "head-hardest", "data": some("hardest")},
        head | {"name": "head-random", "data": some("random")},
        head | {"name": "head-phase-out", "phase_out": {"scores": scores, "left": 1000}},
        whole | {"name": "whole-pretrained", "model": "python:nets.py:lite0()"},
        whole
        | {
            "name": "whole-random",
            "model": "python:nets.py:lite0_random()",
            "start": "random",
            "kind": "standard",
        },
    ]  # fmt: skip


def _grid(grid: dict[str, Any]) -> str:
    return "\n[[grid]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in grid.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    return canonical(value)
