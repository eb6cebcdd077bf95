"""Opening a test set in whatever format it is."""

import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from shiftbed.catalogue import find
from shiftbed.errors import InputError
from shiftbed.evaluation.data.arrays import read_arrays
from shiftbed.evaluation.data.authors import examine, split_spec
from shiftbed.evaluation.data.image_files import read_folder, read_manifest
from shiftbed.evaluation.data.raw_examples import (
    Labels,
    LabelSets,
    Options,
    RawExamples,
    check_name,
    encode,
    label_sets_of,
    no_label,
    read_classes,
    shown,
    some,
)
from shiftbed.evaluation.data.tars import read_tars
from shiftbed.evaluation.data.test_set import TestSet
from shiftbed.evaluation.data.wilds import PREFIX as WILDS
from shiftbed.evaluation.data.wilds import WildsSpec, read_wilds
from shiftbed.hub import commit_of
from shiftbed.places import local
from shiftbed.reading.streams import expand

_FORMATS = (
    "a folder with a sub-directory per class, .npz or .npy, .parquet, an uncompressed .tar, a .csv "
    "with path and label, or a directory written by save_to_disk"
)


def open_test_set(
    spec: str | Path | Sequence[str | Path] | object,
    *,
    name: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    group_column: str | None = None,
    id_column: str | None = None,
    caption_column: str | None = None,
    classes: str | Path | Sequence[str] | None = None,
    labels: str | Path | None = None,
    label_sets: LabelSets | None = None,
    layout: str | None = None,
    root: str | Path | None = None,
    unlabelled: bool = False,
    citation: str = "",
    licence: str = "",
) -> TestSet:
    """Open a test set: a path, a pattern of paths, several paths, or a Hugging Face Dataset.

    ``NAME@DIR`` is a test set of the catalogue in its authors' layout: ``imagenet-a@data/a``,
    ``pacs/sketch@data/PACS`` (``shiftbed shifts`` lists them); nothing else needs to be said then.

    Formats: image folder; ``FILE.npz``, ``FILE.npz:PREFIX`` or ``FILE.npy``; Parquet in Hugging
    Face's image layout; WebDataset tars; CSV manifest; a ``datasets.Dataset`` or a directory it was
    saved to. Patterns are globs or ranges, ``val-{0000..0003}.tar``; a path may be a URL, also of
    the hub: ``hf://datasets/OWNER/NAME@REVISION/data/test-*.parquet``. Data sets of WILDS through
    its own package: ``wilds:camelyon17?root=DIR&split=test&hospital=2``.

    - ``image_column``, ``label_column``, ``group_column``, ``id_column``: columns, arrays of an
      ``.npz`` or fields of a tar, where the usual names do not decide.
    - ``caption_column``: texts of images, a column or a field (``txt`` for the members of tars that
      end so). There need be no labels then, and are none unless ``label_column`` is given.
    - ``classes``: the label space in order: names, a file with one per line, or ``imagenet-1k``
      for its 1,000 synsets. Labels that have names are renumbered to it.
    - ``labels``: labels of an ``.npy`` file. ``label_sets``: several labels per image (ReaL), as
      JSON or a value, by example id or file name, or as a list in the order of the examples
      (for a folder: of the file names).
    - ``layout``: NHWC or NCHW, where a shape allows both. ``root``: where a manifest's paths start.
    - ``unlabelled``: take images without labels; they are all −1.
    """
    if isinstance(spec, TestSet):
        return spec
    known = split_spec(str(spec)) if isinstance(spec, (str, Path)) else None
    if known is not None:
        given = (image_column, label_column, group_column, id_column, caption_column, classes)
        more = (labels, label_sets, layout, root)
        if any(one is not None for one in (*given, *more)) or unlabelled:
            raise InputError(
                f"{spec}: how it is read is known from the catalogue; give a name only"
            )
        entry = find(known[0])
        called = None if name in (None, entry.setting, entry.name) else _name(name, "")
        return examine(*known, called=called).test_set
    unlabelled = unlabelled or (caption_column is not None and label_column is None)
    options = Options(
        image_column=image_column,
        label_column=label_column,
        group_column=group_column,
        id_column=id_column,
        caption_column=caption_column,
        classes=read_classes(classes),
        labels=labels,
        layout=layout,
        root=root,
        unlabelled=unlabelled,
    )
    usual, found = _find(spec, options)
    if caption_column is not None and not any(found.captions or ()):
        raise InputError(f"{found.where}: no image has a caption in {caption_column!r}")
    encoded = _labels(found, options)
    sets = encoded.sets
    if label_sets is not None:
        sets = label_sets_of(label_sets, found, encoded.classes)
    own = np.full(len(found.examples), -1) if sets is not None else encoded.one
    notes = list(found.notes)
    commit = commit_of(spec) if isinstance(spec, str) else None
    if commit is not None:
        notes.append(f"from the Hugging Face hub at commit {commit}")
    without = [one for one, label in zip(found.examples, own, strict=True) if label < 0]
    if sets is None and without and not unlabelled:
        if len(without) == len(own):
            raise InputError(
                f"{found.where}: no image has a label; unlabelled=True if that is meant"
            )
        notes.append(no_label(without, len(own)))
    return TestSet(
        name=_name(name, usual),
        examples=found.examples,
        labels=own,
        label_sets=sets,
        images=found.images,
        classes=encoded.classes,
        groups=found.groups,
        captions=found.captions,
        notes=tuple(notes),
        citation=citation,
        licence=licence,
    )


def _find(spec: object, options: Options) -> tuple[str, RawExamples]:
    """The usual name of what is there, and what was found in it."""
    if isinstance(spec, (str, Path)):
        return _find_path(str(spec), options)
    if isinstance(spec, Sequence) and all(isinstance(one, (str, Path)) for one in spec):
        paths = [path for one in spec for path in expand(str(one))]
        return _common(paths), _find_files(paths, options)
    if "datasets" in sys.modules and type(spec).__module__.partition(".")[0] == "datasets":
        hub = import_module("shiftbed.evaluation.data.hugging_face")
        where = f"{type(spec).__name__} object"
        return "dataset", hub.read_dataset(spec, where, options)
    raise InputError(
        f"a test set is a path, several paths or a datasets.Dataset, not {shown(spec)}"
    )


def _find_path(spec: str, options: Options) -> tuple[str, RawExamples]:
    if spec.startswith("pipe:"):
        raise InputError(f"{shown(spec)}: commands are not run; download the files first")
    if spec.startswith(WILDS) and not os.path.lexists(spec):
        wanted = WildsSpec.parse(spec)
        return wanted.called, read_wilds(wanted, options)
    head, colon, prefix = spec.rpartition(".npz:")
    if colon:
        return prefix, read_arrays(_existing(head + ".npz"), prefix, options)
    if "\0" not in spec and not os.path.lexists(spec) and any(mark in spec for mark in "*?[{"):
        paths = expand(spec)
        return _common(paths), _find_files(paths, options)
    path = _existing(spec)
    if path.is_dir():
        return path.absolute().name, _find_directory(path, options)
    return path.stem, _find_files([path], options)


def _find_directory(path: Path, options: Options) -> RawExamples:
    if any((path / one).exists() for one in ("dataset_dict.json", "state.json")):
        hub = _needing("datasets", "hugging_face")
        found: RawExamples = hub.read_dataset(hub.open_saved(path), str(path), options)
        return found
    for ending in (".parquet", ".tar"):
        if any(path.glob(f"*{ending}")) and not any(one.is_dir() for one in path.glob("[!.]*")):
            raise InputError(
                f"{path}: a directory of {ending} files; say which, such as {path}/test-*{ending}"
            )
    return read_folder(path, options)


def _find_files(paths: list[Path], options: Options) -> RawExamples:
    """One file, or several of one format."""
    endings = {path.suffix.lower() for path in paths}
    ending = endings.pop()
    if endings:
        raise InputError(f"{some([str(one) for one in paths])}: must all be of one format")
    if ending == ".parquet":
        found: RawExamples = _needing("pyarrow", "parquet").read_parquet(paths, options)
        return found
    if ending == ".tar":
        return read_tars(paths, options)
    if len(paths) > 1:
        raise InputError(f"{paths[0]}: only .parquet and .tar files can be several")
    if ending in (".npz", ".npy"):
        return read_arrays(paths[0], None, options)
    if ending in (".csv", ".tsv"):
        return read_manifest(paths[0], options)
    if ending in (".tgz", ".gz", ".xz", ".bz2", ".zst", ".zip"):
        raise InputError(f"{paths[0]}: compressed; unpack it first, to a .tar or a folder")
    raise InputError(f"{paths[0]}: not a known format of test sets; expected {_FORMATS}")


def _needing(library: str, module: str) -> Any:
    """A reader of this package that needs a library."""
    try:
        return import_module(f"shiftbed.evaluation.data.{module}")
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise InputError(f"reading this format needs {library}: pip install {library}") from None


def _existing(spec: str) -> Path:
    path = Path(spec) if "\0" in spec else local(spec, "test set")
    if "\0" in spec or not path.exists():
        raise InputError(f"{shown(spec)}: no such file or directory; expected {_FORMATS}")
    return path


def _labels(found: RawExamples, options: Options) -> Labels:
    """Labels in the label space asked for, else in the source's own."""
    size, wanted = len(found.examples), options.classes
    if found.labels is None:
        return Labels(one=np.full(size, -1), classes=wanted or found.classes)
    labels = encode(found.labels, found.classes or wanted, found.where)
    if wanted is None or labels.classes is None or labels.classes == wanted:
        return labels
    at = {one: number for number, one in enumerate(wanted)}
    used = {*labels.one.tolist(), *(label for own in labels.sets or () for label in own)} - {-1}
    for label in sorted(used):
        if labels.classes[label] not in at:
            raise InputError(
                f"{found.where}: class {shown(labels.classes[label])} is not among the "
                f"{len(wanted)} classes given, such as {some(wanted, 2)}"
            )
    table = np.array([*(at.get(one, -1) for one in labels.classes), -1])
    sets = labels.sets
    return Labels(
        one=table[labels.one],
        sets=None
        if sets is None
        else tuple(tuple(sorted(table[list(own)].tolist())) for own in sets),
        classes=wanted,
    )


def _common(paths: list[Path]) -> str:
    """What the names of shards have in common, without their numbers."""
    low, high = min(path.stem for path in paths), max(path.stem for path in paths)
    same = [a == b for a, b in zip(low, high, strict=False)]
    return low[: [*same, False].index(False)].rstrip("-_.0123456789") or low


def _name(asked: str | None, usual: str) -> str:
    """The name asked for, or one made of the file's; both fit into the id of a setting."""
    if asked is None:
        return re.sub(r"[^\w.\-]+", "-", usual).strip("-") or "test-set"
    return check_name(asked)
