"""Build the catalogue's class maps from the lists and maps their authors published.

    python -m tools.build_catalogue FOLDER LEMMAS

FOLDER holds imagenet_a_indices.txt, imagenet_r_indices.txt, imagenet_125_indices.txt,
objectnet_to_imagenet_1k.json, folder_to_objectnet_label.json, vid_robust_class_idx_map.json,
ytbb_robust_class_idx_map.json, ytbb_class_index.json and cinic10_synsets_to_cifar10.txt; LEMMAS
lists a synset and its names per line, by which ObjectNet's map names ImageNet's classes. The result
is written to src/shiftbed/catalogue/data: indices and names in columns of our own, read by
``shiftbed.catalogue.maps``. ``domain-classes.csv`` beside it is written by hand.
"""

import csv
import json
import re
import sys
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path

from shiftbed.atomic import write_atomically
from shiftbed.catalogue.maps import imagenet_synsets

OUT = Path(__file__).parents[1] / "src" / "shiftbed" / "catalogue" / "data"
VID = (
    *("airplane", "antelope", "bear", "bicycle", "bird", "bus", "car", "cattle", "dog"),
    *("domestic_cat", "elephant", "fox", "giant_panda", "hamster", "horse", "lion", "lizard"),
    *("monkey", "motorcycle", "rabbit", "red_panda", "sheep", "snake", "squirrel", "tiger"),
    *("train", "turtle", "watercraft", "whale", "zebra"),
)
"""The 30 classes of ImageNet-Vid, in the order of their numbers."""
TWICE = {"n03770679": "automobile"}
"""Minivan is under automobile and under truck in CINIC-10's tree; a label has to be one of them."""

Row = tuple[str, int, str, int | str]
"""Map, number of the target, its name, index of an ImageNet class ("" for none)."""


def subsets(folder: Path) -> Iterable[Row]:
    for name, file in (
        ("imagenet-a", "imagenet_a_indices.txt"),
        ("imagenet-r", "imagenet_r_indices.txt"),
        ("imagenet-125", "imagenet_125_indices.txt"),
    ):
        indices = [int(line) for line in (folder / file).read_text("ascii").split()]
        assert indices == sorted(set(indices))
        synsets = imagenet_synsets()
        yield from ((name, at, synsets[index], index) for at, index in enumerate(indices))


def objectnet(folder: Path, lemmas: Path) -> Iterable[Row]:
    lines = lemmas.read_text("utf-8").splitlines()
    names = dict(line.split("\t", 1) for line in lines if line)
    by_lemma: dict[str, list[int]] = {}
    for index, synset in enumerate(imagenet_synsets()):
        by_lemma.setdefault(names[synset], []).append(index)
    groups = json.loads((folder / "objectnet_to_imagenet_1k.json").read_text("utf-8"))
    for at, label in enumerate(sorted(groups)):
        for lemma in groups[label].split("; "):
            (index,) = by_lemma[lemma]
            yield "objectnet", at, label, index


def superclasses(folder: Path) -> Iterable[Row]:
    ytbb = json.loads((folder / "ytbb_class_index.json").read_text("utf-8"))
    for name, file, targets in (
        ("imagenet-vid-robust", "vid_robust_class_idx_map.json", VID),
        ("ytbb-robust", "ytbb_robust_class_idx_map.json", [ytbb[str(i)] for i in range(24)]),
    ):
        found = json.loads((folder / file).read_text("utf-8"))
        for at, target in enumerate(targets):
            own = sorted(int(index) for index, number in found.items() if number == at)
            yield from ((name, at, target, index) for index in own or [""])


def cinic(folder: Path) -> list[tuple[str, str]]:
    """(CIFAR-10 class, synset) of CINIC-10's tree."""
    rows: dict[tuple[str, str], None] = {}
    name = ""
    for line in (folder / "cinic10_synsets_to_cifar10.txt").read_text("utf-8").splitlines():
        found = re.match(r"-+(n\d{8}):", line)
        if found:
            rows[name, found[1]] = None
        else:
            name = line.strip()
    return sorted(rows)


def cifar(rows: Sequence[tuple[str, str]]) -> Iterable[Row]:
    """ImageNet's classes in CINIC-10's tree: the map of andreassen2021's zero-shot figures."""
    index = {synset: at for at, synset in enumerate(imagenet_synsets())}
    names = sorted({name for name, _ in rows})
    for name, synset in rows:
        if synset in index and TWICE.get(synset, name) == name:
            yield "cifar-10", names.index(name), name, index[synset]


def write(name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    with write_atomically(OUT / name) as file:
        file.write(text.getvalue().encode())
    print(f"{name}: {text.getvalue().count(chr(10)) - 1} rows")


def main() -> None:
    folder, lemmas = Path(sys.argv[1]), Path(sys.argv[2])
    tree = cinic(folder)
    maps = [*subsets(folder), *objectnet(folder, lemmas), *superclasses(folder), *cifar(tree)]
    write("maps.csv", ["map", "target", "name", "index"], maps)
    write("cinic-10.csv", ["class", "synset"], tree)
    folders = json.loads((folder / "folder_to_objectnet_label.json").read_text("utf-8"))
    write("objectnet-folders.csv", ["folder", "label"], sorted(folders.items()))


if __name__ == "__main__":
    main()
