"""The gallery's figures as they are drawn: nothing is cut off, no key or name covers a point.

The lines that need a store of their own are drawn by tests/results/test_plot.py's charts alone.
"""

import shlex

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from typer.testing import CliRunner

from shiftbed.cli.main import app
from shiftbed.figures import Chart, draw, figure_of
from shiftbed.figures.charts import Curve, Curves, Dots, Panels, Reference
from tools.screenshots import gallery_lines

QUICK = {"taori2020-5-attacks", "taori2020-10", "shi2023-3", "multiples", "fridovich2022-10"}
LINES = [
    pytest.param(options, id=name, marks=() if name in QUICK else pytest.mark.slow)
    for options, name in gallery_lines()
    if "demo/" not in options
]


def points(axes: Axes) -> np.ndarray:
    """Centres of all markers within the axes, in pixels."""
    marks = [c for c in axes.collections if isinstance(c, PathCollection)]
    found = [axes.transData.transform(np.ma.getdata(c.get_offsets())) for c in marks]
    found += [axes.transData.transform(line.get_xydata()) for line in axes.lines if _data(line)]
    every = np.vstack([np.empty((0, 2)), *found])
    frame = axes.get_window_extent()
    return every[((every >= frame.min - 1) & (every <= frame.max + 1)).all(axis=1)]


def _data(line: object) -> bool:
    return line.get_marker() not in ("", "None", None)  # type: ignore[attr-defined]


def check(figure: Figure, *, paper: bool) -> None:
    FigureCanvasAgg(figure).draw()
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    if paper:
        assert {6.0 <= t.get_fontsize() <= 9.0 for t in texts} == {True}
    whole, (wide, high) = figure.get_tightbbox(), figure.get_size_inches()
    point = 1.0 / 72.0
    assert -point <= whole.x0 <= whole.x1 <= wide + point
    assert -point <= whole.y0 <= whole.y1 <= high + point
    for text in (text for axes in figure.axes for text in axes.texts):
        box = Text.get_window_extent(text)
        assert 0 <= box.x0 <= box.x1 <= figure.bbox.x1, text.get_text()
        assert 0 <= box.y0 <= box.y1 <= figure.bbox.y1, text.get_text()
    for axes in figure.axes:
        if axes.name == "3d":
            continue
        legend, names = axes.get_legend(), [Text.get_window_extent(t) for t in axes.texts]
        boxes = ([legend.get_window_extent()] if legend is not None else []) + (
            names if any(hasattr(t, "arrowprops") for t in axes.texts) else []
        )
        for i, box in enumerate(boxes):
            under = ((points(axes) > box.min) & (points(axes) < box.max)).all(axis=1)
            assert not under.any(), axes.get_title(loc="left")
            assert not any(box.overlaps(other) for other in boxes[:i])


@pytest.mark.parametrize("options", LINES)
def test_nothing_is_cut_off_or_covered(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Chart] = []
    monkeypatch.setattr("shiftbed.page.plot.save", lambda chart, path, **_: made.append(chart))
    words = [*shlex.split(options), "-o", "a.svg"]
    done = CliRunner().invoke(app, ["plot", *words])
    assert done.exit_code == 0, done.exception
    style = words[words.index("--style") + 1] if "--style" in words else "paper"
    check(figure_of(made[0], style=style), paper=style != "paper")


def full(names: int = 6) -> Curves:
    """Curves that leave no corner free."""
    x = np.linspace(0.0, 1.0, 9)
    ys = [k / (names - 1) + 0.02 * np.sin(9 * x + k) for k in range(names)]
    curves = tuple(Curve(name=f"a model of long name {k}", x=x, y=y) for k, y in enumerate(ys))
    return Curves(title="t", x_title="x", y_title="y", curves=curves)


@pytest.mark.parametrize("style", ["paper", "column", "columns"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_key_without_a_free_corner_goes_below(style: str, count: int) -> None:
    chart: Chart = full() if count == 1 else Panels(title="t", panels=(full(),) * 2, columns=2)
    figure = figure_of(chart, style=style)
    check(figure, paper=style != "paper")
    for axes in figure.axes:
        if (legend := axes.get_legend()) is not None:
            assert legend.get_window_extent().y1 < axes.get_window_extent().y0
            assert axes.get_window_extent().height > 0.25 * figure.bbox.height


def test_points_without_intervals_and_a_key() -> None:
    x = np.array([0.0, 1.0, 0.5])
    nothing = np.full(3, np.nan)
    dots = Dots(
        title="t", x_title="x", y_title="y", names=("a", "b", "c"), groups=("g", "h", "g"),
        x=x, y=x, y_low=nothing, y_high=nothing,
    )  # fmt: skip
    check(figure_of(dots, style="column"), paper=True)


def test_a_single_value_has_its_interval_and_lines_out_of_sight_are_not_in_the_key() -> None:
    one = Curve(
        name="a", x=np.array([1.0]), y=np.array([5.0]), low=np.array([4.0]), high=np.array([6.0])
    )
    lines = (
        Reference(name="the line", fitted=True, intercept=5.5),
        Reference(name="y = x", intercept=100.0),
        Reference(name="here", intercept=4.5),
        Reference(name="there", intercept=5.0),
    )
    axes = figure_of(Curves(title="t", x_title="x", y_title="y", curves=(one,), lines=lines)).axes[
        0
    ]
    ends = [s[:, 1].tolist() for c in axes.collections for s in getattr(c, "get_segments", list)()]
    assert [4.0, 6.0] in ends
    legend = axes.get_legend()
    assert legend is not None
    assert [t.get_text() for t in legend.get_texts()] == ["a", "the line", "here", "there"]
    looks = {line.get_label(): (line.get_color(), line._dash_pattern) for line in axes.lines}
    assert looks["the line"][0] == "#D55E00"
    assert looks["here"][1] != looks["there"][1]


def test_names_of_many_points_keep_clear_of_each_other() -> None:
    """Where 24 architectures lie close together."""
    rng = np.random.default_rng(0)
    x = rng.normal(0.2, 0.03, 24)
    names = tuple(f"Architecture{i}" for i in range(24))
    dots = Dots(
        title="t", x_title="x", y_title="y", names=names, x=x, y=x + rng.normal(0.1, 0.02, 24),
        labelled=names, lines=(Reference(name="OOD = ID", slope=1.0),),
    )  # fmt: skip
    figure = figure_of(dots)
    assert len(figure.axes[0].texts) == 24
    check(figure, paper=False)


def test_panels_on_given_axes_have_their_title_above() -> None:
    left, _ = Figure(layout="constrained").subplots(1, 2)
    draw(Panels(title="all", panels=(full(), full()), columns=2), left)
    FigureCanvasAgg(left.figure).draw()
    whole = left._left_title.get_window_extent()
    panels = [a for a in left.figure.axes if a.get_title(loc="left") == "t"]
    assert len(panels) == 2
    assert not any(whole.overlaps(a._left_title.get_window_extent()) for a in panels)
