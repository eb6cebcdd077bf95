"""What groups look like."""

from shiftbed.figures.palette import OTHER, styles, trend_colours


def test_no_two_groups_look_alike() -> None:
    names = ["standard", "a", "lp-adversarial", "b", "c", "d", OTHER, "own"]
    looks = styles(names)
    assert len({style.colour for style in looks.values()}) == len(names)
    assert len({style.marker for style in looks.values()}) == len(names)
    assert looks["standard"] == styles(["standard"])["standard"]


def test_lines_of_another_column_have_colours_of_their_own() -> None:
    colours = trend_colours(["a line", "b line"], ["standard"])
    assert len(set(colours.values())) == 2
