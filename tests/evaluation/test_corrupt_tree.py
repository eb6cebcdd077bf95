"""Corrupted trees on disk: the original's steps, resumable, always the same bytes."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shiftbed.errors import InputError
from shiftbed.evaluation.corrupt_tree import corrupt, corrupted_folders, images_of, tree_paths
from shiftbed.evaluation.data import open_test_set
from shiftbed.evaluation.image_batches import eight_bits
from shiftbed.evaluation.perturbations import parse_perturbation
from shiftbed.evaluation.predict import pixels_to_float

NAMES = ["gaussian_noise:1,3", "pixelate:2", "greyscale"]
SMALL = {"size": 32, "format": "png"}


def folder_of_images(folder: Path, each: int = 20, size: int = 40) -> Path:
    rng = np.random.default_rng(0)
    for name in ("cat", "dog", "emu"):
        (folder / name).mkdir(parents=True)
        for i in range(each if name != "emu" else 0):  # a class without images
            pixels = rng.integers(0, 256, (size, size + 9, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i:03d}.png")
    return folder


def contents(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


@pytest.fixture
def source(tmp_path):
    return folder_of_images(tmp_path / "val")


@pytest.fixture
def val(source):
    return open_test_set(source)


def test_the_layout_and_the_manifest(val, tmp_path):
    root = tmp_path / "val-c"
    heard = []
    made = corrupt(val, root, NAMES, **SMALL, report=lambda *one: heard.append(one))
    assert (made.written, made.kept, made.unreadable) == (160, 0, ())
    assert heard[-1] == ("images", 160, 160)
    assert "160 files written" in str(made)
    names = ["greyscale:1", "gaussian_noise:1", "gaussian_noise:3", "pixelate:2"]
    assert list(corrupted_folders(root)) == names
    again = open_test_set(root / "gaussian_noise" / "3")
    assert again.examples == val.examples
    assert again.classes == ("cat", "dog", "emu")  # the empty class too, so that labels stay
    assert again.labels.tolist() == val.labels.tolist()
    head = json.loads((root / "manifest.json").read_text())
    assert head["source"]["fingerprint"] == val.fingerprint
    assert head["options"]["seed"] == 0
    parts = [json.loads(p.read_text()) for p in sorted((root / "manifest").iterdir())]
    listed = {name: entry for part in parts for name, entry in part.items()}
    files = {k: v for k, v in contents(root).items() if not k.startswith("manifest")}
    assert {name: entry["sha256"] for name, entry in listed.items()} == files


def test_png_is_the_corruption_in_memory_cut_to_eight_bits(val, tmp_path):
    corrupt(val, tmp_path / "c", ["gaussian_noise:3"], size=32, format="png")
    again = open_test_set(tmp_path / "c" / "gaussian_noise" / "3")
    rows = [3, 25]
    crops = []
    for row in rows:  # by hand: shorter side to 36, central 32
        picture = val.load(row).resize((44, 36), Image.Resampling.BILINEAR)
        crops.append(np.asarray(picture.crop((6, 2, 38, 34))))
    noisy = parse_perturbation("gaussian_noise:3").corrupt
    expected = noisy(pixels_to_float(np.stack(crops)), [val.examples[row] for row in rows])
    for row, image in zip(rows, expected, strict=True):
        found = np.asarray(again.load(row)).transpose(2, 0, 1)
        level = image * 255
        assert (found <= level + 2e-3).all()
        assert (found > level - 1).all()


def test_jpegs_are_of_quality_85(val, tmp_path):
    corrupt(val, tmp_path / "c", ["fog:2"], size=64)
    path = tmp_path / "c" / "fog" / "2" / "cat" / "000.png.jpeg"
    other = tmp_path / "other.jpeg"
    Image.new("RGB", (64, 64)).save(other, quality=85)
    with Image.open(path) as found, Image.open(other) as again:
        assert (found.format, found.size, found.mode) == ("JPEG", (64, 64), "RGB")
        assert found.quantization == again.quantization


def test_two_workers_and_one_write_the_same_bytes(val, tmp_path):
    for workers in (1, 2):
        corrupt(val, tmp_path / str(workers), NAMES, **SMALL, workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_only_what_is_missing_or_damaged_is_made_again(val, tmp_path):
    root = tmp_path / "c"
    corrupt(val, root, NAMES, **SMALL)
    before = contents(root)
    assert corrupt(val, root, NAMES, **SMALL).written == 0
    (root / "pixelate" / "2" / "cat" / "004.png").unlink()
    damaged = root / "gaussian_noise" / "1" / "dog" / "007.png"
    data = damaged.read_bytes()
    damaged.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    made = corrupt(val, root, NAMES, **SMALL)
    assert (made.written, made.kept) == (2, 158)
    assert contents(root) == before


def test_more_corruptions_can_be_added(val, tmp_path):
    corrupt(val, tmp_path / "a", ["fog:1"], **SMALL)
    made = corrupt(val, tmp_path / "a", ["fog:1-2"], **SMALL)
    assert (made.written, made.kept) == (40, 40)
    corrupt(val, tmp_path / "b", ["fog:1-2"], **SMALL)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 32, "format": "png", "seed": 1}, "seed 0, now 1"),
        ({"size": 40, "format": "png"}, "size 32, now 40"),
        ({"size": 32}, "format png, now jpeg"),
    ],
)
def test_a_tree_made_otherwise_is_refused(val, tmp_path, options, message):
    corrupt(val, tmp_path / "c", ["fog:1"], **SMALL)
    before = contents(tmp_path / "c")
    with pytest.raises(InputError, match=message):
        corrupt(val, tmp_path / "c", ["fog:1"], **options)
    assert contents(tmp_path / "c") == before


def test_a_folder_with_other_things_in_it_is_left_alone(val, source):
    before = contents(source)
    with pytest.raises(InputError, match="not empty"):
        corrupt(val, source, ["fog:1"], **SMALL)
    assert contents(source) == before


def test_unreadable_images_are_listed(source, tmp_path):
    (source / "dog" / "bad.png").write_bytes(b"no image")
    made = corrupt(open_test_set(source), tmp_path / "c", ["fog:1"], **SMALL)
    assert made.written == 40
    assert [line.split(":")[0] for line in made.unreadable] == ["dog/bad.png"]
    assert images_of(tmp_path / "c" / "fog" / "1", 40) is None  # rows are not those of the source


def test_the_images_of_a_whole_tree_are_those_of_its_source(val, tmp_path):
    corrupt(val, tmp_path / "c", ["fog:1"], **SMALL)
    assert images_of(tmp_path / "c" / "fog" / "1", len(val)) == val.fingerprint
    assert images_of(tmp_path / "val" / "cat", 20) is None


def test_ids_never_leave_the_tree(tmp_path):
    pixels = np.zeros((2, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "x.npz", images=pixels, labels=[0, 1])
    test_set = replace(open_test_set(tmp_path / "x.npz"), examples=("../../a", "/etc/b"))
    assert tree_paths(test_set, "png") == ["0/__/__/a.png", "1/etc/b.png"]
    corrupt(test_set, tmp_path / "c", ["fog:1"], size=16, format="png")
    assert (tmp_path / "c" / "fog" / "1" / "0" / "__" / "__" / "a.png").is_file()


def test_pictures_may_keep_their_sizes(tmp_path):
    for i, size in enumerate([(20, 30), (30, 20), (20, 30)]):
        (tmp_path / "v" / "a").mkdir(parents=True, exist_ok=True)
        Image.effect_noise(size, 50).save(tmp_path / "v" / "a" / f"{i}.png")
    made = corrupt(tmp_path / "v", tmp_path / "c", "contrast:2", size=None, format="png")
    found = made.test_set("contrast:2")
    assert [found.load(row).size for row in range(3)] == [(20, 30), (30, 20), (20, 30)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corruptions": []}, "at least one corruption"),
        ({"corruptions": "fog:9"}, "severities go from 1 to 5"),
        ({"corruptions": "pgd-linf:2/255"}, "unknown corruption"),
        ({"quality": 0}, "quality must be 1 to 100, got 0"),
        ({"quality": 90, "format": "png"}, "quality is that of jpeg files"),
        ({"size": None, "resize": 40}, "keep their size are not resized"),
    ],
)
def test_what_is_refused(val, tmp_path, options, message):
    given = {"corruptions": "fog:1"} | options
    with pytest.raises(InputError, match=message):
        corrupt(val, tmp_path / "c", given.pop("corruptions"), **given)
    assert not (tmp_path / "c").exists()


def test_one_corruption_of_the_tree_as_a_test_set(val, tmp_path):
    made = corrupt(val, tmp_path / "c", ["fog:1", "snow:2"], **SMALL)
    assert made.frame["corruption"].to_list() == ["fog:1", "snow:2"]
    assert made.test_set("snow:2").examples == val.examples
    with pytest.raises(InputError, match="unknown corruption of the tree 'fog:2'"):
        made.test_set("fog:2")


def test_levels_survive_float32():
    levels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    assert (eight_bits(pixels_to_float(levels)) == levels).all()


def test_imagenet_c_has_one_more_level(tmp_path):
    for name in ("noise/shot_noise/1/n01", "noise/shot_noise/5/n01", "extra/spatter/2/n01"):
        (tmp_path / name).mkdir(parents=True)
    found = corrupted_folders(tmp_path)
    assert list(found) == ["shot_noise:1", "shot_noise:5", "spatter:2"]
    (tmp_path / "again" / "spatter" / "2").mkdir(parents=True)
    with pytest.raises(InputError, match="there twice"):
        corrupted_folders(tmp_path)
    with pytest.raises(InputError, match="expected folders NAME/SEVERITY"):
        corrupted_folders(tmp_path / "noise" / "shot_noise" / "1")


@pytest.mark.slow
def test_killed_runs_end_with_the_same_tree(tmp_path):
    source = folder_of_images(tmp_path / "val", each=80)
    command = [
        *(sys.executable, "-c", "from shiftbed.cli import main; main()", "corrupt"),
        *(str(source), str(tmp_path / "killed"), "--size", "48", "--workers", "2"),
        *("--corruption", "gaussian_noise", "--corruption", "jpeg_compression:1-3"),
    ]
    run = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.time() + 60
    while not list((tmp_path / "killed").glob("manifest/part-*.json")):
        assert run.poll() is None
        assert time.time() < deadline
        time.sleep(0.005)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait(timeout=60)
    assert len(list((tmp_path / "killed").glob("manifest/part-*.json"))) < 5  # it was not done
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["written"] + found["kept"] == 160 * 8
    assert found["kept"] > 0
    names = ["gaussian_noise", "jpeg_compression:1-3"]
    corrupt(open_test_set(source), tmp_path / "whole", names, size=48)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
