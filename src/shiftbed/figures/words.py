"""The words in and under a figure: equations, notes on what is not drawn, how to read it."""

import math
from collections.abc import Iterable, Sequence

from shiftbed.analysis.baseline import Baseline, Line
from shiftbed.figures.axis import percent
from shiftbed.figures.groups import FEWEST
from shiftbed.scales import Scale
from shiftbed.testbed.record import Testbed


def count(models: int) -> str:
    """
    >>> count(1), count(1557)
    ('1 model', '1,557 models')
    """
    return f"{models:,} model" + ("" if models == 1 else "s")


def listed(names: Iterable[str], most: int = 3) -> str:
    """Names, or the first of them and how many more there are.

    >>> listed(["a", "b", "c", "d"], 2)
    'a, b and 2 more'
    """
    known = list(names)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more


def line_name(called: str, group: str = "") -> str:
    """What a legend calls a line.

    >>> line_name("zero-shot line"), line_name("line", "VGG16")
    ('Zero-shot line', 'VGG16 line')
    """
    return f"{group} line" if group else called[:1].upper() + called[1:]


def equation(baseline: Baseline) -> str:
    """The fitted line in scaled space, its n and R²; a line of text per piece at a knee."""
    lines, r2 = baseline.lines, f"R² = {baseline.r2:.3f}"
    if len(lines) == 1:
        return f"{_line(baseline, lines[0])}, n = {baseline.n:,}, {r2}"
    below, above = (f"{_line(baseline, line)}, n = {line.n:,}" for line in lines)
    knee = percent(lines[0].high, 1)
    return f"{below} for x < {knee}\n{above} for x > {knee}, {r2} for both"


def _line(baseline: Baseline, line: Line) -> str:
    of = "" if baseline.scale.name == "linear" else baseline.scale.name + " "
    k = len(line.weights)
    names = ["x"] if k == 1 else [f"x{'₁₂₃₄₅₆₇₈₉'[i]}" for i in range(k)]
    terms = [
        f"{signed(weight, first=i == 0)} {of}{names[i]}" for i, weight in enumerate(line.weights)
    ]
    return f"{of}y = {' '.join(terms)} {signed(line.intercept)}"


def signed(value: float, first: bool = False) -> str:
    """A term of a sum.

    >>> signed(-0.4947), signed(0.9217, first=True)
    ('− 0.495', '0.922')
    """
    sign = ("−" if first else "− ") if value < 0 else ("" if first else "+ ")
    return f"{sign}{abs(value):.3f}"


def points(value: float) -> str:
    """A difference of accuracies in percentage points, with its sign.

    >>> points(0.0213), points(-0.004), points(float("nan"))
    ('+2.13', '−0.40', '–')
    """
    return f"{100 * value:+.2f}".replace("-", "−") if math.isfinite(value) else "–"


def interval(low: float, high: float) -> str:
    """An interval of differences in percentage points, empty where there is none."""
    return f"[{points(low)}, {points(high)}]" if math.isfinite(low + high) else ""


def axis_title(testbed: Testbed, setting: str) -> str:
    """What is measured on what, and on how many images."""
    metric = testbed.metrics.get(setting, "accuracy")
    sizes = testbed.size(setting)
    n = testbed.usual_size(setting)
    if not n:
        return f"{setting}, {metric}"
    most = " for most models" if len(set(sizes[sizes > 0].tolist())) > 1 else ""
    return f"{setting}, {metric} (n = {n:,}{most})"


def reading(level: float, bars: bool, band_level: float, draws: int, fdr: float) -> str:
    """What bars, band, dashes and filling mean."""
    said = [f"Bars: {percent(level)} Clopper–Pearson intervals."] if bars else []
    how = f"{draws:,} bootstrap resamples of the models" if draws else "from the residuals"
    said.append(f"Band: {percent(band_level)} confidence band of the line, {how}.")
    said.append("Filled markers: models the line is fitted through. Dotted: extrapolated.")
    said.append(f"Named: models farthest out of line (q ≤ {fdr:g}), or highlighted.")
    return " ".join(said)


def notes(
    *,
    missing: Sequence[str],
    starred_missing: Sequence[str] = (),
    below: tuple[int, float | None, str],
    edge: tuple[Sequence[str], Scale],
    left_out: Sequence[str],
    unserved: tuple[int, str | None] = (0, None),
) -> tuple[str, ...]:
    """What is not drawn, not fitted, or not where it belongs; nothing where nothing is."""
    which = f", among them {listed(starred_missing)}" if len(starred_missing) else ""
    said = [
        (len(missing), f"without an accuracy on every axis: not drawn{which}."),
        (below[0], f"below {percent(below[1] or 0.0)} on {below[2]}: not fitted, not drawn."),
        (
            len(edge[0]),
            f"at exactly 0% or 100%, where the {edge[1].name} is infinite, drawn on the edge (×): "
            f"{listed(edge[0])}.",
        ),
        (
            len(left_out),
            f"chosen for the fit but not in it, at 0% or 100% or on the knee: {listed(left_out)}.",
        ),
        (
            unserved[0],
            f"whose {unserved[1]} has fewer than {FEWEST} models to fit: no line, so no ρ.",
        ),
    ]
    return tuple(f"{count(number)} {what}" for number, what in said if number)
