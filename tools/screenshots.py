"""Pictures of every view of the page, at two widths, for docs/images/report.

    python -m tools.screenshots [FOLDER]

Makes the page of the 2020 testbed and of a small store of digits (for the charts that need
predictions per image), opens each view in headless Chromium at 1280 and 390 pixels, and writes
compressed pictures, less than 2 MB together.
"""

import argparse
import shutil
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

import shiftbed as sb
from shiftbed.page.report import report

IMAGENET = {
    "findings": "view=findings",
    "scatter": "view=scatter&shift=imagenet-r&bars=yes"
    '&pins=["instagram-resnext101_32x16d","resnet50_augmix"]',
    "plane": "view=plane",
    "grid": "view=grid",
    "relative": "view=relative&shift=imagenet-r&parent=resnet50",
    "synthetic": "view=synthetic",
    "multiples": "view=multiples",
    "severities": "view=severities",
    "predictiveness": "view=predictiveness",
    "factors": "view=factors",
    "patterns": "view=patterns",
}
STORE = {
    "similarity": "view=similarity",
    "reliability": "view=reliability",
    "trajectories": "view=trajectories",
}
PROBES = {"probes": "view=probes"}
WIDTHS = (1280, 390)
TALLEST = 1500


def take(browser: Any, path: Path, views: dict[str, str], folder: Path) -> None:
    for width in WIDTHS:
        context = browser.new_context(viewport={"width": width, "height": 900})
        for name, place in views.items():
            page = context.new_page()
            page.goto(f"{path.as_uri()}#{place}")
            page.wait_for_selector("body[data-ready]")
            if page.get_attribute("body", "data-ready") == name:
                page.wait_for_timeout(200)
                picture = Image.open(BytesIO(page.screenshot(full_page=True)))
                picture = picture.crop((0, 0, width, min(picture.height, TALLEST)))
                target = folder / f"{name}-{width}.png"
                picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(
                    target, optimize=True
                )
                print(f"wrote {target} ({target.stat().st_size // 1024} kB)")
            page.close()
        context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="docs/images/report", type=Path)
    parser.add_argument("--store", help="a prediction store for the charts that need one")
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("needs Debian's package chromium")
    from playwright.sync_api import sync_playwright

    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        pages: list[tuple[Any, dict[str, str]]] = [
            (sb.published("imagenet-testbed-2020"), IMAGENET),
            (sb.published("robustnets-2022"), PROBES),
        ]
        if options.store:
            pages.append((options.store, STORE))
        for number, (source, views) in enumerate(pages):
            path = Path(made) / f"{number}.html"
            report(source, path)
            take(browser, path, views, options.folder)
        browser.close()
    total = sum(f.stat().st_size for f in options.folder.glob("*.png"))
    print(f"{total / 1e6:.2f} MB together")
    if total > 2e6:
        sys.exit("more than 2 MB")


if __name__ == "__main__":
    main()
