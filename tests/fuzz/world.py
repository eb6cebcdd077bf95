"""A folder with one small, good file of every format that some command reads: the seeds."""

import io
import json
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

TESTBED = """
name = "fuzzed"
store = "out"

[defaults]
batch_size = 8

[[models]]
id = "onnx:model.onnx"
name = "net"
kind = "standard"
preprocessing = {size = [8, 8], crop = "none"}

[[test_sets]]
name = "val"
path = "images.npz"

[[test_sets]]
name = "other"
path = "images.npz"

[[settings]]
test_set = "val"
subset = [0, 2]

[[settings]]
test_set = "other"
share = 0.5
corruptions = ["brightness:1-2"]

[[shifts]]
name = "s"
id = "val@classes-0-2"
ood = "other@share-0.5+brightness:1"
kind = "corruption"
"""
RECIPE = """
name = "fuzzed"
store = "out"
runs = "out/runs"
threads = 1

[data.small]
path = "images.npz"
held_out = 0.2

[[test_sets]]
name = "val"
path = "images.npz"

[[grid]]
model = ["sklearn:linear_model.LogisticRegression?C=0.05&max_iter=5&size=8"]
data = {name = "small", fraction = [0.5, 1.0]}
seed = [0]
kind = "standard"
in_fit_set = "final"

[[grid]]
name = "nets"
extra = true
model = "nets:resnet8"
start = "random"
data = "small"
optimiser = {name = "SGD", lr = [0.1], momentum = 0.9}
schedule = {name = "CosineAnnealingLR", warmup = 1}
steps = 2
batch_size = 4
augmentation = "standard"
checkpoints = {every = 1, unit = "step", keep = "last"}
phase_out = {scores = "scores.csv", left = 4}
"""
OPEN_CLIP = """name,pretrained,ImageNet 1k,ImageNet-V2,ImageNet-A
ViT-B-32,openai,0.6332,0.5592,0.3155
ViT-L-14,openai,0.7554,0.6986,0.7083
RN50,openai,0.5982,0.5285,0.2297
"""
CLASSES = ("cat", "dog", "owl")


def make_world(folder: Path) -> Path:
    """Every seed, in this folder; the formats that need torch last."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in (_tables, _predictions, _stores, _images, _captions, _models, _runs):
        part(folder)
    (folder / "testbed.toml").write_text(TESTBED)
    (folder / "recipe.toml").write_text(RECIPE)
    return folder


# --- tables ----------------------------------------------------------------------------------


def accuracies(models: int = 12) -> list[dict[str, Any]]:
    """Models near a line, as rows of a wide table."""
    rng = np.random.default_rng(3)
    z = np.linspace(-0.5, 1.5, models)
    y = 0.9 * z - 0.6 + rng.normal(0, 0.05, models)
    return [
        {
            "model": f"m{i}",
            "kind": "standard" if i < 9 else "intervention",
            "in_fit_set": i < 9,
            "val": round(float(1 / (1 + np.exp(-z[i]))), 4),
            "v2": round(float(1 / (1 + np.exp(-y[i]))), 4),
            "n:val": 1000,
            "n:v2": 500,
        }
        for i in range(models)
    ]


def _tables(folder: Path) -> None:
    rows = accuracies()
    frame = pl.DataFrame(rows)
    frame.write_csv(folder / "wide.csv")
    frame.write_parquet(folder / "wide.parquet")
    text = frame.write_csv(separator=";").replace(".", ",")
    (folder / "comma.csv").write_bytes(text.encode("utf-16"))
    long = [
        {"model": r["model"], "setting": s, "correct": round(r[s] * r[f"n:{s}"]), "n": r[f"n:{s}"]}
        for r in rows
        for s in ("val", "v2")
    ]
    pl.DataFrame(long).write_csv(folder / "long.tsv", separator="\t")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rows.json").write_text(json.dumps({"results": rows}, indent=1))
    pl.DataFrame(
        [
            {"model": r["model"], "kind": r["kind"], "architecture": f"a{i % 3}"}
            for i, r in enumerate(rows)
        ]
    ).write_csv(folder / "models.csv")
    (folder / "open_clip.csv").write_text(OPEN_CLIP)
    (folder / "results-imagenet.csv").write_text(
        "model,top1,top1_err,top5,img_size,crop_pct\nx.y,80,20,95,224,0.9\nz.w,70,30,90,224,0.9\n"
    )
    from shiftbed.importing import import_results
    from shiftbed.records import Shift
    from shiftbed.testbed import write_testbed

    shift = Shift(name="s", kind="natural-dataset", source=("val",), target="v2")
    bed = import_results([folder / "wide.csv"], shifts=[shift], name="fuzzed")
    write_testbed(bed, folder / "bed.parquet")
    _pairs(folder, rows)
    (folder / "opening.txt").write_text("What was asked.\n\nWhat was found.\n")


def _pairs(folder: Path, rows: list[dict[str, Any]]) -> None:
    rng = np.random.default_rng(4)
    tall = [
        {
            **{"task": "t", "id": f"i{i % 2}", "ood": "o", "model": row["model"]},
            **{"where": where, "metric": metric, "value": round(float(rng.random()), 4)},
        }
        for i in range(2)
        for row in rows
        for where, metric in (("id", "error"), ("id", "nll"), ("ood", "error"), ("ood", "ece"))
    ]
    pl.DataFrame(tall).write_csv(folder / "pairs.csv")
    wide = pl.DataFrame(tall).with_columns(
        pl.concat_str("where", "metric", separator=":").alias("m")
    )
    keys = ["task", "id", "ood", "model"]
    wide.pivot(on="m", index=keys, values="value").write_parquet(folder / "pairs.parquet")
    (folder / "pairs.json").write_text(wide.pivot(on="m", index=keys, values="value").write_json())


# --- predictions and stores ------------------------------------------------------------------


def _predictions(folder: Path) -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 3, 40)
    for name in ("id", "ood"):
        top = np.where(rng.random((4, 40)) < 0.7, labels, rng.integers(0, 3, (4, 40)))
        models = np.array([f"m{i}" for i in range(4)])
        np.savez(folder / f"{name}.npz", models=models, top1=top, labels=labels)
    from shiftbed.importing import import_results
    from shiftbed.records import Shift
    from shiftbed.testbed import write_testbed

    shift = Shift(name="s", kind="natural-dataset", source=("id",), target="ood")
    bed = import_results([folder / "id.npz", folder / "ood.npz"], shifts=[shift], name="answers")
    write_testbed(bed, folder / "answers.parquet")
    text = "".join(f"image-{i}.png,{i % 3},0.5,new\n" for i in range(24))
    (folder / "answers.csv").write_text("file,class,probability,model\n" + text)
    frames = [f"v{i // 5}/{i % 5:06d}.jpg" for i in range(20)]
    (folder / "pmsets.json").write_text(
        json.dumps({"v0/000002.jpg": frames[:5], "v1/000002.jpg": frames[5:10]})
    )
    (folder / "labels.json").write_text(
        json.dumps({frame: [i % 3] for i, frame in enumerate(frames)})
    )


def _stores(folder: Path) -> None:
    from shiftbed.records import Setting, Shift
    from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits
    from shiftbed.store.probes import write_probe, write_probe_part

    rng = np.random.default_rng(6)
    store = PredictionStore(folder / "store")
    labels = rng.integers(0, 3, 24)
    frames = tuple(f"v{i // 5}/{i % 5:06d}.jpg" for i in range(24))
    for name in ("val", "v2", "frames"):
        store.add_test_set(
            StoredTestSet(
                setting=name,
                examples=frames if name == "frames" else tuple(f"image-{i}.png" for i in range(24)),
                labels=labels,
                fingerprint="sha256:" + "0" * 64,
                record=Setting(test_set=name),
                label_policy="all 3 classes",
                classes=3,
                groups=tuple("ab"[i % 2] for i in range(24)),
            )
        )
        for i in range(5):
            logits = rng.normal(size=(24, 3)).astype(np.float32)
            logits[np.arange(24), labels] += 0.3 * i + 0.5
            for start in (0, 12):
                rows = slice(start, start + 12)
                part = part_from_logits(logits[rows], labels[rows], keep_logits=i == 0)
                store.write_part(f"m{i}", name, start, part)
            store.write_cell(f"m{i}", name, {"status": "complete", "n": 24})
    paths = {name: rng.random(6) for name in ("hff", "hff_released", "cd")}
    write_probe_part(store, "m0", "val", "phase", 0, pl.DataFrame(paths))
    write_probe(store, "m0", "val", "phase", {"status": "complete", "paths": 6, "chunk": 6})
    shift = Shift(name="s", kind="natural-dataset", source=("val",), target="v2")
    models: dict[str, dict[str, Any]] = {
        f"m{i}": {"kind": "standard", "in_fit_set": True} for i in range(5)
    }
    for step in (3, 4):
        models[f"m{step}"] |= {
            "run": "r",
            "step": step,
            "kind": "intervention",
            "in_fit_set": False,
        }
    store.write_about(
        {"name": "fuzzed", "shifts": [vars(shift) | {"source": ["val"]}], "models": models}
    )
    from shiftbed.importing.exchange import import_predictions

    import_predictions(store, [folder / "id.npz"], setting="batch")
    _older(folder / "store", folder / "older")


def _older(source: Path, target: Path) -> None:
    """The same store without any checksum, as it was written before there were any."""
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        elif path.suffix == ".json" and not path.name.startswith("batch-"):
            place.parent.mkdir(parents=True, exist_ok=True)
            record = json.loads(path.read_bytes())
            kept = {k: v for k, v in record.items() if k not in ("sha256", "sums", "examples")}
            place.write_text(json.dumps(kept, indent=1))
        elif not path.name.startswith("."):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())


# --- images ----------------------------------------------------------------------------------


def png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def _images(folder: Path) -> None:
    rng = np.random.default_rng(7)
    images = rng.integers(0, 256, (9, 8, 8, 3), dtype=np.uint8)
    labels = np.arange(9) % 3
    np.savez(folder / "images.npz", images=images, labels=labels)
    np.savez_compressed(folder / "packed.npz", images=images, labels=labels)
    np.savez(folder / "held.npz", images=255 - images, labels=labels)
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels)
    files = [png(one) for one in images]
    for i, data in enumerate(files):
        place = folder / "folder" / CLASSES[labels[i]]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{i}.png").write_bytes(data)
    from PIL import Image

    Image.fromarray(images[0]).save(folder / "folder" / "cat" / "0.jpg", quality=50)
    rows = "".join(f"folder/{CLASSES[labels[i]]}/{i}.png,{CLASSES[labels[i]]}\n" for i in range(9))
    (folder / "manifest.csv").write_text("path,label\n" + rows)
    members = {}
    for i, data in enumerate(files):
        members |= {f"{i:04d}.png": data, f"{i:04d}.cls": str(labels[i]).encode()}
        members[f"{i:04d}.json"] = json.dumps({"key": i, "caption": "a cat"}).encode()
    write_tar(folder / "images.tar", members)
    pl.DataFrame(
        {
            "image": [{"bytes": data, "path": f"{i}.png"} for i, data in enumerate(files)],
            "label": labels,
        }
    ).write_parquet(folder / "images.parquet")
    (folder / "classes.txt").write_text("\n".join(CLASSES) + "\n")
    (folder / "subset.txt").write_text("0\n2\n")
    (folder / "map.json").write_text(json.dumps({"pet": [0, 1], "bird": [2]}))
    (folder / "sets.json").write_text(json.dumps([[int(one), 0] for one in labels]))
    (folder / "scores.csv").write_text(
        "example,score\n" + "".join(f"{i},0.{i}\n" for i in range(9))
    )
    _digits(folder / "mnist", images)


def _digits(folder: Path, images: np.ndarray) -> None:
    """MNIST's own files (IDX), of nine 28 × 28 images."""
    folder.mkdir()
    pixels = np.zeros((9, 28, 28), np.uint8)
    pixels[:, :8, :8] = images[..., 0]
    head = struct.pack(">IIII", 2051, 9, 28, 28)
    (folder / "t10k-images-idx3-ubyte").write_bytes(head + pixels.tobytes())
    (folder / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, 9) + bytes(range(9)))


# --- captions --------------------------------------------------------------------------------


def _captions(folder: Path) -> None:
    rows = [
        {"url": f"http://x/{i}.jpg", "text": f"a {CLASSES[i % 3]}, no {i}", "tags": "pet|animal"}
        for i in range(24)
    ]
    frame = pl.DataFrame(rows)
    frame.write_csv(folder / "captions.csv")
    frame.write_csv(folder / "captions.tsv", separator="\t")
    frame.write_parquet(folder / "captions.parquet")
    members = {}
    for i, row in enumerate(rows):
        members |= {f"{i:04d}.jpg": b"x", f"{i:04d}.txt": row["text"].encode()}
        members[f"{i:04d}.json"] = json.dumps(row).encode()
    write_tar(folder / "captions.tar", members)
    (folder / "names.csv").write_text("name,synonyms\ncat,kitten|tabby\ndog,puppy\nowl,\n")
    (folder / "names.json").write_text(json.dumps({"cat": ["kitten"], "dog": [], "owl": ["bird"]}))
    (folder / "names.txt").write_text("cat, kitten\ndog\nowl\n")


# --- models and runs -------------------------------------------------------------------------


def _models(folder: Path) -> None:
    import onnx
    import torch
    from onnx import TensorProto, helper, numpy_helper
    from safetensors.torch import save_file
    from sklearn.linear_model import LogisticRegression

    from shiftbed.training.networks import build

    rng = np.random.default_rng(8)
    weights = rng.normal(size=(192, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Flatten", ["pixels"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(weights, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, folder / "model.onnx")
    (folder / "model.preprocessing.json").write_text(
        json.dumps({"size": [8, 8], "crop": "none", "mean": [0, 0, 0], "std": [1, 1, 1]})
    )
    torch.manual_seed(0)
    for name in ("first", "second"):
        state = build("resnet8", 3).state_dict()
        torch.save(state, folder / f"{name}.pt")
    save_file(state, folder / "weights.safetensors")
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))
    net.load_state_dict({"1.weight": torch.from_numpy(weights.T.copy()), "1.bias": torch.zeros(3)})
    batch = ({0: torch.export.Dim("batch")},)
    exported = torch.export.export(net, (torch.zeros(2, 3, 8, 8),), dynamic_shapes=batch)
    torch.export.save(exported, folder / "program.pt2")
    (folder / "program.preprocessing.json").write_bytes(
        (folder / "model.preprocessing.json").read_bytes()
    )
    import skops.io

    fitted = LogisticRegression(max_iter=20).fit(rng.random((30, 192)), np.arange(30) % 3)
    skops.io.dump(fitted, folder / "model.skops")


def _runs(folder: Path) -> None:
    """Runs of a recipe, finished: job.json, checkpoints, logs."""
    import contextlib
    import shutil

    from shiftbed.training.train import train

    place = folder / "trained"
    place.mkdir()
    shutil.copy(folder / "images.npz", place)
    (place / "scores.csv").write_bytes((folder / "scores.csv").read_bytes())
    (place / "recipe.toml").write_text(RECIPE)
    with contextlib.chdir(place):
        found = train("recipe.toml", grids=["all"])
    assert not found.failed, found.failed
