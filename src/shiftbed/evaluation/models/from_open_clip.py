"""``open_clip:ARCH/PRETRAINED``: zero-shot classifiers, such as ``ViT-B-32/laion2b_s34b_b79k``.

Class names come from ``classes``, prompts from ``templates`` (each a list, or a file; also as
keys). Keys: ``pretrained`` (true; false draws weights from ``seed``, without ``/PRETRAINED``),
``weights`` (a local checkpoint, or an image tower with its head as training writes it),
``num_classes`` (a head of so many outputs, drawn with the seed, in place of class names).

Text features are the mean over the prompts of the normalised embeddings, normalised again
(radford2021, Section 3.1.4). They are cached on disk under a hash of all that they depend on.
"""

import hashlib
import json
import logging
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shiftbed.errors import InputError, brief, unknown
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.models.base import Floats, Model, versions
from shiftbed.evaluation.models.checkpoints import (
    digest,
    fit,
    hub_file,
    read_state,
    refusal,
    remembered,
    url_file,
)
from shiftbed.evaluation.models.spec import Request, stamp
from shiftbed.evaluation.models.torch_model import seeded, wrap_for
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.hub import unreachable

if TYPE_CHECKING:
    from torch import nn


TEMPLATES = (
    "a photo of a {}.",
    "a close-up of a {}.",
    "a {} seen from a distance.",
    "a dark picture of a {}.",
    "a bright picture of a {}.",
    "a blurry snapshot of a {}.",
    "a {} among other things.",
    "a drawing of a {}.",
)
"""The prompts where none are given; ``{}`` is the class."""
_BATCH = 256
_ELSEWHERE = {
    "hf_model_name": ("config.json",),
    "hf_tokenizer_name": ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "spiece.model"),
}
"""Text settings that name another repository, and files that it then has."""


def load(request: Request) -> Model:
    """Build a contrastive model and turn its class names into a classifier's last layer."""
    ensure_torchvision()
    import open_clip
    import torch

    from shiftbed.evaluation.models.modules import ImageTower

    request.check_keys("pretrained", "weights", "classes", "templates", "seed", "num_classes")
    architecture, _, tag = request.spec.name.partition("/")
    config = _checked(architecture, tag, request)
    tower = _tower_state(request)
    file = None if tower is not None else _file(config, request)
    names, drawn = request.class_names, request.integer("num_classes")
    if names and tower is None:
        _prompts(request)
        _check_text_tower(architecture)
    if tower is None and not names and drawn is None:
        raise InputError(
            f"{request.spec.text} is a zero-shot model and needs the names of the classes, in the "
            "order of the labels: classes=[…] or a file with one per line"
        )
    network = _build(architecture, file, config, request)
    native = preprocessing_of(open_clip.get_model_preprocess_cfg(network))
    used = request.preprocess(native)
    query: dict[str, Any] = {} if file else dict(request.drawn)
    facts = request.facts(architecture, file, "torch", "open_clip_torch")
    if file is not None:
        facts["weights"]["tag"] = tag
    if tower is not None and request.weights is not None:
        head = torch.nn.Linear(*tower["head.weight"].shape[::-1])
        module = ImageTower(network.visual, head)
        fit(module, tower, request.weights)
        query = {"weights": stamp(request.weights)}
        facts["weights"] = {"file": request.weights.name, "sha256": digest(request.weights)}
    elif names:
        key, features = _text_of(network, architecture, file, request)
        facts |= {"zero_shot": {"templates": list(_prompts(request)), "classes": list(names)}}
        bias, scale = getattr(network, "logit_bias", None), float(network.logit_scale.exp())
        own = 0.0 if bias is None else float(bias)
        module = ImageTower.of_text(network.visual, torch.from_numpy(features), scale, own)
        query = {"prompts": key[:12]} | query
    else:
        with seeded(request.seed):
            width = network.visual.output_dim
            module = ImageTower(network.visual, torch.nn.Linear(width, drawn or 1))
        query |= {"num_classes": drawn, "seed": request.seed}
    if file is not None and request.weights is not None:
        query["weights"] = stamp(file)
    module.eval().requires_grad_(False)
    return wrap_for(request, module, request.spec.name, native, used, facts, query, names)


def _tower_state(request: Request) -> "dict[str, Any] | None":
    """The weights given, if they are of an image tower with a head."""
    if request.weights is None:
        return None
    try:
        state = read_state(request.weights)
    except InputError:
        return None  # a checkpoint of some other kind: open_clip says what is wrong with it
    return (
        state if "head.weight" in state and "encoder" in {n.split(".")[0] for n in state} else None
    )


def _prompts(request: Request) -> tuple[str, ...]:
    prompts = tuple(request.templates or TEMPLATES)
    for prompt in prompts:
        if any(prompt.count(mark) != 1 for mark in ("{}", "{", "}")):
            raise InputError(f"a template must have {{}} once, for the class, got {prompt!r}")
    return prompts


def _text_of(
    network: Any, architecture: str, file: Path | None, request: Request
) -> tuple[str, Floats]:
    """The text features of the class names, computed once, and the key they are kept under."""
    prompts, names = _prompts(request), request.class_names
    source = digest(file) if file else f"seed {request.seed}"
    parts = [architecture, source, list(names), list(prompts), versions("open_clip_torch")]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    features = remembered(
        f"text-features/{key}.npy",
        lambda: text_features(network, architecture, names, prompts),
    )
    return key, np.array(features)


def preprocessing_of(config: Mapping[str, Any]) -> Preprocessing:
    """open_clip's evaluation transform."""
    size = config["size"]
    height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    crop = {"shortest": "center", "longest": "border", "squash": "none"}[config["resize_mode"]]
    uneven = crop == "center" and height != width  # resized bilinearly, whatever is asked for
    return Preprocessing(
        size=(height, width),
        crop=crop,
        interpolation="bilinear"
        if uneven or config["interpolation"] == "bilinear"
        else "bicubic",  # for "random" too
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        fill=int(config.get("fill_color") or 0) if crop == "border" else None,
    )


def text_features(
    network: Any, architecture: str, names: Sequence[str], templates: Sequence[str]
) -> Floats:
    """(classes, width) float32 rows of length 1: the mean of each class's prompts."""
    import open_clip
    import torch
    from torch.nn.functional import normalize

    try:
        tokenizer = open_clip.get_tokenizer(architecture)
    except (OSError, ValueError, ImportError) as error:
        what = f"the tokenizer of {architecture} cannot be loaded"
        raise InputError(f"{what}: {brief(error)}") from None
    rows = []
    texts = [t.format(name) for name in names for t in templates]
    with torch.inference_mode():
        for start in range(0, len(texts), _BATCH):
            tokens = tokenizer(texts[start : start + _BATCH])
            rows.append(network.encode_text(tokens, normalize=True).float())
        by_class = torch.cat(rows).view(len(names), len(templates), -1)
        found: Floats = normalize(by_class.mean(dim=1), dim=-1).numpy()
    return found


def _checked(architecture: str, tag: str, request: Request) -> dict[str, Any]:
    """open_clip's entry for these weights; empty without a tag."""
    import open_clip
    from open_clip.pretrained import get_pretrained_cfg

    if architecture not in open_clip.list_models():
        raise unknown("open_clip model", architecture, open_clip.list_models())
    known = open_clip.list_pretrained_tags_by_model(architecture)
    if tag:
        config: dict[str, Any] = get_pretrained_cfg(architecture, tag)
        if not config:
            raise unknown(f"weights of open_clip's {architecture}", tag, known)
        return config
    if request.weights is None and request.flag("pretrained", True):
        raise InputError(
            f"{request.spec.text}: name the weights as open_clip:{architecture}/PRETRAINED "
            f"({', '.join(known) or 'none are known'}), give weights=FILE or pretrained=false"
        )
    return {}


def _file(config: Mapping[str, Any], request: Request) -> Path | None:
    """The checkpoint: given, or in the caches of the hub or of CLIP; None for random weights."""
    if request.weights is not None:
        return request.weights
    if not request.flag("pretrained", True):
        return None
    if not config.get("hf_hub"):
        return url_file(str(config["url"]), request.spec.text, Path.home() / ".cache" / "clip")
    repository, _, name = str(config["hf_hub"]).rpartition("/")
    names = [name] if name else ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"]
    if name.endswith((".bin", ".pth")):
        names.insert(0, f"{name[:-4]}.safetensors")
    return hub_file(repository, names, request.spec.text)


def _build(
    architecture: str, file: Path | None, config: Mapping[str, Any], request: Request
) -> Any:
    import open_clip

    fields = ("mean", "std", "interpolation", "resize_mode")
    try:
        with seeded(request.seed), _quiet():
            network: nn.Module = open_clip.create_model(
                architecture,
                pretrained=None if file is None else str(file),
                force_quick_gelu=bool(config.get("quick_gelu")),
                force_preprocess_cfg={k: config[k] for k in fields if config.get(k)},
                pretrained_text=False,
                weights_only=True,
            )
    except pickle.UnpicklingError as error:
        raise refusal(request.weights or architecture, error) from None
    except (RuntimeError, OSError, KeyError) as error:
        raise InputError(f"open_clip cannot build {request.spec.text}: {brief(error)}") from error
    return network.eval().requires_grad_(False)


@contextmanager
def _quiet() -> Iterator[None]:
    """open_clip logs to the root logger, which would print and set up handlers for good."""
    root, nothing = logging.getLogger(), logging.NullHandler()
    root.addHandler(nothing)
    try:
        yield
    finally:
        root.removeHandler(nothing)


def _check_text_tower(architecture: str) -> None:
    """Some text towers and tokenizers are other repositories; say at once if they are missing."""
    import open_clip
    from huggingface_hub import constants, try_to_load_from_cache

    config = (open_clip.get_model_config(architecture) or {}).get("text_cfg", {})
    for key, files in _ELSEWHERE.items():
        repository = str(config.get(key) or "")
        if not repository or any(
            isinstance(try_to_load_from_cache(repository, file), str) for file in files
        ):
            continue
        reason = unreachable(constants.ENDPOINT)
        if reason is not None:
            raise InputError(
                f"open_clip:{architecture} needs the text model of {repository}, which is not in "
                f"the hub cache {constants.HF_HUB_CACHE} and could not be fetched ({reason})"
            )
