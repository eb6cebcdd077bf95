"""Every code block of the documentation runs, and prints what the page shows."""

import json
from pathlib import Path

import pytest

from tests.blocks import blocks, fits, run_page

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
SLOW = (
    "howto/corruption.md",
    "howto/estimate.md",
    "howto/monitor.md",
    "howto/own-model.md",
    "howto/ray.md",
    "howto/store.md",
    "howto/test-set.md",
    "howto/timm.md",
    "howto/train.md",
    "notebook.md",
    "tutorial.md",
)
"""Pages that load torch in several commands; they take ten seconds and more."""


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT / "docs"))


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*deprecated:FutureWarning")  # torch's exporter
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=_name(page), marks=[pytest.mark.slow] if _name(page) in SLOW else [])
        for page in PAGES
    ],
)
def test_page(page, tmp_path):
    for one in run_page(page, tmp_path):
        assert one.code == 0, f"{one.what}\n{one.printed}"
        assert fits(one.shown, one.printed), f"{one.what}\nprints\n{one.printed}"


def test_the_slow_ones_are_there():
    assert set(SLOW) <= {_name(page) for page in PAGES}


def test_the_notebook_is_the_script():
    """Its code cells, in order, are ``examples/notebook.py``; its page shows the same code."""
    made = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(one["source"]) for one in made["cells"] if one["cell_type"] == "code"]
    script = (ROOT / "examples" / "notebook.py").read_text(encoding="utf-8")
    page = [b.code for b in blocks(ROOT / "docs" / "notebook.md") if b.kind == "python"]
    assert _lines("\n".join(cells)) == _lines("".join(page)) == _lines(script)
    assert all(one["outputs"] for one in made["cells"] if "print(" in "".join(one["source"]))


def _lines(code: str) -> list[str]:
    return [line for line in code.splitlines() if line.strip()]


def test_how_tos_have_code_that_runs():
    for page in (ROOT / "docs" / "howto").glob("*.md"):
        kinds = {block.kind for block in blocks(page) if not block.title}
        assert page.stem == "index" or kinds & {"python", "console"}, page


class TestFits:
    def test_a_difference_is_seen(self):
        assert fits("ρ = -0.77\n", "ρ = -0.77  \n\n")
        assert not fits("ρ = -0.77", "ρ = -0.78")
        assert not fits("", "something")
        assert not fits("something", "")

    def test_dots_stand_for_what_varies(self):
        assert fits("… images/s", "1,234 images/s")
        assert not fits("… images/s", "1\n2 images/s")
        assert fits("a\n…\nz", "a\nb\nc\nz")
        assert fits("a\n…\nz", "a\nz")
        assert not fits("a\n…\nz", "a\nb")
