"""Pages: one file, offline, and names from data are shown, never run."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest

from shiftbed.errors import InputError
from shiftbed.figures import Scatter
from shiftbed.figures.interactive import figure, fragment, html_page
from shiftbed.results.charts.scatter import scatter
from shiftbed.testbed import Testbed, published

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "a & <b>b</b> %{x}",
)


@pytest.fixture(scope="module")
def hostile(small: Testbed) -> Scatter:
    testbed = small
    for name in HOSTILE:
        testbed = testbed.with_model(name, {"id": 0.8, "ood": 0.3})
    testbed = replace(
        testbed,
        citation=HOSTILE[0],
        models=testbed.models.with_columns(
            testbed.models["architecture"].replace("conv", HOSTILE[1])
        ),
    )
    return scatter(testbed, "s", by="architecture")


def _outside_scripts(page: str) -> str:
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


def test_hostile_names_are_escaped_in_the_page(hostile: Scatter) -> None:
    piece = fragment(hostile, "c")
    assert piece.count("<script>") == piece.count("</script>") == 1
    assert "<img" not in piece
    assert "&lt;img src=x onerror=alert(1)&gt;" in _outside_scripts(piece)
    script = re.search(r"<script>(.*)</script>", piece, flags=re.DOTALL)
    assert script is not None
    assert not set("<>&") & set(script[1])


def test_hostile_names_are_escaped_for_plotly(hostile: Scatter) -> None:
    drawn = figure(hostile)
    hovers = [text for trace in drawn.data for text in trace.hovertext or ()]
    assert any("<b>&lt;img src=x onerror=alert(1)&gt;</b>" in text for text in hovers)
    assert any("a &amp; &lt;b&gt;b&lt;/b&gt; %{x}" in text for text in hovers)
    said = [*hovers, *(trace.name or "" for trace in drawn.data)]
    said += [note.text for note in drawn.layout.annotations]
    said += [drawn.layout.title.text, drawn.layout.title.subtitle.text]
    for text in said:
        assert set(re.findall(r"<[^>]*>", text)) <= {"<b>", "</b>", "<br>"}
    assert all(trace.hovertemplate is None for trace in drawn.data)


def test_a_page_has_plotly_once_and_loads_nothing(small: Testbed) -> None:
    page = html_page([scatter(small, "s")] * 2, title="<two>")
    assert page.count("plotly.js v") == 1
    assert page.count("Plotly.newPlot(") - _library_calls() == 2
    assert 'id="chart-1"' in page
    assert 'id="chart-2"' in page
    assert "<title>&lt;two&gt;</title>" in page
    assert not re.search(r"\b(src|href)=", _outside_scripts(page))
    assert "default-src 'none'" in page
    assert '"showSendToCloud":false' in page


def _library_calls() -> int:
    from shiftbed.figures.interactive import plotly_script

    return plotly_script().count("Plotly.newPlot(")


def test_hover_says_what_is_known(small: Testbed) -> None:
    chart = scatter(small, "s")
    at = chart.models.index("m27")
    hovers = [text for trace in figure(chart).data for text in trace.hovertext or ()]
    mine = next(text for text in hovers if text.startswith("<b>m27</b>")).split("<br>")
    assert mine[1] == "kind: intervention, not fitted"
    assert mine[2].startswith("id: 70.00% [65.")
    assert mine[4] == f"predicted: {100 * chart.predicted[at]:.2f}%"
    rho = f"{100 * chart.effective[at]:+.2f}".replace("-", "−")
    assert mine[5].startswith(f"ρ = {rho} points, 95% interval [")
    assert mine[6].startswith("ρ of 95% of baseline models: [")
    assert mine[7].startswith("p = ")


def test_points_bars_and_edges_are_finite(small: Testbed) -> None:
    chart = scatter(small, "s")
    traces = [trace for trace in figure(chart).data if trace.mode == "markers"]
    assert sum(len(trace.x) for trace in traces) == len(chart.models)
    for trace in traces:
        for bar in (trace.error_x, trace.error_y):
            assert np.isfinite([bar.array, bar.arrayminus]).all()
        assert np.isfinite([trace.x, trace.y]).all()
    assert [s for trace in traces for s in trace.marker.symbol].count("x") == 1
    json.dumps(json.loads(figure(chart).to_json()), allow_nan=False)


def test_many_points_are_drawn_by_webgl() -> None:
    kinds = {type(trace) for trace in figure(scatter(published("timm"), "imagenet-v2")).data}
    assert kinds == {go.Scatter, go.Scattergl}


def test_without_plotly(small: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(InputError, match=r"need plotly: install shiftbed\[report\]"):
        figure(scatter(small, "s"))
