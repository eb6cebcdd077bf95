"""Plain charts: each is drawn in each format, shows its numbers, and names stay names."""

from pathlib import Path

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.figures import SUFFIXES, figure_of, save_static
from shiftbed.figures.charts import Bars, Chart, Curve, Curves, Dots, Heatmap, Panels, Reference

HOSTILE = "<img src=x onerror=alert(1)> $x_1$"
RNG = np.random.default_rng(0)


def heatmap(size: int = 3) -> Heatmap:
    values = RNG.normal(size=(size, size))
    values[0, -1] = np.nan
    names = (HOSTILE, *(f"m{i}" for i in range(1, size)))
    return Heatmap(
        title="Matrix", rows=names, columns=names, values=values, diverging=True, low=-2, high=2
    )


def curves() -> Curves:
    x = np.arange(5.0)
    one = Curve(name=HOSTILE, x=x, y=x**2, low=x**2 - 1, high=x**2 + 1)
    two = Curve(name="_plain", x=x, y=np.array([1, 2, np.nan, 4, 5]), dashed=True, points=False)
    return Curves(
        title="Curves",
        x_title="x",
        y_title="y",
        curves=(one, two),
        x_labels=("a", "b", "c", "d", "e"),
        lines=(
            Reference(name="level", intercept=3.0),
            Reference(name="here", slope=np.inf, intercept=2.0),
        ),
    )


def dots() -> Dots:
    x, y = RNG.random(4), RNG.random(4)
    return Dots(
        title="Dots",
        x_title="x",
        y_title="y",
        names=(HOSTILE, "b", "c", "d"),
        x=x,
        y=y,
        groups=("g", "g", "h", "h"),
        y_low=y - 0.1,
        y_high=y + 0.1,
        x_low=x - 0.1,
        x_high=x + 0.1,
        lines=(Reference(name="y = x", slope=1.0),),
        labelled=(HOSTILE,),
    )


def bars(stacked: bool = False) -> Bars:
    values = RNG.random((2, 3))
    ends = {} if stacked else {"low": values - 0.1, "high": values + 0.1}
    return Bars(
        title="Bars",
        categories=(HOSTILE, "b", "c"),
        series=("s", "t"),
        values=values,
        stacked=stacked,
        **ends,
    )


CHARTS: list[Chart] = [
    heatmap(),
    heatmap(60),
    curves(),
    dots(),
    bars(),
    bars(stacked=True),
    Panels(title="All", panels=(heatmap(), curves(), dots(), bars()), columns=3),
]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("number", range(len(CHARTS)))
def test_every_chart_in_every_format(tmp_path: Path, number: int, suffix: str) -> None:
    save_static(CHARTS[number], tmp_path / f"a{suffix}", dpi=60)
    assert (tmp_path / f"a{suffix}").stat().st_size > 1000


@pytest.mark.parametrize("number", range(len(CHARTS)))
def test_names_are_data(number: int) -> None:
    """A hostile name is drawn as it is."""
    drawn = figure_of(CHARTS[number])
    drawn.draw_without_rendering()  # a $ that was taken for mathematics would raise or vanish


def test_the_numbers_drawn_are_the_numbers_given() -> None:
    chart = heatmap()
    texts = [text.get_text() for text in figure_of(chart).axes[0].texts]
    wanted = [f"{v:.2f}".replace("-", "−") for v in chart.values.ravel() if np.isfinite(v)]
    assert texts == wanted
    bar = bars()
    heights = [patch.get_height() for patch in figure_of(bar).axes[0].patches]
    np.testing.assert_allclose(heights, bar.values.ravel())


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(InputError, match=r"values must have shape \(1, 2\), has \(2, 1\)"):
        Heatmap(title="", rows=("a",), columns=("b", "c"), values=np.zeros((2, 1)))
    with pytest.raises(InputError, match="y must have shape"):
        Curve(name="a", x=np.zeros(3), y=np.zeros(2))
