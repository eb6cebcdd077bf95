"""Heads trained on one backbone: its features once for all, on disk; answers as by themselves."""

import pytest

from shiftbed.engine import shared_backbone
from shiftbed.engine.evaluate import evaluate
from shiftbed.engine.plan import TestSetSpec
from shiftbed.errors import InputError
from shiftbed.evaluation.models import heads, resolve
from shiftbed.store import PredictionStore
from shiftbed.training import read_recipe
from shiftbed.training.train import train
from tests.training.places import GRID, HEAD, place

HEADS = GRID + 'tune = "head"\nseed = [0, 1]\ncheckpoints = {keep = "head"}\n'
CORRUPTED = HEAD + '[[settings]]\ntest_set = "test"\ncorruptions = ["gaussian_noise:2"]\n'
CORRUPTED += '[[settings]]\ntest_set = "faint"\n'
SEEDED = HEADS.replace("build()", "build()?seed=3")


@pytest.fixture
def passes(monkeypatch):
    seen = {"images": 0}
    features = heads.Split.features

    def counted(self, pixels):
        seen["images"] += len(pixels)
        return features(self, pixels)

    monkeypatch.setattr(heads.Split, "features", counted)
    return seen


@pytest.fixture
def trained(tmp_path, passes):
    shared_backbone.forget()
    recipe = read_recipe(place(tmp_path, SEEDED, CORRUPTED), allow_code=True)
    done = train(recipe, allow_code=True)
    assert not done.failed
    return tmp_path, recipe


def test_the_backbone_sees_a_setting_once(trained, passes):
    folder, recipe = trained
    store = PredictionStore(folder / "store")
    sizes = [len(store.test_set(one)) for one in ("test", "test+gaussian_noise:2", "faint")]
    assert passes["images"] == sum(sizes)
    assert len(recipe.jobs()) == 2
    shared_backbone.forget()  # another process: from the files
    more = read_recipe(
        place(folder, SEEDED.replace("[0, 1]", "[0, 1, 2]"), CORRUPTED), allow_code=True
    )
    assert len(train(more, allow_code=True).finished) == 3
    assert passes["images"] == sum(sizes)


def test_a_head_alone_is_kept_and_answers_to_the_last_bit(trained):
    folder, recipe = trained
    store = PredictionStore(folder / "store")
    for job in recipe.jobs():
        (file,) = (folder / "runs" / job.id).glob("step-*.pt")
        assert file.stat().st_size < 20_000  # 10 × 128 weights, not the network
        model = resolve(f"run:{folder / 'runs' / job.id}", allow_code=True)
        images = TestSetSpec(name="test", path=f"{folder / 'digits.npz'}:test")
        given = {"backend": "torch", "batch_size": 256}
        found = evaluate(model, images, corruptions=["gaussian_noise:2"], **given)
        for setting in ("test", "test+gaussian_noise:2"):
            assert found.store.read(model.id, setting).equals(store.read(model.id, setting))


def test_views_are_drawn_once_for_all_seeds(tmp_path):
    grid = SEEDED + 'augmentation = "crop-flip"\nviews = 2\n'
    recipe = read_recipe(place(tmp_path, grid, HEAD), allow_code=True)
    assert not train(recipe, allow_code=True).failed
    features = list((tmp_path / "runs" / "features").glob("*.npy"))
    assert len(features) == 2  # of two views, for both seeds
    one, two = recipe.jobs()
    assert one.arguments["views"] == 2
    plain = read_recipe(place(tmp_path, SEEDED, HEAD), allow_code=True).jobs()[0]
    assert plain.id != one.id != two.id


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        (GRID + 'augmentation = "flip"\nviews = 2\n', "views go with tune = 'head'"),
        (GRID + 'checkpoints = {keep = "head"}\n', "goes with tune = 'head'"),
        (HEADS + 'augmentation = "flip"\nviews = 0\n', "views must be a whole number from 1"),
    ],
)
def test_errors(tmp_path, grid, said):
    with pytest.raises(InputError, match=said):
        read_recipe(place(tmp_path, grid), allow_code=True)
