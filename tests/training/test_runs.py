"""``run:FOLDER``: what ``shiftbed train`` left, as a model."""

import json

import numpy as np
import pytest

from shiftbed.cli.main import app
from shiftbed.engine.probe import probe
from shiftbed.errors import InputError
from shiftbed.evaluation.models import resolve
from shiftbed.store import PredictionStore
from shiftbed.training.recipe import read_recipe

RECIPE = """
name = "two"
[data.digits]
path = "digits.npz"
[[test_sets]]
name = "digits"
path = "digits.npz"
[[grid]]
name = "network"
model = "python:net.py:net()"
data = "digits"
optimiser = {name = "SGD", lr = 0.1}
steps = 6
batch_size = 16
checkpoints = {every = 3, unit = "step"}
[[grid]]
name = "classical"
model = "sklearn:naive_bayes.GaussianNB"
data = "digits"
"""
NET = """
from torch import nn

def net():
    made = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    made.preprocessing = {
        "size": (8, 8), "mode": "L", "crop": "none", "mean": (0.3,), "std": (0.4,),
    }
    return made
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("trained")
    images, labels = load_digits(return_X_y=True)
    pixels = (images.reshape(-1, 8, 8) * 15).astype(np.uint8)[:200]
    np.savez(folder / "digits.npz", images=pixels, labels=labels[:200])
    (folder / "net.py").write_text(NET)
    (folder / "recipe.toml").write_text(RECIPE)
    app(["train", str(folder / "recipe.toml"), "--allow-code"], standalone_mode=False)
    jobs = {job.grid: job for job in read_recipe(folder / "recipe.toml", allow_code=True).jobs()}
    return folder, jobs


@pytest.mark.parametrize(("grid", "step", "query"), [
    ("network", 6, ""), ("network", 3, "?step=3"), ("classical", 1, ""),
])  # fmt: skip
def test_it_answers_as_the_store_has_it(trained, grid, step, query):
    folder, jobs = trained
    model = resolve(f"run:{folder / 'runs' / jobs[grid].id}{query}", allow_code=True)
    assert model.id == f"{jobs[grid].run}@{step}"
    with np.load(folder / "digits.npz") as arrays:
        pixels = arrays["images"][:, None].astype(np.float32) / 255
    best = model.logits(pixels).argmax(axis=1)
    stored = PredictionStore(folder / "store").best_classes([model.id], "digits")
    np.testing.assert_array_equal(best, stored[0])


def test_its_probes_land_under_its_name(trained, capsys):
    folder, jobs = trained
    run, store = f"run:{folder / 'runs' / jobs['network'].id}", str(folder / "store")
    data = str(folder / "digits.npz")
    capsys.readouterr()
    options = ["--probe", "pixel_within", "--pairs", "3", "--store", store, "--json"]
    app(["probe", run, data, "--allow-code", *options], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["model"] == f"{jobs['network'].run}@6"


def test_what_cannot_be_had_is_said(trained, tmp_path):
    folder, jobs = trained
    run = folder / "runs" / jobs["network"].id
    with pytest.raises(InputError, match=r"no checkpoint after step 5; there are 3, 6"):
        resolve(f"run:{run}?step=5", allow_code=True)
    with pytest.raises(InputError, match=r"only \?step=N may follow, got 'seed'"):
        resolve(f"run:{run}?seed=1", allow_code=True)
    with pytest.raises(InputError, match="is no run that shiftbed train made"):
        resolve(f"run:{tmp_path}", allow_code=True)
    with pytest.raises(InputError, match="as it was trained"):
        resolve(f"run:{run}", preprocessing={"size": (16, 16)}, allow_code=True)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "job.json").write_text((run / "job.json").read_text())
    with pytest.raises(InputError, match="is not finished"):
        resolve(f"run:{tmp_path / 'x'}", allow_code=True)
    (tmp_path / "x" / "done.json").write_text((run / "done.json").read_text())
    with pytest.raises(InputError, match="that of another run"):
        resolve(f"run:{tmp_path / 'x'}", allow_code=True)
    (tmp_path / "x" / "job.json").write_text("{")
    with pytest.raises(InputError, match="JSON cannot be read"):
        resolve(f"run:{tmp_path / 'x'}", allow_code=True)


def test_every_checkpoint_and_every_model_of_a_testbed_is_probed(trained, tmp_path):
    folder, jobs = trained
    store = PredictionStore(folder / "store")
    asked = {"pairs": 5, "probes": ["amplitude"]}
    found = probe(folder / "runs", folder / "digits.npz", **asked, allow_code=True)
    run = jobs["network"]
    wanted = {f"{run.run}@{step}" for step in (3, 6)}
    assert set(found.frame["model"]) == wanted
    assert wanted <= set(store.complete_models(store.settings()[0]))
    text = "name = 'two'\nstore = 'store'\n[[test_sets]]\npath = 'digits.npz'\nname = 'digits'\n"
    for step in (3, 6):
        line = f"run:{folder / 'runs' / run.id}?step={step}"
        text += f"[[models]]\nid = '{line}'\nname = 'after-{step}'\n"
    (folder / "two.toml").write_text(text)
    both = probe(str(folder / "two.toml"), folder / "digits.npz", **asked, allow_code=True).frame
    assert sorted(set(both["model"])) == ["after-3", "after-6"]
    for step in (3, 6):
        one, two = (
            frame.filter(model=name)["value"].to_list()
            for frame, name in ((both, f"after-{step}"), (found.frame, f"{run.run}@{step}"))
        )
        assert one == pytest.approx(two)
    with pytest.raises(InputError, match="no finished run"):
        probe(tmp_path, folder / "digits.npz")
