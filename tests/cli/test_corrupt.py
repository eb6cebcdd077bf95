"""``shiftbed corrupt``, ``mce`` and the perturbations of ``eval``, as a user meets them."""

import json
import os
import subprocess
import sys

import pytest
from PIL import Image

from tests.engine.digits import make_digits


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_digits(tmp_path_factory.mktemp("digits"))


def shiftbed(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", "from shiftbed.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        timeout=240,
    )


def as_json(folder, *arguments, code=0):
    done = shiftbed(folder, *arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_eval_with_corruptions_and_attacks_then_mce(folder):
    found = as_json(
        *(folder, "eval", "python:digit_nets:net()", "val.npz", "--name", "net"),
        *("--corruption", "contrast", "--corruption", "fog:1-5", "--attack", "pgd-linf:16/255"),
        *("--attack-option", "steps=5"),
    )
    values = {row["setting"]: row for row in found["settings"]}
    assert len(values) == 12
    assert found["failed"] == {}
    assert values["val+pgd-linf:16/255?steps=5"]["value"] < values["val"]["value"]
    assert {row["n"] for row in values.values()} == {600}
    errors = as_json(folder, "mce", "store", "--corruption", "contrast", "--corruption", "fog")
    (row,) = errors["models"]
    assert row["corruptions"] == 2
    assert row["note"] == "paired over images"
    assert row["low"] < row["mce"] < row["high"]
    means = [
        sum(1 - values[f"val+{name}:{level}"]["value"] for level in range(1, 6)) / 5 / reference
        for name, reference in (("contrast", 0.853204), ("fog", 0.819324))
    ]
    assert row["mce"] == pytest.approx(sum(means) / 2)


def test_what_does_not_apply_is_said_and_the_rest_is_there(folder):
    found = as_json(
        *(folder, "eval", "python:digit_nets:plain", "val.npz", "--store", "other"),
        *("--share", "0.1", "--attack", "fgsm-linf:8/255"),
        code=1,
    )
    assert [row["setting"] for row in found["settings"]] == ["val@share-0.1"]
    (why,) = found["failed"].values()
    assert why.startswith("not applicable: fgsm-linf:8/255 needs gradients")


def test_a_tree_and_the_sheet(folder, tmp_path):
    for name in ("a", "b"):
        (tmp_path / "val" / name).mkdir(parents=True)
        Image.effect_noise((50, 60), 90).convert("RGB").save(tmp_path / "val" / name / "0.jpg")
    arguments = ("corrupt", "val", "val-c", "--corruption", "brightness", "--size", "40")
    found = as_json(tmp_path, *arguments)
    assert (found["written"], found["kept"], len(found["settings"])) == (10, 0, 5)
    assert as_json(tmp_path, *arguments)["kept"] == 10
    with Image.open(tmp_path / "val-c" / "brightness" / "5" / "b" / "0.jpg") as image:
        assert (image.format, image.size) == ("JPEG", (40, 40))
    found = as_json(tmp_path, "corrupt", "--sheet", "sheet.png", "--size", "32")
    assert len(found["corruptions"]) == 20
    with Image.open(tmp_path / "sheet.png") as image:
        assert (image.format, list(image.size)) == ("PNG", found["size"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["corrupt", "val.npz"], "give a test set and the folder"),
        (["corrupt", "val.npz", "c", "--image", "x"], "--image goes with --sheet"),
        (["corrupt", "--sheet", "s.png", "--workers", "2"], "--sheet shows all corruptions"),
        (["corrupt", "val.npz", "c", "--as-is", "--size", "32"], "--as-is keeps the size"),
        (["corrupt", "val.npz", "c", "--corruption", "rain:2"], "unknown corruption 'rain'"),
        (["corrupt", "val.npz", "c", "--format", "gif"], "unknown image format 'gif'"),
        (["mce", "imagenet-testbed-2020"], "never mixed; say which"),
        (["eval", "python:digit_nets:plain", "val.npz", "--frost", "x"], "no perturbation goes"),
        (
            ["eval", "python:digit_nets:plain", "val.npz", "--attack", "pgd-linf:2"],
            "write 2/255",
        ),
    ],
)
def test_bad_input_gets_one_line(folder, arguments, message):
    done = shiftbed(folder, *arguments)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert message in line
