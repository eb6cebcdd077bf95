"""``shiftbed difficulty`` and ``transfer``, as a user meets them."""

import json
import shutil

import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_digits

from shiftbed.training.train import train
from tests.cli.in_process import shiftbed
from tests.training.places import GRID, HEAD, place

SETTINGS = '[[settings]]\ntest_set = "test"\ncorruptions = ["contrast:2-3", "gaussian_noise:3"]\n'
AUGMENTED = (
    'augmentation = ["none", {name = "corruption", names = "contrast", severities = [[2, 3]]}]\n'
)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("transfer")
    head = HEAD + SETTINGS + '[[settings]]\ntest_set = "faint"\n'
    path = place(folder, GRID + AUGMENTED, head)
    assert not train(path, allow_code=True).failed
    return path


def test_scores_are_written_and_a_recipe_trains_on_the_hardest(recipe, tmp_path):
    folder = recipe.parent
    done = shiftbed(
        *("difficulty", str(recipe), "digits", "--model", "python:net.py:build()"),
        *("-o", str(folder / "scores.csv"), "--repeats", "2", "--epochs", "3", "--lr", "0.01"),
        "--json",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    per_class = np.bincount(load_digits().target[:600])
    left = 600 - int(np.floor(0.1 * per_class + 0.5).sum())  # without what is held out
    assert (found["n"], found["models_per_example"]) == (left, 2)
    table = pl.read_csv(folder / "scores.csv")
    assert len(table) == left
    assert table["example"].str.starts_with("digits/").all()
    assert found["mean_score"] == pytest.approx(table["score"].mean())
    hard = 'data = {name = "digits", difficulty = {scores = "scores.csv", count = 6}}'
    shutil.copy(folder / "scores.csv", tmp_path)
    other = place(tmp_path, GRID.replace('data = "digits"', hard))
    assert not train(other, allow_code=True).failed


def test_the_grid_with_gains(recipe):
    done = shiftbed("transfer", "store", "--json", cwd=recipe.parent)
    assert done.returncode == 0, done.stderr
    rows = {(r["trained_on"], r["tested_on"]): r for r in json.loads(done.stdout)}
    own = rows["contrast:2/3", "contrast"]
    assert (own["severities"], own["models"], own["n"]) == (2, 1, 397)
    assert own["gain_low"] < own["gain"] < own["gain_high"]
    assert rows["none", "clean"]["gain"] is None
    picture = recipe.parent / "grid.svg"
    shown = shiftbed("transfer", "store", "-o", picture, "--value", "gain", cwd=recipe.parent)
    assert shown.returncode == 0, shown.stderr
    assert "contrast:2/3" in shown.stdout
    assert picture.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("transfer", "nowhere"), "no prediction store there"),
        (
            ("difficulty", "{recipe}", "digit", "--model", "m", "-o", "s.csv"),
            "did you mean 'digits'",
        ),
        (("difficulty", "{recipe}", "digits", "--model", "net", "-o", "s.csv"), "kind of model"),
    ],
)
def test_bad_input_is_one_line_and_code_2(recipe, arguments, message):
    done = shiftbed(*(one.format(recipe=recipe) for one in arguments), cwd=recipe.parent)
    assert done.returncode == 2
    assert message in done.stderr
