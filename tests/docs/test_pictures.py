"""Pictures of the documentation: all are there, and as new as the page they show."""

import re
from pathlib import Path

from tools import screenshots

ROOT = Path(__file__).parents[2]


def test_the_pictures_are_of_the_page_as_it_is():
    """``python -m tools.screenshots`` takes them anew."""
    taken = (screenshots.IMAGES / "sources.sha256").read_text(encoding="utf-8").strip()
    assert taken == screenshots.digest(), "older than the page: run python -m tools.screenshots"


def test_every_plot_line_of_the_gallery_has_its_picture():
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    names = [name for _, name in screenshots.LINE.findall(text)]
    assert len(names) >= 10
    assert names == re.findall(r"images/gallery/([\w-]+)\.png", text)
    for name in names:
        assert (screenshots.IMAGES / "gallery" / f"{name}.png").stat().st_size > 2000
