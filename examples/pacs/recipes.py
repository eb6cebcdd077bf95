"""The study's networks as four recipes into one store; a profile says how many.

``heads`` are linear heads on frozen backbones, ``whole`` are networks fine-tuned whole and trained
from nothing, ``attacked`` are some of the heads once more, under attack: a run that is finished is
only evaluated where it was not yet. ``large`` are heads on a larger backbone, without augmentation.
"""

from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["FULL", "QUICK", "TINY", "Profile", "texts"]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How large the study is."""

    size: int
    """Pixels a side."""
    backbones: tuple[str, ...]
    large: str | None
    """A backbone that takes part without augmentation only."""
    more_seeds: tuple[int, ...]
    """Of the first backbone."""
    lr: tuple[float, ...]
    seeds: int
    shots: tuple[int, ...]
    augmentations: tuple[str, ...]
    steps: int
    corruptions: tuple[str, ...]
    whole_steps: int
    scratch_steps: int
    attack_share: float
    held_out: float = 0.1
    attacks: tuple[str, ...] = ("apgd-ce-l2:0.1", "apgd-ce-l2:0.5")
    """The printed sizes, 0.001 and 0.02, change pictures of this size less than rounding does."""
    attack_steps: int = 5
    whole: str = "lite0"
    backend: str = "onnxruntime"


FULL = Profile(
    size=64,
    backbones=("lite0", "lite1", "lite2"),
    large="resnet50",
    more_seeds=(2,),
    lr=(5e-4, 5e-3),
    seeds=2,
    shots=(10, 100),
    augmentations=("none", "randaugment", "augmix"),
    steps=100,
    corruptions=("gaussian_noise:3", "motion_blur:3"),
    whole_steps=10,
    scratch_steps=40,
    attack_share=0.02,
)
QUICK = replace(FULL, backbones=("lite0", "lite2"), large=None, more_seeds=(2, 3, 4))
TINY = Profile(
    size=16,
    backbones=("tiny",),
    large=None,
    more_seeds=(2,),
    lr=(1e-2, 1e-1),
    seeds=2,
    shots=(2, 4),
    augmentations=("none", "randaugment"),
    steps=5,
    corruptions=("gaussian_noise:3",),
    whole_steps=2,
    scratch_steps=2,
    attack_share=0.5,
    attack_steps=2,
    whole="tiny",
    backend="torch",
)

_HEAD = """
name = "pacs"
store = "store"
runs = "runs"
backend = "{backend}"
evaluation_batch_size = 128

[tasks.pacs]
path = "{data}"
held_out = {held_out}
validation = 0.1
"""

_HEADS = """
[[grid]]
name = "{name}"
model = {models}
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

_LARGE = """
[[grid]]
name = "large"
model = "python:examples.pacs.nets:{large}()"
start = "pretrained"
data = {{name = "pacs/*", shots = {shots}}}
tune = "head"
optimiser = {{name = "Adam", lr = {lr}}}
steps = {steps}
checkpoints = {{keep = "head"}}
seed = {seeds}
"""

_WHOLE = """
[[grid]]
name = "whole"
model = "python:examples.pacs.nets:{whole}()"
start = "pretrained"
data = {{name = "pacs/*", shots = {least}}}
tune = "whole"
optimiser = {{name = "Adam", lr = 5e-4}}
steps = {whole_steps}
batch_size = 32
augmentation = {augmentations}
checkpoints = {{keep = "last"}}

[[grid]]
name = "scratch"
model = "nets:resnet8?size=32"
data = "pacs/*"
optimiser = {{name = "Adam", lr = 3e-3}}
steps = {scratch_steps}
checkpoints = {{keep = "last"}}
"""

_ATTACKED = """
[[grid]]
name = "few-shot"
model = "python:examples.pacs.nets:{first}()"
start = "pretrained"
data = {{name = "pacs/*", shots = {shots}}}
tune = "head"
optimiser = {{name = "Adam", lr = {rate}}}
steps = {steps}
augmentation = {augmentations}
views = 1
checkpoints = {{keep = "head"}}
"""


def texts(profile: Profile, data: Path) -> dict[str, str]:
    """Name of a recipe → its text."""

    def listed(values: tuple[object, ...]) -> str:
        return "[" + ", ".join(f'"{v}"' if isinstance(v, str) else str(v) for v in values) + "]"

    given = {
        key: listed(value) if isinstance(value, tuple) else value
        for key, value in vars(profile).items()
    }
    given |= {"data": data.absolute().as_posix(), "least": min(profile.shots)}
    given["models"] = listed(tuple(f"python:examples.pacs.nets:{n}()" for n in profile.backbones))
    given |= {"first": profile.backbones[0], "rate": profile.lr[-1]}
    more = {"models": f'"python:examples.pacs.nets:{profile.backbones[0]}()"'}
    more["seeds"] = given["more_seeds"]
    given["seeds"] = listed(tuple(range(profile.seeds)))
    head = _HEAD.format(**given)
    corrupted = f"{head}corruptions = {listed(profile.corruptions)}\n"
    attacks = f"attacks = {listed(profile.attacks)}\nattack_share = {profile.attack_share}\n"
    attacks += f"attack_options = {{steps = {profile.attack_steps}}}\n"
    found = {
        "heads": corrupted
        + _HEADS.format(**given, name="few-shot")
        + _HEADS.format(**given | more, name="more-seeds"),
        "whole": corrupted.replace(f'"{profile.backend}"', '"torch"') + _WHOLE.format(**given),
        "attacked": head + attacks + _ATTACKED.format(**given),
    }
    return found | ({} if profile.large is None else {"large": corrupted + _LARGE.format(**given)})
