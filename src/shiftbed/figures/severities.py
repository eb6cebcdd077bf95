"""Accuracy over the severity of each corruption, by family."""

from collections.abc import Sequence

import numpy as np

from shiftbed.errors import InputError
from shiftbed.figures.charts import Curve, Curves, Panels
from shiftbed.results.corruption_error import corrupted_settings
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


def severities(testbed: Testbed, *, models: Choice = None, where: str | None = None) -> Panels:
    """Mean accuracy of the chosen models (default: the fit set) with one standard error.

    Corruptions in memory and on disk are different settings and are never mixed; ``where`` says
    which (default: in memory if they are there).
    """
    parsed = corrupted_settings(testbed.settings)
    places = sorted({one.where for one in parsed.values()}, reverse=True)
    if not places:
        raise InputError(f"{testbed.name} has no setting such as val+fog:3")
    where = where or places[0]
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
    return Curve(name=name, x=x, y=100 * mean, low=100 * (mean - error), high=100 * (mean + error))


def _panel(family: str, curves: Sequence[Curve]) -> Curves:
    return Curves(title=family, x_title="severity", y_title="accuracy (%)", curves=tuple(curves))
