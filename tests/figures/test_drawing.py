"""Files for paper: of the right kind, the same every time, without touching global state."""

import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from shiftbed.errors import InputError
from shiftbed.figures import Panels, Scatter, draw, figure_of, save_static
from shiftbed.figures.charts import Curve, Curves
from shiftbed.figures.scatters import _sheet
from shiftbed.records import Shift
from shiftbed.results.charts.scatter import plane, scatter
from shiftbed.results.lines import adhoc
from shiftbed.testbed import Testbed, published
from tests.figures.test_charts import CHARTS


@pytest.fixture(scope="module")
def chart(small: Testbed) -> Scatter:
    return scatter(small.with_model("mine $x_1$ <b>", {"id": 0.8, "ood": 0.9}), "s")


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png"])
def test_two_runs_give_equal_bytes(chart: Scatter, tmp_path: Path, suffix: str) -> None:
    before = dict(rcParams)
    for name in ("a", "b"):
        save_static(chart, tmp_path / f"{name}{suffix}", dpi=60)
    first = (tmp_path / f"a{suffix}").read_bytes()
    assert first == (tmp_path / f"b{suffix}").read_bytes()
    assert dict(rcParams) == before


def test_an_svg_is_equal_in_another_process(chart: Scatter, tmp_path: Path) -> None:
    run = (
        "import sys; from shiftbed.page import save; "
        "from shiftbed.results.charts.scatter import scatter; "
        "from shiftbed.testbed import published; "
        "save(scatter(published('openclip'), 'imagenet-r'), sys.argv[1])"
    )
    for name in ("a.svg", "b.svg"):
        subprocess.run([sys.executable, "-c", run, tmp_path / name], check=True)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_dpi_scales_the_png(chart: Scatter, tmp_path: Path) -> None:
    widths = []
    for dpi in (50, 100):
        save_static(chart, tmp_path / "a.png", dpi=dpi)
        widths.append(int.from_bytes((tmp_path / "a.png").read_bytes()[16:20], "big"))
    assert widths == [360, 720]


def _texts(figure: Figure) -> list[str]:
    axes = figure.axes[0]
    legend = axes.get_legend()
    assert legend is not None
    return [text.get_text() for text in (*axes.texts, *legend.get_texts())]


def test_names_counts_and_edge_are_shown(chart: Scatter) -> None:
    texts = _texts(figure_of(chart))
    assert "mine $x_1$ <b>" in texts
    assert {"Standard training (20)", "Robustness intervention (9)", "Own model (1)"} <= set(texts)
    assert {"Line (20 models)", "y = x", "At 0% or 100%"} <= set(texts)


@pytest.mark.parametrize(
    ("testbed", "shift", "options"),
    [
        ("imagenet-testbed-2020", "imagenet-a", {"threshold": 0.75}),
        ("robustnets-2022", "cifar10.1", {"by": "architecture", "scale": "probit"}),
        ("timm", "imagenet-v2", {"colour": "img_size"}),
        ("openclip", "imagenet-r", {"scale": "linear"}),
    ],
)
def test_all_that_is_written_is_within_the_figure(
    testbed: str, shift: str, options: dict[str, object]
) -> None:
    figure = figure_of(scatter(published(testbed), shift, **options))  # type: ignore[arg-type]
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    legend = axes.get_legend()
    assert legend is not None
    shown = [*figure.texts, *legend.get_texts(), *axes.texts, axes.xaxis.label, axes.yaxis.label]
    for text in shown:
        box = text.get_window_extent()
        assert box.x0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y0 >= -1, text
        assert box.y1 <= figure.bbox.y1 + 1, text
    boxes = [label.get_bbox_patch().get_window_extent() for label in axes.texts]  # type: ignore[union-attr]
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[:i])


def test_a_group_named_like_a_private_label_is_in_the_legend(small: Testbed) -> None:
    models = small.models.with_columns(small.models["architecture"].replace("conv", "_conv"))
    from dataclasses import replace

    texts = _texts(figure_of(scatter(replace(small, models=models), "s", by="architecture")))
    assert "\u00a0_conv (14)" in texts


def test_without_matplotlib(chart: Scatter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"needs matplotlib: pip install 'shiftbed\[report\]'"):
        figure_of(chart)


def test_every_chart_goes_onto_given_axes() -> None:
    """The axes come back, hold the chart and leave their neighbours alone."""
    for chart in CHARTS:
        figure = Figure()
        left, right = figure.subplots(1, 2)
        assert draw(chart, left) is left
        assert not right.has_data()
        inside = [axes for axes in figure.axes if axes is not right]
        assert any(axes.has_data() for axes in inside)
        assert all(axes.get_position().x1 < 0.52 for axes in inside)


def test_a_scatter_on_given_axes(chart: Scatter) -> None:
    axes = Figure().subplots()
    draw(chart, axes)
    assert axes.get_xlim() == (chart.x_axis.low, chart.x_axis.high)
    assert axes.get_title("left").startswith("A shift\nlogit y\u00a0=\u00a00.916")
    assert "mine $x_1$ <b>" in [text.get_text() for text in axes.texts]


def test_a_plane_needs_space() -> None:
    ids = ("ImageNet 1k", "CIFAR-10")
    shift = Shift(name="r", kind="natural-dataset", source=ids, target="ImageNet-R")
    chart = plane(published("openclip"), shift)
    with pytest.raises(InputError, match="needs three-dimensional axes"):
        draw(chart, Figure().subplots())
    axes = figure_of(chart).axes[0]
    assert axes.name == "3d"
    assert axes.get_xlabel() == "ImageNet"
    heights = np.concatenate([part._offsets3d[2] for part in axes.collections[1:]])  # type: ignore[attr-defined]
    np.testing.assert_allclose(np.sort(heights), np.sort(chart.axes[2].within(chart.y)))


def test_whole_numbers_have_no_ticks_in_between() -> None:
    x, y = np.arange(1.0, 6.0), np.linspace(0.2, 0.8, 5)
    curve = Curve(name="fog", x=x, y=y)
    axes = figure_of(Curves(title="t", x_title="severity", y_title="y", curves=(curve,))).axes[0]
    assert axes.get_xticks().tolist() == [1, 2, 3, 4, 5]


def test_a_plane_is_cut_off_where_it_leaves_the_axes() -> None:
    bed = published("imagenet-testbed-2020")
    shift = adhoc(["val", "val-on-objectnet-classes"], "objectnet-1.0-beta")
    drawn = plane(bed, shift)
    corners, up = _sheet(drawn), drawn.axes[2]
    assert len(corners) >= 3
    heights = corners[:, :2] @ np.array(drawn.weights) + drawn.intercept
    np.testing.assert_allclose(corners[:, 2], heights)
    assert up.low - 1e-9 <= heights.min() <= heights.max() <= up.high + 1e-9


def test_panels_need_a_grid() -> None:
    panels = next(chart for chart in CHARTS if isinstance(chart, Panels))
    with pytest.raises(InputError, match="axes of a grid"):
        draw(panels, Figure().add_axes((0.1, 0.1, 0.8, 0.8)))


def test_without_axes_pyplot_shows_it() -> None:
    axes = draw(CHARTS[0])
    assert axes.get_figure() is plt.gcf()
    plt.close()


@pytest.mark.parametrize("shift", ["", "ytbb-pm10", "imagenet-vid-pm10", "imagenet-a"])
@pytest.mark.parametrize(("style", "width"), [("column", 3.35), ("columns", 6.9)])
def test_a_figure_for_a_paper_fits_its_column(
    small: Testbed, style: str, width: float, shift: str
) -> None:
    """As wide as the column, type of 6 to 9 points, no title, nothing beyond the edges."""
    from matplotlib.text import Text

    bed = published("imagenet-testbed-2020") if shift else small
    figure = figure_of(scatter(bed, shift or "s"), style=style)
    assert figure.get_figwidth() == width
    figure.canvas.draw()
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    assert {6.0 <= t.get_fontsize() <= 9.0 for t in texts} == {True}
    wide, high = figure.canvas.get_width_height()
    for text in texts:
        box = text.get_window_extent()
        assert -1 <= box.x0 <= box.x1 <= wide + 1, text.get_text()
        assert -1 <= box.y0 <= box.y1 <= high + 1, text.get_text()


@pytest.mark.parametrize("style", ["paper", "column", "columns"])
@pytest.mark.parametrize("shift", ["imagenet-v2", "imagenet-r"])
def test_no_name_lies_over_a_point_or_another_name(shift: str, style: str) -> None:
    drawn = scatter(published("imagenet-testbed-2020"), shift)
    figure = figure_of(drawn, style=style)
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    x, y = drawn.x_axis, drawn.y_axis
    points = axes.transData.transform(np.column_stack([x.within(drawn.x), y.within(drawn.y)]))
    boxes = [label.get_bbox_patch().get_window_extent() for label in axes.texts]  # type: ignore[union-attr]
    assert len(boxes) == drawn.labelled.sum() > 3
    for i, box in enumerate(boxes):
        under = ((points > box.min) & (points < box.max)).all(axis=1)
        assert not under.any(), axes.texts[i].get_text()
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_text_in_a_pdf_is_text(small: Testbed, tmp_path: Path) -> None:
    """Type 42 fonts: letters that can be searched and copied, no outlines."""
    save_static(scatter(small, "s"), tmp_path / "a.pdf", style="column")
    data = (tmp_path / "a.pdf").read_bytes()
    assert b"/CIDFontType2" in data or b"/TrueType" in data
    assert b"/Type3" not in data


def test_text_in_an_svg_is_text(small: Testbed, tmp_path: Path) -> None:
    save_static(scatter(small, "s"), tmp_path / "a.svg", style="column")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "<text" in text
    assert ">y = x</text>" in text


def test_many_panels_are_small_multiples_with_lines(small: Testbed) -> None:
    one = scatter(small, "s", label=0)
    figure = figure_of(Panels(title="t", panels=(one,) * 6, columns=3), style="columns")
    panels = [a for a in figure.axes if a.get_title(loc="left")]
    assert len(panels) == 6
    for axes in panels:
        assert len(axes.lines) >= 2  # y = x and the line
        assert len(axes.get_xticks()) <= 4
        assert axes.get_legend() is None
