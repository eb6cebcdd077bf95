"""Spectra of images and Fourier heat maps as charts (Yin et al. 2019)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.figures.charts import Curve, Curves, Heatmap, Panels


def error_map(frame: pl.DataFrame, size: tuple[int, int], *, title: str = "") -> Heatmap:
    """Error per frequency, 0 in the middle; ``frame`` has i, j, wrong, n, one of each ±(i, j).

    >>> frame = pl.DataFrame({"i": [0, 0, 1, 1, 1], "j": [0, 1, -1, 0, 1],
    ...                       "wrong": [1, 2, 3, 4, 5], "n": [10] * 5})
    >>> error_map(frame, (8, 8)).values
    array([[50., 40., 30.],
           [20., 10., 20.],
           [30., 40., 50.]])
    """
    height, width = size
    error = {}
    for i, j, wrong, n in frame.select("i", "j", "wrong", "n").iter_rows():
        for a, b in ((i, j), (-i, -j)):
            error[a % height, b % width] = 100 * wrong / n
    ends = {}
    for name, length in (("i", height), ("j", width)):
        most = int(frame[name].abs().max() or 0)  # type: ignore[arg-type]
        ends[name] = list(range(-most, most + 1 if 2 * most < length else most))
    values = np.array(
        [[error.get((i % height, j % width), np.nan) for j in ends["j"]] for i in ends["i"]]
    )
    n = int(frame["n"].max() or 0)  # type: ignore[arg-type]
    low, high = clopper_pearson(frame["wrong"].to_numpy() / frame["n"].to_numpy(), n)
    widest = 50 * float((high - low).max())
    return Heatmap(
        title=f"{title}: error by frequency of noise (%)" if title else "Error by frequency (%)",
        rows=tuple(map(str, ends["i"])),
        columns=tuple(map(str, ends["j"])),
        values=values,
        row_title="vertical frequency",
        column_title="horizontal frequency",
        value_title="error (%)",
        digits=0,
        reading=f"Error on {n} images with one Fourier basis image added, the zero frequency in "
        f"the middle; 95 % intervals are at most ± {widest:.1f} points.",
    )


def spectrum_chart(spectra: Sequence[Mapping[str, Any]], *, level: float = 0.95) -> Curves | Panels:
    """Mean amplitude per radial frequency (log10); the first is the test set's own.

    Each spectrum has name, mean, low, high and n. Differences under corruptions have a panel of
    their own.
    """
    own = _curves(spectra[:1], f"Spectrum of {spectra[0]['name']}", level)
    if len(spectra) == 1:
        return own
    return Panels(
        title=f"Spectra of {spectra[0]['name']} and of its corruptions",
        panels=(own, _curves(spectra[1:], "Corrupted minus clean", level)),
    )


def _curves(spectra: Sequence[Mapping[str, Any]], title: str, level: float) -> Curves:
    floor = 1e-9
    curves = tuple(
        Curve(
            name=str(one["name"]),
            x=np.arange(len(one["mean"]), dtype=float),
            y=np.log10(np.maximum(one["mean"], floor)),
            low=np.log10(np.maximum(np.nan_to_num(one["low"], nan=floor), floor)),
            high=np.log10(np.maximum(np.nan_to_num(one["high"], nan=floor), floor)),
            points=False,
        )
        for one in spectra
    )
    sizes = sorted({int(one["n"]) for one in spectra})
    shown = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return Curves(
        title=title,
        x_title="radial frequency (periods per shorter side)",
        y_title="log10 of mean amplitude",
        curves=curves,
        reading=f"Mean over {shown} images, with its {100 * level:g} % Gaussian interval.",
    )
