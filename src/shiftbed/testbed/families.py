"""Families of models: the same architecture family, trained on the same source.

Models of one family err alike, so a line through 78 models of 24 families is known about as well
as one through 24 unrelated models: uncertainty is computed by family, not by model. Checkpoints of
one run are a family too.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.errors import InputError

FamilyChoice = Literal["known", "none"]
"""Whether models of a family count as related (where families are known), or as independent."""
Related = tuple[list[str | None] | None, tuple[str, ...]]
"""What each model is related by, and flags."""

_ARCHITECTURES = {
    "AlexNet": "alexnet",
    "BEiT": "beit",
    "BiT": r"bit resnetv2_\d+x\d_bit",
    "CaiT": "cait",
    "CoAtNet": "coatnet coatnext",
    "CoCa": "coca",
    "CoaT": "coat",
    "ConViT": "convit",
    "Conv": r"conv(?=\d)",
    "ConvMixer": "convmixer",
    "ConvNeXt": "convnext",
    "CrossViT": "crossvit",
    "DLA": "dla",
    "DPN": "dpn",
    "DarkNet": "darknet darknetaa cspdarknet cs3darknet cs3sedarknet cs3edgenet cs3se_edgenet",
    "DaViT": "davit",
    "DeiT": "deit",
    "DenseNet": "densenet densenetblur rdnet",
    "ECA-ResNet": "eca_resnet eca_resnext ecaresnetlight",
    "EVA": "eva",
    "EdgeNeXt": "edgenext",
    "EfficientFormer": "efficientformer",
    "EfficientNet": "efficientnet gc_efficientnet tinynet mixnet",
    "EfficientViT": "efficientvit",
    "FBNet": "fbnet fbnetc",
    "FasterNet": "fasternet",
    "FastViT": "fastvit",
    "FocalNet": "focalnet",
    "GC-ResNet": "gcresnet gcresnext",
    "GCViT": "gcvit",
    "GENet": "gernet",
    "GhostNet": "ghostnet repghostnet",
    "HGNet": "hgnet",
    "HRNet": "hrnet",
    "Halo, bottleneck and lambda networks": "halonet halo2botnet lamhalobotnet botnet sebotnet "
    "sehalonet haloregnetz eca_botnext eca_halonext lambda_resnet bat_resnext",
    "HardCoRe-NAS": "hardcorenas",
    "Hiera": "hiera",
    "Inception": "inception googlenet bninception",
    "Inception-ResNet": "inception_resnet",
    "InceptionNeXt": "inception_next",
    "LCNet": "lcnet",
    "LeViT": "levit",
    "MLP-Mixer": "mixer gmixer gmlp resmlp",
    "MNASNet": "mnasnet semnasnet spnasnet",
    "MViT": "mvit",
    "MambaOut": "mambaout",
    "MaxViT": "maxvit maxxvit",
    "MetaFormer": "caformer convformer poolformer",
    "MobileNet": "mobilenet",
    "MobileOne": "mobileone",
    "MobileViT": "mobilevit",
    "NASNet": "nasnet nasnetalarge nasnetamobile",
    "NFNet": "nfnet dm_nfnet eca_nfnet nf_resnet nf_regnet",
    "NLLB-CLIP": "nllb",
    "NesT": "nest",
    "NextViT": "nextvit",
    "PNASNet": "pnasnet fixpnasnet",
    "PVT": "pvt",
    "PiT": "pit",
    "PolyNet": "polynet",
    "RegNet": "regnet regnetx regnety regnetz regnetv",
    "RepVGG": "repvgg",
    "RepViT": "repvit",
    "Res2Net": "res2net res2next",
    "ResNeSt": "resnest",
    "ResNeXt": "resnext fixresnext skresnext cspresnext",
    "ResNet": "resnet fbresnet cafferesnet fixresnet resnetaa resnetblur resnetrs rn "
    "cspresnet skresnet fixresnet50cutmix",
    "ReXNet": "rexnet rexnetr",
    "SE-ResNeXt": "se_resnext seresnextaa",
    "SE-ResNet": "se_resnet",
    "SENet": "senet",
    "SHViT": "shvit",
    "SelecSLS": "selecsls",
    "Sequencer": "sequencer2d",
    "ShuffleNet": "shufflenet",
    "SqueezeNet": "squeezenet",
    "StarNet": "starnet",
    "SwiftFormer": "swiftformer",
    "Swin": "swin",
    "TNT": "tnt",
    "TResNet": "tresnet",
    "TinyViT": "tiny_vit",
    "Twins": "twins",
    "VGG": "vgg",
    "VGG-BN": r"vgg\d+_bn",
    "VOLO": "volo",
    "ViT": "vit flexivit naflexvit",
    "VisFormer": "visformer",
    "VoVNet": "ese_vovnet vovnet",
    "Wide ResNet": "wide_resnet wrn",
    "XCiT": "xcit",
    "Xception": "xception",
}
"""Family, and what names of its members begin a word with; ``_`` may be any separator or none."""
_SOURCES = {
    "CC12M": "cc12m",
    "CommonPool": "commonpool",
    "DFN": "dfn",
    "DataComp": "datacomp",
    "FixRes": "fixresnet fixresnext fixpnasnet",
    "ImageNet subset": r"subsample_\w+ (?:50|100)k(?=_\d+_epochs)",
    "ImageNet-11k": "imagenet_11k",
    "ImageNet-12k": "in12k imagenet_12k",
    "ImageNet-21k": "in21k in22k imagenet_21k imagenet_22k bit_m",
    "Instagram": "instagram ig1b wsl swsl seer swag",
    "JFT": r"jft noisy_student",
    "LAION": r"laion\w*",
    "Merged data": "merged2b m30m m38m",
    "MetaCLIP": "metaclip",
    "OpenAI": "openai",
    "SSLD": "ssld",
    "SimCLR": "simclr",
    "SimSiam": "simsiam",
    "SwAV": "swav",
    "Tencent ML-Images": "tencent",
    "VTAB": "vtab",
    "WebLI": "webli",
    "YFCC": "yfcc ssl",
    "CLIP": "clip",
}
"""Training source, and the words that say so; the first one in a name counts, CLIP at last."""


def family_of(
    name: str, *, architecture: str | None = None, training_data: str | None = None
) -> str | None:
    """The family of a model: ``ARCHITECTURE`` or ``ARCHITECTURE (SOURCE)``, None if unknown.

    The architecture family is the one whose name begins a word of the model's name, whatever the
    size and variant behind it: ``resnet50``, ``my-resnet101-run3`` and ``FixResNet50`` are
    ResNet. The source is named where it is not ImageNet-1k with its labels, or where a
    project trained its models in a way of its own (VTAB, FixRes, SimCLR). Facts say more than
    names: ``architecture`` and ``training_data`` are read instead of the name where they are
    given. A name without a known architecture has no family: such a model counts as a family of
    its own.

    >>> family_of("efficientnet-b5-autoaug"), family_of("se_resnet152")
    ('EfficientNet', 'SE-ResNet')
    >>> family_of("instagram-resnext101_32x8d"), family_of("ViT-B-32/openai")
    ('ResNeXt (Instagram)', 'ViT (OpenAI)')
    >>> family_of("convnext_base.fb_in22k_ft_in1k"), family_of("our-model")
    ('ConvNeXt (ImageNet-21k)', None)
    """
    found = _first(tuple(_ARCHITECTURES.items()), architecture or name)
    if found is None:
        return None
    source = _source(training_data or name)
    if training_data and source is None and not _IMAGENET.fullmatch(training_data):
        source = training_data
    return f"{found} ({source})" if source else found


def families(models: pl.DataFrame) -> pl.Series:
    """The family of each model: the column of that name where there is one, else by its name.

    Columns ``architecture`` and ``training_data`` are read, too. Null where it is not known.

    >>> families(pl.DataFrame({"model": ["resnet18", "our-model"]})).to_list()
    ['ResNet', None]
    """
    if "family" in models.columns:
        return models["family"].cast(pl.String)
    empty = [None] * len(models)
    facts = [
        models[column].to_list() if models.schema.get(column) == pl.String else empty
        for column in ("architecture", "training_data")
    ]
    found = [
        family_of(name, architecture=architecture, training_data=data)
        for name, architecture, data in zip(models["model"], *facts, strict=True)
    ]
    return pl.Series("family", found, dtype=pl.String)


def runs(models: pl.DataFrame) -> pl.Series:
    """The run that each model is a checkpoint of, null where it is the only one of its run.

    >>> runs(pl.DataFrame({"model": ["a@1", "a@2", "b@2"], "run": ["a", "a", "b"]})).to_list()
    ['a', 'a', None]
    """
    if "run" not in models.columns:
        return pl.Series("run", [None] * len(models), dtype=pl.String)
    run = pl.col("run").cast(pl.String)
    return models.select(pl.when(run.count().over("run") > 1).then(run).alias("run"))["run"]


def related(
    families: Sequence[str | None],
    runs: Sequence[str | None],
    rows: NDArray[np.int64],
    choice: FamilyChoice = "known",
) -> Related:
    """Which of the models in these rows err alike, None for one alone (or for all), and a flag.

    Models of a family do, and checkpoints of a run. A line is judged by leaving out one family
    after another, which takes three of them: models of fewer are related by run.

    >>> related(["ResNet", "ResNet", None, None, None], [None, None, "a", "a", "b"], np.arange(5))
    (['ResNet', 'ResNet', 'a', 'a', 'b'], ())
    >>> related(["ResNet", "ResNet", "ResNet"], ["a", "a", "b"], np.arange(3))
    (['a', 'a', 'b'], ('all models are of one family: models of other families may lie elsewhere',))
    """
    if choice not in get_args(FamilyChoice):
        raise InputError(f"families must be known or none, got {choice!r}")
    if choice == "none":
        return None, ()
    run = [runs[i] for i in rows]
    named = {name for name in (families[i] for i in rows) if name is not None}
    found = [one if families[i] is None else families[i] for i, one in zip(rows, run, strict=True)]
    if len(set(found) - {None}) + found.count(None) < 3 and any(run):
        some = "one family" if len(named) == 1 else f"{len(named)} families"
        flag = f"all models are of {some}: models of other families may lie elsewhere"
        return run, (flag,) if named else ()
    return (found if any(found) else None), ()


_IMAGENET = re.compile(r"(?i)(imagenet|in|ilsvrc)[-_ ]?(1k|2012)?|v\d+")
"""What ``training_data`` may be without saying more than the architecture."""


def _source(text: str) -> str | None:
    """The first training source that is named; CLIP alone says least."""
    named = {title: stems for title, stems in _SOURCES.items() if title != "CLIP"}
    return _first(tuple(named.items()), text) or _first((("CLIP", _SOURCES["CLIP"]),), text)


def _first(titles: tuple[tuple[str, str], ...], text: str) -> str | None:
    """The title whose stem comes first in the text, the longest one there."""
    found = _pattern(titles).search(text)
    return None if found is None else titles[int(str(found.lastgroup).split("_")[1])][0]


@cache
def _pattern(titles: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    """A stem at the start of a word, and no letter behind it but that of a version."""
    stems = [(stem, at) for at, (_, words) in enumerate(titles) for stem in words.split()]
    stems.sort(key=lambda pair: -len(pair[0]))
    groups = [
        f"(?P<title_{at}_{i}>{stem.replace('_', '[-_ ]?')})" for i, (stem, at) in enumerate(stems)
    ]
    return re.compile(rf"(?i)(?<![a-z0-9])(?:{'|'.join(groups)})(?![a-uw-z]|v(?!\d))")
