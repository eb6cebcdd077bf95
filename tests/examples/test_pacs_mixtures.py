"""The PACS study in miniature: rows of made-up pictures, its own recipe with a few steps."""

import re
import shutil

import numpy as np
import polars as pl
import pytest
from PIL import Image
from scipy.special import expit

import shiftbed as sb
from examples.pacs_mixtures import __main__ as study
from examples.pacs_mixtures import data
from examples.pacs_mixtures.analysis import findings
from shiftbed.testbed import open_testbed


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A PACS of 20 made-up pictures per class and domain; features are their mean colours."""
    rng = np.random.default_rng(0)
    for domain in data.DOMAINS:
        for number, name in enumerate(data.CLASSES):
            place = tmp_path / "pacs" / domain / name
            place.mkdir(parents=True)
            for one in range(20):
                colour = np.full((8, 8, 3), 20 * number) + rng.integers(0, 120)
                Image.fromarray(colour.astype(np.uint8)).save(place / f"{one:02d}.png")

    def features(files):
        means = np.stack([data._pixels(path, 8).mean(axis=(0, 1)) for path in files])
        return np.tile(means, (1, 500))[:, : data.FEATURES].astype(np.float32)

    monkeypatch.setattr(data, "_features", features)
    return tmp_path


def test_the_whole_study_in_miniature(folder, monkeypatch, capsys):
    short = folder / "short"
    short.mkdir()
    recipe = (study.HERE / "recipe.toml").read_text()
    recipe = re.sub(r"steps = [0-9]+", "steps = 8", recipe)
    recipe = re.sub(r"fraction = \[.*?\]", "fraction = [0.5, 1.0]", recipe)
    recipe = re.sub(r"lambda = \[.*?\]", "lambda = [0.5]", recipe)
    (short / "recipe.toml").write_text(recipe)
    for name in ("net.py", "classes.txt"):
        shutil.copyfile(study.HERE / name, short / name)
    monkeypatch.setattr(study, "HERE", short)
    monkeypatch.setattr(study, "FAMILIES", {"all": "*"})
    study.train(folder / "pacs", folder / "out")
    arrays = np.load(folder / "out" / "data.npz")
    assert arrays["photo_images"].shape == (140, 32, 48, 3)
    captions = pl.read_csv(folder / "out" / "captions.csv")
    assert set(captions["example"].str.split("/").list.first()) == {"photo", "art_painting"}
    assert captions["caption"][0] == "a photo of a dog"
    study.show(folder / "out")
    assert "Does the gain shrink under the plane?" in capsys.readouterr().out
    models = open_testbed(folder / "out" / "store").models
    assert set(models["objective"]) == {"contrastive", "cross-entropy"}


def test_a_gain_that_other_data_makes_is_found_to_shrink():
    """OOD accuracy depends on both ID accuracies alike: only a single ID set sees a gain."""
    rng = np.random.default_rng(1)
    data_of = ["photo"] * 20 + ["art_painting"] * 20 + ["photo+art_painting"] * 20
    share = np.repeat([0.0, 1.0, 0.5], 20)
    skill = rng.normal(0, 0.7, 60)
    photo, art = skill + 1.5 * (1 - share), skill + 1.5 * share
    ood = 0.5 * photo + 0.5 * art - 1 + rng.normal(0, 0.05, 60)
    bed = sb.Testbed(
        name="made",
        models=pl.DataFrame(
            {
                "model": [f"m{i}" for i in range(60)],
                "kind": ["standard"] * 60,
                "in_fit_set": [True] * 60,
                "parent": pl.Series([None] * 60, dtype=pl.String),
                "training_data": data_of,
                "grid": ["scratch", "imagenet"] * 30,
            }
        ),
        settings=("photo", "art_painting", "cartoon", "sketch"),
        value=expit(np.column_stack([photo, art, ood, ood])),
        n=np.full((60, 4), 1000),
    )
    found = findings(bed)
    assert len(found) == 3 * 2 * 2
    assert {one.verdict for one in found} == {"shrinks"}
    assert all(one.single > 0.03 and abs(one.multi) < 0.02 for one in found)
