"""The glossary of the documentation is that of the page."""

import re
from importlib import resources
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_words_are_explained_alike():
    script = (resources.files("shiftbed") / "page" / "web" / "glossary.js").read_text("utf-8")
    words = re.findall(r'^  \w+: \["([^"]+)", "([^"]+)"\],$', script, re.M)
    assert len(words) == 10
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    for name, said in words:
        assert f"## {name}\n\n{said}\n" in page
