"""Data sets of WILDS through its own package: ``wilds:NAME?root=DIR&split=SPLIT&FIELD=VALUE``.

``root`` is the folder where the package keeps its data (``data`` by default), which is never
downloaded; ``split`` is one of the package's (``test`` by default), ``version`` and ``scheme`` are
what it calls so. Any other key is a field of the metadata: ``hospital=2`` keeps that hospital's
images only, so that each domain can be a setting of its own. Groups are the first field of the
metadata (hospital, location, …), or ``group_column``.

The catalogue reads the same files without the package (``NAME@DIR``); this is for what the package
says of them: its versions, its split schemes, data sets that the catalogue lacks.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError, brief, unknown
from shiftbed.evaluation.data.objects import ItemImages
from shiftbed.evaluation.data.raw_examples import Options, RawExamples
from shiftbed.places import keys_in, path_of

PREFIX = "wilds:"
PICTURES = ("camelyon17", "celebA", "domainnet", "fmow", "iwildcam", "rxrx1", "waterbirds")
"""Data sets of the package in which pictures have one class each."""
_KEYS = ("root", "split", "version", "scheme")


@dataclass(frozen=True, kw_only=True)
class WildsSpec:
    """What ``wilds:…`` names."""

    text: str
    name: str
    root: str = "data"
    split: str = "test"
    version: str | None = None
    scheme: str | None = None
    only: Mapping[str, str] = field(default_factory=dict)
    """Fields of the metadata and the values that are kept."""

    @classmethod
    def parse(cls, text: str) -> "WildsSpec":
        """
        >>> WildsSpec.parse("wilds:camelyon17?root=d&hospital=2").called
        'camelyon17-test-hospital-2'
        """
        name = text.removeprefix(PREFIX).partition("?")[0]
        if name not in PICTURES:
            raise unknown("data set of pictures in WILDS", name, PICTURES)
        found = keys_in(text)
        known: dict[str, Any] = {key: found.pop(key) for key in _KEYS if key in found}
        return cls(text=text, name=name, only=found, **known)

    @property
    def called(self) -> str:
        """What such a test set is called."""
        fields = [f"{key}-{value}" for key, value in sorted(self.only.items())]
        return "-".join([self.name, self.split, *fields])

    def below(self, base: Path) -> str:
        """The same with its root relative to a folder."""
        if path_of(self.root).is_absolute():
            return self.text
        known = {"split": self.split, "version": self.version, "scheme": self.scheme, **self.only}
        items = [f"root={base / self.root}", *(f"{k}={v}" for k, v in known.items() if v)]
        return f"{PREFIX}{self.name}?{'&'.join(items)}"


@dataclass(frozen=True, eq=False)
class _Pairs:
    """(picture, label) by number."""

    dataset: Any

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return self.dataset.get_input(row), int(self.dataset.y_array[row])


def read_wilds(wanted: WildsSpec, options: Options) -> RawExamples:
    """The pictures of a split in the package's order; ids are their numbers in the data set."""
    dataset, version = _opened(wanted)
    if wanted.split not in dataset.split_dict:
        raise unknown(f"split of {wanted.name}", wanted.split, dataset.split_dict)
    if dataset.y_size != 1 or not dataset.is_classification:
        raise InputError(f"{wanted.text}: its images have no single class each")
    values = np.asarray(dataset.metadata_array)
    kept = np.asarray(dataset.split_array) == dataset.split_dict[wanted.split]
    for key, value in wanted.only.items():
        kept &= _field(wanted, dataset, values, key) == value
    rows = np.flatnonzero(kept)
    if not rows.size:
        what = "".join(f", {key} {value}" for key, value in wanted.only.items())
        raise InputError(f"{wanted.text}: no image in the split {wanted.split}{what}")
    group = options.group_column or dataset.metadata_fields[0]
    digits = len(str(len(values) - 1))
    return RawExamples(
        where=wanted.text,
        examples=tuple(f"{row:0{digits}d}" for row in rows.tolist()),
        images=ItemImages(dataset=_Pairs(dataset), where=wanted.text, layout=None, rows=rows),
        labels=np.asarray(dataset.y_array)[rows].astype(np.int64),
        classes=_classes(dataset),
        groups=_field(wanted, dataset, values, group)[rows].tolist(),
        notes=(f"through wilds {version}: {dataset.dataset_name} {dataset.version}",),
    )


def _opened(wanted: WildsSpec) -> tuple[Any, str]:
    """The package's data set, and the package's version."""
    root = path_of(wanted.root)
    if not root.is_dir():  # the package would make it
        raise InputError(f"{wanted.text}: no folder {wanted.root}; root=DIR is where its data are")
    try:
        package = import_module("wilds")
        import_module("shiftbed.evaluation.compat").ensure_torchvision()  # its data sets import it
    except ImportError as error:
        raise InputError(f"{wanted.text} needs wilds: pip install wilds ({error})") from None
    given: dict[str, Any] = {"root_dir": str(root), "download": False}
    if wanted.scheme is not None:
        given["split_scheme"] = wanted.scheme
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about how the package uses pandas and torch
            dataset = package.get_dataset(wanted.name, version=wanted.version, **given)
    except Exception as error:  # whatever the package and what it reads with make of the files
        raise InputError(f"{wanted.text}: wilds cannot open it: {brief(error)}") from None
    return dataset, str(package.__version__)


def _field(wanted: WildsSpec, dataset: Any, values: NDArray[Any], name: str) -> NDArray[np.str_]:
    """A field of every image's metadata as text: what its numbers mean, where that is said."""
    fields = list(dataset.metadata_fields)
    if name not in fields:
        raise unknown(f"field of {wanted.name}'s metadata", name, fields)
    numbers = values[:, fields.index(name)]
    meanings = (dataset.metadata_map or {}).get(name)
    if meanings is None:
        return np.array([f"{one:g}" for one in numbers.tolist()])
    return np.array([str(meanings[int(one)]) for one in numbers.tolist()])


def _classes(dataset: Any) -> tuple[str, ...]:
    """Names of the classes, else their numbers."""
    size = int(dataset.n_classes)
    names = tuple(map(str, (dataset.metadata_map or {}).get("y", ())))
    return names if len(set(names)) == size == len(names) else tuple(map(str, range(size)))
