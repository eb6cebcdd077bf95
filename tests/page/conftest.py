"""A real browser for the page: Debian's Chromium, driven by Playwright."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shiftbed as sb
from shiftbed.page.report import report as write_report

Open = Callable[..., Any]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HOSTILE = "</script><img src=x onerror=alert(1)>"
SETTING = "imagenetv2-matched-frequency-format-val"


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    if CHROMIUM is None:
        pytest.skip("no chromium: install Debian's package 'chromium' to test the page in it")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page about the 2020 testbed with one own model of a hostile name."""
    bed = sb.published("imagenet-testbed-2020").with_model(HOSTILE, {"val": 0.7, SETTING: 0.65})
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(bed, path)
    return path


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Open]:
    """Opens the page at a place; afterwards nothing may have gone wrong or gone out."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    errors: list[str] = []
    requests: list[str] = []

    def go(place: str = "", path: Path = report, **media: str) -> Any:
        page = context.new_page()
        if media:
            page.emulate_media(**media)
        page.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else 0)
        page.on("pageerror", lambda e: errors.append(str(e)))
        page.on("dialog", lambda d: errors.append(f"dialog: {d.message}"))
        page.on("request", lambda r: requests.append(r.url))
        page.goto(f"{path.as_uri()}#{place}")
        page.wait_for_selector("body[data-ready]")
        return page

    yield go
    assert errors == []
    assert [url for url in requests if not url.startswith(("file:", "blob:"))] == []
    context.close()
