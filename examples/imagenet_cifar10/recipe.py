"""The recipe of the study: a grid per kind of run, each named after it."""

from dataclasses import asdict, dataclass
from typing import Any

from shiftbed.training.recipe import canonical

__all__ = ["FULL", "QUICK", "TINY", "Profile", "described", "recipe_text"]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Sizes of one way to run it; images are of each class."""

    train: int
    line_train: int
    test: int
    rehearsal: int
    line_steps: tuple[int, ...]
    line_seeds: int
    wide_steps: tuple[int, ...]
    deep_steps: tuple[int, ...]
    top_seeds: int
    """Seeds of the wide and the deep networks, which the line ends with."""
    head_stops: tuple[int, ...]
    head_seeds: int
    whole_stops: tuple[int, ...]
    random_stops: tuple[int, ...]
    """Of whole networks from random weights, which need longer."""
    whole_seeds: int
    backbones: tuple[int, ...]
    """Which of EfficientNet-Lite 0, 1 and 2."""
    kept: bool
    """Whether whole networks are also trained from a trained head, and with replay."""
    subset: int
    """Examples of each class that are easiest, hardest or random."""
    repeats: int
    """Times that the data is split to score difficulty."""


QUICK = Profile(
    train=200, line_train=1000, test=100, rehearsal=50, line_steps=(24, 80, 200, 400), line_seeds=2,
    wide_steps=(1000,), deep_steps=(600,), top_seeds=2,
    head_stops=(0, 2, 4, 8, 16, 32, 64, 128, 256), head_seeds=3, whole_stops=(16, 32, 80),
    random_stops=(40, 80, 160), whole_seeds=3, backbones=(0,), kept=False, subset=50, repeats=2,
)  # fmt: skip
FULL = Profile(
    train=600, line_train=5000, test=160, rehearsal=120, line_steps=(24, 100, 350, 1000),
    line_seeds=2, wide_steps=(1000, 3000), deep_steps=(1500,), top_seeds=2,
    head_stops=(0, 4, 8, 16, 32, 64, 128, 256, 512, 1024), head_seeds=4,
    whole_stops=(16, 48, 96), random_stops=(80, 160, 240), whole_seeds=3, backbones=(0, 1, 2),
    kept=True, subset=100, repeats=2,
)  # fmt: skip
TINY = Profile(
    train=12, line_train=12, test=6, rehearsal=6, line_steps=(1, 6), line_seeds=1, wide_steps=(6,),
    deep_steps=(6,), top_seeds=1, head_stops=(0, 2, 8), head_seeds=2, whole_stops=(0, 1),
    random_stops=(0, 1), whole_seeds=2, backbones=(0,), kept=True, subset=4, repeats=1,
)  # fmt: skip
"""For tests."""

TOP = """name = "imagenet-cifar10"
store = "store"
runs = "runs"
[data.cifar10]
path = "train.npz"
[data.line]
path = "line.npz"
[data.rehearsal]
path = "rehearsal.npz"
classes = "imagenet-1k"
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
MAPPED = {"name": "class-map", "map": "cifar-10"}
SCORES = "difficulty.csv"


def described(profile: Profile) -> dict[str, Any]:
    """A profile as plain values, for what a folder was made with."""
    return asdict(profile)


def recipe_text(profile: Profile, natural: dict[str, str]) -> str:
    """The recipe as text; ``natural`` are further OOD sets, name → path."""
    more = "".join(
        f'[[test_sets]]\nname = "{name}"\npath = "{path}"\n'
        f'[[shifts]]\nname = "{name}"\nid = "cifar10"\nood = "{name}"\n'
        for name, path in natural.items()
    )
    grids = [*_line(profile), *_heads(profile), *_whole(profile)]
    return TOP + more + "".join(map(_grid, grids))


def _line(profile: Profile) -> list[dict[str, Any]]:
    """Networks from scratch: those of the line, and others of their kind along training."""
    line = {
        "name": "line",
        "model": ["python:nets.py:residual()", "python:nets.py:plain()"],
        "data": {"name": "line", "fraction": [0.1, 1.0]},
        "in_fit_set": "final",
        "optimiser": {"name": "AdamW", "lr": 0.005},
        "schedule": "CosineAnnealingLR",
        "steps": list(profile.line_steps),
        "batch_size": 64,
        "augmentation": "crop-flip",
        "checkpoints": {"keep": "last"},
        "seed": list(range(profile.line_seeds)),
    }
    wide = {
        "name": "line-wide",
        "model": "python:nets.py:wide()",
        "data": "line",
        "steps": list(profile.wide_steps),
        "seed": list(range(profile.top_seeds)),
    }
    deep = wide | {
        "name": "line-deep",
        "model": "python:nets.py:deep()",
        "steps": list(profile.deep_steps),
    }
    last = profile.line_steps[-1]
    along = {
        "name": "small-random",
        "model": "python:nets.py:residual()",
        "data": "line",
        "in_fit_set": "none",
        "schedule": "constant",
        "steps": last,
        "checkpoints": {
            "unit": "step",
            "at": [[last // 16, last // 8, last // 4, last // 2]],
            "keep": "last",
        },
        "seed": list(range(100, 100 + profile.whole_seeds)),
    }
    return [line, line | wide, line | deep, line | along]


def _head(profile: Profile) -> dict[str, Any]:
    """A new head on the features of Lite0."""
    return {
        "model": "python:nets.py:lite0()",
        "start": "pretrained",
        "data": "cifar10",
        "tune": "head",
        "kind": "more-data",
        "in_fit_set": "none",
        "optimiser": {"name": "AdamW", "lr": 0.001},
        "steps": profile.head_stops[-1],
        "batch_size": 64,
        "checkpoints": {"unit": "step", "at": [list(profile.head_stops)], "keep": "last"},
        "seed": list(range(profile.head_seeds)),
    }


def _heads(profile: Profile) -> list[dict[str, Any]]:
    head = _head(profile)

    def some(keep: str) -> dict[str, Any]:
        chosen = {"scores": SCORES, "keep": keep, "count": profile.subset}
        return {"name": "cifar10", "difficulty": chosen}

    phased = {"scores": SCORES, "left": 10 * profile.subset}
    return [
        *(
            head | {"name": f"head-lite{k}", "model": f"python:nets.py:lite{k}()", "head": "new"}
            for k in profile.backbones
        ),
        head | {"name": "head-mse", "head": "new", "objective": "mse"},
        head | {"name": "head-mapped", "head": "mapped", "objective": MAPPED},
        head | {"name": "head-pull-small", "head": "mapped", "objective": MAPPED | {"pull": 0.001}},
        head | {"name": "head-pull-large", "head": "mapped", "objective": MAPPED | {"pull": 0.1}},
        *(
            head | {
                "name": f"head-replay-{ratio}", "head": "mapped",
                "objective": MAPPED | {"data": "rehearsal", "ratio": ratio},
            }
            for ratio in (1, 10)
        ),
        head | {"name": "head-easiest", "head": "new", "data": some("easiest")},
        head | {"name": "head-hardest", "head": "new", "data": some("hardest")},
        head | {"name": "head-random", "head": "new", "data": some("random")},
        head | {"name": "head-phase-out", "head": "new", "phase_out": phased},
    ]  # fmt: skip


def _whole(profile: Profile) -> list[dict[str, Any]]:
    head = _head(profile)
    sgd = {"name": "SGD", "lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}
    stops = {"unit": "step", "at": [list(profile.whole_stops)], "keep": "last"}
    tuned = {
        "tune": "whole",
        "optimiser": sgd,
        "steps": profile.whole_stops[-1],
        "batch_size": 32,
        "augmentation": {"name": "crop-flip", "padding": 8},
        "checkpoints": stops,
        "seed": list(range(profile.whole_seeds)),
    }
    whole = head | tuned
    random = {
        "model": "python:nets.py:lite0_random()",
        "start": "random",
        "kind": "standard",
        "optimiser": {"name": "AdamW", "lr": 0.003},
        "steps": profile.random_stops[-1],
        "checkpoints": stops | {"at": [list(profile.random_stops)]},
    }
    found = [
        whole | {"name": "whole-pretrained", "head": "new"},
        whole | random | {"name": "whole-random"},
    ]
    if not profile.kept:
        return found
    common = {key: head[key] for key in ("model", "kind", "in_fit_set")}
    first = {key: value for key, value in head.items() if key not in common}
    stages = [first | {"head": "new", "seed": 0}, tuned | {"data": "cifar10", "head": "keep"}]
    replay = {"name": "replay", "data": "rehearsal", "ratio": 1}
    return [
        *found,
        common | {"name": "whole-keep", "stages": stages},
        whole | {"name": "whole-replay", "objective": replay},
    ]


def _grid(grid: dict[str, Any]) -> str:
    return "\n[[grid]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in grid.items())


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return canonical(value)
