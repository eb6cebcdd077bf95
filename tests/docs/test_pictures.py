"""Pictures of the documentation: all are there, and as new as the page they show."""

import re
from pathlib import Path

import numpy as np
from PIL import Image, ImageColor

from tools import screenshots

ROOT = Path(__file__).parents[2]


def test_the_pictures_are_of_the_page_as_it_is():
    """``python -m tools.screenshots`` takes them anew."""
    taken = (screenshots.IMAGES / "sources.sha256").read_text(encoding="utf-8").strip()
    assert taken == screenshots.digest(), "older than the page: run python -m tools.screenshots"


def test_the_gallery_is_drawn_as_it_would_be_now():
    taken = (screenshots.IMAGES / "gallery.sha256").read_text(encoding="utf-8").strip()
    assert taken == screenshots.gallery_digest(), "older: run python -m tools.screenshots"


def test_every_plot_line_of_the_gallery_has_its_picture_and_none_is_large():
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    names = [name for _, name in screenshots.gallery_lines()]
    assert names == re.findall(r"images/gallery/([\w-]+)\.png", text)
    folder = screenshots.IMAGES / "gallery"
    assert {path.stem for path in folder.glob("*.png")} == set(names)
    for name in names:
        assert 2000 < (folder / f"{name}.png").stat().st_size <= screenshots.LARGEST


FIGURES = {
    "taori2020": "1 2 3 4 5 6 7 9 10 11 12 14 15 16 17 22 23 24 25 30 31",
    "shi2023": "1 2 3 4 5",
    "andreassen2021": "1 2 3 4 5 6 7 8 15 16 17 19 20 21 22 23 24 25",
    "fridovich2022": "2 3 4 5 8 9 10",
    "wenzel2022": "1 2 3 4 5 S1 S2 S4 S5 S6 S8 S9 S10 S11",
}
"""Figures that are charts, as the papers number them; of ranges the ends."""


def test_every_figure_of_the_papers_is_named():
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    for part in re.split(r"^## ", text, flags=re.M)[1:]:
        paper = part.partition(":")[0]
        numbers = set(re.findall(r"\bS?\d+\b", part.replace("Figure", " Figure ")))
        assert set(FIGURES.get(paper, "").split()) <= numbers, paper


def test_few_colours_keep_those_of_kinds_of_models(tmp_path):
    """Some pixels of each of many colours: a palette by frequency alone would change them."""
    wanted = ["#0072B2", "#BE8300", "#009E73", "#CC79A7", "#D55E00"]
    picture = Image.linear_gradient("L").resize((600, 400)).convert("RGB")
    for at, colour in enumerate(wanted):
        picture.paste(colour, (10 + 20 * at, 10, 14 + 20 * at, 14))
    screenshots.shrink(picture, tmp_path / "a.png")
    kept = Image.open(tmp_path / "a.png").convert("RGB")
    for at, colour in enumerate(wanted):
        found = np.array(kept.getpixel((11 + 20 * at, 11)), dtype=int)
        assert np.abs(found - ImageColor.getrgb(colour)).max() <= 8


def test_every_picture_is_made_by_the_script_and_shown():
    """None is left over, none comes from elsewhere."""
    made = {f"gallery/{name}" for _, name in screenshots.gallery_lines()}
    made |= {name.removeprefix("../") for _, name in screenshots.TUTORIAL} | {"notebook"}
    views = [*screenshots.IMAGENET, *screenshots.STORE, *screenshots.PROBES]
    made |= {f"report/{view}-{width}" for view in views for width in screenshots.WIDTHS}
    there = screenshots.IMAGES.rglob("*.png")
    assert {p.relative_to(screenshots.IMAGES).with_suffix("").as_posix() for p in there} == made
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    for options, name in screenshots.TUTORIAL:
        assert f"shiftbed plot {options} -o" in tutorial
        assert f"images/{name.removeprefix('../')}.png" in tutorial
