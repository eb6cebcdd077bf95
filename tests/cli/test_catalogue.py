"""``shiftbed shifts``, ``data check``, and ``eval`` on test sets of the catalogue."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from shiftbed.catalogue.maps import imagenet_synsets, indices
from shiftbed.cli import app
from shiftbed.errors import InputError
from tests import trees
from tests.conftest import SHARED

SYNSETS = imagenet_synsets()


def run(*arguments, code=0):
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert done.exit_code == code, done.output
    return done.stdout


def test_the_json_contract():
    found = json.loads(run("shifts", "--json"))
    keys = {"name", "kind", "task", "source", "target", "classes", "images"}
    assert all(keys <= one.keys() for one in found["shifts"])
    pairs = [one for one in found["shifts"] if one["task"]]
    assert len(pairs) == 172
    assert len({one["task"] for one in pairs}) == 10
    assert sum(bool(one["held_out"]) for one in pairs) == 168
    classes = {one["name"]: one["classes"] for one in found["shifts"]}
    wanted = {"imagenet-a": 200, "imagenet-r": 200, "objectnet": 113}
    wanted |= {"imagenet-vid-robust": 30, "ytbb-robust": 24}
    assert {name: classes[name] for name in wanted} == wanted
    assert "SVIRO 10·9 = 90" in found["pairs"]


def test_the_list_says_how_the_count_comes_out():
    text = run("shifts")
    assert "172 (ID, OOD) pairs over 10 tasks and 36 data sets, 168" in text
    assert "imagenet@imagenet-a-classes" in text
    assert "pacs/photo-to-sketch" in run("shifts", "--task", "pacs")
    only = json.loads(run("shifts", "--kind", "consistency", "--json"))["shifts"]
    assert [one["name"] for one in only] == ["imagenet-vid-robust-pm10", "ytbb-robust-pm10"]


def test_show_explains_test_sets_tasks_and_shifts():
    facts = json.loads(run("shifts", "show", "imagenet-a", "--json"))
    assert facts["id_twin"] == "imagenet@imagenet-a-classes"
    assert facts["label_policy"] == "subset of 200 of 1000 classes, logits sliced before argmax"
    assert facts["kind"] == "adversarially-filtered"
    assert facts["layout"].startswith("DIR/n01498041/")
    assert facts["licence"] == "MIT"
    assert "Natural Adversarial Examples" in facts["citation"]
    assert facts["published"][0]["line"] == "imagenet-testbed-2020:imagenet-a"
    task = json.loads(run("shifts", "show", "office_home", "--json"))
    assert [one["type"] for one in task["domains"]] == ["artificial"] * 2 + ["real"] * 2
    assert task["pairs"] == 12
    pair = json.loads(run("shifts", "show", "pacs/photo-to-sketch", "--json"))
    assert pair["held_out"] == ["art_painting", "cartoon"]
    assert "113" in run("shifts", "show", "objectnet")
    with pytest.raises(InputError, match="did you mean 'objectnet'"):
        CliRunner().invoke(app, ["shifts", "show", "objectnett"], catch_exceptions=False)


def test_the_published_line_is_the_testbeds_own(imagenet):
    facts = json.loads(run("shifts", "show", "imagenet-v2", "--json"))
    line = imagenet.fit("imagenet-v2")
    (ours,) = [
        one for one in facts["published"] if one["line"] == "imagenet-testbed-2020:imagenet-v2"
    ]
    assert ours["models"] == line.n
    assert ours["pieces"][0]["slope"] == pytest.approx(line.weights[0])
    assert ours["r2"] == pytest.approx(line.r2)


def test_check_recognises_what_is_there(tmp_path):
    trees.vid(tmp_path / "videos")
    trees.folders(tmp_path / "imagenet-a", trees.A[:6])
    trees.folders(tmp_path / "imagenetv2-threshold0.7-format-val", map(str, range(30)), "{}.jpeg")
    trees.imagenet(tmp_path / "val")
    trees.objectnet(tmp_path / "objectnet-1.0")
    trees.domain(tmp_path, "pacs")
    trees.camelyon(tmp_path / "camelyon17_v1.0")
    trees.cifar(tmp_path)
    trees.cifar_c(tmp_path / "CIFAR-10-C")
    trees.folders(tmp_path / "c" / "fog" / "3", SYNSETS[:3], "{}.JPEG")
    (tmp_path / "cifar-10-batches-py").mkdir()
    found = json.loads(run("data", "check", tmp_path, "--json", code=1))
    specs = {one["name"]: one["spec"] for one in found["found"]}
    assert set(specs) == {
        *("imagenet", "imagenet-a", "imagenet-v2-threshold-0.7", "objectnet", "cifar-10"),
        *("imagenet-vid-robust", "imagenet-vid-robust/frames", "imagenet-c/fog-3"),
        *(f"cifar-10-c/fog-{severity}" for severity in range(1, 6)),
        *(f"pacs/{domain}" for domain in ("art_painting", "cartoon", "photo", "sketch")),
        *("camelyon17/id", "camelyon17/ood"),
    }
    from shiftbed.evaluation.data import open_test_set

    for one in found["found"]:
        assert not one["complete"]
        assert len(open_test_set(one["spec"])) == one["images"]
        assert any("published are" in words for words in one["missing"])
        assert one["layout"]
    assert any("94 of 95 parts not there" in words for words in found["gaps"])
    text = run("data", "check", tmp_path, code=1)
    assert "incomplete" in text
    assert "expected DIR/n01498041" in text


def test_check_says_what_is_complete(tmp_path):
    file = SHARED / "images" / "digits.npz"
    if not file.is_file():
        pytest.skip("digits.npz is not beside the checkout")
    (tmp_path / "digits.npz").symlink_to(file)
    found = json.loads(run("data", "check", tmp_path, "--json"))
    assert {one["name"]: one["complete"] for one in found["found"]} == {
        "digits/usps": True,
        "digits/mnist": True,
    }


def test_check_of_missing_domains_pickles_and_nothing(tmp_path):
    assert "no test set of the catalogue" in run("data", "check", tmp_path)
    for name in ("clipart", "infograph", "real"):
        trees.folders(tmp_path / "domain_net" / name, ["zebra"])
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in ("test_batch", "batches.meta"):
        (folder / name).write_bytes(b"\x80\x04.")
    found = json.loads(run("data", "check", tmp_path, "--json", code=1))
    (gap,) = found["gaps"]
    assert "domainnet/painting, domainnet/quickdraw, domainnet/sketch" in gap
    (pickled,) = [one for one in found["found"] if one["name"] == "cifar-10"]
    assert "pickles are not read" in pickled["missing"][0]


MODEL = """
import numpy as np

def fooled(pixels):
    '''1,000 classes: red and green spell the label; blue says class 501 looks likelier.'''
    mean = np.rint(pixels.mean(axis=(2, 3)) * 255).astype(int)
    label = (mean[:, 0] + 256 * mean[:, 1]) % 1000
    logits = np.zeros((len(pixels), 1000), dtype=np.float32)
    logits[np.arange(len(label)), label] = 5
    logits[mean[:, 2] > 127, 501] = 9
    return logits
"""


def spelled(path, label, fooled):
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = (label % 256, label // 256, 255 if fooled else 0)
    Image.new("RGB", (16, 16), colour).save(path)


@pytest.fixture
def pitfall(tmp_path):
    """40 images of ImageNet-A and of ImageNet's same classes; a class outside fools on some."""
    (tmp_path / "simulated.py").write_text(MODEL)
    own = indices("imagenet-a")[:20]
    assert 501 not in indices("imagenet-a")
    for at, index in enumerate(own):
        for i in range(2):
            spelled(tmp_path / "a" / SYNSETS[index] / f"{i}.png", index, 2 * at + i < 30)
            name = f"ILSVRC2012_val_{2 * at + i + 1:08d}.png"
            spelled(tmp_path / "val" / SYNSETS[index] / name, index, 2 * at + i < 6)
    spelled(tmp_path / "val" / SYNSETS[501] / "ILSVRC2012_val_00000099.png", 501, False)
    return tmp_path


def shiftbed(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "from shiftbed.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


EVAL = (
    *("eval", "python:simulated:fooled", "--store", "kept", "--preprocessing", "size=[8, 8]"),
    *("--preprocessing", "mean=[0, 0, 0]", "--preprocessing", "std=[1, 1, 1]"),
)


def test_the_imagenet_a_pitfall(pitfall, imagenet):
    """The same predictions: all classes, 200 classes, and a folder that numbers them itself."""
    told = json.loads(shiftbed(pitfall, *EVAL, "imagenet-a@a", "--json"))
    (subset,) = told["settings"]
    assert "40 images, published are 7,500" in told["notes"]["imagenet-a"]
    assert subset["setting"] == "imagenet-a"
    assert subset["value"] == 1.0
    policy = "subset of 200 of 1000 classes, logits sliced before argmax"
    assert subset["label_policy"] == policy
    full = json.loads(shiftbed(pitfall, *EVAL, "imagenet-a@a", "--policy", "full", "--json"))
    (full,) = full["settings"]
    assert full["setting"] == "imagenet-a@full"
    assert full["value"] == pytest.approx(10 / 40)
    assert full["label_policy"] == "all 1000 classes"
    named = json.loads(shiftbed(pitfall, *EVAL, "a", "--json"))["settings"][0]
    assert named["value"] == full["value"]  # the folder's WordNet ids say which classes they are
    numbered = (*EVAL, "a", "--labels", "model", "--store", "numbered", "--json")
    wrong = json.loads(shiftbed(pitfall, *numbered))["settings"][0]
    assert wrong["value"] == 0.0  # classes 0 to 19 of the folder are not ImageNet's
    assert policy in " ".join(shiftbed(pitfall, *EVAL, "imagenet-a@a").split())
    # as published: on the same images a model has more with 200 classes than with 1,000
    by_subset = imagenet.accuracy("val-on-imagenet-a-classes")
    by_all = imagenet.accuracy("val")
    both = np.isfinite(by_subset) & np.isfinite(by_all)
    assert both.sum() > 190
    assert (by_subset > by_all)[both].all()
    (row,) = [r for r in imagenet.shifts if r.name == "imagenet-a"]
    assert (row.knee, row.full_knee) == (0.9186, 0.7613)  # ResNet-50 by either policy


def test_superclasses_and_sets_of_labels_are_judged(pitfall):
    """A model that always says turtle (index 33), and next to it analog clock (409)."""
    (pitfall / "turtle.py").write_text(
        "import numpy as np\n\ndef always(pixels):\n"
        "    logits = np.zeros((len(pixels), 1000), dtype=np.float32)\n"
        "    logits[:, [33, 409]] = 5, 4\n    return logits\n"
    )
    trees.vid(pitfall / "vid")
    trees.objectnet(pitfall / "objectnet")
    trees.real(pitfall / "real")
    out = shiftbed(
        pitfall,
        *("eval", "python:turtle:always", "--store", "kept", "--preprocessing", "size=[8, 8]"),
        *("imagenet-vid-robust@vid", "objectnet@objectnet", "imagenet-real@real", "--json"),
    )
    found = {row["setting"]: row for row in json.loads(out)["settings"]}
    video = found["imagenet-vid-robust"]
    assert (video["value"], video["n"]) == (0.5, 2)  # the turtle's anchor, not the bird's and dog's
    assert video["label_policy"].startswith("288 of 1000 classes mapped to 30 by max of logits")
    objects = found["objectnet"]
    assert (objects["value"], objects["n"]) == (pytest.approx(2 / 6), 6)  # the clocks
    assert objects["label_policy"] == "125 of 1000 classes mapped to 113 by max of logits"
    real = found["imagenet-real"]
    assert (real["value"], real["n"]) == (0.0, 10)  # 4 of the 14 images have no label
    assert "images without labels left out" in real["label_policy"]


def test_cifar_through_imagenets_classes(pitfall):
    trees.cifar(pitfall / "cifar")
    (pitfall / "plane.py").write_text(
        "import numpy as np\n\ndef always(pixels):\n"
        "    logits = np.zeros((len(pixels), 1000), dtype=np.float32)\n"
        "    logits[:, 404] = 9\n    return logits\n"  # airliner
    )
    out = shiftbed(
        pitfall,
        *("eval", "python:plane:always", "--store", "kept", "--preprocessing", "size=[8, 8]"),
        *("cifar-10@cifar", "--through", "imagenet", "--how", "mean", "--json"),
    )
    (row,) = json.loads(out)["settings"]
    assert row["value"] == pytest.approx(2 / 20)
    assert row["label_policy"] == "142 of 1000 classes mapped to 10 by mean of softmax"


def test_a_run_with_the_catalogues_shift(pitfall):
    (pitfall / "testbed.toml").write_text(
        'store = "ran"\n[defaults]\n'
        "preprocessing = {size = [8, 8], mean = [0, 0, 0], std = [1, 1, 1]}\n"
        '[[models]]\nid = "python:simulated:fooled"\n'
        '[[test_sets]]\npath = "imagenet@val"\n[[test_sets]]\npath = "imagenet-a@a"\n'
        '[[shifts]]\ncatalogue = "imagenet-a"\n'
    )
    shiftbed(pitfall, "run", "testbed.toml", "--allow-code")
    rows = json.loads(shiftbed(pitfall, "score", "ran", "--json"))["settings"]
    found = {row["setting"]: row for row in rows}
    assert found["imagenet"]["n"] == 41
    assert found["imagenet"]["value"] == pytest.approx(35 / 41)
    assert found["imagenet"]["label_policy"] == "all 1000 classes"
    twin = found["imagenet@imagenet-a-classes"]
    assert (twin["n"], twin["value"]) == (40, 1.0)
    assert twin["label_policy"] == found["imagenet-a"]["label_policy"]
    listed = json.loads(shiftbed(pitfall, "testbeds", "show", "ran", "--json"))
    assert "imagenet-a" in json.dumps(listed["shifts"])
