"""Which file each command reads: a target is a file of the world and what is run with it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Target:
    """A file to spoil, what has to be there, and the commands that read it."""

    file: str
    """Relative to the world; the name of the target too."""
    commands: tuple[str, ...]
    needs: tuple[str, ...] = ()
    """Files and folders to copy beside it."""
    weight: float = 1.0
    """How often it is drawn: less for slow commands."""


_IMAGES = ("model.onnx", "model.preprocessing.json", "classes.txt")
_EVAL = "eval onnx:model.onnx {} --store out --json"
_STORE = (
    "score {s} --json",
    "score {s} --metric top1 --metric nll --metric ece --metric phase_cd",
    "store verify {s} --json",
    "store verify {s} --seal",
    "store gc {s} --minimum-age 0",
    "store gc {s} --minimum-age 0 --dry-run --json",
    "store scrub {s} --rebuild",
    "store export {s} --setting val -o out.npz",
    "store export {s} --setting val -o out.csv",
    "store twin {s} --setting val --subset 0,1",
    "store import {s} answers.csv --setting val",
    "rank -t {s} --shift s --json",
    "fit -t {s} --shift s --bootstrap 40",
    "place -t bed.parquet --from {s} --json",
    "similarity {s} --setting val --json",
    "estimate {s} --id val --ood v2",
    "mix {s} --id val --ood v2",
    "trajectories {s} --shift s --json",
    "testbeds show {s}",
    "transfer {s} --json",
    "card m0 -t {s} -o out.md",
    "mce {s} --json",
    "predictors {s} --bootstrap 100",
)
_BED = (
    "testbeds show {b} --models --settings",
    "rank -t {b} --shift s --json",
    "fit -t {b} --shift s --bootstrap 40 --json",
    "place -t {b} --id val=0.7 --ood v2=0.6",
    "place -t {b} --model m2",
    "compare m1 m2 -t {b}",
    "groups -t {b}",
    "card m3 -t {b} -o out.html",
    "plan -t {b} --shift s --delta 0.05",
    "patterns {b} --bootstrap 40 --json",
    "predictiveness {b} --bootstrap 100",
)
_TABLE = (
    "import {t} -o out.parquet --shift s=val:v2",
    "place -t bed.parquet --from {t} --json",
    "rank -t bed.parquet --shift s --with {t}",
)
_PAIRS = (
    "predictiveness {p} --bootstrap 100 --json",
    "factors {p} --bootstrap 100 -o out.csv",
    "patterns {p} --bootstrap 100",
    "effects {p} --show difficulty --bootstrap 100",
)


def _of(commands: tuple[str, ...], key: str, value: str) -> tuple[str, ...]:
    return tuple(one.replace("{" + key + "}", value) for one in commands)


def _tables() -> list[Target]:
    names = ("wide.csv", "comma.csv", "long.tsv", "rows.jsonl", "rows.json", "wide.parquet")
    found = [Target(file=n, commands=_of(_TABLE, "t", n), needs=("bed.parquet",)) for n in names]
    other = "import {} -o out.parquet --json"
    found += [
        Target(file=name, commands=(other.format(name),), weight=0.5)
        for name in ("open_clip.csv", "results-imagenet.csv")
    ]
    found.append(
        Target(
            file="models.csv",
            commands=("import wide.csv -o out.parquet --models models.csv",),
            needs=("wide.csv",),
        )
    )
    found.append(Target(file="bed.parquet", commands=_of(_BED, "b", "bed.parquet"), weight=2))
    found += [
        Target(file=name, commands=_of(_PAIRS, "p", name))
        for name in ("pairs.csv", "pairs.json", "pairs.parquet")
    ]
    page = ("report bed.parquet -o out.html --opening opening.txt",)
    found.append(Target(file="opening.txt", commands=page, needs=("bed.parquet",), weight=0.02))
    plot = (
        "plot -t bed.parquet -s s -o out.svg",
        "plot -t bed.parquet -s s -o out.html",
        "report bed.parquet -o out.html",
    )
    found.append(Target(file="bed.parquet", commands=plot, weight=0.05))
    return found


def _predictions() -> list[Target]:
    npz = (
        "similarity id.npz --json",
        "estimate id.npz ood.npz",
        "mix id.npz ood.npz",
        "import id.npz -o out.parquet",
        "store import out id.npz --setting a",
        "place -t answers.parquet --name m0 --id id=0.7 --ood ood=0.6 --predictions id=id.npz",
    )
    frames = ("consistency store --metadata pmsets.json --metadata labels.json --setting frames",)
    return [
        Target(file="id.npz", commands=npz, needs=("ood.npz", "answers.parquet"), weight=2),
        Target(
            file="answers.csv",
            commands=("store import store answers.csv --setting val",),
            needs=("store",),
        ),
        Target(file="pmsets.json", commands=frames, needs=("store", "labels.json")),
        Target(file="labels.json", commands=frames, needs=("store", "pmsets.json")),
    ]


_KINDS = (
    "store.json",
    "testbed.json",
    "test_sets/setting=val.json",
    "test_sets/setting=val.parquet",
    "cells/model=m0/setting=val.json",
    "cells/batch-*.json",
    "predictions/model=m0/setting=val/part-*.parquet",
    "predictions/model=m1/setting=v2/part-*.parquet",
    "probes/model=m0/setting=val/probe=phase.json",
    "probes/model=m0/setting=val/probe=phase/part-*.parquet",
)


def _stores() -> list[Target]:
    needs = ("bed.parquet", "answers.csv")
    return [
        Target(file=f"{s}/{kind}", commands=_of(_STORE, "s", s), needs=(s, *needs), weight=weight)
        for s, weight in (("store", 0.5), ("older", 1.5))
        for kind in _KINDS
    ]


def _images() -> list[Target]:
    files = (
        "images.npz",
        "packed.npz",
        "images.tar",
        "images.parquet",
        "folder/cat/0.png",
        "folder/cat/0.jpg",
    )
    found = []
    for name in files:
        whole = "folder" if name.startswith("folder") else name
        more = ("corrupt folder out --corruption contrast:1 --as-is",) if whole == "folder" else ()
        found.append(
            Target(file=name, commands=(_EVAL.format(whole), *more), needs=(*_IMAGES, whole))
        )
    folder = (*_IMAGES, "folder")
    found += [
        Target(file="manifest.csv", commands=(_EVAL.format("manifest.csv"),), needs=folder),
        Target(
            file="mnist/t10k-images-idx3-ubyte",
            commands=(_EVAL.format("digits/mnist@mnist"), "data check mnist"),
            needs=(*_IMAGES, "mnist"),
        ),
        Target(
            file="mnist/t10k-labels-idx1-ubyte",
            commands=(_EVAL.format("digits/mnist@mnist"),),
            needs=(*_IMAGES, "mnist"),
            weight=0.5,
        ),
        Target(
            file="subset.txt",
            commands=(_EVAL.format("images.npz --subset subset.txt"),),
            needs=(*_IMAGES, "images.npz"),
            weight=0.5,
        ),
        Target(
            file="map.json",
            commands=(
                _EVAL.format("images.npz --class-map map.json"),
                "store twin store --setting val --class-map map.json",
            ),
            needs=(*_IMAGES, "images.npz", "store"),
        ),
        Target(
            file="model.preprocessing.json",
            commands=(_EVAL.format("images.npz"),),
            needs=(*_IMAGES, "images.npz"),
        ),
    ]
    return found


def _captions() -> list[Target]:
    command = "captions {} --classes {} -o out --min-matches 2 --per-class 2"
    sources = ("captions.csv", "captions.tsv", "captions.parquet", "captions.tar")
    classes = ("names.csv", "names.json", "names.txt")
    found = [
        Target(file=one, commands=(command.format(one, "names.csv"),), needs=("names.csv",))
        for one in sources
    ]
    return found + [
        Target(
            file=one,
            commands=(command.format("captions.csv", one),),
            needs=("captions.csv",),
            weight=0.5,
        )
        for one in classes
    ]


def _models() -> list[Target]:
    both = "nets:resnet8?weights=first.pt nets:resnet8?weights=second.pt"
    eight = "--preprocessing size=8 --preprocessing crop=none"
    needs = ("images.npz", "model.preprocessing.json", "program.preprocessing.json", "second.pt")
    return [
        Target(file="model.onnx", commands=(_EVAL.format("images.npz"),), needs=needs),
        Target(
            file="first.pt",
            commands=(
                "eval nets:resnet8?weights=first.pt images.npz --store out --backend torch",
                f"soup {both} --how uniform -o out.pt",
                f"interpolate {both} images.npz --alphas 0,1 --store out --weights outw",
            ),
            needs=needs,
            weight=0.6,
        ),
        Target(
            file="weights.safetensors",
            commands=("eval nets:resnet8?weights=weights.safetensors images.npz --store out",),
            needs=needs,
            weight=0.6,
        ),
        Target(
            file="program.pt2",
            commands=("eval torch:program.pt2 images.npz --store out",),
            needs=needs,
            weight=0.4,
        ),
        Target(
            file="model.skops",
            commands=(f"eval sklearn:model.skops images.npz --store out {eight}",),
            needs=needs,
            weight=0.6,
        ),
    ]


def _plans() -> list[Target]:
    needs = ("model.onnx", "model.preprocessing.json", "images.npz", "scores.csv")
    return [
        Target(
            file="testbed.toml",
            commands=("run testbed.toml --json", "run testbed.toml --dry-run"),
            needs=needs,
            weight=1.5,
        ),
        Target(
            file="recipe.toml",
            commands=("train recipe.toml --dry-run --grid all --json", "train recipe.toml"),
            needs=needs,
            weight=1.5,
        ),
        Target(
            file="scores.csv",
            commands=("train recipe.toml --grid nets",),
            needs=(*needs, "recipe.toml"),
            weight=0.1,
        ),
        Target(
            file="images.npz",
            commands=("train recipe.toml",),
            needs=(*needs, "recipe.toml"),
            weight=0.3,
        ),
    ]


def _runs() -> list[Target]:
    """Files of finished runs: read when a command goes on, and as models."""
    folder = "trained/out/runs/*"
    again = (
        "train trained/recipe.toml --grid all",
        "train trained/recipe.toml --grid all --dry-run --json",
        "eval run:{folder} trained/images.npz --store out",
        "probe trained/out/runs trained/images.npz --probe jacobian --pairs 2 --store out",
    )
    names = ("job.json", "done.json", "log.json", "step-*.pt", "model.skops")
    return [
        Target(file=f"{folder}/{name}", commands=again, needs=("trained",), weight=0.3)
        for name in names
    ]


TARGETS: tuple[Target, ...] = (
    *_tables(),
    *_predictions(),
    *_stores(),
    *_images(),
    *_captions(),
    *_models(),
    *_plans(),
    *_runs(),
)
