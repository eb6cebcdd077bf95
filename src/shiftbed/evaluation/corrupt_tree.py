"""Trees of corrupted test sets, NAME/SEVERITY/CLASS/FILE, written as ImageNet-C was made.

    DST/manifest.json                        what it was made of, and how
    DST/manifest/part-A-B.json               files made of source rows A … B−1, with their SHA-256
    DST/gaussian_noise/3/CLASS/FILE

ImageNet-C has the same layout, and may have one more level above (``noise/gaussian_noise/1``).

The original's steps (Hendrycks and Dietterich 2019, the released script for ImageNet-C): the
shorter side becomes 256 by bilinear interpolation, the central 224 × 224 are cut out, the image is
corrupted, values are cut (not rounded) to eight bits, and it is saved as JPEG of quality 85 with
optimised tables. The second encoding costs accuracy of its own, so these files are another setting
than the same corruption in memory. The randomness is the same as in memory: it comes from the seed
and the image's id.

Rows are taken in parts of fixed bounds. A part's manifest is written after its files, so whatever
a killed run leaves is either verified by a manifest or made again, to the same bytes.
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from PIL import Image

from shiftbed.atomic import sweep, write_atomically
from shiftbed.display import Result, Table
from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.data import TestSet, UnreadableImage, open_test_set
from shiftbed.evaluation.image_batches import eight_bits
from shiftbed.evaluation.models.base import versions
from shiftbed.evaluation.perturbations import Corrupting, parse_perturbation, spelled_out
from shiftbed.evaluation.predict import pixels_to_float
from shiftbed.evaluation.preprocessing import Preprocessing, as_picture
from shiftbed.places import only_here
from shiftbed.reading.files import read_json, regular

MANIFEST = "manifest"
ROWS = 32
"""Source images per part."""
_ENDINGS = {"jpeg": (".jpeg", ".jpg"), "png": (".png",)}
_LARGEST = 2**26
_SEVERITIES = ("1", "2", "3", "4", "5")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CorruptedTree(Result):
    """A test set under corruptions, on disk; the frame has a row per corruption and severity."""

    json_keys = "destination=folder images settings written kept unreadable"
    folder: str
    images: int
    """Of the test set."""
    written: int
    """Files made in this run."""
    kept: int
    """Files that were there, as their manifest says."""
    unreadable: tuple[str, ...]
    """Images that could not be read, with the reason."""

    def test_set(self, corruption: str) -> TestSet:
        """The images under one corruption, such as ``fog:3``."""
        folders = dict(self.frame.select("corruption", "folder").iter_rows())
        if corruption not in folders:
            raise unknown("corruption of the tree", corruption, folders)
        return open_test_set(folders[corruption])

    def tables(self) -> Iterator[Table]:
        counts = (
            f"{self.folder}: {self.written:,} files written, {self.kept:,} were there already; "
            f"{len(self.frame)} settings of {self.images:,} images."
        )
        yield Table(notes=(counts, *(f"unreadable: {line}" for line in self.unreadable)))

    @property
    def settings(self) -> list[str]:
        return self.frame["corruption"].to_list()


def corrupt(
    test_set: str | Path | TestSet,
    folder: str | Path,
    corruptions: str | Sequence[str] = "all",
    *,
    size: int | None = 224,
    resize: int | None = None,
    format: str = "jpeg",
    quality: int | None = None,
    seed: int = 0,
    frost: str | Path | None = None,
    workers: int = 1,
    report: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> CorruptedTree:
    """Write FOLDER/NAME/SEVERITY/CLASS/FILE for every corruption and image, and the manifest.

    - ``corruptions``: ``fog:3``, ``fog:1-5`` or ``all``, or several of these.
    - ``size``: side of the images, after the shorter side became ``resize`` (default 256/224 of
      it); None: pictures keep their own size, as in CIFAR-10-C.
    - ``format``: jpeg of a ``quality`` (default 85), as the original, or png.
    - ``frost``: a folder of frost pictures, instead of synthesized frost.

    The same call again continues: files that their manifest verifies are kept. More corruptions
    may be added to a tree later; other options are refused. ``report`` hears how many files are
    ready, of how many.
    """
    folder_of_frost = None if frost is None else str(frost)
    options = _Options(size, resize, format, quality, seed, folder_of_frost)
    source, root = open_test_set(test_set), only_here(folder, "a corrupted copy")
    names = spelled_out([corruptions] if isinstance(corruptions, str) else corruptions)
    if not names:
        raise InputError("give at least one corruption")
    for name in names:
        _parsed(name, options)
    paths = tuple(tree_paths(source, options.format))
    _begin(root, source, options, paths, names)
    parts = [
        _Rows(str(root), start, source.subset(at), paths[start : start + ROWS], names, options)
        for start in range(0, len(source), ROWS)
        for at in [np.arange(start, min(start + ROWS, len(source)))]
    ]
    written = kept = 0
    unreadable: list[str] = []
    for made in _each(parts, workers):
        written, kept = written + made.written, kept + made.kept
        unreadable += made.unreadable
        report("images", written + kept, len(source) * len(names))
    rows = [(name, str(root / _folder(name))) for name in names]
    return CorruptedTree(
        frame=pl.DataFrame(rows, {"corruption": pl.String, "folder": pl.String}, orient="row"),
        folder=str(root),
        images=len(source),
        written=written,
        kept=kept,
        unreadable=tuple(unreadable),
    )


def corrupted_folders(root: str | Path) -> dict[str, Path]:
    """The test sets of a tree by ``NAME:SEVERITY``, in the order of the corruptions."""
    from shiftbed.evaluation.corruptions import NAMES

    top = Path(root)
    if not top.is_dir():
        raise InputError(f"{root}: no such folder of corrupted test sets")
    found: dict[str, Path] = {}
    above = _folders(top)
    for folder in [*above, *(inner for one in above for inner in _folders(one))]:
        for severity in _SEVERITIES:
            if (folder / severity).is_dir() and folder.name not in _SEVERITIES:
                key = f"{folder.name}:{severity}"
                if found.setdefault(key, folder / severity) != folder / severity:
                    raise InputError(f"{root}: {key} is there twice")
    if not found:
        raise InputError(f"{root}: expected folders NAME/SEVERITY/CLASS/FILE, such as fog/3")
    order = {name: at for at, name in enumerate(NAMES)}
    keys = sorted(found, key=lambda key: (order.get(key.rpartition(":")[0], len(order)), key))
    return {key: found[key] for key in keys}


def _folders(path: Path) -> list[Path]:
    inside = [one for one in path.iterdir() if one.is_dir() and not one.name.startswith(".")]
    return sorted(one for one in inside if one.name != MANIFEST)


def _read_manifest(root: str | Path) -> dict[str, Any] | None:
    """What ``manifest.json`` says, None if there is none."""
    path = Path(root, f"{MANIFEST}.json")
    try:
        if path.stat().st_size > _LARGEST:
            raise InputError(f"{path}: too large for a manifest")
        found = read_json(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as a manifest: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("source"), dict):
        raise InputError(f"{path}: not a manifest of corrupted images")
    return found


def images_of(folder: str | Path, n: int) -> str | None:
    """Fingerprint of the images that a folder of a tree was made of, row by row, if that is known.

    Settings with the same images are resampled together. None unless all ``n`` are there and in
    the order of their source.
    """
    root = Path(os.path.abspath(folder)).parent.parent
    about = _read_manifest(root)
    if about is None or not about.get("in_order"):
        return None
    source = about["source"]
    return str(source["fingerprint"]) if source.get("images") == n else None


@dataclass(frozen=True)
class _Options:
    """How a tree is made; everything here is in its manifest and must stay the same in it."""

    size: int | None
    resize: int | None
    format: str
    quality: int | None
    seed: int
    frost: str | None

    def __post_init__(self) -> None:
        if self.format not in _ENDINGS:
            raise unknown("image format", self.format, _ENDINGS)
        if self.quality is not None and self.format != "jpeg":
            raise InputError(f"quality is that of jpeg files, not of {self.format}")
        if self.quality is None and self.format == "jpeg":
            object.__setattr__(self, "quality", 85)
        if self.quality is not None and not 1 <= self.quality <= 100:
            raise InputError(f"JPEG quality must be 1 to 100, got {self.quality}")
        if self.size is None and self.resize is not None:
            raise InputError("pictures that keep their size are not resized")
        if self.size is not None and self.resize is None:
            object.__setattr__(self, "resize", self.size * 256 // 224)

    def describe(self) -> dict[str, Any]:
        """What the bytes depend on; the frost folder by its contents."""
        about = asdict(self) | {"interpolation": "bilinear", "mode": "RGB"}
        if self.format == "png":
            del about["quality"]
        about["frost"] = parse_perturbation("frost:1", frost=self.frost).describe()["frost"]
        return about


def tree_paths(test_set: TestSet, kind: str) -> list[str]:
    """CLASS/FILE of every image: its own name, with another ending where the format asks for it."""
    if test_set.label_sets is not None or (np.asarray(test_set.labels) < 0).any():
        raise InputError(f"test set {test_set.name!r}: every image must have one label")
    classes = test_set.classes
    found = []
    for example, label in zip(test_set.examples, test_set.labels, strict=True):
        folder = _safe(classes[label]) if classes is not None else str(label)
        inside = [_safe(piece) for piece in example.split("/") if piece not in ("", ".")]
        if len(inside) > 1 and inside[0] == folder:
            inside = inside[1:]
        name = "/".join([folder, *inside])
        found.append(name if name.lower().endswith(_ENDINGS[kind]) else name + _ENDINGS[kind][0])
    if len({name.lower() for name in found}) < len(found):
        raise InputError(f"test set {test_set.name!r}: two images would get the same file name")
    return found


def _begin(
    root: Path, test_set: TestSet, options: _Options, paths: tuple[str, ...], names: list[str]
) -> None:
    """Write the manifest's head and all class folders; a tree made otherwise is refused."""
    head: dict[str, Any] = {
        "format": 1,
        "source": {
            "name": test_set.name,
            "fingerprint": test_set.fingerprint,
            "images": len(test_set),
        },
        "options": options.describe(),
        "in_order": list(paths) == sorted(paths, key=lambda path: path.split("/")),
        "versions": versions("shiftbed", "numpy", "pillow"),
    }
    old = _read_manifest(root)
    if old is not None:
        for what in ("source", "options"):
            was, now = old.get(what), head[what]
            before = was if isinstance(was, dict) else {}
            changed = [key for key in now if before.get(key) != now[key]]
            if was != now:
                words = "; ".join(f"{key} {before.get(key)}, now {now[key]}" for key in changed)
                raise InputError(f"{root}: was made with another {what}: {words}")
    else:
        sweep(root)  # of one that was killed before it had a manifest
        if root.exists() and any(root.iterdir()):
            raise InputError(f"{root}: is not empty and has no manifest; give a new folder")
        _write_json(root / f"{MANIFEST}.json", head)
    classes = test_set.classes or map(str, range(int(np.max(test_set.labels)) + 1))
    folders = sorted({_safe(one) for one in classes})
    for name in names:
        for folder in folders:  # an empty class stays a class
            (root / _folder(name) / folder).mkdir(parents=True, exist_ok=True)


class _Made(NamedTuple):
    """What came of a part."""

    written: int
    kept: int
    unreadable: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Rows:
    """A few source images, to be corrupted in every way."""

    root: str
    start: int
    test_set: TestSet
    paths: tuple[str, ...]
    names: list[str]
    options: _Options

    @property
    def manifest(self) -> Path:
        stop = self.start + len(self.paths)
        return Path(self.root, MANIFEST, f"part-{self.start:010d}-{stop:010d}.json")


def _make(part: _Rows) -> _Made:
    """Make the files of a part that are not there as its manifest says, then its manifest."""
    try:
        known = read_json(part.manifest)
    except InputError:  # not there, or damaged: then nothing is verified
        known = {}
    known = known if isinstance(known, dict) else {}
    todo: dict[str, list[int]] = {}
    kept = 0
    for name in part.names:
        for row, path in enumerate(part.paths):
            file = f"{_folder(name)}/{path}"
            if _verified(part.root, file, known.get(file)):
                kept += 1
            else:
                todo.setdefault(name, []).append(row)
    rows = sorted({row for wanted in todo.values() for row in wanted})
    pictures, unreadable = _pictures(part, rows)
    made = {}
    for name, wanted in todo.items():
        for row, data in _corrupted(
            part, name, [row for row in wanted if row in pictures], pictures
        ):
            file = f"{_folder(name)}/{part.paths[row]}"
            with write_atomically(Path(part.root, file)) as handle:
                handle.write(data)
            made[file] = {
                "source": part.test_set.examples[row],
                "sha256": hashlib.sha256(data).hexdigest(),
                "bytes": len(data),
            }
    if made:
        _write_json(part.manifest, known | made)
    return _Made(written=len(made), kept=kept, unreadable=unreadable)


def _verified(root: str, file: str, entry: Mapping[str, Any] | None) -> bool:
    """Whether a file is there, byte for byte as the manifest says."""
    if not isinstance(entry, dict):
        return False
    path = os.path.join(root, file)
    try:
        if os.path.getsize(path) != entry.get("bytes"):
            return False
        with open(regular(path), "rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest() == entry.get("sha256")
    except (OSError, InputError):
        return False


def _pictures(part: _Rows, rows: list[int]) -> tuple[dict[int, NDArray[np.uint8]], tuple[str, ...]]:
    """(H, W, 3) of every row that can be read, and the others with their reason."""
    size, resize = part.options.size, part.options.resize
    pixels: dict[int, NDArray[np.uint8]] = {}
    unreadable = []
    for row in rows:
        try:
            picture = part.test_set.load(row)
        except UnreadableImage as error:
            unreadable.append(f"{error.example}: {error.reason}")
            continue
        if size is None:
            pixels[row] = np.asarray(as_picture(picture, "RGB"))
        else:
            pixels[row] = Preprocessing(size=(size, size), resize=resize).pixels(picture)
    return pixels, tuple(unreadable)


def _corrupted(
    part: _Rows, name: str, rows: list[int], pictures: Mapping[int, NDArray[np.uint8]]
) -> Iterator[tuple[int, bytes]]:
    """The encoded images of some rows; those of one shape go together."""
    corrupt = _parsed(name, part.options).corrupt
    shapes: dict[tuple[int, ...], list[int]] = {}
    for row in rows:
        shapes.setdefault(pictures[row].shape, []).append(row)
    for some in shapes.values():
        levels = np.stack([pictures[row] for row in some])
        ids = [part.test_set.examples[row] for row in some]
        for row, image in zip(some, eight_bits(corrupt(pixels_to_float(levels), ids)), strict=True):
            buffer = io.BytesIO()
            how = {"quality": part.options.quality, "optimize": True}
            kind = part.options.format
            Image.fromarray(image).save(buffer, kind, **(how if kind == "jpeg" else {}))
            yield row, buffer.getvalue()


def _parsed(name: str, options: _Options) -> Corrupting:
    """The corruption of that name under the tree's seed and frost."""
    frost: dict[str, Any] = {"frost": options.frost} if name.partition(":")[0] == "frost" else {}
    found = parse_perturbation(name, seed=options.seed, **frost)
    if not isinstance(found, Corrupting):
        raise InputError(f"{name!r} is no corruption, and cannot be written to disk")
    return found


def _safe(piece: str) -> str:
    """A name that is no path: nothing but letters, digits, and a few signs inside."""
    plain = re.sub(r"[^\w.,=@+\- ]", "_", piece)
    return plain if plain.strip(". ") else plain.replace(".", "_").replace(" ", "_") or "_"


def _folder(name: str) -> str:
    """NAME/SEVERITY of ``NAME:SEVERITY``."""
    head, _, severity = name.rpartition(":")
    return f"{_safe(head)}/{severity}"


def _write_json(path: Path, value: Any) -> None:
    with write_atomically(path) as file:
        file.write(json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True).encode())


def _each(parts: list[_Rows], workers: int) -> Iterator[_Made]:
    if workers <= 1 or len(parts) <= 1:
        yield from map(_make, parts)
        return
    todo = iter(parts)
    with ProcessPoolExecutor(min(workers, len(parts)), mp_context=get_context("spawn")) as pool:
        running = {pool.submit(_make, part) for part in islice(todo, 2 * workers)}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for one in done:
                    running |= {pool.submit(_make, part) for part in islice(todo, 1)}
                    yield one.result()
        except BrokenProcessPool:
            raise InputError("a worker died; the same command again continues") from None
