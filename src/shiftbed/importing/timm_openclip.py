"""Result files of timm and open_clip, with what is known of their settings.

Sizes, metrics and shifts are those of the published testbeds of the same source.
"""

from pathlib import Path

import polars as pl

from shiftbed.display import counted
from shiftbed.errors import InputError
from shiftbed.importing.cells import fractions, looks_numeric, mostly_numeric, required
from shiftbed.importing.columns import Columns, leaf, plain
from shiftbed.importing.identity import keyed
from shiftbed.importing.parts import FileResults, cells_of, models_of
from shiftbed.reading.tables import TextTable
from shiftbed.testbed import published

_TIMM_FILES = {
    "results-imagenet": "imagenet",
    "results-imagenet-real": "imagenet_real",
    "results-imagenetv2-matched-frequency": "imagenetv2_mf",
    "results-inv2-matched-frequency": "imagenetv2_mf",
    "results-sketch": "imagenet_sketch",
    "results-imagenet-a": "imagenet_a",
    "results-imagenet-a-clean": "imagenet_a_clean",
    "results-imagenet-r": "imagenet_r",
    "results-imagenet-r-clean": "imagenet_r_clean",
}


def detect(table: TextTable, columns: Columns) -> str:
    """The layout of a table, by its columns."""
    if columns.told(table, "setting"):
        numeric = all(mostly_numeric(table, c) for c in columns.told(table, "setting"))
        return "wide" if numeric and not columns.told(table, "value") else "long"
    has = {column.lower() for column in table.frame.columns}
    if {"model", "top1", "top1_err", "img_size"} <= has:
        return "timm"
    if {"name", "pretrained"} <= has and _open_clip_settings() & set(table.frame.columns):
        return "open_clip"
    if "setting" in has:
        return "long"
    settings = [c for c in columns.every(table, "setting") if not mostly_numeric(table, c)]
    values = [*columns.every(table, "value"), *columns.every(table, "correct")]
    values = [c for c in values if c not in table.nested or leaf(table, c) == plain(c)]
    return "long" if settings and any(mostly_numeric(table, c) for c in values) else "wide"


def _open_clip_settings() -> set[str]:
    return set(published("openclip").settings)


def timm_setting(path: str, chosen: str | None) -> str:
    """The setting of a timm file: as its name says, else as the caller chose."""
    setting = _TIMM_FILES.get(Path(path).stem, chosen)
    if setting is None:
        raise InputError(
            f"{path}: the file's name does not say which test set this is; pass "
            f"setting_names={{{Path(path).name!r}: 'imagenet'}} or another setting (--setting)"
        )
    return setting


def read_timm(table: TextTable, setting: str) -> FileResults:
    """Top-1 of timm's results-*.csv, or of what its validate.py writes; both are in percent."""
    key, top1 = table.need("model"), table.need("top1")
    table.need("img_size"), table.need("crop_pct", "cropt_pct")
    models, names = keyed(table, key), table.frame[key]
    info = {
        "name": names,
        "architecture": names.str.replace(r"\..*$", ""),
        "tag": names.str.strip_prefix(names.str.extract(r"^([^.]*\.?)")),
        "img_size": table.frame[table.need("img_size")],
        "crop_pct": table.frame[table.need("crop_pct", "cropt_pct")],
    }
    params = table.find("param_count")
    if params is not None:
        info["param_count"] = table.frame[params].str.replace_all(",", "", literal=True)
    return FileResults(
        path=table.path,
        word=table.word,
        cells=cells_of(table, models, setting, fractions(table, top1, "percent"), None),
        models=models_of(table, models, info),
        numeric=frozenset(("img_size", "crop_pct", "param_count")),
        home="timm",
        notes=(f"{table.path}: a timm result file, setting {setting}",),
    )


def read_open_clip(table: TextTable) -> FileResults:
    """open_clip's openclip_results.csv and its kin: a row per checkpoint, fractions.

    The average over data sets is left out: it is no setting of its own.
    """
    name, pretrained = table.need("name"), table.need("pretrained")
    names, tags = required(table, name, "model name"), required(table, pretrained, "tag")
    models = names + "/" + tags
    info = {"kind": pl.Series(["zero-shot"]).new_from_index(0, len(names))}
    info |= {"architecture": names, "training_data": tags}
    numeric = {"params (m)": "param_count", "flops (b)": "gflops"}
    cells = []
    for column in table.frame.columns:
        known = numeric.get(column.lower())
        if known is not None:
            info[known] = table.frame[column]
        elif column in (name, pretrained) or column.lower().startswith("average"):
            continue
        elif looks_numeric(table, column):
            values = fractions(table, column, "fraction")
            cells.append(cells_of(table, models, column, values, None))
    if not cells:
        raise InputError(f"{table.path}: no column holds numbers, so there is no setting")
    return FileResults(
        path=table.path,
        word=table.word,
        cells=pl.concat(cells),
        models=models_of(table, models, info),
        numeric=frozenset(numeric.values()),
        home="openclip",
        notes=(f"{table.path}: an open_clip result file, {counted(len(cells), 'setting')}",),
    )
