"""Probes in a store: measurements of a model along paths between images, path by path.

    STORE/probes/model=M/setting=S/probe=P.json                   what was measured, and how
    STORE/probes/model=M/setting=S/probe=P/part-A-B.parquet       paths (or images) A … B−1

A path's row has the test set's rows ``first`` and ``second``, the number of ``points``, ``hff``
and ``hff_released`` (high-frequency fraction as in the paper, and as in its released code), ``cd``
(consistent distance) and ``magnitude`` (the mean over classes of |rFFT|, an array); of a Jacobian
``first`` and ``square`` (‖J‖²_F, exact or estimated); of a heat map a row is a frequency. A path
with an unreadable image has nulls. Parts have fixed bounds, so a killed run continues.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from shiftbed.errors import InputError, brief
from shiftbed.store.names import encode, part_name
from shiftbed.store.parts import read_part
from shiftbed.store.store import PredictionStore, Range

PROBES = ("amplitude", "phase", "pixel_within", "pixel_between", "jacobian")
PROBE_METRICS: dict[str, tuple[str, str]] = {
    **{
        f"{probe}_{metric}": (probe, metric)
        for probe in PROBES[:2]
        for metric in ("hff", "cd", "hff_released")
    },
    **{
        f"{probe}_{metric}": (probe, metric)
        for probe in PROBES[2:4]
        for metric in ("hff", "hff_released")
    },
    "jacobian_norm": ("jacobian", "square"),
}
"""Metric to probe and column."""


def probe_folder(model: str, setting: str, probe: str) -> str:
    return f"probes/model={encode(model)}/setting={encode(setting)}/probe={encode(probe)}"


def write_probe(
    store: PredictionStore, model: str, setting: str, probe: str, record: Mapping[str, Any]
) -> None:
    """What is measured and how; replaces an older record."""
    folder = probe_folder(model, setting, probe)
    whole = {"model": model, "setting": setting, "probe": probe, **record}
    whole.pop("sums", None)
    if whole.get("status") == "complete":
        whole["sums"] = store.part_sums(folder)
    store.write_json(f"{folder}.json", whole)


def probe_record(
    store: PredictionStore, model: str, setting: str, probe: str
) -> dict[str, Any] | None:
    """The record of one probe, None if there is none."""
    name = f"{probe_folder(model, setting, probe)}.json"
    return store.read_json(name) if store.files.exists(name) else None


def probe_records(store: PredictionStore) -> list[dict[str, Any]]:
    """All probes' records, by model, setting and probe."""
    names = [name for name in store.files.below("probes") if name.endswith(".json")]
    found = [store.read_json(name) for name in names]
    return sorted(found, key=lambda one: (one["model"], one["setting"], one["probe"]))


def write_probe_part(
    store: PredictionStore, model: str, setting: str, probe: str, start: int, frame: pl.DataFrame
) -> None:
    """Results of paths start … start + len(frame) − 1."""
    name = part_name(start, start + len(frame))
    store.write_part_file(f"{probe_folder(model, setting, probe)}/{name}", frame)


def remove_probe_part(
    store: PredictionStore, model: str, setting: str, probe: str, part: Range
) -> None:
    store.files.remove(f"{probe_folder(model, setting, probe)}/{part_name(*part)}")


def probe_parts(store: PredictionStore, model: str, setting: str, probe: str) -> list[Range]:
    """Which paths are there, in order."""
    return store.parts_in(probe_folder(model, setting, probe))


def read_probe(
    store: PredictionStore,
    model: str,
    setting: str,
    probe: str,
    columns: list[str] | None = None,
) -> pl.DataFrame:
    """Results of all paths that are there, in order."""
    parts = probe_parts(store, model, setting, probe)
    if not parts:
        raise InputError(f"no {probe} probe of {model!r} on {setting!r} in the store")
    frames = []
    sums = (probe_record(store, model, setting, probe) or {}).get("sums", {})
    for part in parts:
        name = f"{probe_folder(model, setting, probe)}/{part_name(*part)}"
        try:
            frames.append(read_part(store.read_bytes(name, sums.get(part_name(*part))), columns))
        except (OSError, InputError, pl.exceptions.PolarsError) as error:
            raise InputError(f"{store.files.root}/{name}: cannot be read: {brief(error)}") from None
        _check(frames[-1], f"{store.files.root}/{name}", columns or [])
    return pl.concat(frames, how="vertical_relaxed")


def _check(frame: pl.DataFrame, where: str, needed: list[str]) -> None:
    """Numbers in every column that is asked for; a file of another probe lacks some."""
    for name in needed:
        if name not in frame.columns:
            raise InputError(f"{where}: damaged, there is no column {name!r}")
    for name, kind in frame.schema.items():
        if name != "magnitude" and not (kind.is_numeric() or kind == pl.Null):
            raise InputError(f"{where}: column {name!r} holds {kind}, not numbers")
