"""Classifiers of scikit-learn in recipes: as fitted by hand, stored and resumed as networks are."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import skops.io
from PIL import Image
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

from shiftbed.evaluation.models import resolve
from shiftbed.results.scores import score
from shiftbed.store import PredictionStore
from shiftbed.store.check import verify
from shiftbed.testbed.stored import testbed_from_store as bed_of
from shiftbed.training import read_recipe
from shiftbed.training.classical import TRUSTED
from shiftbed.training.prepare import prepare
from shiftbed.training.train import train
from tests.training.estimator_grids import FOREST, KNN, LINEAR, MLP, SVM, command, grid
from tests.training.places import GRID, HEAD, place

PERTURBED = """
[[settings]]
test_set = "test"
corruptions = ["brightness:3"]
attacks = ["pgd-linf:2/255", "fgsm-linf:1/255"]

[[settings]]
test_set = "faint"
"""


def swept(folder: Path, text: str, head: str = HEAD):
    """A recipe's jobs, all finished, and their store."""
    folder.mkdir(exist_ok=True)
    recipe = read_recipe(place(folder, text, head), allow_code=True)
    summary = train(recipe)
    assert not summary.failed
    return recipe, summary, PredictionStore(folder / "store")


def predictions(folder: Path) -> dict[str, bytes]:
    found = sorted((folder / "store").glob("predictions/**/*.parquet"))
    return {str(file.relative_to(folder)): file.read_bytes() for file in found}


def stored(store: PredictionStore, job, setting: str = "test") -> np.ndarray:
    return store.read(f"{job.run}@1", setting)["class_1"].to_numpy()


def rows_of(recipe, job, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels that a job is fitted on, read from the file by their ids."""
    data = prepare(job.arguments["data"], recipe.sources.data, folder)
    arrays = np.load(folder / "digits.npz")
    images, labels = [], []
    for example in data.examples:
        name, _, row = example.partition("/")
        part = {"digits": "train", "other": "other"}[name]
        images.append(arrays[f"{part}_images"][int(row.rpartition("/")[2])])
        labels.append(arrays[f"{part}_labels"][int(row.rpartition("/")[2])])
    return np.stack(images), np.array(labels)


def flat(images: np.ndarray) -> np.ndarray:
    return (images.reshape(len(images), -1).astype(np.float32) / np.float32(255)).astype(float)


class TestByHand:
    @pytest.mark.parametrize(
        ("model", "made"),
        [
            (LINEAR, LogisticRegression(C=0.5, max_iter=500, random_state=3)),
            (KNN, KNeighborsClassifier(n_neighbors=3)),
            (FOREST, RandomForestClassifier(n_estimators=9, random_state=3)),
            (SVM, SVC(C=2, random_state=3)),
            (MLP, MLPClassifier((12, 8), max_iter=400, tol=1e-3, random_state=3)),
        ],
    )
    def test_the_same_class_on_the_same_rows(self, tmp_path, model, made):
        recipe, _, store = swept(tmp_path, grid(model, more="seed = 3"))
        (job,) = recipe.jobs()
        made.fit(*(flat(one) if one.ndim == 3 else one for one in rows_of(recipe, job, tmp_path)))
        arrays = np.load(tmp_path / "digits.npz")
        for name in ("test", "faint"):
            x = flat(arrays[f"{name}_images"])
            votes = made.decision_function(x).argmax(axis=1) if model == SVM else made.predict(x)
            assert (stored(store, job, name) == votes).all()
        assert len(set(votes)) > 5

    def test_size_is_pixels_a_side(self, tmp_path):
        """Resized by Pillow itself, bilinear."""
        recipe, _, store = swept(tmp_path, grid(f"{LINEAR}&size=5"))
        (job,) = recipe.jobs()

        def small(images):
            return np.stack([np.asarray(Image.fromarray(x).resize((5, 5), 2)) for x in images])

        images, labels = rows_of(recipe, job, tmp_path)
        made = LogisticRegression(C=0.5, max_iter=500).fit(flat(small(images)), labels)
        test = np.load(tmp_path / "digits.npz")["test_images"]
        assert made.n_features_in_ == 25
        assert (stored(store, job) == made.predict(flat(small(test)))).all()

    def test_modes(self, tmp_path):
        """Grey data are seen in grey unless the line says RGB; coloured data in colour."""
        place(tmp_path)
        arrays = dict(np.load(tmp_path / "digits.npz"))
        rng = np.random.default_rng(0)
        arrays["coloured_images"] = rng.integers(0, 256, (60, 8, 8, 3), dtype=np.uint8)
        arrays["coloured_labels"] = np.arange(60) % 10
        head = HEAD + '[data.coloured]\npath = "more.npz:coloured"\n'
        np.savez(tmp_path / "more.npz", **arrays)
        text = grid(KNN, f"{KNN}&mode=RGB") + grid(KNN, f"{KNN}&mode=L", data='"coloured"')
        recipe, _, store = swept(tmp_path, text, head)
        modes = [store.cell(f"{j.run}@1", "test")["preprocessing"]["mode"] for j in recipe.jobs()]
        assert modes == ["L", "RGB", "RGB", "L"]
        grey, colour = (stored(store, job) for job in recipe.jobs()[:2])
        assert (grey == colour).all()  # three equal channels: all distances times the root of 3

    @pytest.mark.parametrize(
        ("data", "n"),
        [
            ('{name = "digits", fraction = 0.5}', 270),
            ('{name = "digits", shots = 4}', 40),
            ('{mix = [["digits", "other"]], lambda = 0.25}', 135 + 225),
            ('{name = "digits", classes = [[3, 7, 8]]}', None),
        ],
    )
    def test_choices_of_data(self, tmp_path, data, n):
        recipe, _, store = swept(tmp_path, grid(FOREST, data=data))
        (job,) = recipe.jobs()
        images, labels = rows_of(recipe, job, tmp_path)
        made = RandomForestClassifier(n_estimators=9, random_state=0).fit(flat(images), labels)
        test = np.load(tmp_path / "digits.npz")["test_images"]
        found = stored(store, job)
        assert (found == made.predict(flat(test))).all()
        row = bed_of(store).models.row(0, named=True)
        assert row["n_train"] == (n or len(labels))
        assert row["data_size"] == job.data_size
        if n is None:  # labels keep their numbers
            assert set(found) == {3, 7, 8}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Networks and classical models of one recipe."""
    folder = tmp_path_factory.mktemp("both")
    data = '{name = "digits", shots = ["all", 10]}'
    labels = 'seed = [0, 1]\nkind = "classical"\nin_fit_set = "final"'
    text = GRID + grid(LINEAR, KNN, FOREST, data=data, more=labels)
    return folder, *swept(folder, text, HEAD + PERTURBED)


class TestTheStore:
    def test_a_model_for_each_run_beside_the_networks(self, both):
        _, recipe, _, store = both
        bed = bed_of(store)
        assert len(bed.models) == 1 + 3 * 2 * 2
        assert verify(store) == [
            one for one in verify(store) if one.kind == "failed" and "not applicable" in one.what
        ]
        job = next(j for j in recipe.jobs() if j.classical)
        row = bed.models.filter(pl.col("run") == job.run).row(0, named=True)
        assert row["model"] == f"{job.run}@1" == f"LogisticRegression-{job.id}@1"
        known = {
            "architecture": "LogisticRegression",
            "training_data": "digits",
            "data_size": "full",
            "n_train": 540,
            "kind": "classical",
            "in_fit_set": True,
            "step": 1,
            "seed": 0,
            "final": True,
            "optimiser": None,
            "tune": None,
        }
        assert {key: row[key] for key in known} == known
        network = bed.models.filter(pl.col("architecture") == "build").row(0, named=True)
        assert (network["optimiser"], network["kind"]) == ("SGD", "standard")
        assert bed.fit("faint").n == 13
        fitted = bed.value[[name.endswith("@1") for name in bed.model_names]]
        assert fitted[:, bed.settings.index("test")].min() > 0.6  # they have learnt something

    def test_corruptions_are_evaluated_and_attacks_are_not_applicable(self, both):
        _, recipe, summary, store = both
        bed = bed_of(store)
        values = bed.value[:, bed.settings.index("test+brightness:3")]
        assert not np.isnan(values).any()
        attacked = "test+pgd-linf:2/255"
        for job in recipe.jobs():
            record = store.cell(f"{job.run}@{1 if job.classical else 18}", attacked)
            assert record["status"] == ("failed" if job.classical else "complete")
            if job.classical:
                why = f"not applicable: pgd-linf:2/255 needs gradients, and {job.run}@1 has no"
                assert record["error"].startswith(why)
                assert record["info"]["architecture"] == job.architecture
        notes = [note for note in summary.notes if "not applicable" in note]
        assert len(notes) == 12
        assert all(note.endswith("(and 1 more settings)") for note in notes)

    def test_again_does_nothing(self, both):
        folder, recipe, *_ = both
        files = [f for f in folder.glob("**/*") if f.is_file() and f.name != "testbed.json"]
        before = {file: file.stat().st_mtime_ns for file in files}
        again = train(recipe)
        assert (again.found_finished, again.examples, again.notes) == (13, 0, ())
        assert {file: file.stat().st_mtime_ns for file in files} == before

    def test_a_new_setting_is_evaluated_from_the_file(self, both):
        folder, recipe, _, store = both
        path = folder / "more.toml"
        text = (folder / "recipe.toml").read_text().replace(PERTURBED, "")
        path.write_text(text + '[[test_sets]]\nname = "held"\ndata = "digits"\n')
        files = {f: f.stat().st_mtime_ns for f in folder.glob("runs/*/model.skops")}
        summary = train(path, allow_code=True)
        assert (summary.failed, summary.examples, len(summary.finished)) == ({}, 0, 13)
        assert len(files) == 12
        assert {f: f.stat().st_mtime_ns for f in files} == files
        for job in recipe.jobs():
            step = f"{job.run}@{1 if job.classical else 18}"
            assert store.cell(step, "held")["info"] == store.cell(step, "test")["info"]

    def test_the_file_is_read_by_the_usual_adapter(self, both):
        folder, recipe, _, store = both
        images = np.load(folder / "digits.npz")["test_images"]
        for job in recipe.jobs():
            if not job.classical:
                continue
            place_ = folder / "runs" / job.id
            trusted = json.loads((place_ / "done.json").read_text())["trusted"]
            assert set(trusted) <= set(TRUSTED)
            assert bool(trusted) == (job.architecture == "RandomForestClassifier")
            model = resolve(f"sklearn:{place_ / 'model.skops'}", trusted=trusted)
            assert (model.logits(images[:, None]).argmax(axis=1) == stored(store, job)).all()

    def test_warnings_are_kept(self, tmp_path):
        model = "sklearn:linear_model.LogisticRegression?max_iter=2"
        recipe, summary, store = swept(tmp_path, grid(model))
        (job,) = recipe.jobs()
        (note,) = summary.notes
        assert note.startswith(f"{job.run}: warning: lbfgs failed to converge")
        (warning,) = store.cell(f"{job.run}@1", "test")["warnings"]
        assert "lbfgs failed to converge" in warning


@pytest.mark.slow
class TestProcesses:
    def test_workers_make_no_difference(self, tmp_path):
        text = grid(KNN, FOREST, SVM, MLP, more="seed = [0, 1]")
        found = []
        for options in ((), ("--runner", "processes", "--workers", "1"), ("--runner", "processes")):
            folder = tmp_path / f"w{len(found)}"
            folder.mkdir()
            done = subprocess.run(
                command(place(folder, text), *options), capture_output=True, text=True, timeout=300
            )
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["finished"] == 8
            found.append(predictions(folder))
        assert found[0] == found[1] == found[2]
        assert len(found[0]) == 8 * 2
        seeds = [read_recipe(folder / "recipe.toml").jobs()[2 + k] for k in (0, 1)]
        store = PredictionStore(folder / "store")
        assert (stored(store, seeds[0]) != stored(store, seeds[1])).any()  # forests of two seeds

    def test_killed_runs_are_fitted_anew(self, tmp_path):
        """Killed while fitting and while evaluating; what was finished stays, the rest is equal."""
        slow = "sklearn:ensemble.RandomForestClassifier?n_estimators=60"
        text = grid(slow, more=f"seed = {list(range(6))}")
        whole, cut = tmp_path / "whole", tmp_path / "cut"
        swept(whole, text)
        cut.mkdir()
        path = place(cut, text)
        kept: dict[Path, int] = {}
        for target in (1, 3):
            process = subprocess.Popen(
                command(path, "--runner", "processes", "--workers", "2"),
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            until = time.monotonic() + 120
            while len(list(cut.glob("runs/*/model.skops"))) < target:
                assert time.monotonic() < until
                assert process.poll() is None
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert all(file.stat().st_mtime_ns == stamp for file, stamp in kept.items())
            for done in cut.glob("runs/*/done.json"):
                kept |= {f: f.stat().st_mtime_ns for f in done.parent.iterdir()}
        summary = train(path)
        assert (len(summary.finished), summary.failed) == (6, {})
        assert summary.found_finished == len({file.parent for file in kept})
        assert all(file.stat().st_mtime_ns == stamp for file, stamp in kept.items())
        assert predictions(cut) == predictions(whole)
        begun = [len(json.loads(f.read_text())["begun_at"]) for f in cut.glob("runs/*/done.json")]
        assert max(begun) > 1

    def test_every_classifier_can_be_written_and_read(self, tmp_path):
        """All of scikit-learn that need no other estimator: no type that is not trusted."""
        from sklearn.utils.discovery import all_estimators

        options = {
            "CategoricalNB": "min_categories=2",
            "GaussianProcessClassifier": "max_iter_predict=2&optimizer=none",
            "GradientBoostingClassifier": "n_estimators=3",
            "HistGradientBoostingClassifier": "max_iter=3",
            "RadiusNeighborsClassifier": "radius=9",
        }
        found = {}
        for name, kind in all_estimators("classifier"):
            needs = [
                p.name for p in inspect.signature(kind).parameters.values() if p.default is p.empty
            ]
            if not needs and name != "SelfTrainingClassifier":
                found[name] = f"sklearn:{kind.__module__.split('.')[1]}.{name}"
        lines = [f"{line}?{options.get(name, 'mode=L')}" for name, line in found.items()]
        lines += [
            "sklearn:neural_network.MLPClassifier?solver=sgd&max_iter=2",
            "sklearn:calibration.CalibratedClassifierCV?method=isotonic",
            "sklearn:calibration.CalibratedClassifierCV?method=temperature",
        ]
        recipe = read_recipe(place(tmp_path, grid(*lines, data='{name = "digits", shots = 20}')))
        summary = train(recipe)
        assert len(lines) > 30
        named = {run.partition("-")[0]: why for run, why in summary.failed.items()}
        # the covariance of so few images is singular
        assert set(named) == {"QuadraticDiscriminantAnalysis"}, named


def test_an_estimator_is_written_alike_every_time(tmp_path):
    """Two processes: objects lie elsewhere in memory, and it is later."""
    code = (
        "import sys, numpy as np, skops.io; from sklearn.svm import SVC; "
        "from shiftbed.training.classical import _repeatable; "
        "x = np.random.default_rng(0).normal(size=(30, 4)); y = np.arange(30) % 3; "
        "pad = [object() for _ in range(int(sys.argv[1]))]; "
        "sys.stdout.buffer.write(_repeatable(skops.io.dumps(SVC(gamma=0.5).fit(x, y))))"
    )
    made = [
        subprocess.run([sys.executable, "-c", code, pad], capture_output=True, check=True).stdout
        for pad in ("10", "100000")
    ]
    assert made[0] == made[1]
    found = skops.io.loads(made[0], trusted=skops.io.get_untrusted_types(data=made[0]))
    x = np.random.default_rng(0).normal(size=(30, 4))
    expected = SVC(gamma=0.5).fit(x, np.arange(30) % 3)
    np.testing.assert_array_equal(found.decision_function(x), expected.decision_function(x))


def test_data_that_was_replaced_trains_another_model_in_the_same_process(tmp_path):
    """Into a new folder; a finished run of the old one stays what it is, and a note says so."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2

    def write(name, bright):
        images = rng.integers(0, 100, (60, 8, 8)) + 150 * (labels == bright)[:, None, None]
        np.savez(tmp_path / name, images=images.astype(np.uint8), labels=labels)

    def trained(folder):
        (tmp_path / "recipe.toml").write_text(
            f'store = "{folder}/store"\nruns = "{folder}/runs"\n'
            '[data.d]\npath = "d.npz"\n[[test_sets]]\nname = "t"\npath = "t.npz"\n'
            '[[grid]]\nmodel = "sklearn:linear_model.LogisticRegression?max_iter=200"\ndata = "d"\n'
        )
        done = train(tmp_path / "recipe.toml")
        assert not done.failed
        return done, score(tmp_path / folder / "store").frame["value"].to_list()

    write("t.npz", 1)
    for folder, bright in (("first", 1), ("second", 0)):
        write("d.npz", bright)
        assert trained(folder)[1] == [bright]
        assert trained(folder)[0].notes == ()
    done, accuracy = trained("first")
    assert accuracy == [1]
    (said,) = done.notes
    assert "d.npz was written to after 1 finished run" in said
    assert "d.npz was written to" in str(done)
