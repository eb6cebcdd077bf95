"""Charts of corruptions and frequencies: accuracy by severity, the grid of training
and test corruptions, Fourier heat maps and spectra of images (Yin et al. 2019)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.errors import InputError, unknown
from shiftbed.figures.charts import Curve, Curves, Heatmap, Panels
from shiftbed.results.corruption_error import corrupted_settings
from shiftbed.results.transfer import CLEAN
from shiftbed.testbed.record import Testbed
from shiftbed.testbed.select import Choice, choose

FAMILIES = {
    "Noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "Blur": ("gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "Weather": ("snow", "frost", "fog", "spatter", "brightness"),
    "Digital": (
        *("contrast", "saturate", "pixelate", "jpeg_compression", "elastic_transform"),
        "greyscale",
    ),
}
_VALUES = ("accuracy", "gain")
_ORDER = ("none", CLEAN, *(name for family in FAMILIES.values() for name in family))


def severities(testbed: Testbed, *, models: Choice = None) -> Panels:
    """Mean accuracy of the chosen models (default: the fit set) with one standard error.

    Corruptions in memory and on disk are different settings and are never mixed: in memory, if
    they are there.
    """
    parsed = corrupted_settings(testbed)
    places = sorted({one.where for one in parsed.values()}, reverse=True)
    if not places:
        raise InputError(f"{testbed.name} has no setting such as val+fog:3")
    where = places[0]
    rows = choose(testbed.models, models)
    curves: dict[str, list[Curve]] = {}
    for name in sorted({one.name for one in parsed.values() if one.where == where}):
        settings = {
            one.severity: setting
            for setting, one in parsed.items()
            if one.name == name and one.where == where
        }
        curve = _curve(testbed, name, settings, rows)
        family = next((f for f, names in FAMILIES.items() if name in names), "Other")
        curves.setdefault(family, []).append(curve)
    panels = tuple(
        _panel(family, curves[family]) for family in (*FAMILIES, "Other") if family in curves
    )
    return Panels(
        title=f"Accuracy by corruption and severity, {where}",
        panels=panels,
        reading=f"Mean over at most {int(rows.sum())} models, with one standard error of the mean.",
        citation=testbed.citation,
    )


def _curve(
    testbed: Testbed,
    name: str,
    settings: dict[int, str],
    rows: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> Curve:
    at = sorted(settings)
    values = [testbed.accuracy(settings[severity])[rows] for severity in at]
    finite = [v[np.isfinite(v)] for v in values]
    mean = np.array([v.mean() if v.size else np.nan for v in finite])
    error = np.array([v.std(ddof=1) / np.sqrt(v.size) if v.size > 1 else np.nan for v in finite])
    x = np.array(at, dtype=np.float64)
    low, high = 100 * (mean - error), 100 * (mean + error)
    return Curve(name=name.replace("_", " "), x=x, y=100 * mean, low=low, high=high)


def _panel(family: str, curves: Sequence[Curve]) -> Curves:
    return Curves(title=family, x_title="severity", y_title="accuracy (%)", curves=tuple(curves))


def transfer_heatmap(grid: pl.DataFrame, value: str = "accuracy") -> Heatmap:
    """The table of ``transfer_grid`` in percent; cells trained and tested on the same are marked.

    ``value``: ``accuracy``, or ``gain`` over models trained without augmentation.
    """
    if value not in _VALUES:
        raise unknown("value of the transfer grid", value, _VALUES)
    gains = value == "gain"
    shown = grid.filter(pl.col("gain").is_not_null()) if gains else grid
    if not len(shown):
        raise InputError("a gain needs models that were trained without augmentation")
    rows, columns = _ordered(shown["trained_on"]), _ordered(shown["tested_on"])
    values = np.full((len(rows), len(columns)), np.nan)
    for trained, tested, number in shown.select("trained_on", "tested_on", value).iter_rows():
        if number is not None:
            values[rows.index(trained), columns.index(tested)] = 100 * number
    same = np.array([[_trains(row, column) for column in columns] for row in rows])
    reach = float(np.nanmax(np.abs(values), initial=0.0)) if gains else None
    what = "gain over no augmentation (points)" if gains else "accuracy (%)"
    return Heatmap(
        title=f"Trained on × tested on: {'gain' if gains else 'accuracy'}",
        reading="Mean over severities, then over models; marked where a model was trained on what "
        "it is tested on.",
        rows=rows,
        columns=columns,
        values=values,
        row_title="trained on",
        column_title="tested on",
        value_title=what,
        digits=1,
        low=None if reach is None else -reach,
        high=reach,
        diverging=gains,
        marked=same,
        notes=_grid_notes(shown),
    )


def _grid_notes(shown: pl.DataFrame) -> tuple[str, ...]:
    """How many models, severities and images, and what is blank."""
    texts = []
    for name in ("models", "severities", "n"):
        sizes = sorted(set(shown[name].drop_nulls().to_list()))
        texts.append(" to ".join(str(size) for size in dict.fromkeys([sizes[0], sizes[-1]])))
    found = [f"{texts[0]} models a cell, {texts[1]} severities, n = {texts[2]} images."]
    half = (50 * (shown["high"] - shown["low"])).drop_nulls().to_list()
    if half:
        found.append(f"Intervals reach at most ±{max(half):.1f} points; the table has each.")
    blank = int(shown["accuracy"].null_count())
    return (*found, f"{blank} cells were not evaluated.") if blank else tuple(found)


def _trains(augmentation: str, corruption: str) -> bool:
    """Whether an augmentation such as ``crop-flip+fog/snow:3@0.5`` has a corruption in it."""
    steps = (step.partition("@")[0].partition(":")[0] for step in augmentation.split("+"))
    return any(corruption in step.replace("-", "_").split("/") for step in steps)


def _ordered(names: pl.Series) -> tuple[str, ...]:
    """None and clean first, corruptions by family, others after them by name."""
    known = {name: at for at, name in enumerate(_ORDER)}

    def place(name: str) -> tuple[int, str]:
        return known.get(name.partition(":")[0], len(known)), name

    return tuple(sorted(set(names.to_list()), key=place))


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
    own = _spectra(spectra[:1], f"Spectrum of {spectra[0]['name']}", level)
    if len(spectra) == 1:
        return own
    return Panels(
        title=f"Spectra of {spectra[0]['name']} and of its corruptions",
        panels=(own, _spectra(spectra[1:], "Corrupted minus clean", level)),
    )


def _spectra(spectra: Sequence[Mapping[str, Any]], title: str, level: float) -> Curves:
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
