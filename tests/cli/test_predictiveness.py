"""``shiftbed predictiveness`` and ``effects`` as a user meets them."""

import json

import numpy as np
import polars as pl
import pytest

from shiftbed.cli.main import app
from shiftbed.cli.tablefile import write_table
from shiftbed.errors import InputError
from shiftbed.results.pairs import long_table
from tests.analysis.test_effects import study as augmented
from tests.cli.test_cli import shiftbed


@pytest.fixture
def run(capsys):
    """A command in this process: what it prints."""

    def printed(*arguments: str) -> str:
        app([*arguments], standalone_mode=False)
        return capsys.readouterr().out

    return printed


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "study.parquet"
    write_table(long_table(augmented(np.random.default_rng(0), effect=0.04, sets=8)), path)
    return str(path)


def test_predictiveness_of_a_published_testbed(run, tmp_path):
    table, figure = tmp_path / "scores.csv", tmp_path / "scores.svg"
    files = ["-o", str(table), "--figure", str(figure)]
    found = json.loads(run("predictiveness", "imagenet-testbed-2020", *files, "--json"))
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


def test_upstream_and_transfer(run, file):
    printed = run("predictiveness", "timm", "--upstream", "model", "--show", "transfer")
    assert "held-out" in printed
    found = json.loads(run("predictiveness", "timm", "--upstream", "model", "--json"))
    assert "upstream:real" in found["matrix"]["metrics"]


def test_an_error_in_a_process_of_its_own(file):
    done = shiftbed("predictiveness", file, "--upstream", "architecture")
    assert done.returncode == 2
    assert "backbone in timm 'ViT'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_plain_file_by_task(run, file):
    options = ["--by", "task", "--method", "pearson", "--json"]
    found = json.loads(run("predictiveness", file, *options))
    assert found["method"] == "pearson"
    assert {row["task"] for row in found["groups"]} == {"t"}
    assert found["notes"] == []


def test_effects_of_an_augmentation(run, file, tmp_path):
    sides = ["--column", "augmentation", "--of", "RandAugment", "--of", "AugMix"]
    table = tmp_path / "effects.json"
    sides += ["--against", "none"]
    found = json.loads(run("effects", file, *sides, "-o", str(table), "--json"))
    assert found["alternative"] == "RandAugment + AugMix is lower (better) than none"
    row = found["rows"][1]
    assert (row["metric"], row["n"], row["networks"]) == ("ood:error", 8, 32)
    assert row["p_value"] == pytest.approx(2**-8)
    assert json.loads(table.read_text()) == found["rows"]
    printed = run("effects", file, *sides)
    assert "alternative: RandAugment + AugMix is lower (better) than none" in printed


@pytest.mark.parametrize("show", ["architectures", "difficulty"])
def test_the_other_tables(run, file, show, tmp_path):
    figure = tmp_path / "figure.html"
    found = json.loads(run("effects", file, "--show", show, "--figure", str(figure), "--json"))
    assert found["rows"]
    assert figure.stat().st_size > 1000
    assert "gap" in run("effects", file, "--show", show)


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
def test_bad_input_is_one_line(file, arguments, match):
    with pytest.raises(InputError) as error:
        app([file if word == "FILE" else word for word in arguments], standalone_mode=False)
    assert match in str(error.value)
    assert "\n" not in str(error.value)
