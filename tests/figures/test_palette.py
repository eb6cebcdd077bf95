"""What groups look like."""

import re
from importlib import resources

from shiftbed.figures.palette import KINDS, LINE, OTHER, OWN, styles, trend_colours

WEB = resources.files("shiftbed") / "page" / "web"


def luminance(colour: str) -> float:
    """WCAG 2: of an sRGB colour."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_page_has_the_same_colours_which_can_be_seen_on_both_papers() -> None:
    script, css = ((WEB / name).read_text("utf-8") for name in ("looks.js", "style.css"))
    looks = styles([*KINDS, OWN])
    for kind, style in looks.items():
        assert style.colour in script, kind
        assert style.label in script, kind
    assert set(re.findall(r"--line: (#\w+)", css)) == {LINE}
    papers = [luminance(one) for one in re.findall(r"--paper: (#\w+)", css)]
    for colour in [LINE, *(style.colour for style in looks.values())]:
        for paper in papers:
            low, high = sorted([luminance(colour), paper])
            assert (high + 0.05) / (low + 0.05) >= 3, (colour, paper)


def test_no_two_groups_look_alike() -> None:
    names = ["standard", "a", "lp-adversarial", "b", "c", "d", OTHER, "own"]
    looks = styles(names)
    assert len({style.colour for style in looks.values()}) == len(names)
    assert len({style.marker for style in looks.values()}) == len(names)
    assert looks["standard"] == styles(["standard"])["standard"]


def test_lines_of_another_column_have_colours_of_their_own() -> None:
    colours = trend_colours(["a line", "b line"], ["standard"])
    assert len(set(colours.values())) == 2
