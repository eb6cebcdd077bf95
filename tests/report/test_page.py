import re

import pytest

import shiftbed as sb
from shiftbed.report import findings, write_report


def test_the_page_says_what_was_found(tmp_path, imagenet):
    found = write_report(imagenet, tmp_path / "r.html", shifts=["imagenet-v2", "imagenet-r"])
    text = (tmp_path / "r.html").read_text()
    assert f"{found.out_of_line['model'].n_unique()} models are out of line" in text
    assert "imagenet-r (R² 0.89)" in text
    assert "0.9217" in text
    assert text.count('class="chart"') == 2


def test_nothing_is_loaded_from_elsewhere(tmp_path, imagenet):
    write_report(imagenet, tmp_path / "r.html", shifts=["imagenet-v2"])
    text = (tmp_path / "r.html").read_text()
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", text)
    assert "default-src 'none'" in text


def test_names_are_data(tmp_path, imagenet):
    hostile = "</script><img src=x onerror=alert(1)>"
    setting = "imagenetv2-matched-frequency-format-val"
    bed = imagenet.with_model(hostile, {"val": 0.7, setting: 0.9})
    write_report(bed, tmp_path / "r.html", shifts=["imagenet-v2"])
    text = (tmp_path / "r.html").read_text()
    assert "<img src=x" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text


def test_natural_shifts_by_default(imagenet):
    assert len(findings(imagenet).lines) == 15


def test_shifts_that_cannot_be_fitted_are_reported(imagenet):
    few = imagenet.where("model=*vgg1[16]*")
    found = findings(few)
    assert [name for name, _ in found.not_computed] == ["imagenet-a"]
    assert "too few models" in found.not_computed[0][1]
    with pytest.raises(sb.InputError, match="could be fitted"):
        findings(imagenet.where("model=alexnet"))
