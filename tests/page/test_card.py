"""The card says what the testbed says, in Markdown and HTML that names cannot break."""

import re

import pytest

from shiftbed.errors import InputError
from shiftbed.page.card import card
from shiftbed.results.place import place
from tests.page.conftest import SETTING


def test_numbers_are_those_of_the_testbed(imagenet):
    text = card("resnet50_augmix", imagenet, shifts=["imagenet-v2"]).to_markdown()
    row = imagenet.effective_robustness("imagenet-v2").filter(model="resnet50_augmix").to_dicts()[0]
    assert f"| {100 * row['effective']:+.2f} | {100 * row['low']:+.2f} … " in text
    assert "| ImageNet | 77.54 | 77.17 – 77.90 | 50000 |" in text
    assert "on the line" in text
    assert "Taori" in text
    assert "modelled" in text


def test_a_model_out_of_line_opens_with_it(imagenet):
    text = card("instagram-resnext101_32x16d", imagenet).opening
    assert re.search(r"out of line .* on \d+ of 15 distribution shifts", text)
    assert "imagenet-r (+29.1 points)" in text


def test_a_card_says_what_place_says(imagenet):
    made = card("resnet50", imagenet)
    placed = str(place(imagenet, model="resnet50"))
    assert "imagenet-v2: 0.8 points below the line; ordinary: " in made.to_markdown()
    assert len(made.sentences) == 5
    told = [one for one in made.sentences if one in placed]
    assert told
    for one in made.sentences:
        assert one.split(" (")[0] in made.to_html()
        assert one in str(made)


def test_names_cannot_break_the_tables(imagenet):
    name = "a|b <img src=x onerror=alert(1)> [x](y) `c`\nd"
    bed = imagenet.with_model(name, {"val": 0.7, SETTING: 0.6})
    made = card(name, bed, shifts=["imagenet-v2"])
    assert "<img" not in made.to_html()
    text = made.to_markdown()
    assert r"a\|b \<img src=x onerror=alert(1)\> \[x\](y) \`c\` d" in text
    widths = {line.replace(r"\|", "").count("|") for line in text.splitlines() if line[:1] == "|"}
    assert widths == {6, 10}


def test_a_model_that_was_not_evaluated(imagenet):
    bed = imagenet.with_model("empty", {"greyscale": 0.5})
    with pytest.raises(InputError, match="was evaluated on no shift"):
        card("empty", bed)
    with pytest.raises(InputError, match="unknown model"):
        card("no-such-model", imagenet)


def test_the_level_is_that_of_every_interval(imagenet):
    made = card("resnet50_augmix", imagenet, shifts=["imagenet-v2"], level=0.5)
    line = imagenet.fit("imagenet-v2", bootstrap=0)
    row = imagenet.robustness([line], level=0.5).filter(model="resnet50_augmix")
    assert made.frame["low"].to_list() == row["low"].to_list()
    assert f"{100 * row['low'][0]:+.2f} … " in made.to_markdown()


def test_a_card_is_written_and_shown(imagenet, tmp_path):
    for name, text in (("a.md", "## Robustness of"), ("a.html", "<section>")):
        made = card("resnet50", imagenet, output=tmp_path / name, shifts=["imagenet-v2"])
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(text)
    assert "![ρ by shift, with intervals](a.svg)" in (tmp_path / "a.md").read_text(encoding="utf-8")
    assert made._repr_html_() == (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "Effective robustness ρ" in str(made)
    with pytest.raises(InputError, match=r"written to \.md or \.html, not '\.txt'"):
        card("resnet50", imagenet, output=tmp_path / "a.txt")


def test_the_picture_shows_every_interval(imagenet, tmp_path):
    """Its dots lie on their intervals, in the order of ρ, and it is well-formed."""
    import xml.etree.ElementTree as Tree

    made = card("resnet50_augmix", imagenet)
    svg = Tree.fromstring(made.to_svg())
    circles = [float(c.get("cx")) for c in svg.iter("{http://www.w3.org/2000/svg}circle")]
    rows = made.frame.to_dicts()
    assert len(circles) == len(rows) > 10
    order = sorted(range(len(rows)), key=lambda i: rows[i]["effective"])
    assert [circles[i] for i in order] == sorted(circles)
    assert made.to_svg() in made.to_html()
