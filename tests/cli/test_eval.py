"""``shiftbed eval``: any model, any test set, bad images and all."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import shiftbed as sb
from shiftbed.results.stores import verify_store
from tests.cli.in_process import shiftbed as in_process

MODEL = """
import numpy as np

def colours(pixels):
    '''Red, green or blue: the channel with the highest mean.'''
    return (pixels.mean(axis=(2, 3)) * 20).astype(np.float32)

def turned(pixels):
    '''The same with classes in another order.'''
    return colours(pixels)[:, [2, 0, 1]]
"""


def shiftbed(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", "from shiftbed.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        timeout=180,
    )


@pytest.fixture
def folder(tmp_path):
    """Images of three colours in a folder per class, and a model that knows colours."""
    (tmp_path / "colour_models.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    for at, name in enumerate(("a_red", "b_green", "c_blue")):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(20):
            pixels = rng.integers(0, 120, (40, 50, 3), dtype=np.uint8)
            pixels[..., at] += 100
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{i}.png")
    return tmp_path


COLOURS = (
    *("eval", "python:colour_models:colours", "images", "--store", "kept", "--json"),
    *("--preprocessing", "size=[32, 32]", "--preprocessing", "mean=[0, 0, 0]"),
    *("--preprocessing", "std=[1, 1, 1]"),
)


def test_the_json_contract(folder):
    done = shiftbed(folder, *COLOURS, "--metric", "top1", "--metric", "ece", "--metric", "nll")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["model"] == "python:colour_models:colours"
    assert found["backend"]
    assert found["images_per_second"] > 0
    rows = {row["metric"]: row for row in found["settings"]}
    assert {"setting", "metric", "value", "low", "high", "n", "label_policy"} <= rows["top1"].keys()
    assert rows["top1"]["value"] == 1.0
    assert rows["top1"]["n"] == 60
    assert rows["top1"]["low"] < 1.0
    assert rows["nll"]["value"] > 0
    assert rows["top1"]["label_policy"]


def test_the_second_time_nothing_is_predicted(folder):
    assert shiftbed(folder, *COLOURS).returncode == 0
    again = json.loads(shiftbed(folder, *COLOURS).stdout)
    assert again["images_per_second"] is None
    assert again["settings"][0]["value"] == 1.0


def test_bad_images_are_named_and_never_count(folder):
    images = folder / "images"
    whole = Image.effect_noise((200, 200), 90).convert("RGB")
    whole.save(images / "a_red" / "whole.jpg")
    data = (images / "a_red" / "whole.jpg").read_bytes()
    (images / "a_red" / "whole.jpg").unlink()
    (images / "a_red" / "truncated.jpg").write_bytes(data[: len(data) // 2])
    (images / "b_green" / "text.jpg").write_text("not an image")
    (images / "d_empty").mkdir()
    Image.new("RGB", (1, 1), (0, 0, 255)).save(images / "c_blue" / "one_pixel.png")
    Image.new("CMYK", (30, 30), (0, 255, 255, 0)).save(images / "a_red" / "cmyk.jpg")
    grey = np.full((30, 30), 40_000, dtype=np.uint16)
    Image.fromarray(grey).save(images / "a_red" / "sixteen_bit.png")
    done = shiftbed(folder, *COLOURS)
    assert done.returncode == 1, done.stderr  # more than one in a hundred
    found = json.loads(done.stdout)
    assert sorted(text.split(" ")[0] for text in found["unreadable"]) == [
        "a_red/truncated.jpg",
        "b_green/text.jpg",
    ]
    (row,) = found["settings"]
    assert (row["n"], row["unreadable"]) == (63, 2)
    stopped = shiftbed(folder, *COLOURS, "--on-unreadable", "stop", "--store", "other")
    assert stopped.returncode == 2
    assert "cannot read" in stopped.stderr


def test_what_could_not_be_read_is_tried_again(folder, monkeypatch):
    def evaluate(store):
        look = {"size": (32, 32), "mean": (0, 0, 0), "std": (1, 1, 1)}
        spec = "python:colour_models.py:colours"
        return sb.evaluate(spec, "images", store=store, preprocessing=look)

    monkeypatch.chdir(folder)
    real, calls = Image.open, []

    def fail_sometimes(*given, **options):
        calls.append(1)
        if len(calls) % 4 == 0:
            raise OSError("the network is away")
        return real(*given, **options)

    monkeypatch.setattr(Image, "open", fail_sometimes)
    first = evaluate("kept")
    lost = first.frame["unreadable"][0]
    assert lost > 5
    assert first.incomplete
    assert f"{lost} of 60 images could not be read" in str(first)
    monkeypatch.setattr(Image, "open", real)
    again = evaluate("kept")
    assert not again.incomplete
    assert again.frame.equals(evaluate("whole").frame)
    assert verify_store("kept").whole


def test_a_damaged_image_may_be_repaired_and_no_other_may_change(folder):
    def evaluate(*more):
        return shiftbed(folder, *COLOURS, *more)

    def files():
        return {
            path.relative_to(folder): path.read_bytes()
            for path in sorted((folder / "kept").rglob("*.*"))
            if "test_sets" in path.parts
        }

    broken = folder / "images" / "a_red" / "0.png"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-40])
    first = evaluate("--store", "kept")
    assert first.returncode == 1, first.stderr
    assert len(json.loads(first.stdout)["unreadable"]) == 1
    before = files()
    assert evaluate("--store", "kept").returncode == 1
    assert files() == before
    assert verify_store(folder / "kept").whole
    broken.write_bytes(whole)
    other = folder / "images" / "b_green" / "1.png"
    kept = other.read_bytes()
    Image.new("RGB", (9, 9)).save(other)
    refused = evaluate("--store", "kept")
    assert refused.returncode == 2
    assert "other examples or labels" in refused.stderr
    other.write_bytes(kept)
    again = evaluate("--store", "kept")
    assert again.returncode == 0, again.stderr
    direct = evaluate("--store", "whole")
    assert json.loads(again.stdout)["settings"] == json.loads(direct.stdout)["settings"]
    sets = [sb.PredictionStore(folder / name).test_set("images") for name in ("kept", "whole")]
    assert sets[0].fingerprint == sets[1].fingerprint
    assert sets[0].unread == ()
    assert verify_store(folder / "kept").whole


def test_a_changed_image_is_another_test_set(folder):
    assert shiftbed(folder, *COLOURS).returncode == 0
    Image.new("RGB", (9, 9)).save(folder / "images" / "a_red" / "0.png")
    done = shiftbed(folder, *COLOURS)
    assert done.returncode == 2
    assert "other examples or labels" in done.stderr


class TestLabelPolicies:
    def test_a_subset_slices_logits_before_the_argmax(self, folder):
        # Without class 0 a red image goes to green or blue; the folder a_red is left out.
        done = shiftbed(folder, *COLOURS, "--subset", "1,2", "--labels", "model")
        (row,) = json.loads(done.stdout)["settings"]
        assert (row["value"], row["n"]) == (1.0, 40)
        assert row["setting"] == "images@classes-1-2"
        assert "logits sliced before argmax" in row["label_policy"]

    def test_a_class_map(self, folder):
        (folder / "map.json").write_text(json.dumps({"warm": [0], "cold": [1, 2]}))
        done = shiftbed(
            folder, *COLOURS, "--class-map", "map.json", "--how", "sum", "--labels", "model"
        )
        (row,) = json.loads(done.stdout)["settings"]
        assert row["n"] == 60
        assert row["value"] == 1.0
        assert "mapped to 2 by sum of softmax" in row["label_policy"]

    def test_the_wrong_label_space_shows(self, folder):
        """The pitfall: labels of the subset read as labels of the whole."""
        done = shiftbed(folder, *COLOURS, "--subset", "1,2", "--labels", "target")
        (row,) = json.loads(done.stdout)["settings"]
        assert row["value"] < 0.5


CHECK = (*COLOURS, "--check", "--published", "1.0", "--images", "60")


class TestCheck:
    def test_a_right_pipeline_agrees(self, folder):
        found = json.loads(shiftbed(folder, *CHECK).stdout)
        assert found["agrees"] is True
        assert found["discrepancy"] == 0.0
        assert found["likely"].startswith("none needed")

    def test_swapped_channels_are_named(self, folder):
        found = json.loads(shiftbed(folder, *CHECK, "--preprocessing", "mode=BGR").stdout)
        assert found["agrees"] is False
        assert found["likely"] == "channel order RGB, which explains it"
        assert found["not_interpretable_below"] == pytest.approx(2 / 3, abs=0.01)

    def test_another_order_of_classes_is_named(self, folder):
        arguments = [a.replace(":colours", ":turned") for a in CHECK]
        found = json.loads(shiftbed(folder, *arguments).stdout)
        assert found["likely"].startswith("label order")

    def test_a_published_figure_is_needed(self, folder):
        arguments = [a for a in CHECK if a not in ("--published", "1.0")]
        done = shiftbed(folder, *arguments)
        assert done.returncode == 2
        assert "give --published" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eval", "tim:resnet18", "images"], "did you mean 'timm'"),
        (["eval", "python:nothing:at_all", "images"], "nothing"),
        (["eval", "python:colour_models:colours", "imagos"], "no such file"),
        (["eval", "timm:resnet18", "images", "--backend", "fast"], "backend must be"),
        (["eval", "timm:resnet18", "images", "--subset", "a"], "--subset: expected"),
        (["eval", "timm:resnet18", "images", "--class-map", "no.json"], "no.json"),
        (["score", "nowhere"], "no prediction store there"),
        (["run", "nothing.toml"], "nothing.toml"),
        (["store", "verify", "nowhere"], "no prediction store there"),
    ],
)
def test_bad_input_gets_one_line(folder, arguments, message):
    done = shiftbed(folder, *arguments)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert message in line


@pytest.mark.parametrize(
    "wrong",
    [["imagos"], ["images", "--batch-size", "0"]],
)
def test_a_refused_evaluation_leaves_no_store(folder, wrong):
    model = "python:colour_models:colours"
    done = shiftbed(folder, "eval", model, *wrong, "--store", "refused", *SMALL)
    assert done.returncode == 2, done.stdout
    assert not (folder / "refused").exists()


SMALL = COLOURS[5:]


def test_several_models_at_once(folder):
    """Each as if alone; test sets come after the models."""
    models = ("python:colour_models:colours", "python:colour_models:turned")
    done = shiftbed(folder, "eval", *models, "images", "--store", "kept", *SMALL)
    assert done.returncode == 0, done.stderr
    found = {one["model"]: one["settings"][0]["value"] for one in json.loads(done.stdout)["models"]}
    assert list(found) == list(models)
    for model in models:
        alone = shiftbed(folder, "eval", model, "images", "--store", "alone", *SMALL)
        assert json.loads(alone.stdout)["settings"][0]["value"] == found[model]
    scored = json.loads(shiftbed(folder, "score", "kept", "--json").stdout)["settings"]
    assert {one["model"]: one["value"] for one in scored} == found
    for option in (["--name", "x"], ["--weights", "w.pt"], ["--check"]):
        refused = shiftbed(folder, "eval", *models, "images", *option)
        assert refused.returncode == 2
        assert refused.stderr == f"shiftbed: {option[0]} goes with one model, not with 2\n"
    nothing = shiftbed(folder, "eval", *models)
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert "give a test set after the models" in nothing.stderr


def test_how_a_test_set_is_read(folder):
    """A manifest with unusual columns, its root elsewhere, its classes in an order of their own."""
    rows = [
        (f"{name}/{i}.png", word)
        for name, word in (("a_red", "zinnober"), ("b_green", "moss"), ("c_blue", "sea"))
        for i in range(20)
    ]
    table = "path,colour,other\n" + "".join(f"{path},{word},0\n" for path, word in rows)
    (folder / "lists").mkdir()
    (folder / "lists" / "list.csv").write_text(table)
    (folder / "names.txt").write_text("zinnober\nmoss\nsea\n")
    how = ("--label-column", "colour", "--root", "images", "--classes", "names.txt")
    line = ("eval", "python:colour_models:colours", "lists/list.csv", "--store", "kept", *SMALL)
    done = shiftbed(folder, *line, *how, "--labels", "model")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["settings"][0]["value"] == 1.0
    sorted_names = shiftbed(
        folder, *line[:3], "--store", "other", *SMALL, *how[:4], "--labels", "model"
    )  # moss, sea, zinnober: every label is another colour's
    assert json.loads(sorted_names.stdout)["settings"][0]["value"] == 0.0
    python = sb.evaluate(
        sb.model(lambda x: x.mean(axis=(2, 3)), name="c", size=32),
        folder / "lists" / "list.csv",
        reading={
            "label_column": "colour",
            "root": folder / "images",
            "classes": ["zinnober", "moss", "sea"],
        },
        labels={"labels": "model"},
    )
    assert python.frame["value"].to_list() == [1.0]
    wrong = shiftbed(folder, *line, "--label-column", "color")
    assert wrong.returncode == 2
    assert "color" in wrong.stderr


def test_a_summary_with_the_next_command(folder, monkeypatch):
    """After a run of a minute (none here), or on a terminal; the command it names works."""
    from shiftbed.cli import running

    monkeypatch.setattr(running, "MINUTE", 0.0)
    monkeypatch.syspath_prepend(str(folder))
    loud = [one for one in COLOURS if one != "--json"]
    done = in_process(*loud, cwd=folder)
    assert done.returncode == 0, done.stderr
    said = next(one for one in done.output.splitlines() if "Next: " in one)
    assert re.match(r"1 cell kept in kept, 60 images at [\d,]+/s\. Next: shiftbed score kept", said)
    following = said.partition("Next: shiftbed ")[2].split()
    assert in_process(*following, cwd=folder).returncode == 0
    other = [*loud, "--store", "other"]
    quiet = in_process(*other, "--quiet", cwd=folder)
    assert quiet.returncode == 0
    assert "Next: " not in quiet.output


def test_a_share_that_keeps_everything_says_so(folder):
    for name in ("a_red", "b_green", "c_blue"):
        for i in range(1, 20):
            (folder / "images" / name / f"{i}.png").unlink()
    done = json.loads(shiftbed(folder, *COLOURS, "--share", "0.1").stdout)
    (notes,) = done["notes"].values()
    assert notes == ["a share of 0.1 keeps all 3 images: at least one of each class"]
