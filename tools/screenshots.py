"""Every picture of the README and the documentation: views of the page, and the gallery.

    python -m tools.screenshots [--store STORE] [--only report|gallery|notebook] [--name TEXT]

Makes the page of the 2020 testbed, and of a store (for the charts that need predictions per
image, if one is given), opens each view in headless Chromium at 1280 and 390 pixels, and writes
compressed pictures to docs/images/report, less than 2.5 MB together; runs every plot line of
docs/gallery.md into docs/images/gallery (STORE in place of the one that ``make demo`` leaves;
``tools.heads`` makes the other), and those of the tutorial into docs/images/digits; runs the
notebook (``tools.notebook``). Two files of hashes say of which sources the pictures are:
docs/images/sources.sha256 of the page's, gallery.sha256 of the gallery's lines and what draws
them.
"""

import argparse
import hashlib
import re
import shlex
import shutil
import sys
import tempfile
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

import shiftbed as sb
from shiftbed.page.report import report
from tools import notebook

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
LINE = re.compile(r"^shiftbed plot (.*) -o ([\w-]+)\.svg$", re.M)
IMAGENET = {
    "start": "place=val:0.7613,imagenet-v2:0.6321",
    "leaderboard": "view=leaderboard&shift=imagenet-r",
    "glossary": "view=glossary",
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
WIDEST, LARGEST = 1280, 300_000
DEMO = "demo/digits/store"
"""The store that ``make demo`` leaves, as the gallery's lines name it."""
TUTORIAL = (
    (f"--testbed {DEMO} --shift digits", "../digits/scatter"),
    (f"--testbed {DEMO} --shift digits --chart trajectories", "../digits/trajectories"),
)
"""Plot lines of docs/tutorial.md, and their pictures from the gallery's folder."""
HEADS = "demo/heads/store"
"""The store that ``tools.heads`` makes, likewise."""


def take(browser: Any, path: Path, views: dict[str, str], folder: Path) -> None:
    for width in WIDTHS:
        context = browser.new_context(viewport={"width": width, "height": 900})
        for name, place in views.items():
            page = context.new_page()
            page.goto(f"{path.as_uri()}#{place}")
            page.wait_for_selector("body[data-ready]")
            if page.get_attribute("body", "data-ready") == name:
                page.wait_for_timeout(700)  # what is below the fold is drawn when idle
                picture = Image.open(BytesIO(page.screenshot(full_page=True)))
                picture = picture.crop((0, 0, width, min(picture.height, TALLEST)))
                target = folder / f"{name}-{width}.png"
                shrink(picture, target)
            page.close()
        context.close()


def digest() -> str:
    """Of the sources that decide what the page looks like."""
    found = hashlib.sha256()
    for path in sorted((ROOT / "src" / "shiftbed" / "page" / "web").iterdir()):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def gallery_digest() -> str:
    """Of the gallery's and the tutorial's lines and the sources that draw them."""
    drawing = ROOT / "src" / "shiftbed" / "figures"
    found = hashlib.sha256("\n".join(map(str, [*gallery_lines(), *TUTORIAL])).encode())
    for path in sorted(drawing.glob("*.py")):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def gallery_lines() -> list[tuple[str, str]]:
    """Options and names of the plot lines of docs/gallery.md."""
    return LINE.findall((ROOT / "docs" / "gallery.md").read_text(encoding="utf-8"))


def gallery(folder: Path, store: str | None, only: str) -> None:
    """Every plot line of the gallery's page, as a picture of 110 dots an inch."""
    from shiftbed.cli.main import app

    folder.mkdir(parents=True, exist_ok=True)
    lines = gallery_lines()
    for old in {path.stem for path in folder.glob("*.png")} - {name for _, name in lines}:
        (folder / f"{old}.png").unlink()
    for options, name in (*lines, *TUTORIAL):
        target = folder / f"{name}.png"
        if only not in name:
            continue
        words = [store if store and word == DEMO else word for word in shlex.split(options)]
        words = [str(of_heads()) if word == HEADS else word for word in words]
        if DEMO in words and not Path(DEMO).is_dir():
            sys.exit(f"{name} needs {DEMO}: run make demo, or give another --store")
        app(["plot", *words, "-o", str(target), "--dpi", "110"], standalone_mode=False)
        shrink(Image.open(target), target)


@cache
def of_heads() -> Path:
    """The store of whole networks and heads; trained now where it is not there."""
    from tools import heads

    there = Path(HEADS)
    return there if there.is_dir() else heads.make(Path(tempfile.mkdtemp()))


def shrink(picture: Image.Image, target: Path) -> None:
    picture.thumbnail((WIDEST, WIDEST * 4))
    few = picture.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE)  # rare colours stay
    few.save(target, optimize=True)
    size = target.stat().st_size
    print(f"wrote {target} ({size // 1024} kB)")
    if size > LARGEST:
        sys.exit(f"{target}: more than {LARGEST // 1000} kB")


def views(folder: Path, store: str | None) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("needs Debian's package chromium")
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        pages: list[tuple[Any, dict[str, str]]] = [
            (sb.published("imagenet-testbed-2020"), IMAGENET),
            (sb.published("robustnets-2022"), PROBES),
        ]
        if store:
            pages.append((store, STORE))
        for number, (source, places) in enumerate(pages):
            path = Path(made) / f"{number}.html"
            report(source, path)
            take(browser, path, places, folder)
        browser.close()
    total = sum(f.stat().st_size for f in folder.glob("*.png"))
    print(f"{total / 1e6:.2f} MB together")
    if total > 2.5e6:
        sys.exit("more than 2.5 MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--store",
        default=DEMO if Path(DEMO).is_dir() else None,
        help=f"a prediction store for the charts that need one (default: {DEMO})",
    )
    parser.add_argument("--only", choices=("report", "gallery", "notebook"))
    parser.add_argument("--name", default="", help="of the gallery: pictures with this in the name")
    options = parser.parse_args()
    if options.only in (None, "gallery"):
        gallery(IMAGES / "gallery", options.store, options.name)
        if not options.name:
            (IMAGES / "gallery.sha256").write_text(gallery_digest() + "\n", encoding="utf-8")
    if options.only in (None, "report"):
        views(IMAGES / "report", options.store)
        (IMAGES / "sources.sha256").write_text(digest() + "\n", encoding="utf-8")
    if options.only in (None, "notebook"):
        notebook.main()


if __name__ == "__main__":
    main()
