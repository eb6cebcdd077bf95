"""Labels that cannot be meant: classes are matched by name, or the evaluation is refused."""

import json

import numpy as np
import polars as pl
import pytest
from PIL import Image

import shiftbed as sb
from shiftbed.catalogue.maps import groups, imagenet_synsets
from shiftbed.cli.main import app
from shiftbed.engine.class_names import imagenet_words
from shiftbed.errors import InputError

SOME = list(range(3, 1000, 5))
"""200 of ImageNet's classes."""


def knows(classes, right=0.9):
    """A model that is right for nine of ten images: their first pixels say what they are."""

    def answer(pixels):
        levels = np.rint(pixels[:, :, 0, 0] * 255).astype(int)
        label, number = (levels[:, 0] * 256 + levels[:, 1]) % classes, levels[:, 2]
        label = np.where(number % 10 < 10 * right, label, (label + 1) % classes)
        return np.eye(classes, dtype=np.float32)[label] * 5

    return answer


def image(label, number):
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:] = label // 256, label % 256, number
    return pixels


def tree(folder, names, labels, each=10):
    """An image folder: a folder per name, whose images show the label that the model has for it."""
    for name, label in zip(names, labels, strict=True):
        (folder / name).mkdir(parents=True)
        for number in range(each):
            Image.fromarray(image(label, number)).save(folder / name / f"{number}.png")
    return folder


def accuracy(model, path, **options):
    found = sb.evaluate(model, str(path), **options)
    return found.frame["value"][0], found


def test_200_synsets_of_1000(tmp_path):
    synsets = imagenet_synsets()
    folder = tree(tmp_path / "some", [synsets[at] for at in SOME], SOME)
    model = sb.model(knows(1000), name="knows", size=8, classes=1000)
    value, found = accuracy(model, folder)
    assert value == 0.9
    record = found.store.cell("knows", "some")
    assert "matched" in record["classes_matched"]
    best = found.store.read("knows", "some", ["class_1"])["class_1"].to_numpy()
    assert (best < 200).mean() >= 0.9  # in the test set's numbers; others come behind
    by_rank, _ = accuracy(model, folder, labels={"labels": "model"})
    assert by_rank < 0.01


def test_by_the_words_of_imagenet(tmp_path):
    words = imagenet_words()[0]
    chosen = [at for at in range(0, 1000, 50) if words[at].count(",") == 0][:8]
    names = [words[at].replace(" ", "_").upper() for at in chosen]
    folder = tree(tmp_path / "words", names, chosen)
    assert accuracy(sb.model(knows(1000), name="k", size=8, classes=1000), folder)[0] == 0.9


def test_by_the_models_own_names(tmp_path):
    own = ["zebra", "aardvark", "heron", "mole rat"]
    folder = tree(tmp_path / "named", ["heron", "mole_rat", "zebra"], [2, 3, 0])
    model = sb.model(knows(4), name="k", size=8, classes=own)
    assert accuracy(model, folder)[0] == 0.9
    same = tree(tmp_path / "all", [*own[:3], "Mole-Rat"], range(4))  # another order than sorted
    assert accuracy(model, same)[0] == 0.9


def test_nine_of_ten_of_cifar(tmp_path):
    names = list(groups("cifar-10"))
    folder = tree(tmp_path / "nine", [n for n in names if n != "bird"], [0, 1, *range(3, 10)])
    assert accuracy(sb.model(knows(10), name="k", size=8, classes=10), folder)[0] == 0.9


def test_by_number(tmp_path):
    folder = tree(tmp_path / "numbers", ["2", "10", "999"], [2, 10, 999])
    assert accuracy(sb.model(knows(1000), name="k", size=8, classes=1000), folder)[0] == 0.9


def test_several_models_share_a_setting(tmp_path):
    """Each is judged by its own classes, in the test set's numbers."""
    folder = tree(tmp_path / "both", ["cat", "dog"], [1, 0])
    one = sb.model(knows(2), name="one", size=8, classes=["dog", "cat"])
    wide = sb.model(knows(3), name="wide", size=8, classes=["dog", "cat", "frog"])
    found = sb.evaluate([one, wide], str(folder))
    assert found.frame["value"].to_list() == [0.9, 0.9]


@pytest.mark.parametrize(("classes", "names"), [
    (1000, ["cat", "dog", "n01440764"]),
    (3, ["cat", "dog"]),
    (2, ["cat", "dog", "frog"]),
    (["hot", "cold"], ["cat", "dog"]),
    (["cat", "frog"], ["cat", "dog"]),
    (10, ["airplane", "monkey"]),
])  # fmt: skip
def test_what_does_not_agree_is_refused(tmp_path, classes, names):
    folder = tree(tmp_path / "other", names, range(len(names)), each=1)
    size = classes if isinstance(classes, int) else len(classes)
    model = sb.model(knows(size), name="k", size=8, classes=classes)
    with pytest.raises(InputError, match="--class-map FILE or --subset") as refused:
        sb.evaluate(model, str(folder))
    assert "\n" not in str(refused.value)
    assert "--labels model" in str(refused.value)


def test_labels_beyond_the_models_classes_are_refused():
    images = np.zeros((3, 8, 8, 3), np.uint8)
    model = sb.model(knows(2), name="k", size=8, classes=2)
    with pytest.raises(InputError, match="labels up to 2"):
        sb.evaluate(model, sb.TestSet(images, [0, 1, 2], name="t"))


def test_the_same_number_of_classes_without_names_is_as_numbered(tmp_path):
    folder = tree(tmp_path / "same", ["cat", "dog"], [0, 1])
    assert accuracy(sb.model(knows(2), name="k", size=8, classes=2), folder)[0] == 0.9
    vague = sb.model(knows(2), name="v", size=8, classes=["LABEL_0", "LABEL_1"])
    assert accuracy(vague, folder)[0] == 0.9


def test_the_commands_way_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tree(tmp_path / "own", ["left", "right"], [7, 4])
    (tmp_path / "net.py").write_text(
        "from tests.engine.test_class_names import knows\n"
        "net = knows(9)\n"
        "net.preprocessing = {'size': (8, 8), 'crop': 'none'}\n"
    )
    with pytest.raises(InputError, match="own has 2 classes"):
        app(["eval", "python:net.py:net", "own"], standalone_mode=False)
    (tmp_path / "map.json").write_text('{"left": [7], "right": [4]}')
    app(["eval", "python:net.py:net", "own", "--class-map", "map.json", "--json"],
        standalone_mode=False)  # fmt: skip
    assert json.loads(capsys.readouterr().out)["settings"][0]["value"] >= 0.9
    again = ["eval", "python:net.py:net", "own", "--labels", "model", "--store", "other", "--json"]
    app(again, standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["settings"][0]["value"] == 0.0


def test_a_run_begun_under_other_numbers_is_not_mixed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tree(tmp_path / "both", ["cat", "dog"], [1, 0])
    model = sb.model(knows(2), name="one", size=8, classes=["dog", "cat"])
    sb.evaluate(model, str(folder), store="kept", same=True)
    store = sb.evaluate(model, str(folder), store="kept", same=True).store
    record = store.cell("one", "both")
    store.remove("one", "both")
    store.write_cell("one", "both", {**record, "classes_matched": None, "status": "running"})
    with pytest.raises(InputError, match="another way"):
        sb.evaluate(model, str(folder), store="kept", same=True)


def test_attacks_see_the_matched_classes(tmp_path):
    torch = pytest.importorskip("torch")
    folder = tree(tmp_path / "both", ["cat", "dog"], [1, 0])

    class Net(torch.nn.Module):
        def forward(self, x):
            bright = x[:, 1, 0, 0] * 255
            return torch.stack([1 - bright, bright, 0 * bright - 9], 1)

    model = sb.model(Net(), name="net", size=8, mean=0.0, std=1.0, classes=["dog", "cat", "frog"])
    found = sb.evaluate(model, str(folder), attacks=["fgsm-linf:8/255"])
    by = dict(found.frame.select("setting", "value").rows())
    assert by["both"] == 1.0
    assert min(by.values()) < 0.6


def test_chance_of_a_trained_model_is_flagged(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    timm = pytest.importorskip("timm")
    monkeypatch.chdir(tmp_path)
    net = timm.create_model("resnet10t", num_classes=1000)
    torch.save(net.state_dict(), "net.pt")
    images = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    np.savez("val.npz", images=images, labels=np.arange(40))
    line = "timm:resnet10t?num_classes=1000&size=32"
    given = sb.evaluate(f"{line}&weights=net.pt", "val.npz", store="store")
    assert "no better than guessing among 1,000 classes" in given.frame["note"][0]
    assert "no better than guessing" in str(sb.score("store"))
    drawn = sb.evaluate(f"{line}&pretrained=false", "val.npz", store="store")
    assert drawn.frame["note"][0] == ""
    attacked = sb.evaluate(
        f"{line}&weights=net.pt", "val.npz", store="store", corruptions=["fog:5"], backend="torch"
    )
    fog = attacked.frame.filter(pl.col("setting").str.contains("fog"))
    assert fog["note"].to_list() == [""]
