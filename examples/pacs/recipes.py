"""The study's networks as recipes into one store; a profile says how many.

``heads-NAME`` are linear heads on one frozen backbone each, ``whole`` are networks fine-tuned whole,
``scratch`` are networks from nothing, ``attacked`` are some of the heads once more, under attack: a
run that is finished is only evaluated where it was not yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

__all__ = ["FULL", "QUICK", "TINY", "Profile", "texts"]

Sizes = tuple[int | str, ...]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How large the study is."""

    size: int
    """Pixels a side."""
    backbones: Mapping[str, int]
    """Name → seeds of its heads; heads on the first one are attacked."""
    shots: Sizes
    """Examples a class; "all" is the whole training part."""
    augmentations: tuple[str, ...]
    lr: tuple[float, ...]
    steps: int
    corruptions: tuple[str, ...]
    """Of the ID test part."""
    whole: str
    """Network that is fine-tuned whole."""
    whole_steps: int
    attacked_shots: Sizes
    """Of heads under attack: seed 0 and the last learning rate only."""
    attacked_augmentations: tuple[str, ...]
    attack_whole: bool
    """Whether networks fine-tuned whole are attacked, too."""
    attack_share: float
    """Of every class of the test parts."""
    scratch_steps: int
    scratch_shots: Sizes
    scratch_augmentations: tuple[str, ...]
    whole_shots: Sizes = (100, 10)
    whole_augmentations: tuple[str, ...] = ("none", "randaugment")
    held_out: float = 0.1
    attacks: tuple[str, ...] = ("apgd-ce-l2:0.1", "apgd-ce-l2:0.5")
    """The printed sizes, 0.001 and 0.02, change pictures of this size less than rounding does."""
    attack_steps: int = 5
    backend: str = "onnxruntime"


FULL = Profile(
    size=96,
    backbones={"lite0": 2, "lite1": 2, "lite2": 2, "resnet50": 1},
    shots=("all", 100, 10),
    augmentations=("none", "randaugment", "augmix"),
    lr=(5e-4, 5e-3),
    steps=300,
    corruptions=("wenzel2022:3",),
    whole="lite0",
    whole_steps=60,
    attacked_shots=("all", 100, 10),
    attacked_augmentations=("none", "randaugment", "augmix"),
    attack_whole=True,
    attack_share=0.1,
    scratch_steps=150,
    scratch_shots=("all", 100),
    scratch_augmentations=("none", "randaugment"),
)
QUICK = replace(
    FULL,
    backbones={"lite0": 2, "lite1": 1, "lite2": 1, "resnet50": 1},
    whole_steps=20,
    attacked_augmentations=("none",),
    attack_whole=False,
    scratch_shots=("all",),
    scratch_augmentations=("none",),
)
TINY = replace(
    FULL,
    size=16,
    backbones={"tiny": 2},
    shots=("all", 4, 2),
    augmentations=("none", "randaugment"),
    lr=(1e-2, 1e-1),
    steps=5,
    corruptions=("gaussian_noise:3",),
    whole="tiny",
    whole_steps=2,
    attacked_shots=(4, 2),
    attacked_augmentations=("none",),
    attack_share=0.5,
    attack_steps=2,
    scratch_steps=2,
    scratch_shots=("all",),
    whole_shots=(4, 2),
    scratch_augmentations=("none",),
    backend="torch",
)

_TOP = """
name = "pacs"
store = "store"
runs = "runs"
features = "{features}"
backend = "{backend}"
evaluation_batch_size = 128

[tasks.pacs]
path = "{data}"
held_out = {held_out}
validation = 0.1
"""
_HEADS = """
[[grid]]
name = "heads"
model = "python:examples.pacs.nets:{model}()"
start = "pretrained"
data = {{name = "pacs/*", shots = {shots}}}
tune = "head"
optimiser = {{name = "Adam", lr = {lr}}}
steps = {steps}
augmentation = {augmentations}
views = 1
checkpoints = {{keep = "head"}}
seed = {seeds}
"""
_WHOLE = """
[[grid]]
name = "whole"
model = "python:examples.pacs.nets:{whole}()"
start = "pretrained"
data = {{name = "pacs/*", shots = {whole_shots}}}
tune = "whole"
optimiser = {{name = "Adam", lr = 5e-4}}
steps = {whole_steps}
batch_size = 32
augmentation = {whole_augmentations}
checkpoints = {{keep = "last"}}
"""
_SCRATCH = """
[[grid]]
name = "scratch"
model = "nets:resnet8?size=32"
data = {{name = "pacs/*", shots = {scratch_shots}}}
optimiser = {{name = "Adam", lr = 3e-3}}
steps = {scratch_steps}
augmentation = {scratch_augmentations}
checkpoints = {{keep = "last"}}
"""


def texts(profile: Profile, data: Path, features: Path) -> dict[str, str]:
    """Name of a recipe → its text. ``attacked`` needs ``heads-*``, the others need nothing."""

    def made(template: str, more: str, **own: Any) -> str:
        given = {key: _toml(value) for key, value in (vars(profile) | own).items()}
        given |= {"data": data.absolute().as_posix(), "features": features.absolute().as_posix()}
        return _TOP.format_map(given) + more + template.format_map(given)

    corrupted = f"corruptions = {_toml(profile.corruptions)}\n"
    attacked = f"attacks = {_toml(profile.attacks)}\nattack_share = {profile.attack_share}\n"
    attacked += f"attack_options = {{steps = {profile.attack_steps}}}\n"
    found = {
        f"heads-{name}": made(_HEADS, corrupted, model=name, seeds=tuple(range(seeds)))
        for name, seeds in profile.backbones.items()
    }
    both = corrupted + (attacked if profile.attack_whole else "")
    found["whole"] = made(_WHOLE, both, backend="torch")
    found["scratch"] = made(_SCRATCH, corrupted, backend="torch")
    found["attacked"] = made(
        _HEADS,
        attacked,
        model=next(iter(profile.backbones)),
        shots=profile.attacked_shots,
        augmentations=profile.attacked_augmentations,
        lr=profile.lr[-1],
        seeds=0,
    )
    return found


def _toml(value: Any) -> Any:
    """A tuple as a list of TOML, anything else as it is."""
    if not isinstance(value, tuple):
        return value
    return "[" + ", ".join(f'"{v}"' if isinstance(v, str) else str(v) for v in value) + "]"
