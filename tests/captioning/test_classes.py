import json
from importlib.util import find_spec

import pytest

from shiftbed.captioning import CaptionClass, read_classes
from shiftbed.errors import InputError

TENCH = CaptionClass(name="tench", synonyms=("Tinca tinca",))
FOX = CaptionClass(name="fox")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.csv", "name,synonyms\ntench,Tinca tinca\nfox,\n"),
        ("c.csv", "\ufeffname,synonyms\ntench,Tinca tinca;\nfox,\n"),
        ("c.tsv", "name\tsynonyms\ntench\tTinca tinca\nfox\t\n"),
        ("c.txt", "tench, Tinca tinca\n\nfox\n"),
        ("c.json", json.dumps({"tench": ["Tinca tinca"], "fox": []})),
        ("c.json", json.dumps([{"name": "tench", "synonyms": ["Tinca tinca"]}, "fox"])),
    ],
)
def test_formats(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_classes(tmp_path / name) == (TENCH, FOX)


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("c.csv", b"label\nx\n", "no column 'name'"),
        ("c.json", b"{", "not valid JSON"),
        ("c.json", b"[" * 100_000, "not valid JSON"),
        ("c.json", b"3", "expected"),
        ("c.json", b'[{"name": 3}]', "class 0 is not a name"),
        ("c.json", b'[{"name": "x", "synonyms": "y"}]', "class 0 is not a name"),
        ("c.txt", b"", "file is empty"),
        ("c.txt", b"\n", "holds no class"),
        ("c.txt", b"fox\nfox\n", "'fox' is there twice"),
        ("c.txt", b"...\n", "class 0 has no name"),
        ("c.txt", b"\xff", "not UTF-8"),
        ("c.bin", b"fox", "not a class file"),
    ],
)
def test_wrong_files(tmp_path, name, data, why):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=why) as raised:
        read_classes(tmp_path / name)
    assert "\n" not in str(raised.value)


def test_no_such_file(tmp_path):
    with pytest.raises(InputError, match=r"none\.txt"):
        read_classes(tmp_path / "none.txt")


@pytest.mark.skipif(find_spec("timm") is None, reason="timm, which has the names, is not installed")
def test_imagenet():
    classes = read_classes("imagenet-1k")
    assert len(classes) == 1000
    assert classes[0].names == ("n01440764", "tench", "Tinca tinca")
    assert "crane" in classes[134].names  # the bird; 517 is the machine
    assert "crane" in classes[517].names


def test_imagenet_without_its_names(monkeypatch):
    monkeypatch.setattr("shiftbed.captioning.classes.find_spec", lambda name: None)
    with pytest.raises(InputError, match="give a class file"):
        read_classes("imagenet-1k")
