import json

import pytest

from shiftbed.errors import InputError
from shiftbed.results.frames import read_frame_files
from tests.conftest import SHARED

MAPS = SHARED / "class_maps"
needs_maps = pytest.mark.skipif(
    not MAPS.is_dir(), reason="the authors' metadata is not beside the checkout"
)


def write(folder, **files):
    paths = []
    for name, value in files.items():
        ending = "csv" if isinstance(value, str) else "json"
        paths.append(folder / f"{name}.{ending}")
        paths[-1].write_text(value if isinstance(value, str) else json.dumps(value))
    return paths


@needs_maps
def test_the_real_files_of_vid_robust():
    files = read_frame_files([MAPS / "vid_robust_pmsets.json", MAPS / "vid_robust_labels.json"])
    assert (len(files.frames), len(files.labels), files.reviewed) == (1109, 22179, True)
    sets = files.sets(None)
    assert (sets.rule, len(sets.frames), len(sets.distance)) == ("frame", 22179, 21070 + 1109)


@needs_maps
def test_the_real_files_of_ytbb_robust():
    """2,467 annotated anchors: marked good, not bad or unsure, and with an added label or not."""
    paths = [MAPS / "ytbb_robust_anchor_labels.json", MAPS / "ytbb_class_index.json"]
    files = read_frame_files(paths)
    raw = json.loads(paths[0].read_text())["annotations"]
    good = [one for one in raw if 0 in one["labels"] and not {1, 2} & set(one["labels"])]
    added = [one for one in good if len(one["labels"]) > 1]
    assert (len(files.frames), len(files.unlabelled)) == (len(added), len(good) - len(added))
    assert not files.reviewed
    assert files.labels["WypmJptPzX8_68666/frame-2058.jpg"] == (0,)  # a person was added
    there = [f"WypmJptPzX8_68666/frame-{n}.jpg" for n in range(2050, 2060)]
    sets = files.sets(None, there)
    assert sets.rule == "anchor"
    assert sets.reach == 8


NAMES = {"0": "person", "1": "bird", "22": "none", "23": "car"}
LISTED = ["good", "unsure", "bad", "person", "bird"]


def test_reviewed_frames_of_ytbb_robust(tmp_path):
    anchors = {
        "labels": LISTED,
        "annotations": [
            {"key": "/x/a_10/frame-7.jpg", "labels": [0, 3]},
            {"key": "b_20/frame-5.jpg", "labels": [0]},
            {"key": "c_30/frame-5.jpg", "labels": [0, 2, 4]},
            {"key": "d_40/frame-5.jpg", "labels": [0, 4]},
        ],
    }
    pairs = {
        "labels": ["similar", "dissimilar", "blur-increase", "bad-anchor"],
        "annotations": [
            {"key": "a_10/frame-7.jpg,/x/a_10/frame-8.jpg", "labels": [0]},
            {"key": "a_10/frame-7.jpg,a_10/frame-9.jpg", "labels": [0, 2]},
            {"key": "a_10/frame-7.jpg,a_10/frame-6.jpg", "labels": [1]},
            {"key": "b_20/frame-5.jpg,b_20/frame-2.jpg", "labels": [0]},
            {"key": "d_40/frame-5.jpg,d_40/frame-6.jpg", "labels": [3]},
        ],
    }
    first = "ytid,time_ms,label\na,10,1\nb,20,22\nd,40,1\n"
    paths = write(tmp_path, anchors=anchors, pairs=pairs, names=NAMES, first=first)
    files = read_frame_files(paths)
    assert files.reviewed
    assert files.labels == {"a_10/frame-7.jpg": (0, 1), "b_20/frame-5.jpg": (23,)}
    assert files.frames == {
        "a_10/frame-7.jpg": ("a_10/frame-8.jpg",),
        "b_20/frame-5.jpg": ("b_20/frame-2.jpg",),
    }
    sets = files.sets(None)
    assert sets.distance.tolist() == [0, 1, 0, 3]


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"a": {"v/1.jpg": ["v/2.jpg"]}}, r"also give the file of \{frame: \[labels\]\}"),
        ({"a": {"v/1.jpg": [1]}}, r"also give the file of \{anchor: \[frames\]\}"),
        ({"a": {"v/1.jpg": [1.5]}}, "expected"),
        ({"a": {"v/1.jpg": 3}}, "expected"),
        ({"a": []}, "expected"),
        ({"a": {"annotations": [{"key": 1, "labels": []}], "labels": []}}, "annotations need"),
        ({"a": {"annotations": [{"key": "v/1.jpg", "labels": [5]}], "labels": ["x"]}}, "need"),
        (
            {"a": {"annotations": [{"key": "v/1.jpg", "labels": [0]}], "labels": ["good"]}},
            "number: class name",
        ),
        ({"a": "ytid,time\n1,2\n"}, "expected"),
    ],
)
def test_files_that_do_not_do(tmp_path, files, why):
    with pytest.raises(InputError, match=why) as raised:
        read_frame_files(write(tmp_path, **files))
    assert "\n" not in str(raised.value)


def test_files_that_cannot_be_read(tmp_path):
    for data in (b"{", b"\xff\xfe", b"[" * 200_000):
        (tmp_path / "m.json").write_bytes(data)
        with pytest.raises(InputError, match="cannot be read"):
            read_frame_files([tmp_path / "m.json"])
    with pytest.raises(InputError, match="cannot be read"):
        read_frame_files([tmp_path / "none.json"])


def test_frames_need_numbers(tmp_path):
    paths = write(tmp_path, a={"v/x.jpg": ["v/2.jpg"]}, b={"v/x.jpg": [1], "v/2.jpg": [1]})
    with pytest.raises(InputError, match="no number"):
        read_frame_files(paths).sets(None)
