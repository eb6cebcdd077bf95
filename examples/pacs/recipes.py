"""The study's networks as recipes into one store; a profile says how many.

``heads-NAME`` are linear heads on one frozen backbone each, ``whole`` are networks fine-tuned
whole, ``scratch`` are networks from nothing, ``attacked`` are some of the heads once more, under
attack: a run that is finished is only evaluated where it was not yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

__all__ = ["FULL", "QUICK", "TINY", "Profile", "texts"]

Sizes = tuple[int | str, ...]


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Which heads there are on one backbone: all combinations with every learning rate."""

    seeds: int = 1
    shots: Sizes = (100, 10)
    """Examples a class; "all" is the whole training part."""
    augmentations: tuple[str, ...] = ("none",)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How large the study is."""

    size: int
    """Pixels a side."""
    heads: Mapping[str, tuple[Heads, ...]]
    """Backbone → its heads."""
    lr: tuple[float, ...]
    steps: int
    corruptions: tuple[str, ...]
    """Of the ID test part."""
    whole: str
    """Network that is fine-tuned whole and attacked; heads on it are attacked."""
    whole_shots: Sizes
    whole_augmentations: tuple[str, ...]
    whole_steps: int
    scratch_shots: Sizes
    scratch_steps: int
    attacked: Heads
    """Heads under attack, all of seed 0 and one learning rate."""
    attacked_lr: float
    attack_share: float
    """Of every class of the test parts."""
    attacks: tuple[str, ...] = ("apgd-ce-l2:0.1", "apgd-ce-l2:0.5")
    """The printed sizes, 0.001 and 0.02, change pictures of this size less than rounding does."""
    attack_steps: int = 5
    held_out: float = 0.1
    backend: str = "onnxruntime"


BACKBONES = {f"lite{number}": f"tf_efficientnet_lite{number}.in1k" for number in (0, 1, 2)}
"""What timm calls its port of the same weights; Keras' ResNet-50 is not in its tables."""
AUGMENTED = ("none", "randaugment", "augmix")
EVERY: Sizes = ("all", 100, 10)
FULL = Profile(
    size=64,
    heads={
        "resnet50": (Heads(shots=EVERY),),
        "lite0": (Heads(shots=EVERY, augmentations=AUGMENTED),),
        "lite1": (Heads(augmentations=AUGMENTED), Heads(shots=("all",))),
        "lite2": (Heads(augmentations=AUGMENTED), Heads(shots=("all",))),
    },
    lr=(5e-4, 5e-3, 5e-2),
    steps=300,
    corruptions=("wenzel2022:3",),
    whole="lite0",
    whole_shots=(10,),
    whole_augmentations=AUGMENTED,
    whole_steps=30,
    scratch_shots=("all",),
    scratch_steps=100,
    attacked=Heads(shots=EVERY),
    attacked_lr=5e-3,
    attack_share=0.1,
)
QUICK = replace(FULL, whole_steps=10, scratch_steps=50)
TINY = replace(
    FULL,
    size=16,
    heads={"tiny": (Heads(shots=("all", 4), augmentations=AUGMENTED),)},
    lr=(1e-2, 1e-1),
    steps=5,
    corruptions=("gaussian_noise:3",),
    whole="tiny",
    whole_shots=(4,),
    whole_steps=2,
    scratch_steps=2,
    attacked=Heads(shots=("all", 4)),
    attacked_lr=1e-1,
    attack_share=0.5,
    attack_steps=2,
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
name = "heads-{number}"
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
{backbone}"""
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
{backbone}"""
_SCRATCH = """
[[grid]]
name = "scratch"
model = "nets:resnet8?size=32"
data = {{name = "pacs/*", shots = {scratch_shots}}}
optimiser = {{name = "Adam", lr = 3e-3}}
steps = {scratch_steps}
checkpoints = {{keep = "last"}}
"""


def texts(profile: Profile, data: Path, features: Path) -> dict[str, str]:
    """Name of a recipe → its text. ``attacked`` needs ``heads-*``, the others need nothing."""
    common = vars(profile) | {
        "data": data.absolute().as_posix(),
        "features": features.absolute().as_posix(),
    }

    def made(template: str, **own: Any) -> str:
        return template.format_map({k: _toml(v) for k, v in (common | own).items()})

    def heads(model: str, *some: Heads, **own: Any) -> str:
        seeds = [{"seeds": tuple(range(one.seeds))} for one in some]
        return "".join(
            made(
                _HEADS,
                model=model,
                number=number,
                **_backbone(model),
                **vars(one) | seeds[number] | own,
            )
            for number, one in enumerate(some)
        )

    corrupted = f"corruptions = {_toml(profile.corruptions)}\n"
    attacked = f"attacks = {_toml(profile.attacks)}\nattack_share = {profile.attack_share}\n"
    attacked += f"attack_options = {{steps = {profile.attack_steps}}}\n"
    top, slow = made(_TOP), made(_TOP, backend="torch") + corrupted
    found = {
        f"heads-{name}": top + corrupted + heads(name, *some)
        for name, some in profile.heads.items()
    }
    found["whole"] = slow + attacked + made(_WHOLE, **_backbone(profile.whole))
    found["scratch"] = slow + made(_SCRATCH)
    found["attacked"] = top + attacked
    found["attacked"] += heads(profile.whole, profile.attacked, lr=profile.attacked_lr)
    return found


def _backbone(model: str) -> dict[str, str]:
    """The line that names its ImageNet errors, for a network that has any."""
    known = BACKBONES.get(model)
    return {"backbone": f'backbone = "{known}"\n' if known else ""}


def _toml(value: Any) -> Any:
    """A tuple as a list of TOML, anything else as it is."""
    if not isinstance(value, tuple):
        return value
    return "[" + ", ".join(f'"{v}"' if isinstance(v, str) else str(v) for v in value) + "]"
