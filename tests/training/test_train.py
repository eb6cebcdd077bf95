"""Sweeps: every checkpoint in the store, nothing done twice, the same weights after a kill."""

import errno
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from shiftbed.errors import InputError
from shiftbed.results.scores import score
from shiftbed.results.stores import compact_store
from shiftbed.store import PredictionStore
from shiftbed.testbed.labels import natural
from shiftbed.testbed.stored import testbed_from_store as bed_of
from shiftbed.training import read_recipe
from shiftbed.training.runs import RunFolder
from shiftbed.training.train import train
from tests.training import own_weights
from tests.training.places import GRID, HEAD, place

EVERY = GRID + "checkpoints = {every = 1, at = [[0]]}\n"


def files(folder: Path, pattern: str) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.glob(pattern))}


def weights(folder: Path) -> dict[str, bytes]:
    return files(folder / "runs", "*/step-*.pt")


def predictions(folder: Path) -> dict[str, bytes]:
    return files(folder / "store", "predictions/**/*.parquet")


def packs(folder: Path) -> dict[str, bytes]:
    return files(folder / "store", "packs/**/*.parquet")


class Stop(BaseException):
    """A kill that can be caught."""


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Two sizes × whole or head, evaluated at every epoch."""
    folder = tmp_path_factory.mktemp("swept")
    grid = EVERY.replace('data = "digits"', 'data = {name = "digits", shots = ["all", 10]}')
    grid += 'tune = ["whole", "head"]\nin_fit_set = "all"\n'
    recipe = read_recipe(place(folder, grid), allow_code=True)
    return folder, recipe, train(recipe, allow_code=True)


class TestTheStore:
    def test_scores_are_in_the_order_of_what_runs_are_called(self, swept):
        found = score(swept[0] / "store")
        labels = [found.called[name] for name in found.frame.filter(setting="test")["model"]]
        assert labels == sorted(labels, key=natural)
        assert len(set(labels)) == 4 * 3

    def test_every_checkpoint_is_a_model(self, swept):
        folder, recipe, summary = swept
        assert (len(summary.finished), summary.failed) == (4, {})
        bed = bed_of(PredictionStore(folder / "store"))
        assert len(bed.models) == 4 * 3
        assert not np.isnan(bed.value).any()
        job = recipe.jobs()[0]
        own = bed.models.filter(pl.col("run") == job.run).sort("step")
        assert own["model"].to_list() == [f"{job.run}@{step}" for step in (0, 9, 18)]
        assert own["n_train"].to_list() == [540] * 3  # 600 less a tenth of every class
        assert own["training_data"].to_list() == ["digits"] * 3
        assert own["architecture"].to_list() == ["build"] * 3
        assert own["epoch"].to_list() == [0.0, 1.0, 2.0]
        few = bed.models.filter(pl.col("data_size") == "few-shot-10")
        assert set(few["n_train"]) == {100}

    def test_accuracies_are_those_of_the_weights(self, swept):
        """The last weights, read by the usual loader, answer as the store says."""
        from shiftbed.evaluation.models import resolve

        folder, recipe, _ = swept
        store = PredictionStore(folder / "store")
        images = np.load(folder / "digits.npz")["test_images"]
        for job in recipe.jobs():
            (last,) = sorted((folder / "runs" / job.id).glob("step-*.pt"))[-1:]
            step = int(last.stem.removeprefix("step-"))
            model = resolve(f"torch:{last}?arch=python:{folder / 'net.py'}:build")
            best = model.logits(images[:, None]).argmax(axis=1)
            kept = store.read(f"{job.run}@{step}", "test")["class_1"].to_numpy()
            assert (best == kept).mean() > 0.99  # one batch of another size

    def test_test_images_are_decoded_once_for_all_checkpoints(self, tmp_path, monkeypatch):
        from shiftbed.engine import open_setting

        decode, names = open_setting.batches, []

        def counted(test_set, *given):
            names.append(test_set.name)
            return decode(test_set, *given)

        monkeypatch.setattr(open_setting, "batches", counted)
        train(place(tmp_path, EVERY + "seed = [0, 1]\n"), allow_code=True)
        assert sorted(names) == ["faint", "test"]

    def test_lines_and_trajectories_work_on_it(self, swept):
        from shiftbed.results.trajectories import trajectories

        folder, _, _ = swept
        bed = bed_of(PredictionStore(folder / "store"))
        assert bed.fit("faint").n == 12
        found = trajectories(bed, "faint")
        assert found.frame["steps"].to_list() == [3] * 4
        assert found.kinds["runs"].sum() == 4
        assert len(set(bed.models["setup"])) == len(found.kinds)

    def test_the_store_is_whole(self, swept):
        from shiftbed.store.check import verify

        assert verify(PredictionStore(swept[0] / "store")) == []

    def test_again_does_nothing(self, swept):
        folder, recipe, _ = swept
        before = weights(folder) | predictions(folder)
        again = train(recipe, allow_code=True)
        assert (again.found_finished, len(again.finished), again.examples) == (4, 4, 0)
        assert weights(folder) | predictions(folder) == before

    def test_a_new_setting_is_evaluated_from_the_weights(self, swept):
        folder, _, _ = swept
        text = (folder / "recipe.toml").read_text()
        more = '[[test_sets]]\nname = "held"\ndata = "digits"\n'
        path = folder / "more.toml"
        path.write_text(text + more)
        summary = train(path, allow_code=True)
        assert (summary.found_finished, summary.examples, summary.failed) == (0, 0, {})
        store = PredictionStore(folder / "store")
        assert len(store.test_set("held")) == 60
        own = {r["model"]: r["info"] for r in store.cells() if r["setting"] == "held"}
        before = {r["model"]: r["info"] for r in store.cells() if r["setting"] == "test"}
        assert own == before  # the same columns, so that it does not matter which is read
        assert len(own) == 12

    def test_the_held_out_part_was_not_trained_on(self, swept):
        from shiftbed.training.prepare import open_part, prepare

        _, recipe, _ = swept
        spec = recipe.sources.data["digits"]
        trained = {
            e.partition("/")[2] for e in prepare({"name": "digits"}, {"digits": spec}).examples
        }
        held = set(open_part(spec.path, {}, "held-out", 0.1).examples)
        assert len(trained) + len(held) == 600
        assert not trained & held


class TestGoingOn:
    GRID = EVERY.replace("epochs = 2", "epochs = 3") + "seed = [0, 1]\n"

    def interrupted(self, folder: Path, after: int) -> None:
        heard = []

        def report(done) -> None:
            heard.append(done)
            if len(heard) == after:
                raise Stop

        with pytest.raises(Stop):
            train(place(folder, self.GRID), report=report, allow_code=True)

    @pytest.mark.parametrize("after", [1, 3, 6])
    def test_cut_sweeps_end_with_the_same_bytes(self, tmp_path, after):
        whole, cut = tmp_path / "whole", tmp_path / "cut"
        for folder in (whole, cut):
            folder.mkdir()
        train(place(whole, self.GRID), allow_code=True)
        self.interrupted(cut, after)
        finished = {f.parent.name for f in cut.glob("runs/*/done.json")}
        times = {f: f.stat().st_mtime_ns for name in finished for f in cut.glob(f"runs/{name}/*")}
        recipe = read_recipe(cut / "recipe.toml", allow_code=True)
        summary = train(recipe, allow_code=True)
        assert len(summary.finished) == 2
        assert summary.found_finished == len(finished) == (after - 1) // 4
        assert {f: f.stat().st_mtime_ns for f in times} == times  # never repeated
        steps = [0, 9, 18, 27]
        for number, job in enumerate(recipe.jobs()):
            begun = json.loads((cut / "runs" / job.id / "done.json").read_text())["begun_at"]
            reached = after - 4 * number
            at = [0] if reached <= 0 or reached > 4 else [0, steps[reached - 1]]
            assert begun == at, (after, number)  # at most what came after the last checkpoint
        assert weights(cut) == weights(whole)
        assert predictions(cut) == predictions(whole)

    def test_memory_and_data_workers_change_nothing(self, tmp_path):
        """Pictures read when they are due, by two workers, train the same weights."""
        found = []
        for line in ("", "memory_gib = 1e-6\n", "memory_gib = 1e-6\ndata_workers = 2\n"):
            folder = tmp_path / str(len(found))
            folder.mkdir()
            train(place(folder, GRID, line + HEAD), allow_code=True)
            found.append(weights(folder))
        assert found[0] == found[1] == found[2]

    def test_one_state_of_the_data_goes_to_all_workers(self, tmp_path, monkeypatch):
        """Each would look at the files again for every job, and open a manifest anew."""
        sent = []

        def runner(*_):
            return lambda tasks, hear: sent.extend(map(pickle.dumps, tasks)) or ()

        monkeypatch.setattr("shiftbed.training.train._runner", runner)
        recipe = read_recipe(place(tmp_path, GRID), allow_code=True)
        train(recipe)
        (task,) = map(pickle.loads, sent)
        assert vars(task.data["digits"])["state"] == recipe.sources.data["digits"].state

    def test_a_failing_run_leaves_the_others(self, tmp_path):
        grid = EVERY.replace("lr = 0.1", "lr = [0.1, 1e10]") + 'objective = "mse"\n'
        summary = train(place(tmp_path, grid), allow_code=True)
        assert len(summary.finished) == 1
        ((_, why),) = summary.failed.items()
        assert "the loss is not finite" in why

    def test_only_the_last_weights_are_kept_if_so_asked(self, tmp_path):
        grid = GRID + 'checkpoints = {every = 1, keep = "last"}\n'
        recipe = read_recipe(place(tmp_path, grid), allow_code=True)
        train(recipe, allow_code=True)
        (job,) = recipe.jobs()
        assert [f.name for f in (tmp_path / "runs" / job.id).glob("*.pt")] == ["step-00000018.pt"]

    def test_the_others_go_if_removing_them_failed_at_first(self, tmp_path, monkeypatch):
        grid = GRID + 'checkpoints = {every = 1, keep = "last"}\n'
        recipe = read_recipe(place(tmp_path, grid), allow_code=True)
        (job,) = recipe.jobs()
        forget = RunFolder.forget_weights

        def fails(folder, but):
            if but == 18:
                raise OSError(errno.EIO, "Input/output error")
            forget(folder, but)

        with monkeypatch.context() as broken:
            broken.setattr(RunFolder, "forget_weights", fails)
            assert train(recipe, allow_code=True).failed
        assert len(list((tmp_path / "runs" / job.id).glob("step-*.pt"))) == 2
        assert not train(recipe, allow_code=True).failed
        assert [f.name for f in (tmp_path / "runs" / job.id).glob("*.pt")] == ["step-00000018.pt"]


class TestStages:
    def test_each_goes_on_from_the_one_before(self, tmp_path):
        grid = GRID.replace('data = "digits"\n', "").replace("epochs = 2", "epochs = 1") + (
            "checkpoints = {at = [[0]]}\n"
            '[[grid.stages]]\ndata = {name = "digits", fraction = 0.5}\n'
            '[[grid.stages]]\ndata = "other"\n'
            '[[grid.stages]]\ndata = {mix = [["digits", "other"]], lambda = 0.25}\n'
        )
        recipe = read_recipe(place(tmp_path, grid), allow_code=True)
        summary = train(recipe, allow_code=True)
        assert (len(summary.finished), summary.failed) == (3, {})
        first, second, third = (
            sorted((tmp_path / "runs" / job.id).glob("step-*.pt")) for job in recipe.jobs()
        )
        for before, after in ((first, second), (second, third)):
            old, new = (torch.load(f, weights_only=True) for f in (before[-1], after[0]))
            assert all(torch.equal(old[name], new[name]) for name in old)  # the head, too
        bed = bed_of(PredictionStore(tmp_path / "store"))
        job = recipe.jobs()[2]
        row = bed.models.filter(pl.col("run") == job.run).row(0, named=True)
        assert row["training_data"] == "digits+other"
        assert row["mix"] == "digits=0.25+other=0.75"
        assert row["n_train"] == 135 + 225
        assert row["parent"] == f"{recipe.jobs()[1].run}@{second[-1].stem[-1]}"

    def test_a_stage_after_one_that_failed(self, tmp_path):
        grid = GRID.replace('data = "digits"\n', "").replace("lr = 0.1", "lr = 1e10") + (
            'objective = "mse"\n[[grid.stages]]\ndata = "digits"\n[[grid.stages]]\ndata = "other"\n'
        )
        summary = train(place(tmp_path, grid), allow_code=True)
        assert len(summary.failed) == 2
        assert "the run it starts from failed" in list(summary.failed.values())[1]


class TestHeads:
    def test_on_features_and_through_the_network_are_the_same(self, tmp_path, monkeypatch):
        """With the backbone frozen, features computed once train the same head."""
        from shiftbed.training.objective import CrossEntropy

        found = []
        for cached in (True, False):
            folder = tmp_path / str(cached)
            folder.mkdir()
            monkeypatch.setattr(CrossEntropy, "on_features", cached)
            recipe = read_recipe(place(folder, GRID + 'tune = "head"\n'), allow_code=True)
            train(recipe, allow_code=True)
            (job,) = recipe.jobs()
            found.append(
                torch.load(folder / "runs" / job.id / "step-00000018.pt", weights_only=True)
            )
            assert (folder / "runs" / "features").exists() == cached
        one, two = found
        start = torch.zeros(())
        for name in one:
            torch.testing.assert_close(one[name], two[name], rtol=1e-4, atol=1e-6)
            start = start + one[name].sum()
        assert torch.isfinite(start)

    def test_sweeps_may_share_features(self, tmp_path, monkeypatch):
        """The second one computes none, trains the same head and answers the same."""
        from shiftbed.engine import shared_backbone
        from shiftbed.training import features

        grid = GRID + 'tune = "head"\n'
        for name in ("plain", "first", "second"):
            (tmp_path / name).mkdir()
            recipe = place(tmp_path / name, grid)
            if name != "plain":
                text = recipe.read_text()
                recipe.write_text(f'features = "../kept"\n{text}')
            shared_backbone.forget()
            if name == "second":
                for module, what in ((features, "features_of"), (shared_backbone, "_computed")):
                    monkeypatch.setattr(module, what, None)
            summary = train(recipe, allow_code=True)
            assert (summary.failed, len(summary.finished)) == ({}, 1)
        assert (tmp_path / "plain" / "runs" / "features").is_dir()
        assert {one.suffix for one in (tmp_path / "kept").iterdir()} == {".npy", ".npz"}
        assert not (tmp_path / "first" / "runs" / "features").exists()
        for found in (weights, predictions):
            assert found(tmp_path / "plain") == found(tmp_path / "first")
            assert found(tmp_path / "first") == found(tmp_path / "second") != {}

    def test_the_backbone_stays_as_it_was(self, tmp_path):
        recipe = read_recipe(place(tmp_path, EVERY + 'tune = "head"\n'), allow_code=True)
        train(recipe, allow_code=True)
        first, *_, last = sorted((tmp_path / "runs" / recipe.jobs()[0].id).glob("step-*.pt"))
        old, new = (torch.load(f, weights_only=True) for f in (first, last))
        changed = {name for name in old if not torch.equal(old[name], new[name])}
        assert changed == {"6.weight", "6.bias"}

    def test_perturbed_settings_go_through_the_network(self, tmp_path):
        head = HEAD + '[[settings]]\ntest_set = "test"\ncorruptions = ["brightness:3"]\n'
        head = head.replace('[[shifts]]\nname = "faint"\nid = "test"\nood = "faint"\n', "")
        recipe = read_recipe(place(tmp_path, GRID + 'tune = "head"\n', head), allow_code=True)
        summary = train(recipe, allow_code=True)
        assert not summary.failed
        assert PredictionStore(tmp_path / "store").settings() == ["test", "test+brightness:3"]


class TestErrors:
    def test_nothing_to_evaluate(self, tmp_path):
        head = HEAD.partition("[[test_sets]]")[0]
        with pytest.raises(InputError, match="evaluates nothing"):
            train(place(tmp_path, GRID, head), allow_code=True)

    def test_unknown_runner(self, tmp_path):
        with pytest.raises(InputError, match="unknown runner 'proceses'"):
            train(place(tmp_path), runner="proceses", allow_code=True)

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ('model = "timm:resnet1818"', "unknown timm model"),
            ('data = {name = "digits", classes = 11}', "cannot draw 11 classes"),
            ('start = "file:none.pt"', "no such file"),
        ],
    )
    def test_what_only_training_finds_out(self, tmp_path, line, said):
        key = line.partition(" =")[0]
        kept = [one for one in GRID.splitlines() if one.partition(" =")[0] != key]
        summary = train(place(tmp_path, "\n".join([*kept, line])), allow_code=True)
        ((_, why),) = summary.failed.items()
        assert said in why

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ('optimiser = {name = "Adma", lr = 1}', "unknown optimiser 'Adma'"),
            ('optimiser = {name = "SGD", lrr = 1}', "optimiser 'SGD': .*lrr"),
            ('schedule = {name = "StepLR"}', "schedule 'StepLR': .*step_size"),
            ('augmentation = "RandomRotaton"', "unknown augmentation 'RandomRotaton'"),
            ('model = "onnx:x.onnx"', "unknown kind of model to train"),
            ('prune = {method = "biprop", sparsity = 0.5, at = 0.1}', "option of biprop 'at'"),
        ],
    )
    def test_a_wrong_table_is_refused_before_any_job_starts(self, tmp_path, line, said):
        key = line.partition(" =")[0]
        kept = [one for one in GRID.splitlines() if one.partition(" =")[0] != key]
        with pytest.raises(InputError, match=f"grid 'grid-1': .*{said}"):
            train(place(tmp_path, "\n".join([*kept, line])), allow_code=True)
        assert not (tmp_path / "runs").exists()

    def test_two_files_of_one_python_network_are_two_starts(self, tmp_path):
        own_weights.place(tmp_path)
        (tmp_path / "recipe.toml").write_text(OWN)
        found = train(tmp_path / "recipe.toml", allow_code=True)
        assert not found.failed
        scored = {}
        store = PredictionStore(found.store)
        for record in store.cells():
            right = store.read(record["model"], "seen")["class_1"] == own_weights.images()[1]
            scored[record["arguments"]["start"]] = (right.mean(), record["info"]["start"])
        assert scored.pop("random")[1] == "random"
        assert scored == {"file:right.pt": (1.0, "file"), "file:wrong.pt": (0.0, "file")}
        (tmp_path / "recipe.toml").write_text(OWN.replace("wrong", "strange"))
        ((_, why),) = train(tmp_path / "recipe.toml", allow_code=True).failed.items()
        assert "does not fit the architecture" in why
        assert "1.weight" in why
        assert "other" in why

    def test_a_mix_of_two_label_spaces(self, tmp_path):
        place(tmp_path)
        for name, count in (("a", 3), ("b", 4)):
            for label in range(count):
                folder = tmp_path / name / f"class{label}"
                folder.mkdir(parents=True)
                from PIL import Image

                Image.new("L", (8, 8), 9 * label).save(folder / "x.png")
        head = HEAD + '[data.a]\npath = "a"\n[data.b]\npath = "b"\n'
        grid = GRID.replace('data = "digits"', "data = {mix = {a = 1.0, b = 1.0}}")
        summary = train(place(tmp_path, grid, head), allow_code=True)
        ((_, why),) = summary.failed.items()
        assert "a mix needs one label space" in why


OWN = """
[data.more]
path = "more.npz"
[[test_sets]]
name = "seen"
path = "seen.npz"
[[grid]]
model = "python:own.py:net()"
start = ["file:right.pt", "file:wrong.pt", "random"]
data = "more"
optimiser = {name = "SGD", lr = 1e-9}
steps = 1
"""


def command(recipe: Path, *options: str) -> list[str]:
    program = "from shiftbed.cli import main; main()"
    return [sys.executable, "-c", program, "train", str(recipe), "--allow-code", "--json", *options]


@pytest.mark.slow
class TestProcesses:
    TWELVE = EVERY.replace("epochs = 2", "epochs = 4") + (
        'seed = [0, 1, 2]\ntune = ["whole", "head"]\n'
    )
    TWELVE = TWELVE.replace("lr = 0.1", "lr = [0.1, 0.01]")

    def test_a_killed_sweep_of_twelve_goes_on(self, tmp_path):
        """SIGKILL to the whole process group, three times, then to the end."""
        whole, cut = tmp_path / "whole", tmp_path / "cut"
        for folder in (whole, cut):
            folder.mkdir()
        train(place(whole, self.TWELVE), allow_code=True)
        recipe = read_recipe(place(cut, self.TWELVE), allow_code=True)
        assert len(recipe.jobs()) == 12
        kept: dict[Path, int] = {}
        for target in (6, 20, 45):
            process = subprocess.Popen(
                command(cut / "recipe.toml", "--runner", "processes", "--workers", "2"),
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            until = time.monotonic() + 120
            while len(list(cut.glob("runs/*/step-*.pt"))) < target:
                assert time.monotonic() < until
                assert process.poll() is None
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for file, stamp in kept.items():
                assert file.stat().st_mtime_ns == stamp, "a finished run was repeated"
            for done in cut.glob("runs/*/done.json"):
                kept |= {f: f.stat().st_mtime_ns for f in done.parent.iterdir()}
        summary = train(recipe, allow_code=True)
        assert len(summary.finished) == 12
        assert all(file.stat().st_mtime_ns == stamp for file, stamp in kept.items())
        assert weights(cut) == weights(whole)
        for folder in (whole, cut):  # which small cells are in packs depends on who wrote when
            compact_store(folder / "store")
        assert predictions(cut) | packs(cut) == predictions(whole) | packs(whole)
        assert packs(whole)
        for done in cut.glob("runs/*/done.json"):
            ending = json.loads(done.read_text())
            assert set(ending["begun_at"]) <= set(ending["stops"])

    def test_one_worker_two_workers_and_none_give_the_same_weights(self, tmp_path):
        found = []
        for options in ((), ("--runner", "processes", "--workers", "1"), ("--runner", "processes")):
            folder = tmp_path / f"w{len(found)}"
            folder.mkdir()
            path = place(folder, EVERY + 'seed = [0, 1]\naugmentation = "crop-flip"\n')
            done = subprocess.run(
                command(path, *options), capture_output=True, text=True, timeout=300
            )
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["finished"] == 2
            found.append(weights(folder) | predictions(folder))
        assert found[0] == found[1] == found[2]
        assert len(found[0]) == 2 * 3 * (1 + 2)

    def test_on_ray(self, tmp_path):
        path = place(tmp_path, EVERY + "seed = [0, 1]\n")
        done = subprocess.run(
            command(path, "--runner", "ray", "--workers", "2"),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["finished"] == 2
