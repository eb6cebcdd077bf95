"""Images that cannot be read for a moment: neither their absence nor anything else is final."""

import numpy as np
import pytest
from PIL import Image

import shiftbed as sb
from shiftbed.errors import InputError
from shiftbed.evaluation.data.image_files import FileImages
from shiftbed.evaluation.data.images import NoImage
from shiftbed.store import PredictionStore, verify
from shiftbed.store.probes import probe_records


def answer(pixels):
    return pixels.reshape(len(pixels), -1)[:, :2]


answer.preprocessing = {"size": (4, 4), "mode": "L", "crop": "none"}


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for row in range(120):
        path = tmp_path / "val" / str(row % 2) / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (4, 4), dtype=np.uint8)).save(path)
    return tmp_path / "val"


@pytest.fixture
def failing(monkeypatch):
    """What fails with picture 7 while it is in here: reading its bytes, decoding it."""
    now: set[str] = set()
    for what, before in (("data", FileImages.data), ("load", FileImages.load)):

        def read(images, row, *more, what=what, before=before):
            if row == 7 and what in now:
                raise NoImage("cannot be read: Input/output error")
            return before(images, row, *more)

        monkeypatch.setattr(FileImages, what, read)
    return now


def count(folder, store, name="net"):
    found = sb.evaluate(answer, str(folder), store=store, name=name, same=True).frame
    return found.filter(found["metric"] == "top1")["n"].item()


@pytest.mark.parametrize("what", [{"data"}, {"data", "load"}, {"load"}])
def test_what_could_not_be_read_is_read_by_the_next_run(folder, tmp_path, failing, what):
    failing |= what
    assert count(folder, tmp_path / "store") == 120 - ("load" in what)
    store = PredictionStore(tmp_path / "store")
    assert store.test_set("val").unread == (7,)
    failing.clear()
    assert count(folder, store) == 120
    assert count(folder, tmp_path / "other") == 120
    undisturbed = PredictionStore(tmp_path / "other").test_set("val")
    there = store.test_set("val")
    assert (there.fingerprint, there.unread) == (undisturbed.fingerprint, ())


def test_what_is_there_is_not_known_again_while_a_picture_cannot_be_read(folder, tmp_path, failing):
    assert count(folder, tmp_path / "store") == 120
    next(folder.rglob("2.png")).touch()  # not taken for the test set that is open
    failing.add("data")
    with pytest.raises(InputError, match=r"1 of 120 images \('0/.*png', …\) cannot be read now"):
        count(folder, tmp_path / "store", "second")
    failing.clear()
    assert count(folder, tmp_path / "store", "second") == 120


def test_other_pictures_are_refused_whatever_could_not_be_read(folder, tmp_path, failing):
    failing.add("data")
    assert count(folder, tmp_path / "store") == 120
    failing.clear()
    Image.new("L", (4, 4)).save(folder / "0" / "2.png")
    with pytest.raises(InputError, match="with other examples or labels"):
        count(folder, tmp_path / "store")


def test_paths_whose_pictures_could_not_be_read_are_measured_again(folder, tmp_path, failing):
    def measured(store):
        def net(pixels):
            return pixels.reshape(len(pixels), -1)[:, :2]

        net.preprocessing = answer.preprocessing
        found = sb.probe(net, str(folder), probes="phase", pairs=60, store=store, name="net")
        return found.frame, PredictionStore(store)

    def content(store):
        return {
            path.relative_to(store.files.root): path.read_bytes()
            for path in sorted((tmp_path / store.files.root).rglob("*.*"))
        }

    undisturbed, whole = measured(tmp_path / "whole")
    failing |= {"load"}
    first, store = measured(tmp_path / "store")
    lost = first["unreadable"].max()
    assert lost >= 1
    (record,) = probe_records(store)
    assert 7 in record["unread"]
    before = content(store)
    measured(tmp_path / "store")
    assert content(store) == before
    failing.clear()
    again, store = measured(tmp_path / "store")
    assert again.equals(undisturbed)
    assert verify(store) == []
    assert content(store) == content(whole)
    Image.new("L", (4, 4)).save(folder / "0" / "2.png")
    with pytest.raises(InputError, match="with other images"):
        measured(tmp_path / "store")
