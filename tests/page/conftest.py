"""A real browser for the page: Debian's Chromium, driven by Playwright."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import shiftbed as sb
from shiftbed.page.report import report as write_report

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
