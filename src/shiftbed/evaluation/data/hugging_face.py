"""Hugging Face ``datasets``: a Dataset with an image column, or a directory it was saved to.

The cells are taken as Arrow, undecoded, so the pictures are decoded here as everywhere else. A
data set held in memory is pickled with its pixels; one that was saved or loaded from disk is not.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.compute as pc

from shiftbed.errors import InputError, brief
from shiftbed.evaluation.data.images import NoImage, RowImages
from shiftbed.evaluation.data.parquet import choose_columns, found_in, values
from shiftbed.evaluation.data.raw_examples import Options, RawExamples


@dataclass(frozen=True, kw_only=True, eq=False)
class HubImages(RowImages):
    """Rows of a Dataset in Arrow format."""

    dataset: Any
    column: str

    def data(self, row: int) -> bytes:
        at = int(self.rows[row])
        cell = self.dataset[at : at + 1].column(self.column)[0].as_py()
        data = cell.get("bytes") if isinstance(cell, dict) else cell
        if isinstance(data, bytes):
            return data
        path = cell.get("path") if isinstance(cell, dict) else None
        if not path or "::" in path or "://" in path:
            raise NoImage("its data set holds neither bytes nor the path of a local file for it")
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise NoImage(f"cannot be read: {error.strerror}") from None


def open_saved(path: Path) -> Any:
    """The data set that ``save_to_disk`` wrote to a directory."""
    if (path / "dataset_dict.json").exists():
        splits = sorted(one.name for one in path.iterdir() if one.is_dir())
        raise InputError(f"{path}: holds splits; open one of them: {', '.join(splits)}")
    try:
        return datasets.load_from_disk(str(path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: cannot be read as a saved data set: {brief(error)}") from None


def read_dataset(dataset: Any, where: str, options: Options) -> RawExamples:
    """The images of a Dataset in its order."""
    if isinstance(dataset, datasets.DatasetDict):
        raise InputError(f"{where}: holds splits; give one of them: {', '.join(dataset)}")
    if not isinstance(dataset, datasets.Dataset):
        raise InputError(f"{where}: is {type(dataset).__name__}, expected a datasets.Dataset")
    if not len(dataset):
        raise InputError(f"{where}: no rows")
    columns = choose_columns(where, dataset.features.arrow_schema, options)
    wanted = (columns.label, columns.group, columns.id, columns.caption)
    names = [name for name in wanted if name is not None]
    table = dataset.select_columns(names).with_format("arrow")[:] if names else None
    arrow = dataset.with_format("arrow")
    images = HubImages(dataset=arrow, column=columns.image, rows=np.arange(len(dataset)))
    files: list[str | None] = []
    if columns.id is None and columns.path is not None:
        for some in arrow.select_columns([columns.image]).iter(batch_size=256):
            files += values(where, pc.struct_field(some[columns.image], "path"))
    return found_in(where, table, columns, images, files)
