"""The card says what the testbed says, in Markdown and HTML that names cannot break."""

import re

import pytest

from shiftbed.errors import InputError
from shiftbed.page.card import card, to_html, to_markdown
from tests.page.conftest import SETTING


def test_numbers_are_those_of_the_testbed(imagenet):
    text = to_markdown(card(imagenet, "resnet50_augmix", shifts=["imagenet-v2"]))
    row = imagenet.effective_robustness("imagenet-v2").filter(model="resnet50_augmix").to_dicts()[0]
    assert f"| {100 * row['effective']:+.2f} | {100 * row['low']:+.2f} … " in text
    assert "| val | 77.54 | 77.17 – 77.90 | 50000 |" in text
    assert "on the line" in text
    assert "Taori" in text
    assert "conservative" in text


def test_a_model_out_of_line_opens_with_it(imagenet):
    text = card(imagenet, "instagram-resnext101_32x16d").opening
    assert re.search(r"out of line .* on \d+ of 15 distribution shifts", text)
    assert "imagenet-r (+29.1 points)" in text


def test_names_cannot_break_the_tables(imagenet):
    name = "a|b <img src=x onerror=alert(1)> [x](y) `c`\nd"
    bed = imagenet.with_model(name, {"val": 0.7, SETTING: 0.6})
    made = card(bed, name, shifts=["imagenet-v2"])
    assert "<img" not in to_html(made)
    text = to_markdown(made)
    assert r"a\|b \<img src=x onerror=alert(1)\> \[x\](y) \`c\` d" in text
    widths = {line.replace(r"\|", "").count("|") for line in text.splitlines() if line[:1] == "|"}
    assert widths == {6, 10}


def test_a_model_that_was_not_evaluated(imagenet):
    bed = imagenet.with_model("empty", {"greyscale": 0.5})
    with pytest.raises(InputError, match="was evaluated on no shift"):
        card(bed, "empty")
    with pytest.raises(InputError, match="unknown model"):
        card(imagenet, "no-such-model")
