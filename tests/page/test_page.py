"""The page as a file: what it says, what it may load, and what names can do to it."""

import json
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import shiftbed as sb
from shiftbed.errors import InputError
from shiftbed.page import document
from shiftbed.page.document import chart_json, page, plain, waiting_page
from shiftbed.page.findings import findings
from shiftbed.page.report import report as write_report
from shiftbed.testbed.combine import combine
from tests.page.conftest import HOSTILE, SETTING


def data_of(path):
    text = path.read_text(encoding="utf-8")
    return document.data_of(text), text


def test_the_page_says_what_was_found(tmp_path, imagenet):
    found = write_report(imagenet, tmp_path / "r.html", shifts=["imagenet-v2", "ytbb"])
    data, _ = data_of(tmp_path / "r.html")
    said = " ".join(one["text"] for one in data["findings"])
    assert f"{found.findings.out_of_line['model'].n_unique()} models are out of line" in said
    assert "YTBB-Robust, anchor frames (ID accuracies range over 4.0 points only)" in said
    line = next(s for s in data["shifts"] if s["name"] == "imagenet-v2")
    assert line["line"]["slopes"][0] == pytest.approx(0.9217, abs=1e-4)
    assert line["pattern"] == "increasing"
    assert line["reason"] is None


def test_all_numbers_are_there(report):
    data, text = data_of(report)
    bed = sb.published("imagenet-testbed-2020")
    assert data["settings"] == list(bed.settings)
    at = data["settings"].index("imagenet-r")
    mine = np.array([np.nan if v is None else v for v in data["value"][at][:-1]])
    np.testing.assert_allclose(mine, bed.accuracy("imagenet-r"), atol=1e-11)
    assert len(text.encode()) < 6e6


def test_nothing_is_loaded_from_elsewhere(report):
    _, text = data_of(report)
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", text)
    assert "default-src 'none'" in text
    assert "unsafe-inline" not in text
    assert "unsafe-eval" not in text.split("</head>")[0]
    assert "http://" not in text.split("<script type")[0]


def test_names_are_data(report):
    data, text = data_of(report)
    assert "<img src=x" not in text
    assert HOSTILE in data["models"]["name"]


def test_a_hostile_title_is_escaped():
    text = page(
        {"title": "<b>x</b>", "models": {"name": []}},
    )
    assert "<h1>&lt;b&gt;x&lt;/b&gt;</h1>" in text
    assert "&lt;script&gt;" in waiting_page("<script>")


def test_natural_shifts_by_default(imagenet):
    assert len(findings(imagenet).lines) == 15


def test_shifts_that_cannot_be_fitted_are_reported(imagenet):
    few = imagenet.where("model=*vgg1[16]*")
    found = findings(few)
    assert [name for name, _ in found.not_computed] == ["imagenet-a"]
    assert "too few models" in found.not_computed[0][1]
    with pytest.raises(sb.InputError, match="could be fitted"):
        findings(imagenet.where("model=alexnet"))


def test_own_models_among_published_ones(tmp_path, imagenet):
    own = imagenet.where("model=resnet50").with_model("mine", {"val": 0.7, SETTING: 0.66})
    own = sb.Testbed(
        name="own",
        models=own.models.filter(pl.col("model") == "mine"),
        settings=own.settings,
        value=own.value[-1:],
        n=own.n[-1:],
    )
    found = write_report([imagenet, own], tmp_path / "r.html", shifts=["imagenet-v2"])
    data, _ = data_of(tmp_path / "r.html")
    assert data["models"]["own"][-1]
    assert sum(data["models"]["own"]) == 1
    assert not data["models"]["in_fit_set"][-1]
    assert data["models"]["columns"]["testbed"][-1] == "own"
    assert any(
        text.startswith("mine: ρ in points on ImageNetV2 +") for _, text in found.findings.sentences
    )
    line = imagenet.fit("imagenet-v2", bootstrap=0)
    assert found.frame["slopes"][0].to_list() == pytest.approx(list(line.weights))


def test_testbeds_with_other_names_share_one_scatter(tmp_path, imagenet):
    sources = ["imagenet-testbed-2020", "openclip"]
    found = write_report(sources, tmp_path / "r.html", shifts=["imagenet-v2"])
    data, _ = data_of(tmp_path / "r.html")
    assert [data["titles"].count(title) for title in ("ImageNet", "ImageNetV2")] == [1, 1]
    shift = next(one for one in data["shifts"] if one["name"] == "imagenet-v2")
    x, y = (data["value"][at] for at in (shift["source"][0], shift["target"]))
    both = [i for i in range(len(x)) if x[i] is not None and y[i] is not None]
    judged = [i for i, rho in enumerate(shift["robustness"]["effective"]) if rho is not None]
    assert both == judged
    assert len(both) > 310
    clip = data["models"]["name"].index("ViT-B-32/openai")
    assert shift["robustness"]["effective"][clip] == pytest.approx(0.0571, abs=5e-5)
    assert shift["line"]["n"] == 78
    assert found.to_dict()["notes"] == list(found.notes)
    assert any("32 not" in text for _, text in found.findings.sentences)


def test_own_models_beyond_ten_are_counted(imagenet):
    own = replace(imagenet.where("model=resnet50*"), name="mine")
    found = findings(combine([imagenet, own]), ["imagenet-v2"])
    count = int(np.isfinite(own.accuracy("val") + own.accuracy(SETTING)).sum())
    assert any(text.startswith(f"{count - 4} more of the models") for _, text in found.sentences)
    assert sum(one.level != "note" for one in found.told) <= 8


def test_values_json_has():
    assert plain({"a": np.array([1.0, np.nan]), 1: (np.int64(2), float("inf"))}) == {
        "a": [1.0, None],
        "1": [2, None],
    }


def test_charts_as_json_are_complete():
    from tests.figures.test_charts import CHARTS

    for chart in CHARTS:
        found = chart_json(chart)
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        assert found["type"] in ("heatmap", "curves", "dots", "bars", "panels")


def test_an_opening_of_ones_own(tmp_path, imagenet, capsys):
    from shiftbed.cli.main import app

    words = tmp_path / "opening.txt"
    table = "| a | b |\n|---|---|\n| <i>1</i> | 2 |"
    words.write_text(f"What <b>we</b>\nsay first.\n\n\nThen this.\n\n{table}\n", encoding="utf-8")
    target = tmp_path / "page.html"
    options = ["report", "-s", "imagenet-v2", "-o", str(target), "--opening", str(words)]
    app(options, standalone_mode=False)
    data, text = data_of(target)
    said = data["findings"]
    assert [one["text"] for one in said[:2]] == ["What <b>we</b> say first.", "Then this."]
    assert said[2]["table"] == [["a", "b"], ["<i>1</i>", "2"]]
    assert len(said) > 3
    assert "<b>we</b>" not in text


def test_a_report_says_where_and_what_is_left_out(tmp_path, imagenet):
    made = write_report(imagenet, tmp_path / "r.html", shifts=["imagenet-v2"])
    assert made.size == (tmp_path / "r.html").stat().st_size
    first, *rest = str(made).splitlines()
    assert first == f"wrote {tmp_path / 'r.html'} ({made.size / 1e6:.1f} MB, 1 shift)"
    assert any(line.startswith("Not in it: Reliability (reliability needs") for line in rest)
    assert len(made._repr_html_()) < 2000
    assert json.loads(made.to_json())["missing"][0]["title"] == made.missing[0].title
    assert write_report(imagenet, shifts=["imagenet-v2"]).output is None


def test_each_line_is_fitted_once(imagenet, monkeypatch):
    """A report fits one line per shift, another on the whole ID set where that one is a class
    twin's, and the patterns one through all models of each pair."""
    from collections import Counter

    from shiftbed.analysis import trust
    from shiftbed.results import patterns
    from shiftbed.testbed import record

    fits = Counter()
    tables = []

    def counting(*arrays, models=(), scale="logit", knee=None, **options):
        given = tuple(np.asarray(one).tobytes() for one in arrays)
        fits[options.get("shift", ""), tuple(models), given, knee] += 1
        return real(*arrays, models=models, scale=scale, knee=knee, **options)

    real = record.fit_baseline
    for module in (record, trust):
        monkeypatch.setattr(module, "fit_baseline", counting)
    once = patterns.pattern_table

    def counted(*arguments, **options):
        tables.append(1)
        return once(*arguments, **options)

    monkeypatch.setattr(patterns, "pattern_table", counted)
    write_report(imagenet)
    assert set(fits.values()) == {1}
    assert len([shift for shift, *_ in fits if shift]) == 15 + 5
    assert sum(fits.values()) == 35
    assert tables == [1]


def test_patterns_of_a_table_that_does_not_say_how_many_images(tmp_path):
    rows = [f"m{i},{0.5 + 0.03 * i},{0.4 + 0.03 * i}" for i in range(11)]
    (tmp_path / "t.csv").write_text("\n".join(["model,val,v2", *rows]) + "\n")
    bed = sb.import_results(tmp_path / "t.csv", shifts=["v2=val:v2"])
    made = write_report(bed, tmp_path / "r.html")
    assert "Patterns" not in [one.title for one in made.missing]
    assert data_of(tmp_path / "r.html")[0]["shifts"][0]["pattern"] == "increasing"
    with pytest.raises(sb.InputError, match="a shift is given as NAME=ID:OOD, got 'v2'"):
        sb.import_results(tmp_path / "t.csv", shifts="v2")


def test_too_few_models_for_a_line_of_their_own(tmp_path):
    table = pl.DataFrame({"model": ["mine"], "val": [0.76], "v2": [0.63]})
    own = sb.import_results(table, shifts=["v2=val:v2"], sizes={"val": 50000, "v2": 10000})
    with pytest.raises(InputError, match=r"at least 3, got 1; a testbed before it lends"):
        write_report(own)
    both = write_report(["imagenet-testbed-2020", own], tmp_path / "both.html")
    assert len(both.frame) > 10
