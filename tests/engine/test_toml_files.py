"""What both kinds of files are read by: known keys, names that are there, files beside the file."""

from pathlib import Path

import pytest

from shiftbed.engine import toml_files
from shiftbed.errors import InputError
from shiftbed.records import Shift


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("timm:resnet18?weights=a.pt&size=32", "timm:resnet18?weights=beds/a.pt&size=32"),
        ("torch:a.pt?arch=python:net.py:make", "torch:beds/a.pt?arch=python:beds/net.py:make"),
        ("torch:/x/a.pt?arch=timm:resnet18", "torch:/x/a.pt?arch=timm:resnet18"),
        ("onnx:nets/a.onnx", "onnx:beds/nets/a.onnx"),
        ("run:runs/1a2b?step=3", "run:beds/runs/1a2b?step=3"),
        ("sklearn:model.skops", "sklearn:beds/model.skops"),
        ("sklearn:linear_model.LogisticRegression?C=1", None),
        ("python:~/net.py:build()", None),
        ("python:my.nets:build", None),
        ("hf:google/vit-base-patch16-224", None),
    ],
)
def test_files_of_models_are_beside_the_file(line, found):
    assert toml_files.model_beside(line, "beds") == (found or line)


def test_lists_of_classes_are_files_only_where_they_are(tmp_path):
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    line = "open_clip:ViT-B-32?classes=names.txt&templates=none.txt"
    found = toml_files.model_beside(line, tmp_path)
    assert f"classes={tmp_path}/names.txt" in found
    assert "templates=none.txt" in found


@pytest.mark.parametrize("path", ["s3://bucket/a", "/data/a", "~/a"])
def test_addresses_and_absolute_paths_stay(path):
    assert toml_files.beside(path, Path("beds")) == path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "not valid TOML"),
        ("nmae = 1", "unknown key 'nmae'; did you mean 'name'"),
    ],
)
def test_errors_name_the_file(tmp_path, text, said):
    file = tmp_path / "bed.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=f"{file}: .*{said}"):
        toml_files.read_toml(file, ["name"])
    with pytest.raises(InputError, match="no such file"):
        toml_files.read_toml(tmp_path / "none.toml", ["name"])


def test_tables_are_tables():
    with pytest.raises(InputError, match=r"models must be tables, \[\[models\]\]"):
        toml_files.tables({"models": {"id": 1}}, "models")
    with pytest.raises(InputError, match=r"at least one \[\[models\]\]"):
        toml_files.tables({}, "models", least=1)
    with pytest.raises(InputError, match=r"\[data.NAME\]"):
        toml_files.named_tables({"data": [1]}, "data")


def test_shifts_are_between_settings_that_are_there():
    shift = toml_files.read_shift({"id": "val", "ood": "sketch"})
    assert shift == Shift(name="sketch", kind="natural-dataset", source=("val",), target="sketch")
    toml_files.check_shifts([shift], {"val", "sketch"})
    with pytest.raises(InputError, match="setting of shift 'sketch' 'sketch'; did you mean 'sktch"):
        toml_files.check_shifts([shift], {"val", "sktch"})
    with pytest.raises(InputError, match="shift 'sketch' is there twice"):
        toml_files.check_shifts([shift, shift], {"val", "sketch"})
    with pytest.raises(InputError, match=r"unknown key in \[\[shifts\]\] 'odo'"):
        toml_files.read_shift({"id": "val", "odo": "sketch"})
    with pytest.raises(InputError, match=r"id in \[\[shifts\]\] must be a text or a list of texts"):
        toml_files.read_shift({"id": True, "ood": "sketch"})


def test_a_range_of_classes_has_both_ends():
    assert toml_files.class_numbers("0-4") == [0, 1, 2, 3, 4]
    with pytest.raises(InputError, match="such as '0-99', got '4-1'"):
        toml_files.class_numbers("4-1")
