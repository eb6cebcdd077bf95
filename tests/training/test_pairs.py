"""Image–text training on pairs that have captions and no class: CSV, Parquet and WebDataset."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from shiftbed.errors import InputError
from shiftbed.evaluation.data import open_test_set
from shiftbed.testbed import open_testbed
from shiftbed.training import read_recipe
from shiftbed.training.prepare import prepare
from shiftbed.training.sources import DataSpec
from shiftbed.training.train import train
from tests.training.digit_runs import NAMES, images
from tests.training.places import NET

SAID = ("a handwritten {}", "the number {}", "{} on paper")
TRAIN, TEST = slice(0, 700), slice(1200, 1500)


def png(row: int) -> bytes:
    data = io.BytesIO()
    Image.fromarray(images()[0][row]).save(data, "PNG")
    return data.getvalue()


def said(row: int) -> str:
    return SAID[row % 3].format(NAMES[images()[1][row]])


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Path:
    """The same 700 pairs as CSV with files, as Parquet and as a tar; and labelled digits."""
    folder = tmp_path_factory.mktemp("pairs")
    rows = range(TRAIN.start, TRAIN.stop)
    (folder / "files").mkdir()
    for row in rows:
        (folder / "files" / f"{row:04d}.png").write_bytes(png(row))
    names = [f"files/{row:04d}.png" for row in rows]
    pl.DataFrame({"path": names, "caption": map(said, rows)}).write_csv(folder / "pairs.csv")
    cells = [{"bytes": png(row), "path": f"{row:04d}.png"} for row in rows]
    pl.DataFrame({"image": cells, "text": [said(row) for row in rows]}).write_parquet(
        folder / "pairs.parquet"
    )
    with tarfile.open(folder / "pairs.tar", "w") as tar:
        for row in rows:
            for ending, data in (("png", png(row)), ("txt", said(row).encode())):
                member = tarfile.TarInfo(f"{row:04d}.{ending}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    x, y = images()
    np.savez(folder / "digits.npz", test_images=x[TEST], test_labels=y[TEST],
             more_images=x[700:900], more_labels=y[700:900])  # fmt: skip
    (folder / "names.txt").write_text("\n".join(NAMES))
    (folder / "net.py").write_text(NET)
    return folder


@pytest.mark.parametrize(
    ("file", "column"),
    [("pairs.csv", "caption"), ("pairs.parquet", "text"), ("pairs.tar", "txt")],
)
def test_captions_come_with_the_images(pairs, file, column):
    found = open_test_set(pairs / file, caption_column=column)
    assert found.captions == tuple(said(row) for row in range(700))
    assert set(found.labels.tolist()) == {-1}
    some = found.subset([5, 3])
    assert some.captions == (said(5), said(3))
    spec = DataSpec(name="pairs", path=str(pairs / file), options={"caption_column": column})
    data = prepare({"name": "pairs", "fraction": 0.5}, {"pairs": spec})
    assert len(data) == 350
    rows = [int("".join(c for c in one if c.isdigit())[-4:]) for one in data.examples]
    assert data.captions == [said(row) for row in rows]


def test_a_column_of_captions_must_have_some(pairs, tmp_path):
    with pytest.raises(InputError, match="unknown column"):
        open_test_set(pairs / "pairs.csv", caption_column="captoin")
    with pytest.raises(InputError, match="no image has a caption in 'text'"):
        open_test_set(pairs / "pairs.tar", caption_column="text")


HEAD = """
name = "pairs"
[data.pairs]
path = "pairs.csv"
caption_column = "caption"
[data.digits]
path = "digits.npz:more"
[[test_sets]]
name = "test"
path = "digits.npz:test"
"""
GRID = """
[[grid]]
model = "python:net.py:build()"
data = {data}
objective = {{name = "contrastive", width = 16, text_width = 32, text_layers = 1, \
context_length = 12, class_names = "names.txt", templates = [["a handwritten {{}}"]]}}
optimiser = {{name = "AdamW", lr = 0.01}}
epochs = {epochs}
batch_size = 50
checkpoints = {{every = 4}}
"""


def placed(pairs: Path, folder: Path, data: str = '"pairs"', epochs: int = 8, grid: str = GRID):
    """A recipe in a folder of its own beside the data."""
    folder.mkdir()
    for one in ("pairs.csv", "files", "digits.npz", "names.txt", "net.py"):
        (folder / one).symlink_to(pairs / one)
    recipe = folder / "recipe.toml"
    recipe.write_text(HEAD + grid.format(data=data, epochs=epochs))
    return recipe


class Stop(BaseException):
    """A kill that can be caught."""


def weights(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("step-*.pt")}


def test_pairs_without_a_class_are_learned_from_and_a_kill_changes_nothing(pairs, tmp_path):
    whole = placed(pairs, tmp_path / "whole")
    assert not train(whole, allow_code=True).failed
    (log,) = (tmp_path / "whole").rglob("log.json")
    losses = [one["loss"] for one in json.loads(log.read_text())["checkpoints"]]
    assert losses[-1] < losses[0]
    bed = open_testbed(tmp_path / "whole" / "store")
    last = bed.models["final"].to_numpy()
    zero_shot = float(bed.accuracy("test")[last][0])
    assert zero_shot > 0.5  # chance is 0.1
    cut, heard = placed(pairs, tmp_path / "cut"), []

    def report(done) -> None:
        heard.append(done)
        if len(heard) == 1:
            raise Stop

    with pytest.raises(Stop):
        train(cut, report=report, allow_code=True)
    assert not train(cut, allow_code=True).failed
    assert json.loads(next((tmp_path / "cut").rglob("done.json")).read_text())["begun_at"] != [0]
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


def test_a_mix_of_labelled_images_and_pairs(pairs, tmp_path):
    """λ of one and 1 − λ of the other: labelled images get templates, pairs keep their captions."""
    mix = '{mix = [["digits", "pairs"]], lambda = [0.25]}'
    recipe = placed(pairs, tmp_path / "mix", mix, epochs=4)
    assert not train(recipe, allow_code=True).failed
    models = open_testbed(tmp_path / "mix" / "store").models
    assert set(models["training_data"]) == {"digits+pairs"}
    assert set(models["n_train"]) == {50 + 525}
    assert set(models["mix"]) == {"digits=0.25+pairs=0.75"}


def test_other_objectives_need_labels(pairs, tmp_path):
    grid = '[[grid]]\nmodel = "python:net.py:build()"\ndata = {data}\nepochs = {epochs}\n'
    grid += 'optimiser = {{name = "SGD", lr = 0.1}}\n'
    summary = train(placed(pairs, tmp_path / "plain", grid=grid, epochs=1), allow_code=True)
    ((_, why),) = summary.failed.items()
    assert "needs labels; 700 of the 700 examples of 'pairs' have captions only" in why


def test_names_of_classes_are_needed(pairs, tmp_path):
    grid = GRID.replace('class_names = "names.txt", ', "")
    summary = train(placed(pairs, tmp_path / "nameless", grid=grid, epochs=1), allow_code=True)
    ((_, why),) = summary.failed.items()
    assert "needs a name for the classes, got 0" in why


def test_dry_runs_know_the_pairs(pairs, tmp_path):
    recipe = read_recipe(
        placed(pairs, tmp_path / "dry", '{name = "pairs", fraction = [0.5, 1.0]}'), allow_code=True
    )
    assert [job.data_size for job in recipe.jobs()] == ["fraction-0.5", "full"]
    assert recipe.sources.data["pairs"].identity["options"] == {"caption_column": "caption"}
