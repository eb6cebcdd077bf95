"""Small trees in each author's layout: a few images per class under the real names."""

import csv
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from shiftbed.catalogue import TestSetEntry, find, find_task
from shiftbed.catalogue.maps import domain_classes, imagenet_synsets, indices
from shiftbed.catalogue.test_sets import CIFAR_CLASSES

SYNSETS = imagenet_synsets()
A = [SYNSETS[i] for i in indices("imagenet-a")]
R = [SYNSETS[i] for i in indices("imagenet-r")]


def picture(path: Path, value: int = 100, size: tuple[int, int] = (12, 10)) -> None:
    """A plain picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value % 256, value * 7 % 256, value * 13 % 256)).save(path)


def folders(root: Path, names: Iterable[str], file: str = "{}.jpg", each: int = 2) -> Path:
    for at, name in enumerate(names):
        for i in range(each):
            picture(root / name / file.format(i), at * 3 + i)
    return root


def imagenet(root: Path) -> Path:
    """Folders of synsets with the validation set's file names, numbered by image."""
    number = 0
    for at, synset in enumerate((*SYNSETS[:5], SYNSETS[26], SYNSETS[31])):
        for i in range(2):
            number += 1
            picture(root / synset / f"ILSVRC2012_val_{number:08d}.JPEG", at + i)
    return root


def real(root: Path) -> Path:
    imagenet(root / "val")
    sets = [[number % 3, 7] if number % 4 else [] for number in range(50_000)]
    (root / "real.json").write_text(json.dumps(sets))
    return root


def objectnet(root: Path) -> Path:
    names = ("alarm_clock", "backpack", "banana", "squeegee")  # the last is no ImageNet class
    for name in names:
        for i in range(2):
            path = root / "images" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            image = Image.new("RGB", (20, 16), (255, 0, 0))
            image.paste((0, 0, 255), (1, 1, 19, 15))
            image.save(path)
    return root


def vid(root: Path) -> Path:
    """Two videos with an anchor each and two frames beside it."""
    labels, sets = {}, {}
    for video, label in (("ILSVRC2015_val_00000000", [26]), ("ILSVRC2015_val_00001000", [4, 8])):
        names = [f"val/{video}/{frame:06d}.JPEG" for frame in (9, 10, 11)]
        sets[names[1]] = [names[0], names[2]]
        for at, name in enumerate(names):
            labels[name] = label
            picture(root / name, at)
    (root / "metadata").mkdir()
    (root / "metadata" / "labels.json").write_text(json.dumps(labels))
    (root / "metadata" / "pmsets.json").write_text(json.dumps(sets))
    return root


def ytbb(root: Path) -> Path:
    """Three anchors, one of them bad, one with a similar frame beside it and one with a blurred."""
    videos = {"KxDh7a8_AmU_44666": 1117, "A_weMKVolQM_82466": 2062, "mZ-FP3xyz01_9000": 50}
    words = ["good", "unsure", "bad", "person", "dog"]
    keys = {video: f"{video}/frame-{frame}.jpg" for video, frame in videos.items()}
    first, second, third = keys
    anchors = [
        {"key": keys[first], "notes": "", "labels": [0, 3]},
        {"key": keys[second], "notes": "", "labels": [0]},
        {"key": keys[third], "notes": "", "labels": [2]},
    ]
    said = ["similar", "correct", "blur-increase"]
    frames = [
        {"key": f"{keys[first]},{first}/frame-1118.jpg", "notes": "", "labels": [0, 1]},
        {"key": f"{keys[first]},{first}/frame-1116.jpg", "notes": "", "labels": [0, 2]},
    ]
    for one in (*keys.values(), f"{first}/frame-1118.jpg"):
        picture(root / one)
    (root / "anchor_labels.json").write_text(json.dumps({"annotations": anchors, "labels": words}))
    (root / "pmk_labels.json").write_text(json.dumps({"annotations": frames, "labels": said}))
    with (root / "ytbb_robustness_test_anchors_full.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["ytid", "time_ms", "label"])
        for video, label in zip(videos, (10, 22, 1), strict=True):  # 22 is car in this table
            writer.writerow([*video.rsplit("_", 1), label])
    return root


def cifar(root: Path) -> Path:
    """The binary version: a label and the three channels of each image."""
    rng = np.random.default_rng(0)
    records = rng.integers(0, 256, (20, 3073), dtype=np.uint8)
    records[:, 0] = np.arange(20) % 10
    (root / "cifar-10-batches-bin").mkdir(parents=True)
    records.tofile(root / "cifar-10-batches-bin" / "test_batch.bin")
    return root


def pixels(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


def cifar_1(root: Path, version: str) -> Path:
    root.mkdir(parents=True)
    np.save(root / f"cifar10.1_{version}_data.npy", pixels(10))
    np.save(root / f"cifar10.1_{version}_labels.npy", np.arange(10))
    return root


def cifar_2(root: Path) -> Path:
    root.mkdir(parents=True)
    words = np.array([["a keyword"], ["another"]], dtype=object)  # as in the authors' file
    np.savez(root / "cifar102_test.npz", images=pixels(10), labels=np.arange(10), keywords=words)
    return root


def cifar_c(root: Path) -> Path:
    root.mkdir(parents=True)
    np.save(root / "fog.npy", pixels(50))
    np.save(root / "labels.npy", np.tile(np.arange(10), 5))
    return root


def cinic(root: Path) -> Path:
    for name in CIFAR_CLASSES:
        picture(root / "test" / name / "cifar10-test-12.png", 3, (32, 32))
    picture(root / "test" / "airplane" / "n02690373_4.png", 4, (32, 32))
    picture(root / "test" / "bird" / "n02690373_5.png", 5, (32, 32))  # an airliner
    return root


def domain(root: Path, task: str) -> Path:
    """Every domain of a task with its first classes."""
    found = find_task(task)
    names = domain_classes(task)[:4]
    if task == "sviro":
        names = ("0", "1", "2", "3")
    for one in found.domains:
        folders(root / found.containers[0] / one.folders[0], names)
    return root


def _table(path: Path, header: str, rows: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *rows]) + "\n")


def camelyon(root: Path) -> Path:
    header = ",patient,node,x_coord,y_coord,tumor,slide,center,split"
    rows = [
        f"{i},{i:03d},4,3328,{i},{i % 2},{i},{center},{split}"
        for i, (center, split) in enumerate([(0, 0), (0, 1), (3, 1), (1, 0), (2, 0), (2, 0)])
    ]
    _table(root / "metadata.csv", header, rows)
    for i in range(6):
        where = f"patient_{i:03d}_node_4"
        picture(root / "patches" / where / f"patch_{where}_x_3328_y_{i}.png", i)
    return root


FMOW = [
    ("train", "2005-01-01", "airport"),
    ("test", "2012-12-31", "barn"),
    ("val", "2014-05-05", "dam"),
    ("seq", "2017-01-01", "zoo"),
    ("test", "2016-01-01", "zoo"),
    ("test", "2014-01-01", "zoo"),
]


def fmow(root: Path) -> Path:
    rows = [
        f"{s},{c},{d}T00:00:00Z,{'FRA' if i % 2 else 'XXX'}" for i, (s, d, c) in enumerate(FMOW)
    ]
    _table(root / "rgb_metadata.csv", "split,category,timestamp,country_code", rows)
    _table(root / "country_code_mapping.csv", "alpha-3,region", ["FRA,Europe", "USA,Americas"])
    for i in range(len(FMOW)):
        picture(root / "images" / f"rgb_img_{i}.png", i)
    return root


def iwildcam(root: Path) -> Path:
    splits = ("train", "val", "test", "id_val", "id_test", "test")
    rows = [f"{s},{i}.jpg,{i + 100},{i % 3}" for i, s in enumerate(splits)]
    _table(root / "metadata.csv", "split,filename,y,location_remapped", rows)
    for i in range(len(splits)):
        picture(root / "train" / f"{i}.jpg", i)
    return root


def rxrx1(root: Path) -> Path:
    splits = [("train", 1), ("train", 2), ("val", 1), ("test", 1), ("test", 2)]
    rows = [f"{s},HEPG2-0{i},1,B02,{site},{1000 + i}" for i, (s, site) in enumerate(splits)]
    _table(root / "metadata.csv", "dataset,experiment,plate,well,site,sirna_id", rows)
    for i, (_, site) in enumerate(splits):
        picture(root / "images" / f"HEPG2-0{i}" / "Plate1" / f"B02_s{site}.png", i)
    return root


def digits(root: Path) -> Path:
    root.mkdir(parents=True)
    rng = np.random.default_rng(0)
    arrays = {}
    for name, side in (("usps_test", 16), ("mnist_test", 28), ("usps_train", 16)):
        arrays[f"{name}_images"] = rng.integers(0, 256, (20, side, side), dtype=np.uint8)
        arrays[f"{name}_labels"] = np.arange(20) % 10
    np.savez(root / "digits.npz", **arrays)
    return root


_OWN: dict[str, Callable[[Path], Path]] = {
    "imagenet": imagenet,
    "imagenet-125": imagenet,
    "imagenet-real": real,
    "imagenet-sketch": lambda root: folders(root / "sketch", SYNSETS[:4], "sketch_{}.JPEG"),
    "imagenet-a": lambda root: folders(root, A[:4]),
    "imagenet-r": lambda root: folders(root, R[:4], "art_{}.jpg"),
    "objectnet": objectnet,
    "stylized-imagenet": lambda root: folders(root / "val", SYNSETS[:4], "{}.png"),
    "imagenet-c": lambda root: folders(root / "weather" / "fog" / "3", SYNSETS[:4], "{}.JPEG"),
    "imagenet-vid-robust": vid,
    "ytbb-robust": ytbb,
    "cifar-10": cifar,
    "cifar-10.1-v4": lambda root: cifar_1(root, "v4"),
    "cifar-10.1": lambda root: cifar_1(root, "v6"),
    "cifar-10.2": cifar_2,
    "cifar-10-c": cifar_c,
    "cinic-10": cinic,
    "camelyon17": camelyon,
    "fmow": fmow,
    "iwildcam": iwildcam,
    "rxrx1": rxrx1,
    "digits": digits,
}


def make(name: str, root: Path) -> tuple[TestSetEntry, str]:
    """A tree for a test set of the catalogue, and the path that opens it."""
    base = name.partition("/")[0]
    if base in ("imagenet-c", "cifar-10-c"):
        name = f"{base}/fog-3"
    entry = find(name)
    if name == "digits/sklearn":
        return entry, ""
    if entry.layout == "numbers":
        return entry, str(folders(root, [str(i) for i in range(12)], "{}.jpeg"))
    if entry.layout == "domains":
        return entry, str(domain(root, base))
    _OWN[base](root)
    return entry, str(root)
