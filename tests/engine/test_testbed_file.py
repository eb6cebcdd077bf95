from pathlib import Path

import pytest

from shiftbed.engine.testbed_file import read_testbed_toml
from shiftbed.errors import InputError

GOOD = """
name = "mine"
store = "kept"
[defaults]
batch_size = 16
[[models]]
id = "timm:resnet18"
kind = "standard"
[[models]]
id = "onnx:nets/a.onnx"
name = "a"
weights = "w.pth"
[[test_sets]]
name = "val"
path = "images/val"
[[test_sets]]
name = "a"
path = "images/a"
[[settings]]
test_set = "val"
[[settings]]
test_set = "val"
subset = [3, 1]
[[settings]]
test_set = "a"
map = {cat = [1, 2], dog = [0]}
how = "sum"
labels = "target"
id = "animals"
[[shifts]]
name = "s"
id = "val@classes-3-1"
ood = "animals"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "testbed.toml"
    path.write_text(text)
    return path


def test_a_whole_spec(tmp_path):
    spec = read_testbed_toml(write(tmp_path, GOOD))
    assert spec.name == "mine"
    assert spec.store == str(tmp_path / "kept")
    assert [m.name for m in spec.models] == ["timm:resnet18", "a"]
    assert spec.models[1].spec == f"onnx:{tmp_path}/nets/a.onnx"
    assert spec.models[1].options["weights"] == str(tmp_path / "w.pth")
    assert spec.models[0].info == {"kind": "standard"}
    assert [s.id for s in spec.settings] == ["val", "val@classes-3-1", "animals"]
    assert [s.setting.relabel for s in spec.settings] == [False, True, False]
    assert spec.shifts[0].source == ("val@classes-3-1",)
    assert spec.options == {"batch_size": 16}


def test_every_test_set_is_a_setting_by_default(tmp_path):
    text = '[[models]]\nid = "timm:a"\n[[test_sets]]\nname = "v"\npath = "v"\n'
    assert [s.id for s in read_testbed_toml(write(tmp_path, text)).settings] == ["v"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "mine"', 'nam = "mine"', "did you mean 'name'"),
        ("batch_size = 16", "batchsize = 16", "did you mean 'batch_size'"),
        ("batch_size = 16", 'batch_size = "16"', "wrong type"),
        ('id = "timm:resnet18"', "", "needs an id"),
        ('name = "a"\npath', 'name = "val"\npath', "'val' is there twice"),
        (
            '[[settings]]\ntest_set = "val"\n[[settings]]',
            '[[settings]]\ntest_set = "vall"\n[[settings]]',
            "did you mean 'val'",
        ),
        ("subset = [3, 1]", "subset = [3, 3]", "subset"),
        ("subset = [3, 1]", "subset = 1.5", "class numbers or a range such as '0-99', got 1.5"),
        ("subset = [3, 1]", 'subset = "0-99999999999"', "class numbers or a range"),
        ('name = "mine"', "name = 3", "name in the file must be a text, got '3'"),
        ("subset = [3, 1]", "subst = [3, 1]", "did you mean 'subset'"),
        ('how = "sum"', 'how = "product"', "unknown way to combine"),
        ('labels = "target"', 'labels = "goal"', "'model' or 'target'"),
        ('name = "mine"', "name = ", "not valid TOML"),
    ],
)
def test_mistakes_are_named(tmp_path, old, new, message):
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(InputError, match=message) as caught:
        read_testbed_toml(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_testbed_toml(tmp_path / "none.toml")
