"""What somebody asks who opens the page for the first time, answered within three actions."""

import csv
import io
from pathlib import Path
from typing import Any

import shiftbed as sb
from tests.page.conftest import Open


def on_screen(page: Any) -> str:
    """The text that can be read without scrolling."""
    return str(
        page.evaluate(
            """() => [...document.querySelectorAll("h1, h2, h3, p, li, td, th, dt, dd, .chip")]
            .filter((e) => { const b = e.getBoundingClientRect();
              return b.width && b.top >= 0 && b.bottom <= innerHeight; })
            .map((e) => e.innerText).join("\\n")"""
        )
    )


def test_is_my_model_robust(opened: Open) -> None:
    page = opened()
    assert "Is your model robust?" in on_screen(page)
    page.fill("[data-name=place-0]", "0.7613")
    page.fill("[data-name=place-1]", "0.6321")
    assert "0.8 points below the line; ordinary" in on_screen(page)


def test_which_models_are_robust(opened: Open) -> None:
    """A card leads to the ranking; models out of line come first, or it says that none is."""
    page = opened()
    page.click("[data-card=objectnet]")
    rows = sb.rank("imagenet-testbed-2020", "objectnet").frame
    out = rows.filter("out_of_line")["model"].to_list()
    said = on_screen(page)
    if out:
        assert all(model in page.inner_text("#board") for model in out)
    else:
        assert "is robust on ObjectNet beyond what its accuracy" in said
    assert rows.sort("effective", descending=True)["model"][0] in said
    page = opened()
    page.click("[data-card=imagenet-r]")
    first = page.locator("#board tbody tr").first.inner_text()
    assert "instagram-resnext101_32x16d" in first
    assert "out of line" in first


def test_what_is_this_line(opened: Open) -> None:
    page = opened()
    said = on_screen(page)
    assert "is what 73 baseline models do: their accuracy on" in said
    page.click("ol.sentences a.term >> nth=0")
    said = on_screen(page)
    assert "a straight line through the baseline models" in said
    assert page.locator("dt").count() == 10


def test_every_word_is_linked_where_it_is_first_used(opened: Open) -> None:
    page = opened("place=val:0.7613,imagenet-v2:0.6321")
    linked = page.eval_on_selector_all("a.term", "all => all.map((a) => a.hash)")
    words = {one.split("word=")[1] for one in linked}
    assert {"shift", "id", "ood", "baseline", "line", "rho", "interval", "out"} <= words


def test_a_leaderboard_sorts_searches_and_filters(opened: Open) -> None:
    page = opened("view=leaderboard&shift=imagenet-v2")
    frame = sb.rank("imagenet-testbed-2020", "imagenet-v2").frame
    page.click("[data-name='sort-OOD']")
    best = frame.sort("target", descending=True)["model"][0]
    assert page.locator("#board tbody td.model").first.inner_text() == best
    page.click("[data-name='sort-OOD']")
    worst = frame.sort("target")["model"][0]
    assert page.locator("#board tbody td.model").first.inner_text() == worst
    page = opened("view=leaderboard&shift=imagenet-v2")
    page.fill("[data-name=search]", "resnet50")
    assert page.locator("#board tbody td.model").first.inner_text() == "resnet50"
    page.fill("[data-name=search]", "no such model")
    assert "No model’s name has “no such model”." in page.inner_text("main")
    page.fill("[data-name=search]", "")
    page.select_option("[data-name=verdict]", "out of line")
    out = set(frame.filter("out_of_line")["model"])
    shown = set(page.locator("#board tbody td.model").all_inner_texts())
    assert out <= shown
    assert len(shown - out) <= 1  # the page has one more model


def test_columns_are_chosen_and_the_csv_has_them_all(opened: Open) -> None:
    page = opened("view=leaderboard&shift=imagenet-v2")
    page.click("details.columns summary")
    page.check("[data-column=architecture]")
    page.uncheck("[data-column=year]")
    again = opened(page.evaluate("location.hash.slice(1)"))
    heads = again.locator("#board th").all_inner_texts()
    assert "architecture" in heads
    assert "year" not in heads
    with again.expect_download() as saving:
        again.click("button.csv")
    text = Path(saving.value.path()).read_text(encoding="utf-8")
    rows = {row["model"]: row for row in csv.DictReader(io.StringIO(text))}
    frame = sb.rank("imagenet-testbed-2020", "imagenet-v2").frame
    for want in frame.head(20).to_dicts():
        row = rows[want["model"]]
        assert abs(float(row["rho"]) - want["effective"]) < 1e-6
        assert abs(float(row["low"]) - want["low"]) < 1e-6
        assert row["verdict"] == want["verdict"]
    assert rows["resnet50"]["year"] == "2016"


def test_an_authors_table_is_a_table_on_the_first_screen_too(opened: Open, tmp_path: Path) -> None:
    """Folded, so that the form and the chart stay on it."""
    target = tmp_path / "page.html"
    words = ["We looked.", "| Verdict | Finding |\n|---|---|\n| holds | a <i>line</i> |"]
    sb.report("imagenet-testbed-2020", target, shifts=["imagenet-v2"], opening=words)
    page = opened(path=target)
    assert "We looked." in on_screen(page)
    assert "|" not in on_screen(page)
    page.click("summary:has-text('Verdict')")
    assert page.locator(".opening td").all_inner_texts() == ["holds", "a <i>line</i>"]


def test_every_view_says_what_it_answers(opened: Open) -> None:
    page = opened()
    links = page.locator("nav a")
    questions = [links.nth(k).get_attribute("title") for k in range(links.count())]
    assert len(questions) > 10
    assert all(question and question.endswith("?") for question in questions)
    page = opened("view=severities")
    assert "Which corruptions hurt, and how fast?" in on_screen(page)


def test_a_verdict_says_on_which_side(opened: Open) -> None:
    page = opened("view=leaderboard&shift=imagenet-v2&verdict=out+of+line")
    rho = page.locator("#board tbody tr td:nth-child(4)").all_inner_texts()
    chips = page.locator("#board tbody .chip").all_inner_texts()
    assert {text[0] for text in rho} == {"+", "−"}
    assert chips == [f"{'▲' if text[0] == '+' else '▼'} out of line" for text in rho]


def test_names_in_the_first_chart_lie_over_no_other(opened: Open) -> None:
    """The name of the line and ρ among them, where there is room."""
    page = opened("place=val:0.7613,imagenet-v2:0.6321")
    boxes = page.evaluate("document.getElementById('overview').plot.taken")
    assert len(boxes) >= 5
    over = [
        (a, b)
        for i, a in enumerate(boxes)
        for b in boxes[:i]
        if a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]
    ]
    assert over == []
