"""Build the testbeds that ship with the package from the tables their authors published.

    python -m tools.build_published FOLDER [SYNSETS]

FOLDER holds imagenet_testbed_2020.csv (with _sizes and _size_exceptions),
imagenet_testbed_2023.csv, robustnets_2022.csv, timm.csv and openclip.csv; SYNSETS lists ImageNet's
classes by index. The result is written to src/shiftbed/published_tables. Everything that is decided
by a model's name (fit set, parents, training data) is decided here, once, and becomes a column;
nothing matches names at run time.
"""

import re
import sys
from pathlib import Path

import numpy as np
import polars as pl

from shiftbed.records import Perturbation, Setting, Shift
from shiftbed.testbed.families import families, family_of
from shiftbed.testbed.files import read_testbed, write_testbed
from shiftbed.testbed.record import Testbed

OUT = Path(__file__).parents[1] / "src" / "shiftbed" / "published_tables"
KIND = {
    "STANDARD": "standard",
    "ROBUST_INTV": "intervention",
    "LP_ADV": "lp-adversarial",
    "MORE_DATA": "more-data",
    "LOW_ACCURACY_CNN": "low-accuracy",
    "LINEAR_PIXELS": "linear-pixels",
    "NEAREST_NEIGHBORS": "nearest-neighbors",
    "RANDOM_FEATURES": "random-features",
    "RANDOM_FORESTS": "random-forests",
    None: "untyped",
}


def testbed(
    name: str, models: pl.DataFrame, table: pl.DataFrame, n: np.ndarray, **more: object
) -> Testbed:
    """A testbed from model columns, a wide table of fractions and sizes (models, settings)."""
    models = models.with_columns(families(models))
    value = table.to_numpy().astype(np.float64)
    return Testbed(
        name=name,
        models=models,
        settings=tuple(table.columns),
        value=value,
        n=np.where(np.isfinite(value), n, 0).astype(np.int64),
        **more,
    )


# --- taori2020 -------------------------------------------------------------------------------


FACTS = Path(__file__).parent / "taori2020_models.csv"
"""What taori2020, Section 3 and Appendix F, says of its models; nothing where it does not."""


def imagenet_testbed_2020(folder: Path) -> Testbed:
    return _imagenet_testbed(
        folder,
        "2020",
        pl.read_csv(folder / "imagenet_testbed_2020.csv").rename({"type": "kind"}),
        left_out=("subsample", "aws", "batch64"),
        title="204 ImageNet models in 213 settings",
        source="modestyachts/imagenet-testbed, state of 2020-08-31",
    )


def imagenet_testbed_2023(folder: Path) -> Testbed:
    return _imagenet_testbed(
        folder,
        "2023",
        pl.read_csv(folder / "imagenet_testbed_2023.csv", infer_schema_length=None),
        left_out=("resnet50_aws_baseline", "resnet50_imagenet_100percent"),
        sizes={"imagenet-sketch": 50_889, "ytbb-robust_pm0": 2_030, "ytbb-robust_pm10": 2_030},
        title="338 ImageNet models in 213 settings, with CLIP, vision transformers and checkpoints",
        source="modestyachts/imagenet-testbed, state of 2023-08-05",
    )


def _imagenet_testbed(
    folder: Path,
    year: str,
    wide: pl.DataFrame,
    *,
    left_out: tuple[str, ...],
    sizes: dict[str, int] | None = None,
    **more: str,
) -> Testbed:
    """The grid as its authors had it in that year.

    ``left_out`` are words in names of standard models that are no baseline models (duplicates,
    subsets of the training data); ``sizes`` are those that the figures themselves determine
    (every accuracy a whole number of images) where the list of sizes has others.
    """
    table = wide.drop("model", "kind").cast(pl.Float64) / 100
    names = wide["model"].to_list()
    kinds = [KIND[kind] for kind in wide["kind"]]
    models = pl.DataFrame(
        {
            "model": names,
            "kind": kinds,
            "in_fit_set": [
                kind == "standard" and not any(word in name for word in left_out)
                for name, kind in zip(names, kinds, strict=True)
            ],
            "parent": [_parent(name, set(names)) for name in names],
        },
        schema_overrides={"parent": pl.String},
    )
    facts = models.select("model").join(pl.read_csv(FACTS), on="model", how="left")
    about = zip(names, kinds, facts["training_data"], strict=True)
    family = pl.Series("family", [_family(*one) for one in about], dtype=pl.String)
    architecture = family.str.replace(r" \(.*", "").alias("architecture")
    models = models.with_columns(family, architecture, *facts.drop("model"))
    listed = pl.read_csv(folder / "imagenet_testbed_2020_sizes.csv")
    known = dict(listed.select("setting", "test_set_size").iter_rows()) | (sizes or {})
    n = np.array([[known[s] for s in table.columns]] * len(names))
    row, column = {m: i for i, m in enumerate(names)}, {s: i for i, s in enumerate(table.columns)}
    exceptions = pl.read_csv(folder / "imagenet_testbed_2020_size_exceptions.csv")
    for model, setting, size in exceptions.iter_rows():
        if setting in column:  # the list also names averages, which follow from their parts
            n[row[model], column[setting]] = size
    derived = _imagenet_c(table.columns)
    return testbed(
        f"imagenet-testbed-{year}",
        models,
        table,
        n,
        shifts=_imagenet_shifts(
            derived, wide.row(by_predicate=pl.col("model") == "resnet50", named=True)
        ),
        derived=derived,
        records=_imagenet_records(table.columns),
        licence="MIT",
        citation="Taori, Dave, Shankar, Carlini, Recht, Schmidt: Measuring Robustness to Natural "
        "Distribution Shifts in Image Classification. NeurIPS 2020.",
        **more,
    )


def _family(name: str, kind: str, training_data: str | None) -> str | None:
    """By name, and by training data where there was more than ImageNet."""
    if kind != "more-data":
        return family_of(name)
    found = family_of(name, training_data=training_data)
    return f"{found} (more data)" if found and "(" not in found else found


def _parent(name: str, names: set[str]) -> str | None:
    """The model a variant is derived from, for relative robustness."""
    if name in ("resnet50", "resnet50_aws_baseline"):
        return None
    if name.endswith("_aws"):
        return "resnet50_aws_baseline"
    if name.startswith(("resnet50_", "resnet50-", "FixResNet50")):
        return "resnet50"
    for pattern in (
        r"(.+)_lpf\d",
        r"(efficientnet-b\d)-.+",
        r"(resnet18)-rotation-.+",
        r"(res.+)_(?:ssl|swsl|cutmix|deepaugment_augmix)",
    ):
        found = re.fullmatch(pattern, name)
        if found and found[1] in names:
            return found[1]
    return None


def _imagenet_c(settings: list[str]) -> dict[str, tuple[str, ...]]:
    """Mean over severities per corruption, then over corruptions; disk and memory stay apart."""
    derived: dict[str, tuple[str, ...]] = {}
    for setting in settings:
        found = re.fullmatch(r"imagenet-c\.(\w+)\.\d_(in-memory|on-disk)", setting)
        if found:
            name = f"{found[1]}_{found[2]}"
            derived[name] = (*derived.get(name, ()), setting)
    assert all(len(parts) == 5 for parts in derived.values())
    derived["avg_corruptions"] = (*derived, "greyscale")
    derived["avg_pgd"] = tuple(s for s in settings if s.startswith("pgd."))
    assert len(derived["avg_pgd"]) == 4
    return derived


def _imagenet_records(settings: list[str]) -> dict[str, Setting]:
    """What the perturbed settings of the published grid are."""
    found = {}
    for setting in settings:
        corrupted = re.fullmatch(r"imagenet-c\.(\w+)\.(\d)_(in-memory|on-disk)", setting)
        if corrupted:
            name, severity, where = corrupted.groups()
            what = Perturbation(
                kind="corruption",
                name=name,
                id=f"{name}:{severity}",
                severity=int(severity),
                on_disk=where == "on-disk",
            )
        elif setting.startswith("pgd."):
            what = Perturbation(kind="adversarial", name="pgd", id=setting)
        elif setting in ("greyscale", "stylized_imagenet"):
            what = Perturbation(kind="corruption", name=setting, id=setting)
        else:
            continue
        found[setting] = Setting(test_set="val").perturbed(what, name=setting)
    return found


def _imagenet_shifts(
    derived: dict[str, tuple[str, ...]], resnet50: dict[str, float]
) -> tuple[Shift, ...]:
    """The shifts; the line of ImageNet-A breaks at the ResNet-50 that it was filtered with."""

    def natural(name: str, source: str, target: str, title: str, **more: object) -> Shift:
        kind = more.pop("kind", "natural-dataset")
        full = (
            "val"
            if source != "val" and "pm0" not in source and "subsampled" not in source
            else None
        )
        return Shift(
            name=name,
            kind=kind,
            source=(source,),
            target=target,
            title=title,
            full_source=full,
            **more,
        )

    v2 = "imagenetv2-matched-frequency-format-val"
    shifts = [
        natural("imagenet-v2", "val", v2, "ImageNetV2, matched frequency", threshold=0.55),
        natural(
            "objectnet",
            "val-on-objectnet-classes",
            "objectnet-1.0-beta",
            "ObjectNet",
            threshold=0.55,
        ),
        natural(
            "imagenet-vid",
            "val-on-vid-robust-classes",
            "imagenet-vid-robust_pm0",
            "ImageNet-Vid-Robust, anchor frames",
        ),
        natural(
            "ytbb", "val-on-ytbb-robust-classes", "ytbb-robust_pm0", "YTBB-Robust, anchor frames"
        ),
        natural(
            "imagenet-vid-pm10",
            "imagenet-vid-robust_pm0",
            "imagenet-vid-robust_pm10",
            "ImageNet-Vid-Robust, all frames within 10",
            kind="consistency",
            threshold=0.49,
        ),
        natural(
            "ytbb-pm10",
            "ytbb-robust_pm0",
            "ytbb-robust_pm10",
            "YTBB-Robust, all frames within 10",
            kind="consistency",
            threshold=0.45,
        ),
        natural(
            "imagenet-a",
            "val-on-imagenet-a-classes",
            "imagenet-a",
            "ImageNet-A",
            kind="adversarially-filtered",
            threshold=0.75,
            knee=resnet50["val-on-imagenet-a-classes"] / 100,
            full_knee=resnet50["val"] / 100,
        ),
        natural(
            "imagenet-r", "val-on-imagenet-r-classes", "imagenet-r", "ImageNet-R", threshold=0.75
        ),
        natural("imagenet-sketch", "val", "imagenet-sketch", "ImageNet-Sketch", threshold=0.55),
        natural(
            "imagenet-v2-threshold-0.7",
            "val",
            "imagenetv2-threshold-0.7-format-val",
            "ImageNetV2, threshold 0.7",
            threshold=0.55,
        ),
        natural(
            "imagenet-v2-top-images",
            "val",
            "imagenetv2-top-images-format-val",
            "ImageNetV2, top images",
            threshold=0.55,
        ),
        natural(
            "imagenet-v2-original",
            "val",
            "imagenetv2-matched-frequency",
            "ImageNetV2, matched frequency, original encoding",
            threshold=0.55,
        ),
        natural(
            "imagenet-v2-threshold-0.7-original",
            "val",
            "imagenetv2-threshold0.7",
            "ImageNetV2, threshold 0.7, original encoding",
            threshold=0.55,
        ),
        natural(
            "imagenet-v2-top-images-original",
            "val",
            "imagenetv2-topimages",
            "ImageNetV2, top images, original encoding",
            threshold=0.55,
        ),
        natural(
            "imagenet-v2-125",
            "val_subsampled_class_1_8",
            f"{v2}_subsampled_class_1_8",
            "ImageNetV2 on 125 classes",
        ),
    ]
    synthetic = ["stylized_imagenet", "greyscale", *derived]
    synthetic += list(derived["avg_pgd"])
    for name in sorted(synthetic):
        kind = "adversarial" if "pgd" in name else "corruption"
        shifts.append(
            Shift(name=name, kind=kind, source=("val",), target=name, title=name.replace("_", " "))
        )
    return tuple(shifts)


# --- fridovich2022 ---------------------------------------------------------------------------


def robustnets_2022(folder: Path) -> Testbed:
    wide = pl.read_csv(folder / "robustnets_2022.csv")
    info = ["model", "architecture", "augmentation", "pruning", "scope", "sparsity"]
    probes = [c for c in wide.columns if re.match("jacobian|high_freq|consistent", c)]
    accuracies = [c for c in wide.columns if c not in info and c not in probes]
    table = wide.select(pl.col(accuracies) / 100, pl.col(probes))
    names = set(wide["model"])
    clean = wide["augmentation"] == "clean"
    parents = [
        None if is_clean else re.sub(f"_{augmentation}_", "_clean_", model, count=1)
        for model, augmentation, is_clean in zip(
            wide["model"], wide["augmentation"], clean, strict=True
        )
    ]
    assert all(p is None or p in names for p in parents)
    models = wide.select(
        "model",
        pl.when(clean).then(pl.lit("standard")).otherwise(pl.lit("intervention")).alias("kind"),
        clean.alias("in_fit_set"),
        pl.Series("parent", parents, dtype=pl.String),
        *info[1:],
        pl.format("{} ({})", "architecture", "pruning").alias("family"),
    )
    # CIFAR-10-C figures average five severities of the same 10,000 images.
    sizes = [2000 if s == "cifar10.1_acc" else 0 if s in probes else 10_000 for s in table.columns]
    shifts = [
        Shift(name=name, kind=kind, source=("cifar10_acc",), target=target, title=title)
        for name, kind, target, title in [
            ("cifar10.1", "natural-dataset", "cifar10.1_acc", "CIFAR-10.1"),
            ("cifar10-c", "corruption", "cifar10c_acc", "CIFAR-10-C, mean of 15 corruptions"),
            *(
                (s, "corruption", s, f"CIFAR-10-C, {s.replace('_', ' ')}")
                for s in accuracies
                if not s.startswith("cifar10")
            ),
        ]
    ]
    return testbed(
        "robustnets-2022",
        models,
        table,
        np.array([sizes] * len(wide)),
        shifts=tuple(shifts),
        metrics={p: p for p in probes},
        title="447 pruned and augmented CIFAR-10 models",
        source="sarafridov/RobustNets",
        licence="MIT",
        citation="Fridovich-Keil, Bartoldson, Diffenderfer, Kailkhura, Bremer: Models Out of "
        "Line: A Fourier Lens on Distribution Shift Robustness. NeurIPS 2022.",
    )


# --- timm ------------------------------------------------------------------------------------

TIMM_SIZES = {
    "imagenet": 50_000,
    "imagenet_real": 46_837,
    "imagenetv2_mf": 10_000,
    "imagenet_sketch": 50_889,
    "imagenet_a_clean": 10_000,
    "imagenet_a": 7_500,
    "imagenet_r_clean": 10_000,
    "imagenet_r": 30_000,
}
# Words of a weight tag that name training data beyond ImageNet-1k, or a method built on such data.
MORE_DATA = re.compile(
    r"in12k|in21k|in22k|jft|ig1b|yfcc|laion|openai|webli|clip|seer|swag|wsl|swsl|ssl|ssld"
    r"|m30m|m38m|6m|dino"
)


def timm(folder: Path) -> Testbed:
    wide = pl.read_csv(folder / "timm.csv")
    table = wide.select(pl.col(s).cast(pl.Float64) / 100 for s in TIMM_SIZES)
    tags = [name.partition(".")[2] for name in wide["model"]]
    only_1k = [
        "in1k" in tag.split("_")
        and not any(
            MORE_DATA.fullmatch(re.sub(r"^laion.*", "laion", word)) for word in tag.split("_")
        )
        for tag in tags
    ]
    models = wide.select(
        pl.format(
            "{}@{}-{}",
            "model",
            "img_size",
            pl.col("crop_pct").map_elements(lambda v: f"{v:g}", return_dtype=pl.String),
        ).alias("model"),
        pl.Series("kind", ["standard" if one else "more-data" for one in only_1k]),
        pl.Series("in_fit_set", only_1k),
        pl.lit(None, dtype=pl.String).alias("parent"),
        pl.col("model").alias("name"),
        pl.col("model").str.split(".").list.first().alias("architecture"),
        pl.Series("tag", tags),
        "img_size",
        "crop_pct",
        "param_count",
    )

    def shift(
        name: str,
        source: str,
        target: str,
        title: str,
        kind: str = "natural-dataset",
        full: str | None = None,
    ) -> Shift:
        return Shift(
            name=name, kind=kind, source=(source,), target=target, title=title, full_source=full
        )

    shifts = (
        shift("imagenet-v2", "imagenet", "imagenetv2_mf", "ImageNetV2, matched frequency"),
        shift("imagenet-sketch", "imagenet", "imagenet_sketch", "ImageNet-Sketch"),
        shift(
            "imagenet-a",
            "imagenet_a_clean",
            "imagenet_a",
            "ImageNet-A",
            "adversarially-filtered",
            "imagenet",
        ),
        shift("imagenet-r", "imagenet_r_clean", "imagenet_r", "ImageNet-R", full="imagenet"),
        shift("imagenet-real", "imagenet", "imagenet_real", "ImageNet with ReaL labels"),
    )
    return testbed(
        "timm",
        models,
        table,
        np.array([list(TIMM_SIZES.values())] * len(wide)),
        shifts=shifts,
        title="1,557 timm checkpoints at their image sizes and crops",
        source="huggingface/pytorch-image-models results, August 2026",
        licence="Apache-2.0",
        citation="Wightman: PyTorch Image Models, 2019, doi:10.5281/zenodo.4414861.",
    )


# --- open_clip -------------------------------------------------------------------------------

OPENCLIP_SIZES = {
    "ImageNet 1k": 50_000,
    "Caltech-101": 6_085,
    "CIFAR-10": 10_000,
    "CIFAR-100": 10_000,
    "CLEVR Counts": 15_000,
    "CLEVR Distance": 15_000,
    "Country211": 21_100,
    "Describable Textures": 1_880,
    "EuroSAT": 5_400,
    "FGVC Aircraft": 3_333,
    "Food-101": 25_250,
    "GTSRB": 12_630,
    "ImageNet Sketch": 50_889,
    "ImageNet v2": 10_000,
    "ImageNet-A": 7_500,
    "ImageNet-O": 2_000,
    "ImageNet-R": 30_000,
    "KITTI Vehicle Distance": 711,
    "MNIST": 10_000,
    "ObjectNet": 18_574,
    "Oxford Flowers-102": 6_149,
    "Oxford-IIIT Pet": 3_669,
    "Pascal VOC 2007": 14_976,
    "PatchCamelyon": 32_768,
    "Rendered SST2": 1_821,
    "RESISC45": 6_300,
    "Stanford Cars": 8_041,
    "STL-10": 8_000,
    "SUN397": 108_754,
    "SVHN": 26_032,
    "Camelyon17": 85_054,
}
OPENCLIP_METRICS = {
    "Caltech-101": "mean per-class recall",
    "FGVC Aircraft": "mean per-class recall",
    "Oxford Flowers-102": "mean per-class recall",
    "Oxford-IIIT Pet": "mean per-class recall",
    "Flickr": "mean recall@1",
    "MSCOCO": "mean recall@1",
    "WinoGAViL": "Jaccard score",
    "iWildCam": "macro F1",
    "FMoW": "worst-region accuracy",
    "Dollar Street": "worst-group top-5 accuracy",
    "GeoDE": "worst-group accuracy",
}


def openclip(folder: Path) -> Testbed:
    wide = pl.read_csv(folder / "openclip.csv")
    info = ["name", "pretrained", "params (M)", "FLOPs (B)", "Average perf. on 38 datasets"]
    table = wide.drop(info)
    models = wide.select(
        pl.format("{}/{}", "name", "pretrained").alias("model"),
        pl.lit("zero-shot").alias("kind"),
        pl.lit(True).alias("in_fit_set"),
        pl.lit(None, dtype=pl.String).alias("parent"),
        pl.col("name").alias("architecture"),
        pl.col("pretrained").alias("training_data"),
        pl.col("params (M)").alias("param_count"),
        pl.col("FLOPs (B)").alias("gflops"),
    )
    names = {
        "ImageNet v2": "imagenet-v2",
        "ImageNet Sketch": "imagenet-sketch",
        "ImageNet-A": "imagenet-a",
        "ImageNet-R": "imagenet-r",
        "ObjectNet": "objectnet",
    }
    shifts = tuple(
        Shift(
            name=name,
            source=("ImageNet 1k",),
            target=target,
            title=target,
            kind="adversarially-filtered" if name == "imagenet-a" else "natural-dataset",
        )
        for target, name in names.items()
    )
    sizes = [OPENCLIP_SIZES.get(s, 0) for s in table.columns]
    return testbed(
        "openclip",
        models,
        table,
        np.array([sizes] * len(wide)),
        shifts=shifts,
        metrics=OPENCLIP_METRICS,
        title="121 zero-shot CLIP models on 38 data sets",
        line="zero-shot line",
        source="mlfoundations/open_clip results, June 2026",
        licence="MIT",
        citation="Ilharco, Wortsman, Wightman, et al.: OpenCLIP, 2021, "
        "doi:10.5281/zenodo.5143773; sizes from DataComp's task list (Gadre et al., 2023).",
    )


def imagenet_classes(synsets: Path) -> None:
    """ImageNet's classes: index and WordNet id, from a list in index order."""
    names = synsets.read_text("ascii").split()
    assert len(names) == 1000
    assert names == sorted(names)
    frame = pl.DataFrame(
        {"index": range(1000), "synset": names}, schema_overrides={"index": pl.Int16}
    )
    frame.write_parquet(OUT / "imagenet-classes.parquet", compression="zstd", compression_level=19)


def main() -> None:
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        imagenet_classes(Path(sys.argv[2]))
    for build in (imagenet_testbed_2020, imagenet_testbed_2023, robustnets_2022, timm, openclip):
        made = build(folder)
        path = OUT / f"{made.name}.parquet"
        write_testbed(made, path)
        back = read_testbed(path)
        print(
            f"{path.name}: {len(back.models)} models, {len(back.settings)} settings, "
            f"{len(back.shifts)} shifts, fit set {back.models['in_fit_set'].sum()}, "
            f"{path.stat().st_size:,} bytes"
        )


if __name__ == "__main__":
    main()
