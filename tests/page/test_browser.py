"""The page in a real browser: what it shows is what Python computes, and nothing leaves it."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import special, stats

import shiftbed as sb
from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.page import save
from shiftbed.results.charts.scatter import plane, scatter
from tests.figures.test_charts import CHARTS
from tests.page.conftest import HOSTILE, SETTING, Open

VIEWS = (
    "start", "leaderboard", "findings", "glossary", "scatter", "plane", "grid", "relative",
    "synthetic", "multiples",
)  # fmt: skip


def figures(page: Any, element: str = "#equation") -> dict[str, Any]:
    """The numbers of the fit on show."""
    return {
        k: json.loads(v) for k, v in page.eval_on_selector(element, "e => ({...e.dataset})").items()
    }


def test_what_was_found_is_told(opened: Open) -> None:
    page = opened("view=findings")
    text = page.inner_text("main")
    assert "205 models on 15 shifts" in text
    assert re.search(r"\d+ models are out of line on at least one shift", text)
    assert page.title().endswith("shiftbed")
    assert page.locator("nav a").count() >= 7


@pytest.mark.parametrize("scale", ["logit", "probit", "linear"])
def test_axes_and_scale_switch_and_the_line_is_pythons(opened: Open, scale: str) -> None:
    page = opened("view=scatter")
    page.select_option("[data-name=shift]", "objectnet")
    page.select_option("[data-name=scale]", scale)
    bed = sb.published("imagenet-testbed-2020")
    line = bed.fit("objectnet", scale=scale, bootstrap=0)
    shown = figures(page)
    assert shown["n"] == line.n
    np.testing.assert_allclose(shown["slope"][0], line.weights, atol=1e-9)
    np.testing.assert_allclose(shown["intercept"], [line.intercept], atol=1e-9)
    np.testing.assert_allclose(shown["r2"], [line.r2], atol=1e-9)
    np.testing.assert_allclose(shown["mae"], line.mae, atol=1e-9)
    page.select_option("[data-name=x]", "val")  # the whole ID set instead of its twin
    whole = bed.fit("objectnet", scale=scale, full_source=True, bootstrap=0)
    np.testing.assert_allclose(figures(page)["slope"][0], whole.weights, atol=1e-9)


def test_the_knee_has_two_lines(opened: Open) -> None:
    shown = figures(opened("view=scatter&shift=imagenet-a"))
    line = sb.published("imagenet-testbed-2020").fit("imagenet-a", bootstrap=0)
    np.testing.assert_allclose([s[0] for s in shown["slope"]], [p.weights[0] for p in line.lines])
    assert shown["n"] == line.n


def test_a_filter_refits_at_once(opened: Open) -> None:
    page = opened("view=scatter&shift=imagenet-v2")
    page.click("details.filters summary")
    page.uncheck("[data-filter=kind] input[value=standard]")
    page.select_option("[data-name=fit]", "shown")
    bed = sb.published("imagenet-testbed-2020").with_model(HOSTILE, {"val": 0.7, SETTING: 0.65})
    line = bed.fit("imagenet-v2", models="kind!=standard", bootstrap=0)
    shown = figures(page)
    assert shown["n"] == line.n
    np.testing.assert_allclose(shown["slope"][0], line.weights, atol=1e-6)
    np.testing.assert_allclose(shown["r2"][0], line.r2, atol=1e-6)


def test_a_long_column_is_filtered_by_text(opened: Open, tmp_path: Path) -> None:
    """timm has hundreds of architectures: models whose architecture contains a text."""
    from shiftbed.page.report import report as write_report

    bed = sb.published("timm")
    write_report(bed, tmp_path / "timm.html")
    page = opened("view=scatter", path=tmp_path / "timm.html")
    page.click("details.filters summary")
    page.fill("[data-name=has-architecture]", "convnext")
    page.keyboard.press("Enter")
    shift = bed.shift(page.input_value("[data-name=shift]"))
    line = bed.where("architecture=*convnext*").fit(shift, bootstrap=0)
    shown = figures(page)
    assert shown["n"] == line.n
    np.testing.assert_allclose(shown["slope"][0], line.weights, atol=1e-6)


def test_intervals_are_pythons(opened: Open) -> None:
    page = opened()
    right, n = [0, 1, 7, 38065, 50000], [10, 10, 1109, 50000, 50000]
    got = page.evaluate(
        "([k, n]) => k.map((v, i) => window.shiftbed.clopperPearson(v / n[i], n[i], 0.95))",
        [right, n],
    )
    low, high = clopper_pearson(np.array(right) / np.array(n), np.array(n), 0.95)
    np.testing.assert_allclose(np.array(got), np.stack([low, high], axis=1), atol=1e-9)
    p = [1e-9, 1e-4, 0.02, 0.3, 0.5, 0.9, 0.9999]
    got = page.evaluate("p => p.map(window.shiftbed.normalQuantile)", p)
    np.testing.assert_allclose(got, special.ndtri(p), atol=1e-9)
    got = page.evaluate("d => d.map((v) => window.shiftbed.studentQuantile(0.975, v))", [2, 9, 76])
    np.testing.assert_allclose(got, stats.t.ppf(0.975, [2, 9, 76]), rtol=1e-9)


def test_search_and_pin_and_the_permalink(opened: Open, report: Path) -> None:
    page = opened("view=scatter&shift=imagenet-r")
    page.fill("[data-name=search]", "noisystudent")
    found = page.locator("ul.found button")
    assert found.first.inner_text() == "☆ efficientnet-l2-noisystudent"
    found.first.click()
    page.select_option("[data-name=scale]", "probit")
    again = opened(page.evaluate("location.hash.slice(1)"))
    pressed = again.locator("ul.found button[aria-pressed=true]")
    assert pressed.inner_text() == "★ efficientnet-l2-noisystudent"
    assert again.input_value("[data-name=scale]") == "probit"
    assert again.input_value("[data-name=shift]") == "imagenet-r"


def test_hover_and_keyboard_say_all_that_is_known(opened: Open) -> None:
    page = opened("view=scatter&shift=imagenet-v2")
    page.focus("#scatter")
    page.keyboard.press("ArrowRight")
    tip = page.inner_text(".tip")
    lines = tip.split("\n")
    assert lines[1].startswith("ρ ")
    assert len(lines) <= 8
    assert re.search(r"ImageNet: [\d.]+ % \[[\d.]+ %, [\d.]+ %\], n = 50000", tip)
    assert "published" not in tip
    page.keyboard.press("Enter")
    assert page.locator("ul.found button[aria-pressed=true]").count() == 1
    assert page.evaluate("document.activeElement.id") == "scatter"  # and one can walk on
    assert page.inner_text(".tip") == tip
    page.keyboard.press("ArrowRight")
    assert page.inner_text(".tip") != tip


def test_search_finds_the_exact_name_first_and_says_if_there_is_none(opened: Open) -> None:
    page = opened("view=scatter&shift=imagenet-v2")
    page.fill("[data-name=search]", "resnet50")
    assert page.locator("ul.found button").first.inner_text() == "☆ resnet50"
    page.fill("[data-name=search]", "nothing like it")
    assert "No model’s name has “nothing like it”." in page.inner_text("ul.found")


def test_a_numeric_column_is_filtered_by_range_and_coloured_in_few_groups(
    opened: Open, tmp_path: Path
) -> None:
    from shiftbed.page.report import report as write_report

    bed = sb.published("openclip")
    write_report(bed, tmp_path / "r.html")
    page = opened("view=scatter&colour=param_count", path=tmp_path / "r.html")
    assert 2 <= page.locator("ul.legend li").count() <= 8
    page.click("details.filters summary")
    page.fill("[data-name=from-param_count]", "100")
    page.keyboard.press("Enter")
    page.fill("[data-name=to-param_count]", "400")
    page.keyboard.press("Enter")
    wanted = bed.models.filter(pl.col("param_count").is_between(100, 400))
    assert f"({len(wanted)} of {len(bed.models)} shown)" in page.inner_text("details.filters")
    again = opened(page.evaluate("location.hash.slice(1)"), path=tmp_path / "r.html")
    assert again.input_value("[data-name=from-param_count]") == "100"


def test_zoom_is_in_the_permalink(opened: Open) -> None:
    page = opened("view=scatter&shift=imagenet-v2")
    box = page.locator("#scatter").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 600, box["y"] + 300, steps=4)
    page.mouse.up()
    place = page.evaluate("location.hash.slice(1)")
    assert "range=" in place
    ends = "document.getElementById('scatter').plot.x.low"
    assert opened(place).evaluate(ends) == pytest.approx(page.evaluate(ends), rel=1e-4)
    page.locator("#scatter").dblclick()
    assert "range=" not in page.evaluate("location.hash")


def test_touch(browser: Any, report: Path) -> None:
    """A tap shows what is known, a second one pins; a swipe moves the grid."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    page = context.new_page()
    page.goto(f"{report.as_uri()}#view=scatter&shift=imagenet-v2")
    page.wait_for_selector("body[data-ready]")
    where = (
        "(() => { const c = document.getElementById('scatter'); c.scrollIntoView();"
        " const b = c.getBoundingClientRect(), [x, y] = c.plot.placed[3];"
        " return [b.left + x, b.top + y]; })()"
    )
    page.touchscreen.tap(*page.evaluate(where))
    assert page.locator(".tip").first.is_visible()
    assert "pins" not in page.evaluate("location.hash")
    page.touchscreen.tap(*page.evaluate(where))
    assert "pins" in page.evaluate("location.hash")
    page.goto(f"{report.as_uri()}#view=grid")
    page.reload()
    page.wait_for_selector("body[data-ready=grid]")
    moved = page.evaluate(
        "(() => { const c = document.getElementById('grid'); const send = (type, y) =>"
        " c.dispatchEvent(new PointerEvent(type, {clientX: 250, clientY: y,"
        " pointerType: 'touch', bubbles: true})); send('pointerdown', 700);"
        " send('pointermove', 500); return c.plot.scroll[1]; })()"
    )
    assert moved == 200
    context.close()


def test_the_pages_synthetic_shift_is_that_of_plot(opened: Open) -> None:
    """Page and ``plot`` begin with the same synthetic shift, and the table is the chart's."""
    from shiftbed.results.plot import chart

    drawn = chart("imagenet-testbed-2020", "synthetic")
    page = opened("view=synthetic")
    name = page.locator("[data-name=synthetic] option:checked").inner_text()
    assert drawn.x_title == f"ρ on {name} (points)"
    page.click("details.table summary >> nth=0")
    rows = page.locator("details.table >> nth=0").locator("tbody tr")
    rows.first.wait_for()
    assert abs(rows.count() - len(drawn.names)) <= 1  # the page has one more model
    assert rows.first.locator("td").count() == 4


def test_counts_agree(opened: Open) -> None:
    """Settings and models are counted once, and alike wherever they are."""
    page = opened("view=findings")
    assert "205 models, 213 settings and 39 means of them" in page.inner_text("main")
    page = opened("view=factors")
    assert re.search(r"18\d models, \d{4} rows of model and ID set", page.inner_text("main"))


def test_the_plane_turns_and_is_pythons(opened: Open) -> None:
    page = opened("view=plane")
    before = page.eval_on_selector("#plane", "c => c.toDataURL()")
    box = page.locator("#plane").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 420, box["y"] + 240, steps=4)
    page.mouse.up()
    assert page.eval_on_selector("#plane", "c => c.toDataURL()") != before
    assert "turn=" in page.evaluate("location.hash")
    bed = sb.published("imagenet-testbed-2020")
    ids = ("val", "val-on-objectnet-classes")
    shift = sb.Shift(name="p", kind="natural-dataset", source=ids, target="objectnet-1.0-beta")
    plane = bed.fit(shift, bootstrap=0)
    shown = figures(page, "#plane-equation")
    np.testing.assert_allclose(shown["slope"][0], plane.weights, atol=1e-6)
    np.testing.assert_allclose(shown["r2"][0], plane.r2, atol=1e-6)


def test_a_table_is_saved_as_csv(opened: Open) -> None:
    page = opened("view=scatter&shift=imagenet-v2")
    page.click("details.table summary")
    with page.expect_download() as saving:
        page.click("button.csv")
    text = Path(saving.value.path()).read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert saving.value.suggested_filename == "scatter.csv"
    bed = sb.published("imagenet-testbed-2020")
    rho = {r["model"]: r["effective"] for r in bed.effective_robustness("imagenet-v2").to_dicts()}
    mine = {r["model"]: float(r["rho"]) for r in rows if r["model"] in rho}
    assert len(mine) == len(rho)
    assert max(abs(mine[m] - rho[m]) for m in rho) < 1e-9


def test_rho_of_synthetic_and_natural_shifts(opened: Open) -> None:
    """r of the page is r of ``correlate``, which reproduces taori2020's Table 2."""
    from shiftbed.results.correlation import correlate

    bed = sb.published("imagenet-testbed-2020")
    table = correlate(bed, synthetic=["avg_pgd"], natural=["imagenet-v2"]).frame
    wanted = table.row(0, named=True)
    page = opened("view=synthetic&synthetic=avg_pgd&natural=imagenet-v2")
    said = page.inner_text("#synthetic-r").replace("−", "-")
    assert f"r = {wanted['r']:.3f} over {wanted['n']} models" in said


def test_the_grid_sorts(opened: Open) -> None:
    page = opened("view=grid&sort=imagenet-a")
    page.click("details.table summary")
    page.wait_for_selector("details.table tbody tr")
    column = 1 + sb.published("imagenet-testbed-2020").settings.index("imagenet-a")
    cells = page.eval_on_selector_all(
        f"details.table tbody tr td:nth-child({column + 1})", "c => c.map((e) => e.innerText)"
    )
    values = [float(c) for c in cells if c != "–"]
    assert values == sorted(values, reverse=True)
    assert len(values) > 190


@pytest.mark.parametrize("view", VIEWS)
def test_a_hostile_name_is_shown_and_not_run(opened: Open, view: str) -> None:
    page = opened(f"view={view}")
    page.wait_for_timeout(50)
    assert page.locator("main img").count() == 0
    if view == "findings":
        assert HOSTILE in page.inner_text("main")


def test_the_policy_stops_what_is_not_ours(browser: Any, report: Path) -> None:
    """Even if a script came in, it would not run: nothing but the page's own script may."""
    page = browser.new_page()
    page.goto(report.as_uri())
    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.pwned = 1';"
        " document.body.append(s); }"
    )
    assert page.evaluate("window.pwned") is None
    policy = page.get_attribute("meta[http-equiv=Content-Security-Policy]", "content")
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'")
    page.close()


BROKEN = r"""() => {
  const found = [];
  for (const cell of document.querySelectorAll("table th, table td")) {
    if (!cell.offsetParent) continue;
    const tops = (range) => [...range.getClientRects()].map((r) => Math.round(r.top));
    const lines = (range) => new Set(tops(range)).size;
    const whole = document.createRange();
    whole.selectNodeContents(cell);
    if (cell.matches("td.number") && lines(whole) > 1) found.push(cell.innerText);
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      for (const word of texts.currentNode.data.matchAll(/[^\s_.,\/@=+-]+[_.,\/@=+-]*/g)) {
        const range = document.createRange();
        range.setStart(texts.currentNode, word.index);
        range.setEnd(texts.currentNode, word.index + word[0].length);
        if (lines(range) > 1) found.push(word[0]);
      }
    }
  }
  return found;
}"""
"""Numbers, and parts of words between separators, that are on two lines of a table."""


def test_it_prints_without_cutting(opened: Open) -> None:
    page = opened("view=scatter&shift=imagenet-v2")
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 700, "height": 900})
    right = page.eval_on_selector("#scatter", "c => c.getBoundingClientRect().right")
    assert right <= 700
    for view in ("findings", "leaderboard"):
        page = opened(f"view={view}", media="print")
        page.set_viewport_size({"width": 700, "height": 900})
        widest = page.eval_on_selector_all(
            "table", "all => Math.max(...all.map((t) => t.getBoundingClientRect().right))"
        )
        assert widest <= 700, view
        assert page.eval_on_selector_all("table td", "all => all.length") > 20, view
        assert page.evaluate(BROKEN) == [], view


@pytest.mark.parametrize("number", range(len(CHARTS)))
def test_a_page_of_one_chart_draws_it(opened: Open, tmp_path: Path, number: int) -> None:
    save(CHARTS[number], tmp_path / "one.html")
    page = opened(path=tmp_path / "one.html")
    assert page.locator("nav").is_hidden()
    assert page.locator("main img").count() == 0
    blank = "c => !c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v) => v)"
    assert not any(page.eval_on_selector_all("main .canvas > canvas", f"all => all.map({blank})"))


def test_a_scatter_in_a_page_of_its_own_says_what_was_computed(
    opened: Open, tmp_path: Path, small: sb.Testbed
) -> None:
    bed = small.with_model(HOSTILE, {"id": 0.8, "ood": 0.3})
    chart = scatter(bed, "s", by="architecture", highlight=["m3"], label=0)
    save(chart, tmp_path / "one.html")
    page = opened(path=tmp_path / "one.html")
    assert "conv line (10 models); vit line (10 models)" in page.inner_text("main")
    assert page.inner_text("p.equation >> nth=0") == chart.equations[0]
    order = np.argsort(chart.x_axis.at(chart.x), kind="stable")
    page.focus("#chart-chart")
    page.keyboard.press("ArrowRight")
    at = int(order[0])
    tip = page.inner_text(".tip").replace("−", "-").split("\n")
    assert tip[:2] == [chart.models[at], f"architecture: {chart.group[at]}, fitted"]
    assert f"predicted: {100 * chart.predicted[at]:.2f} %" in tip
    assert any(line.startswith(f"ρ = {100 * chart.effective[at]:+.2f} points [") for line in tip)
    page.click("details.table summary")
    with page.expect_download() as saving:
        page.click("button.csv")
    text = Path(saving.value.path()).read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["model"] for row in rows] == list(chart.models)
    mine = [float(row["rho"]) if row["rho"] else np.nan for row in rows]
    np.testing.assert_allclose(mine, chart.effective)


def test_a_plane_in_a_page_of_its_own_turns(opened: Open, tmp_path: Path) -> None:
    bed = sb.published("openclip")
    ids = ("ImageNet 1k", "CIFAR-10")
    shift = sb.Shift(name="r", kind="natural-dataset", source=ids, target="ImageNet-R")
    save(plane(bed, shift, highlight=[bed.model_names[0]]), tmp_path / "one.html")
    page = opened(path=tmp_path / "one.html")
    before = page.eval_on_selector("#chart-chart", "c => c.toDataURL()")
    page.focus("#chart-chart")
    page.keyboard.press("ArrowRight")
    assert page.eval_on_selector("#chart-chart", "c => c.toDataURL()") != before
    assert "0.887 logit x₁ + 0.303 logit x₂" in page.inner_text("main")
    hover = (
        "c => { const b = c.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; }"
    )
    left, top, wide, high = page.eval_on_selector("#chart-chart", hover)
    for step in range(60):
        page.mouse.move(left + wide * (0.35 + 0.005 * step), top + high * (0.2 + 0.01 * step))
        if page.locator(".tip").is_visible():
            break
    assert "ImageNet-R:" in page.inner_text(".tip")
