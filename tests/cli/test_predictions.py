"""``similarity``, ``estimate``, ``mix`` and ``consistency`` as a user meets them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import cohen_kappa_score

from shiftbed.store import PredictionStore, StoredTestSet, part_from_top
from tests.cli.in_process import shiftbed
from tests.results.digits import predictions as digits
from tests.results.digits import write_store


def as_json(*arguments: str, cwd=".") -> dict:
    done = shiftbed(*arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Digits as a store, as .npz files with and without labels, and odd files."""
    place = tmp_path_factory.mktemp("similarity")
    write_store(place / "kept")
    logits, labels = digits()
    for name, by_model in logits.items():
        top1 = np.stack([values.argmax(axis=1) for values in by_model.values()])
        models = np.array(list(by_model))
        np.savez(place / f"{name}.npz", models=models, top1=top1, labels=labels[name])
        np.savez(place / f"{name}-bare.npz", models=models, top1=top1)
        np.savez(place / f"{name}-one.npz", models=models[:1], top1=top1[:1], labels=labels[name])
    return place


def test_the_json_contract(folder):
    found = as_json("similarity", "noisy.npz", cwd=folder)
    with np.load(folder / "noisy.npz") as file:
        top1, right = file["top1"], file["top1"] == file["labels"]
        assert found["models"] == file["models"].tolist()
    assert found["accuracy"] == pytest.approx(right.mean(axis=1))
    for name in ("dominance", "agreement", "kappa"):
        assert np.array(found[name]).shape == (8, 8)
        assert np.array_equal(found[name], np.array(found[name]).T)
    for i, j in [(0, 1), (7, 2)]:
        low, high = sorted((i, j), key=lambda k: right[k].mean())
        assert found["dominance"][i][j] == (right[low] & ~right[high]).mean()
        assert found["agreement"][i][j] == (top1[i] == top1[j]).mean()
        assert found["kappa"][i][j] == pytest.approx(cohen_kappa_score(right[i], right[j]))
        same = (right[i] == right[j]).mean()
        assert found["agreement_on_correctness"][i][j] == pytest.approx(same)
    assert found["mean_dominance"]["low"] < found["mean_dominance"]["value"]
    assert found["n"] == 547


def test_as_a_process(folder):
    run = "from shiftbed.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", run, "similarity", "noisy.npz", "--json"],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == as_json("similarity", "noisy.npz", cwd=folder)


def test_a_store_says_the_same_as_its_file(folder):
    file = as_json("similarity", "noisy.npz", cwd=folder)
    store = as_json("similarity", "kept", "--setting", "noisy", cwd=folder)
    for name in ("models", "accuracy", "dominance", "agreement", "kappa"):
        assert file[name] == store[name]


def test_a_testbed_file_has_right_and_wrong_only(folder):
    done = shiftbed("import", "noisy.npz", "-o", "bed.parquet", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = as_json("similarity", "bed.parquet", cwd=folder)
    file = as_json("similarity", "noisy.npz", cwd=folder)
    assert found["dominance"] == file["dominance"]
    assert found["agreement"] is None
    assert any("only right and wrong" in note for note in found["notes"])


def test_everything_else_it_can_say(folder):
    found = as_json(
        *("similarity", "clean.npz", "--pairs", "--unsolved", "--baseline", "model[0-3]"),
        *("--difficulty", "--group", "few=model[0-2]", "--group", "many=model[3-7]"),
        *("--triplets", "noisy.npz", "--cone", "3"),
        cwd=folder,
    )
    assert len(found["pairs"]) == 28
    assert {"p_value", "p_holm", "q_value", "dominance_low", "n"} <= found["pairs"][0].keys()
    assert sum(r["in_baseline"] for r in found["unsolved"]) == 4
    assert len(found["unsolved_by_class"]) == 10
    assert found["difficulty"][0]["models_b"] == 5
    assert found["triplets"]["events"] == 8 * 56
    assert found["triplets"]["cone"] == 3
    assert 0.5 < found["triplets"]["share_inside"] <= 1


def test_triplets_against_another_setting_of_the_same_store(folder):
    store = as_json("similarity", "kept", "--setting", "clean", "--triplets", "noisy", cwd=folder)[
        "triplets"
    ]
    files = as_json("similarity", "clean.npz", "--triplets", "noisy.npz", cwd=folder)["triplets"]
    assert store["inside"] == files["inside"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["similarity", "noisy.npz", "--pairs", "--unsolved", "--difficulty", "-n", "3"],
        ["similarity", "noisy.npz", "-m", "model1", "-m", "model2"],
        ["similarity", "clean.npz", "--triplets", "noisy.npz"],
        ["estimate", "clean.npz", "noisy.npz"],
        ["estimate", "clean.npz", "noisy-bare.npz"],
        ["estimate", "kept", "--id", "clean", "--ood", "noisy"],
        ["estimate", "kept", "--id", "clean", "--ood", "noisy", "--labels", "100"],
        ["mix", "clean.npz", "noisy.npz"],
        ["mix", "kept", "--id", "clean", "--ood", "noisy"],
        ["mix", "kept", "--id", "clean", "--ood", "noisy", "-m", "model0", "-m", "model7"],
    ],
    ids=" ".join,
)
def test_tables_print(folder, arguments):
    done = shiftbed(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert len(done.stdout.splitlines()) > 5
    assert not re.search(r"\b(nan|NaN|inf|None)\b", done.stdout)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".json"])
def test_tables_are_written(folder, suffix, tmp_path):
    read = {".parquet": pl.read_parquet, ".csv": pl.read_csv, ".json": pl.read_json}[suffix]
    commands = {
        "similarity": ["similarity", "noisy.npz"],
        "estimate": ["estimate", "clean.npz", "noisy.npz"],
        "mix": ["mix", "clean.npz", "noisy.npz"],
    }
    rows = {"similarity": 28, "estimate": 24, "mix": 3}
    for name, words in commands.items():
        path = tmp_path / f"{name}{suffix}"
        done = shiftbed(*words, "-o", str(path), cwd=folder)
        assert done.returncode == 0, done.stderr
        assert len(read(path)) == rows[name]


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".html"])
def test_figures_are_drawn(folder, suffix, tmp_path):
    commands = [["similarity", "clean.npz", "--triplets", "noisy.npz"]]
    if suffix in (".svg", ".html"):
        commands += [["estimate", "clean.npz", "noisy.npz"], ["mix", "clean.npz", "noisy.npz"]]
    for at, words in enumerate(commands):
        path = tmp_path / f"figure{at}{suffix}"
        done = shiftbed(*words, "--figure", str(path), cwd=folder)
        assert done.returncode == 0, done.stderr
        assert path.stat().st_size > 5000


class TestEstimate:
    def test_json(self, folder):
        found = as_json("estimate", "kept", "--id", "clean", "--ood", "noisy", cwd=folder)
        methods = [r["method"] for r in found["errors"]]
        assert methods == ["ALine-S", "ALine-D", "ATC-MC", "ATC-NE", "DoC", "AC", "ID"]
        assert found["check"]["holds"] is True
        assert found["agreement_line"]["pairs"] == 28
        assert found["accuracy_line"]["slope"] > 0
        assert found["rehearsal"]["mae"] > 0
        assert found["not_computable"] == {}
        for row in found["estimates"]:
            withheld = row["method"] in ("ID", "ALine-S", "ALine-D")
            assert row["low"] is None if withheld else row["low"] < row["estimate"] < row["high"]

    def test_without_labels(self, folder):
        found = as_json("estimate", "clean.npz", "noisy-bare.npz", cwd=folder)
        judged = as_json("estimate", "clean.npz", "noisy.npz", cwd=folder)
        assert [r["estimate"] for r in found["estimates"]] == [
            r["estimate"] for r in judged["estimates"]
        ]
        assert found["errors"] == []
        assert "probabilities" in found["not_computable"]["ATC-MC"]

    def test_two_settings_of_one_file(self, predictions):
        found = as_json(
            *("estimate", str(predictions / "cifar10_predictions_30models.npz")),
            *("--id", "original", "--ood", "v6"),
        )
        errors = {r["method"]: r["mae"] for r in found["errors"]}
        assert errors["ALine-S"] == pytest.approx(0.0114, abs=1e-4)


def test_unsolved_validation_images(predictions):
    file = predictions / "imagenetv2_67models_imagenet-validation-original.npz"
    done = shiftbed("similarity", file, "--unsolved", cwd=".")
    assert "2,384 of 50,000 examples (4.77 %) are right for none of 67" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["similarity", "imagenet-testbed-2020"], "a published testbed has accuracies"),
        (["similarity", "timm"], "not what each model answered per image"),
        (["similarity", "imagenet-testbed-2021"], "'imagenet-testbed-2020'?"),
        (["similarity", "missing.npz"], "no such file"),
        (["similarity", "clean-one.npz"], "at least two models, got 1"),
        (["similarity", "clean-bare.npz"], "labels"),
        (["similarity", "kept"], "has 2 settings, name one: clean, noisy"),
        (["similarity", "kept", "--setting", "clear"], "did you mean 'clean'"),
        (["similarity", "clean.npz", "-m", "model1", "-m", "modell"], "unknown model"),
        (["similarity", "clean.npz", "-o", "x.xlsx"], "a table is written to"),
        (["similarity", "clean.npz", "--figure", "x.bmp"], "a figure is written to"),
        (["similarity", "clean.npz", "--baseline", "x"], "goes with --unsolved"),
        (["similarity", "clean.npz", "--unsolved", "--baseline", "x"], "no model is called"),
        (["similarity", "clean.npz", "--group", "a=b"], "goes with --difficulty"),
        (["similarity", "clean.npz", "--cone", "3"], "goes with --triplets"),
        (["similarity", "clean.npz", "--level", "95"], "level must lie between"),
        (["similarity", "clean.npz", "--triplets", "noisy.npz", "--cone", "1"], "above 1"),
        (["similarity", "clean.npz", "--triplets", "other.npz"], "no such file"),
        (["estimate", "clean.npz"], "give an ID and an OOD file"),
        (["estimate", "clean-bare.npz", "noisy.npz"], "labels"),
        (["estimate", "kept", "--id", "clean", "--ood", "clean"], "are the same setting"),
        (["mix", "clean.npz", "noisy.npz", "-m", "model1"], "needs two --model, got 1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line(folder, arguments, message):
    done = shiftbed(*arguments, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


NAMES = [f"v{a}/{f:03d}.jpg" for a in range(4) for f in range(5)]


@pytest.fixture
def place(tmp_path):
    """A model with four classes that are two superclasses; one frame is wrong, one missing."""
    store = PredictionStore(tmp_path / "store")
    truth = np.array([int(name[1]) for name in NAMES])
    store.add_test_set(
        StoredTestSet(setting="frames", examples=tuple(NAMES), labels=truth, fingerprint="f")
    )
    answers = np.where(np.arange(20) == 1, 3, truth)
    readable = np.arange(20) != 19
    store.write_part("m", "frames", 0, part_from_top(answers, readable))
    store.write_cell("m", "frames", {"status": "complete"})
    sets = {f"v{a}/002.jpg": [f"v{a}/{f:03d}.jpg" for f in (0, 1, 3, 4)] for a in range(4)}
    (tmp_path / "pmsets.json").write_text(json.dumps(sets))
    (tmp_path / "labels.json").write_text(json.dumps({n: [int(n[1]) // 2] for n in NAMES}))
    (tmp_path / "map.json").write_text(json.dumps({str(c): c // 2 for c in range(4)}))
    return tmp_path


FILES = ["--metadata", "pmsets.json", "--metadata", "labels.json", "--class-map", "map.json"]


def test_pm_k(place):
    done = shiftbed("consistency", "store", *FILES, "--k", "0-2", "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["rule"], found["anchors"], found["frames"]) == ("frame", 4, 20)
    rows = found["consistency"]
    assert [row["k"] for row in rows] == [0, 1, 2]
    assert [row["value"] for row in rows] == pytest.approx([1, 2 / 3, 2 / 3])
    assert all((row["n"], row["left_out"]) == (3, 1) for row in rows)
    assert found["missing_frames"] == {"m": ["v3/004.jpg"]}
    shown = shiftbed("consistency", "store", *FILES, "--rule", "anchor", cwd=place)
    assert "by their anchor's labels" in shown.stdout
    assert "no prediction for v3/004.jpg" in shown.stdout


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--k", "x"], "--k: expected"),
        (["--k", "5-99999999999"], "--k: expected"),
        (["--rule", "frames"], "did you mean 'frame'"),
    ],
)
def test_wrong_input(place, options, why):
    done = shiftbed("consistency", "store", *FILES, *options, cwd=place)
    assert done.returncode == 2
    assert why in done.stderr
