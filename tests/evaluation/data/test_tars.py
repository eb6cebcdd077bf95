"""WebDataset tars, friendly and hostile."""

import io
import json
import pickle
import tarfile

import pytest
import webdataset
from webdataset.tariterators import group_by_keys, tar_file_iterator

from shiftbed.evaluation.data import UnreadableImage, open_test_set
from tests.evaluation.data.conftest import check, same_photos, write_tar


class Bomb:
    """Says so if it is ever unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


def numbered(photos, ending="cls"):
    """The photographs as members 0000.jpg, 0000.cls, …"""
    return [
        member
        for at, photo in enumerate(photos)
        for member in ((f"{at:04d}.jpg", photo.data), (f"{at:04d}.{ending}", b"%d" % photo.label))
    ]


def special(path, member, **attributes):
    """A tar with one more member of a special kind."""
    with tarfile.open(path, "a") as tar:
        info = tarfile.TarInfo(member)
        for name, value in attributes.items():
            setattr(info, name, value)
        tar.addfile(info)
    return path


def test_written_by_webdataset(tmp_path, photos):
    with webdataset.ShardWriter(f"{tmp_path}/val-%04d.tar", maxcount=4, verbose=0) as writer:
        for at, photo in enumerate(photos):
            writer.write({"__key__": f"{at:06d}", "jpg": photo.data, "cls": photo.label})
    test_set = open_test_set(f"{tmp_path}/val-{{0000..0001}}.tar")
    same_photos(test_set, photos)
    assert test_set.name == "val"
    assert test_set.examples == tuple(f"{at:06d}" for at in range(6))
    peer = []
    for at in range(2):
        with open(tmp_path / f"val-000{at}.tar", "rb") as file:
            members = ({**one, "__url__": file.name} for one in tar_file_iterator(file))
            peer += list(group_by_keys(members))
    assert tuple(one["__key__"] for one in peer) == test_set.examples
    assert [int(one["cls"]) for one in peer] == test_set.labels.tolist()
    assert [one["jpg"] for one in peer] == [test_set.images.data(row) for row in range(6)]


def test_labels_in_json(tmp_path, photos):
    members = []
    for at, photo in enumerate(photos[:3]):
        about = {"label": [at, 5], "group": f"video {at}", "fine": "abc"[at]}
        members += [(f"./x/{at}.jpg", photo.data), (f"./x/{at}.json", json.dumps(about).encode())]
    path = write_tar(tmp_path / "a.tar", members)
    test_set = open_test_set(path)
    assert test_set.examples == ("x/0", "x/1", "x/2")
    assert test_set.label_sets == ((0, 5), (1, 5), (2, 5))
    assert test_set.groups.tolist() == ["video 0", "video 1", "video 2"]
    assert open_test_set(path, label_column="fine").classes == ("a", "b", "c")


def test_keys_that_repeat_over_shards(tmp_path, photos):
    for at in range(2):
        write_tar(tmp_path / f"s{at}.tar", numbered(photos[3 * at : 3 * at + 3]))
    test_set = open_test_set([tmp_path / "s0.tar", tmp_path / "s1.tar"])
    same_photos(test_set, photos)
    assert test_set.examples[2:4] == ("s0/0002", "s1/0000")


def test_image_fields(tmp_path, photos, refused):
    data = photos[0].data
    both = [
        ("1.jpg", data),
        ("1.mask.png", b"x"),
        ("1.cls", b"0"),
        ("2.png", data),
        ("2.cls", b"1"),
    ]
    test_set = open_test_set(write_tar(tmp_path / "a.tar", both))
    assert [test_set.load(row).size for row in (0, 1)] == [(96, 72)] * 2
    path = write_tar(tmp_path / "b.tar", [("1.jpg", data), ("1.png", b"x"), ("1.cls", b"0")])
    refused(path, "'jpg', 'png'", "image_column=")
    assert open_test_set(path, image_column="jpg").load(0).size == (96, 72)
    refused(path, "unknown image field", "'webp'", image_column="webp")


def test_a_sample_without_image_or_label(tmp_path, photos):
    members = [*numbered(photos[:2]), ("lost.cls", b"1"), ("more.jpg", photos[2].data)]
    test_set = open_test_set(write_tar(tmp_path / "a.tar", members))
    assert test_set.labels.tolist() == [0, 0, 1, -1]
    assert test_set.notes == ("no label for 1 of 4 images: 'more'",)
    assert [one.example for one in check(test_set)] == ["lost"]
    with pytest.raises(UnreadableImage, match="a label but no image"):
        test_set.load(2)


def test_pickles_are_not_touched(tmp_path, photos):
    bomb = pickle.dumps(Bomb())
    members = numbered(photos)
    for ending in ("pyd", "pickle", "pkl", "pth"):
        members += [(f"0000.{ending}", bomb), (f"extra.{ending}", bomb)]
    test_set = open_test_set(write_tar(tmp_path / "a.tar", members))
    same_photos(test_set, photos)
    assert test_set.notes[0] == "passed over in the tar: 2 × .pickle"
    assert len(test_set.notes) == 4


@pytest.mark.parametrize(
    "name",
    ["../up.jpg", "/etc/up.jpg", "a/../../up.jpg", "..", "a\\..\\up.jpg", "a\nb.jpg", "a\x00/../b"],
)
def test_names_that_leave_the_archive(tmp_path, photos, refused, name):
    members = [*numbered(photos), (name, photos[0].data)]
    path = write_tar(tmp_path / "a.tar", members)
    with tarfile.open(path) as tar:
        kept = tar.getnames()[-1]
    if kept == name:
        refused(path, "a.tar", "unsafe name", "nothing was read")
    assert [one.name for one in tmp_path.iterdir()] == ["a.tar"]


def test_links_and_devices_are_passed_over(tmp_path, photos):
    secret = tmp_path / "secret.jpg"
    secret.write_bytes(photos[0].data)
    path = write_tar(tmp_path / "a.tar", numbered(photos))
    special(path, "7.jpg", type=tarfile.SYMTYPE, linkname=str(secret))
    special(path, "8.jpg", type=tarfile.LNKTYPE, linkname="../secret.jpg")
    special(path, "9.jpg", type=tarfile.CHRTYPE, devmajor=1, devminor=5)
    special(path, "10.jpg", type=tarfile.FIFOTYPE)
    special(path, "folder", type=tarfile.DIRTYPE)
    test_set = open_test_set(path)
    same_photos(test_set, photos)
    assert test_set.notes == ("passed over in the tar: 4 × link, device or sparse file",)


def test_a_size_that_is_not_there(tmp_path, photos, refused):
    path = write_tar(tmp_path / "a.tar", numbered(photos))
    info = tarfile.TarInfo("9.jpg")
    info.size = 2**40
    path.write_bytes(path.read_bytes().rstrip(b"\0") + bytes(512))
    data = path.read_bytes()
    end = -(-len(data) // 512) * 512
    path.write_bytes(data.ljust(end, b"\0")[: end - 512] + info.tobuf())
    refused(path, "a.tar", "cannot be read as an uncompressed tar")


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([], ["no images", "0001.jpg with 0001.cls"]),
        ([("1.txt", b"x")], ["no images"]),
        ([("1.jpg", b"x")], ["no image has a label"]),
        ([("1.jpg", b"x"), ("1.cls", b"\xff")], ["'1.cls'", "not text"]),
        ([("1.jpg", b"x"), ("1.cls", b"0" * 2_000_000)], ["'1.cls'", "too large"]),
        ([("1.jpg", b"x"), ("1.json", b"[1]")], ["'1.json'", "JSON object"]),
        ([("1.jpg", b"x"), ("1.json", b"[" * 100_000)], ["'1.json'", "JSON object"]),
        ([("1.jpg", b"x"), ("1.json", b'{"label": {}}')], ["label {}", "neither"]),
        ([("1.jpg", b"x"), ("1.jpg", b"y")], ["two members", "'1.jpg'"]),
    ],
)
def test_wrong_contents(tmp_path, refused, members, words):
    refused(write_tar(tmp_path / "a.tar", members), "a.tar", *words)


def test_wrong_files(tmp_path, photos, refused):
    whole = write_tar(tmp_path / "a.tar", numbered(photos)).read_bytes()
    (tmp_path / "b.tar").write_bytes(whole[:4000])
    refused(tmp_path / "b.tar", "cannot be read as an uncompressed tar")
    (tmp_path / "b.tar").write_bytes(b"this is text")
    refused(tmp_path / "b.tar", "cannot be read as an uncompressed tar")
    with tarfile.open(tmp_path / "b.tar", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("x"), io.BytesIO())
    refused(tmp_path / "b.tar", "uncompressed tar")


def test_a_tar_cut_off_after_opening(tmp_path, photos):
    path = write_tar(tmp_path / "a.tar", numbered(photos))
    test_set = open_test_set(path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(UnreadableImage, match="cut off"):
        test_set.load(5)
    assert test_set.fingerprint
    path.unlink()
    with pytest.raises(UnreadableImage, match="its tar cannot be read"):
        test_set.load(0)
