"""``open_clip:ARCH/PRETRAINED``: zero-shot classifiers, such as ``ViT-B-32/laion2b_s34b_b79k``.

Class names come from ``classes``, prompts from ``templates`` (each a list, or a file; also as
keys). Keys: ``pretrained`` (true; false draws weights from ``seed``, without ``/PRETRAINED``),
``weights`` (a local checkpoint).

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
    hub_file,
    refusal,
    remembered,
    unreachable,
    url_file,
)
from shiftbed.evaluation.models.spec import Request, stamp
from shiftbed.evaluation.models.torch_model import seeded, wrap_for
from shiftbed.evaluation.preprocessing import Preprocessing

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

    from shiftbed.evaluation.models.modules import ZeroShot

    request.check_keys("pretrained", "weights", "classes", "templates", "seed")
    architecture, _, tag = request.spec.name.partition("/")
    config = _checked(architecture, tag, request)
    prompts = request.templates or TEMPLATES
    if not request.class_names:
        raise InputError(
            f"{request.spec.text} is a zero-shot model and needs the names of the classes, in the "
            "order of the labels: classes=[…] or a file with one per line"
        )
    for prompt in prompts:
        if any(prompt.count(mark) != 1 for mark in ("{}", "{", "}")):
            raise InputError(f"a template must have {{}} once, for the class, got {prompt!r}")
    _check_text_tower(architecture)
    file = _file(config, request)
    network = _build(architecture, file, config, request)
    native = preprocessing_of(open_clip.get_model_preprocess_cfg(network))
    used = request.preprocess(native)
    source = digest(file) if file else f"seed {request.seed}"
    library = versions("open_clip_torch")
    parts = [architecture, source, list(request.class_names), list(prompts), library]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    features = remembered(
        f"text-features/{key}.npy",
        lambda: text_features(network, architecture, request.class_names, prompts),
    )
    names, query = request.class_names, {"prompts": key[:12]} | (request.drawn if not file else {})
    if file is not None and request.weights is not None:
        query["weights"] = stamp(file)
    about = {"templates": list(prompts), "classes": list(names)}
    facts = request.facts(architecture, file, "torch", "open_clip_torch", zero_shot=about)
    if file is not None:
        facts["weights"]["tag"] = tag
    bias = getattr(network, "logit_bias", None)
    head = ZeroShot(
        network.visual,
        torch.from_numpy(np.array(features)),
        scale=float(network.logit_scale.exp()),
        bias=0.0 if bias is None else float(bias),
    )
    return wrap_for(request, head, request.spec.name, native, used, facts, query, names)


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
