"""``shiftbed predictiveness`` and ``effects`` as a user meets them."""

import json

import polars as pl
import pytest

from shiftbed.cli.tablefile import write_table
from shiftbed.tables.pairs import long_table
from tests.analysis.test_effects import study as augmented
from tests.cli.test_cli import as_json, shiftbed


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    import numpy as np

    path = tmp_path_factory.mktemp("study") / "study.parquet"
    write_table(long_table(augmented(np.random.default_rng(0), effect=0.04, sets=8)), path)
    return str(path)


def test_predictiveness_of_a_published_testbed(tmp_path):
    table, figure = tmp_path / "scores.csv", tmp_path / "scores.svg"
    found = as_json(
        "predictiveness", "imagenet-testbed-2020", "-o", str(table), "--figure", str(figure)
    )
    assert len(found["pairs"]) == 15
    assert found["matrix"]["metrics"][0] == "id:error"
    rows = {row["metric"]: row for row in found["scores"]}
    assert rows["id:error"]["r"] == pytest.approx(0.956, abs=5e-4)
    assert rows["held-out:error"]["pairs"] == 12
    size = len(found["matrix"]["metrics"])
    assert [len(row) for row in found["matrix"]["r"]] == [size] * size
    written = pl.read_csv(table)
    assert written["r"].to_list() == pytest.approx([row["r"] for row in found["scores"]])
    assert "<svg" in figure.read_text()


def test_upstream_and_transfer(file):
    done = shiftbed("predictiveness", "timm", "--upstream", "model", "--show", "transfer")
    assert done.returncode == 0, done.stderr
    assert "held-out" in done.stdout
    done = shiftbed("predictiveness", file, "--upstream", "architecture")
    assert done.returncode == 2
    assert "backbone in timm 'ViT'" in done.stderr


def test_a_plain_file_by_task(file):
    found = as_json("predictiveness", file, "--by", "task", "--method", "pearson")
    assert found["method"] == "pearson"
    assert {row["task"] for row in found["groups"]} == {"t"}
    assert found["notes"] == []


def test_effects_of_an_augmentation(file, tmp_path):
    sides = ["--column", "augmentation", "--of", "RandAugment", "--of", "AugMix"]
    table = tmp_path / "effects.json"
    found = as_json("effects", file, *sides, "--against", "none", "-o", str(table))
    assert found["alternative"] == "RandAugment + AugMix is lower (better) than none"
    row = found["rows"][1]
    assert (row["metric"], row["n"], row["networks"]) == ("ood:error", 8, 32)
    assert row["p_value"] == pytest.approx(2**-8)
    assert json.loads(table.read_text()) == found["rows"]
    printed = shiftbed("effects", file, *sides, "--against", "none").stdout
    assert "alternative: RandAugment + AugMix is lower (better) than none" in printed


@pytest.mark.parametrize("show", ["architectures", "difficulty"])
def test_the_other_tables(file, show, tmp_path):
    figure = tmp_path / "figure.html"
    found = as_json("effects", file, "--show", show, "--figure", str(figure))
    assert found["rows"]
    assert figure.stat().st_size > 1000
    printed = shiftbed("effects", file, "--show", show)
    assert printed.returncode == 0, printed.stderr


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["predictiveness", "nowhere.csv"], "no such file or store"),
        (["predictiveness", "FILE", "--show", "score"], "did you mean 'scores'"),
        (["predictiveness", "FILE", "-o", "x.txt"], ".parquet, .csv, .json"),
        (["predictiveness", "FILE", "--figure", "x.gif"], "a figure is written to"),
        (["predictiveness", "FILE", "--task", "u"], "unknown task 'u'"),
        (["predictiveness", "FILE", "--target", "ood:eror"], "did you mean 'ood:error'"),
        (["predictiveness", "FILE", "--also", "x"], "for a testbed only"),
        (["predictiveness", "FILE", "--by", "kind"], "no pair of this study has a type of shift"),
        (["effects", "FILE"], "needs --column with --of and --against"),
        (["effects", "FILE", "--show", "difficulty", "--of", "x"], "--of does not go with"),
        (["effects", "FILE", "--show", "tables"], "unknown table"),
    ],
)
def test_bad_input_is_one_line_and_code_2(file, arguments, match):
    done = shiftbed(*(file if word == "FILE" else word for word in arguments))
    assert done.returncode == 2
    assert match in done.stderr
    assert done.stderr.count("\n") == 1
