"""``timm:NAME[.TAG]``: timm's models.

Keys: ``pretrained`` (true; false draws weights from ``seed``), ``weights`` (a local checkpoint),
``num_classes``, ``in_chans`` (1 or 3), ``img_size`` (also rebuilds architectures of a fixed
size), ``test_size`` (true: the larger image that timm states for testing, where there is one).
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbed.errors import InputError, brief, unknown
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.models.base import Model
from shiftbed.evaluation.models.checkpoints import fit, hub_file, read_state, url_file
from shiftbed.evaluation.models.spec import Request, stamp
from shiftbed.evaluation.models.torch_model import seeded, wrap_for
from shiftbed.evaluation.preprocessing import Preprocessing

if TYPE_CHECKING:
    from torch import nn


KEYS = ("pretrained", "weights", "num_classes", "seed", "in_chans", "img_size", "test_size")


def load(request: Request) -> Model:
    """Build a timm model and load its weights."""
    ensure_torchvision()
    from timm.models import get_pretrained_cfg

    request.check_keys(*KEYS)
    architecture, tag = _checked_name(request.spec.name)
    config = _config(get_pretrained_cfg(request.spec.name))
    pretrained = request.flag("pretrained", request.weights is None)
    somewhere = config.get("hf_hub_id") or config.get("url")
    if pretrained and request.weights is None and not somewhere:
        raise InputError(f"timm has no weights for {request.spec.name}: give weights=FILE")
    native = preprocessing_of(config)
    if request.integer("in_chans") == 1:
        native = native.override(mode="L")
    used = request.preprocess(_sized(request, config, native))
    options = _options(request, config, used)
    file, name = request.weights, architecture
    query: dict[str, str | int | None] = {"in_chans": request.integer("in_chans")}
    if file is not None:
        network = _from_file(architecture, file, config, options)
        query["weights"] = stamp(file)
    elif pretrained:
        file = _cached(config, request.spec.text)
        there = config.get("num_classes")
        if options.get("num_classes", there) != there:
            raise InputError(
                f"the weights of timm's {request.spec.name} have {there} classes, "
                f"not {options['num_classes']}"
            )
        foreign = file.suffix == ".npz"  # original JAX weights, which the model itself can read
        if file.suffix not in (".npz", ".safetensors"):
            read_state(file)  # refused if it is more than tensors, whatever timm would do
        overlay = {"file": str(file), "custom_load": foreign}
        more = {"pretrained": True, "pretrained_cfg_overlay": overlay}
        network = _create(request.spec.name, options, **more)
        tag = tag or str(config["tag"] or "")
        name = f"{architecture}.{tag}" if tag else name
    else:
        with seeded(request.seed):
            network = _create(architecture, options)
        query |= {**request.drawn, "num_classes": options.get("num_classes")}
    facts = request.facts(architecture, file, "torch", "timm")
    if file is not None and pretrained and tag:
        facts["weights"]["tag"] = tag
    return wrap_for(request, network, name, native, used, facts, query)


def preprocessing_of(config: Mapping[str, Any]) -> Preprocessing:
    """timm's evaluation transform, as ``timm.data.create_transform(is_training=False)`` does it.

    For sizes that are not square, timm resizes to cover them and always bilinearly.
    """
    _, height, width = config["input_size"]
    fraction = config.get("crop_pct") or 0.875
    resize = math.floor(height / fraction), math.floor(width / fraction)
    crop = config.get("crop_mode") or "center"
    interpolation = config.get("interpolation") or "bilinear"
    even = resize[0] == resize[1]
    return Preprocessing(
        size=(height, width),
        resize=resize[0] if crop == "center" and even else resize,
        crop=crop,
        interpolation=interpolation if crop != "center" or even else "bilinear",
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        mode="RGB" if len(tuple(config["mean"])) == 3 else "L",
    )


def _checked_name(name: str) -> tuple[str, str]:
    from timm.models import is_model, list_models, list_pretrained, split_model_name_tag

    architecture, tag = split_model_name_tag(name)
    if not is_model(architecture):
        raise unknown("timm model", architecture, list_models())
    if tag and name not in list_pretrained():
        tags = [n for n in list_pretrained() if n.startswith(f"{architecture}.")]
        raise unknown("weights of timm", name, tags)
    return str(architecture), str(tag)


def _config(found: Any) -> dict[str, Any]:
    config: dict[str, Any] = {} if found is None else found.to_dict()
    defaults = {"input_size": (3, 224, 224), "mean": (0.485, 0.456, 0.406), "tag": ""}
    return {**defaults, "std": (0.229, 0.224, 0.225), "interpolation": "bicubic"} | config


def _sized(request: Request, config: Mapping[str, Any], native: Preprocessing) -> Preprocessing:
    """At the image size that was asked for: ``img_size``, or timm's size for testing."""
    side = request.integer("img_size")
    if side is not None:
        return native.override(size=side)
    if not request.flag("test_size", False):
        return native
    if not config.get("test_input_size"):
        raise InputError(f"{request.spec.text}: timm states no test size for it")
    fraction = config.get("test_crop_pct") or config.get("crop_pct") or 0.875
    return native.override(size=tuple(config["test_input_size"][1:]), crop_pct=fraction)


def _options(request: Request, config: Mapping[str, Any], used: Preprocessing) -> dict[str, Any]:
    """Arguments of timm's ``create_model``."""
    options: dict[str, Any] = {}
    wanted = request.integer("num_classes") or request.classes
    if wanted is not None:
        options["num_classes"] = wanted
    if request.integer("in_chans") not in (None, 1, 3):
        raise InputError(f"{request.spec.text}: in_chans must be 1 or 3")
    if used.channels != 3:
        options["in_chans"] = used.channels
    if config.get("fixed_input_size") and used.size != tuple(config["input_size"][1:]):
        options["img_size"] = used.size
    return options


def _create(name: str, options: Mapping[str, Any], **more: Any) -> "nn.Module":
    import timm

    try:
        network: nn.Module = timm.create_model(name, **options, **more)
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        raise InputError(
            f"timm cannot build {name} with {dict(options)}: {brief(error)}"
        ) from error
    return network


def _from_file(
    architecture: str, file: Path, config: Mapping[str, Any], options: Mapping[str, Any]
) -> "nn.Module":
    """A local checkpoint; the number of classes is read from its last layer."""
    state = read_state(file)
    heads = config.get("classifier") or ()
    for head in (heads,) if isinstance(heads, str) else heads:
        if f"{head}.weight" in state:
            options = {"num_classes": len(state[f"{head}.weight"]), **options}
    network = _create(architecture, options)
    fit(network, state, file)
    return network


def _cached(config: Mapping[str, Any], what: str) -> Path:
    if not config.get("hf_hub_id"):
        return url_file(str(config["url"]), what)
    name = config.get("hf_hub_filename")
    names = (str(name),) if name else ("model.safetensors", "pytorch_model.bin")
    return hub_file(str(config["hf_hub_id"]), names, what)
