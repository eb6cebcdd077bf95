"""``hf:REPOSITORY`` or ``hf:FOLDER``: image classifiers of transformers.

Keys: ``pretrained`` (true; false draws weights from ``seed``), ``revision``.

Preprocessing is read from the model's own processor and then tried on an image beside it: where
the two do not agree, the model is refused rather than run with the wrong pixels.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from shiftbed.errors import InputError, brief
from shiftbed.evaluation.compat import ensure_torchvision
from shiftbed.evaluation.models.base import Model
from shiftbed.evaluation.models.checkpoints import digest, hub_file
from shiftbed.evaluation.models.spec import Request
from shiftbed.evaluation.models.torch_model import seeded, wrap_for
from shiftbed.evaluation.preprocessing import INTERPOLATIONS, Preprocessing

WEIGHTS: tuple[str, ...] = ("model.safetensors", "pytorch_model.bin")
_SAMPLINGS = {int(sampling): name for name, sampling in INTERPOLATIONS.items()}
_AGREE = 0.5 / 255
"""Mean difference of pixels up to which two ways of resizing count as the same."""


def load(request: Request) -> Model:
    """Load a classifier from a folder or from the hub's cache."""
    ensure_torchvision()
    from shiftbed.evaluation.models.modules import Named

    request.check_keys("pretrained", "revision", "seed", "num_classes")
    pretrained = request.flag("pretrained", True)
    folder = _folder(request, pretrained)
    with _quiet():
        network = _network(folder, request, pretrained)
        native = _native(folder, request)
    used = request.preprocess(native)
    files = sorted(p for p in folder.iterdir() if p.name.startswith(("model", "pytorch_model")))
    files = [p for p in files if p.suffix in (".safetensors", ".bin")]
    query: dict[str, str | int | None] = {"revision": request.text("revision")}
    if not pretrained:
        query |= request.drawn
    elif Path(request.spec.name).expanduser().is_dir():
        query["weights"] = "+".join(digest(p)[:12] for p in files)
    labels: dict[int, str] = network.config.id2label
    name = Path(request.spec.name).name if "weights" in query else request.spec.name
    weights = {p.name: digest(p) for p in files} if pretrained else None
    facts = request.facts(type(network).__name__, weights, "torch", "transformers")
    if "weights" not in query:
        facts["commit"] = folder.name  # of the repository on the hub
    names = tuple(labels[i] for i in sorted(labels))
    return wrap_for(request, Named(network), name, native, used, facts, query, names)


def preprocessing_of(config: Mapping[str, Any]) -> Preprocessing:
    """What an image processor's settings (its ``to_dict``) say, as transformers reads them."""
    if not config.get("do_resize"):
        raise InputError("its processor does not resize, so images of one size cannot be promised")
    size, cut = _edges(config.get("size")), _edges(config.get("crop_size"))
    shortest = size.get("shortest_edge")
    resize: int | tuple[int, int] | None
    fraction = config.get("crop_pct")
    if fraction is not None and shortest is not None:  # ConvNeXt, PoolFormer
        side = cut.get("height", shortest)
        final, crop = (side, side), "center" if shortest < 384 else "none"
        resize = int(shortest / fraction) if crop == "center" else None
    elif shortest is not None:
        if config.get("image_processor_type", "").startswith("Levit"):
            shortest = int(256 / 224 * shortest)
        if not config.get("do_center_crop") or not cut:
            raise InputError("its processor keeps the aspect ratio and does not crop")
        final, resize, crop = (cut["height"], cut["width"]), shortest, "center"
    elif "height" in size and "width" in size:
        final, resize, crop = (size["height"], size["width"]), None, "none"
        if config.get("do_center_crop") and cut:
            resize, crop = final, "squash"
            final = cut["height"], cut["width"]
    else:
        raise InputError(f"its processor's size {size} is not understood")
    mean, std = _statistics(config)
    return Preprocessing(
        size=final,
        resize=resize,
        crop=crop,
        interpolation=_SAMPLINGS[int(config.get("resample", 2))],
        mean=mean,
        std=std,
        mode="BGR" if config.get("do_flip_channel_order") else "RGB",
        half="down",
    )


def _edges(value: Any) -> dict[str, int]:
    """Sizes as processors write them: a mapping, a number (older), or nothing."""
    if isinstance(value, int):
        return {"height": value, "width": value}
    return {k: int(v) for k, v in dict(value or {}).items() if v is not None}


def _statistics(config: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std for pixels in [0, 1]; a factor other than 1/255 goes into both."""
    mean, std = [0.0] * 3, [1.0] * 3
    if config.get("do_normalize"):
        mean, std = list(config["image_mean"]), list(config["image_std"])
        if config.get("include_top"):  # EfficientNet divides twice
            std = [s * s for s in std]
    factor = float(config.get("rescale_factor", 1 / 255)) if config.get("do_rescale") else 1.0
    scale = 255 * factor
    if config.get("rescale_offset"):  # pixels become x·scale − 1 before the mean is taken off
        mean = [m + 1 for m in mean]
    return tuple(m / scale for m in mean), tuple(s / scale for s in std)


def _folder(request: Request, pretrained: bool) -> Path:
    """The folder with the configuration and the weights; a repository's is filled if need be."""
    name = request.spec.name
    place = Path(name).expanduser()
    if place.is_dir():
        if not (place / "config.json").is_file():
            raise InputError(f"{name}: no config.json, so this is not a model of transformers")
        return place
    if place.is_absolute() or name.startswith(".") or name.count("/") != 1:
        raise InputError(f"{name}: no such folder, nor a repository's OWNER/NAME")
    revision = request.text("revision")
    repository = f"{name}@{revision}" if revision else name
    needed: list[tuple[str, ...]] = [("config.json",)]
    if not request.asks_for("size", "mean", "std"):
        needed.append(("preprocessor_config.json",))
    if pretrained:
        needed.append(WEIGHTS)
    instead = "give a folder that holds the repository, hf:FOLDER"
    folder = hub_file(repository, needed[0], request.spec.text, instead).parent
    for names in needed[1:]:  # of the same commit, though the branch may move meanwhile
        hub_file(f"{name}@{folder.name}", names, request.spec.text, instead)
    return folder


def _network(folder: Path, request: Request, pretrained: bool) -> Any:
    import transformers

    auto: Any = transformers  # typed in part only
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        if pretrained:
            return auto.AutoModelForImageClassification.from_pretrained(str(folder), **options)
        config = auto.AutoConfig.from_pretrained(str(folder), **options)
        with seeded(request.seed):
            return auto.AutoModelForImageClassification.from_config(config)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise InputError(
            f"{request.spec.text}: transformers cannot load it: {brief(error)}"
        ) from error


def _native(folder: Path, request: Request) -> Preprocessing:
    import transformers

    auto: Any = transformers.AutoImageProcessor
    try:
        processor = auto.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
        found = preprocessing_of(processor.to_dict())
        _compare(found, processor)
    except (OSError, ValueError, KeyError) as error:  # InputError is a ValueError
        if request.asks_for("size", "mean", "std"):
            return request.preprocess(Preprocessing(size=(224, 224)))
        raise InputError(
            f"{request.spec.text}: its preprocessing cannot be taken over: {brief(error)}; "
            "give preprocessing with size, mean and std (and resize, crop, interpolation)"
        ) from None
    return found


def _compare(found: Preprocessing, processor: Any) -> None:
    """Both ways on one image; smooth, so that only gross differences count."""
    y, x = np.mgrid[0:375, 0:512]
    waves = np.stack([np.sin(x / 40 + c) * np.cos(y / 30 - c) for c in range(3)], axis=2)
    image = Image.fromarray(((waves + 1) * 127.5).astype(np.uint8))
    theirs = np.asarray(processor(images=image, return_tensors="np")["pixel_values"][0], float)
    mine = (found.pixels(image) / 255 - np.array(found.mean)) / np.array(found.std)
    ours = mine.transpose(2, 0, 1)
    if ours.shape != theirs.shape:
        raise InputError(f"it makes {theirs.shape}, not {ours.shape}")
    off = float((np.abs(ours - theirs).mean(axis=(1, 2)) * np.array(found.std)).max())
    if off > _AGREE:
        raise InputError(f"on an image, its pixels differ by {255 * off:.1f} levels on average")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars."""
    from transformers.utils import logging as module

    logging: Any = module
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
