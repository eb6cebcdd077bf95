"""The page of published testbeds joined: what a reader of it sees."""

import re
from pathlib import Path
from typing import Any

import pytest

import shiftbed as sb
from shiftbed.cli.main import app
from shiftbed.page.report import report as write_report
from tests.page.conftest import Open

NAMES = ["imagenet-testbed-2020", "openclip"]


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("joined") / "report.html"
    write_report(NAMES, path)
    return path


def test_the_title_is_short_and_counts_every_model(opened: Open, joined: Path) -> None:
    count = sum(len(sb.published(name).models) for name in NAMES)
    said = opened(path=joined).inner_text("h1")
    assert said == f"{count:,} models: imagenet-testbed-2020, openclip"


def test_shifts_are_called_by_their_titles(opened: Open, joined: Path) -> None:
    page = opened("view=findings", path=joined)
    told = page.inner_text("ol.findings")
    assert "ImageNet-R over ImageNet: " in told
    assert "imagenet-r" not in told
    assert "over ImageNet over" not in told


def test_shifts_of_more_models_come_first(opened: Open, joined: Path) -> None:
    page = opened(path=joined)
    texts = page.eval_on_selector_all("a.card", "all => all.map((a) => a.innerText)")
    counts = [int(found[1]) for one in texts if (found := re.search(r"(\d+) models", one))]
    assert counts[0] > 300
    assert counts[-1] < 210
    assert {c > 300 for c in counts[: sum(c > 300 for c in counts)]} == {True}


def test_kinds_are_listed_in_their_order(opened: Open, joined: Path) -> None:
    page = opened("view=scatter&shift=imagenet-v2", path=joined)
    said = page.eval_on_selector_all("ul.legend li", "all => all.map((li) => li.innerText)")
    assert said[0] == "Standard training"
    assert said[-1] == "Zero-shot"


def test_the_command_below_an_answer_can_be_typed(
    opened: Open, joined: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its ρ is the page's, on the line of the whole ID set too."""
    page = opened("place=val:0.7613,imagenet-r:0.3", path=joined)
    box = page.locator(".placed").first
    words = box.locator("code").inner_text().split()
    assert words[:2] == ["shiftbed", "place"]
    app(words[1:], standalone_mode=False)
    rho = f"{100 * float(box.get_attribute('data-rho')):+.2f}"
    assert rho.replace("-", "−") in capsys.readouterr().out.replace("-", "−")


def test_on_a_phone_cards_are_rows(browser: Any, joined: Path) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(joined.as_uri())
    page.wait_for_selector("body[data-ready]")
    picture, words, card = (
        page.locator(f"a.card >> nth=0 >> {what}").bounding_box()
        for what in ("canvas", "strong", "xpath=.")
    )
    assert picture["x"] + picture["width"] <= words["x"]
    assert card["height"] < 200
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()
