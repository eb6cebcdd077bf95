"""pm-k of stores of video frames, and the authors' metadata."""

import json

import numpy as np
import pytest

import shiftbed as sb
from shiftbed.errors import InputError
from shiftbed.labels import class_map
from shiftbed.records import Setting
from shiftbed.results.consistency import consistency
from shiftbed.results.frame_files import FrameFiles, read_frame_files
from shiftbed.store import (
    PredictionStore,
    StoredTestSet,
    part_from_logits,
    part_from_top,
    verify,
)
from shiftbed.testbed import testbed_from_store as from_store
from tests.conftest import SHARED

MAPS = SHARED / "class_maps"
FRAMES = {f"v{a}/{f:03d}.jpg": 0 for a in range(4) for f in range(5)}
FILES = FrameFiles(
    frames={f"v{a}/002.jpg": tuple(f"v{a}/{f:03d}.jpg" for f in (0, 1, 3, 4)) for a in range(4)},
    labels={name: (int(name[1]),) for name in FRAMES},
)


def fill(store, answers, *, setting="frames", prefix="val/", readable=None):
    names = tuple(prefix + name for name in FRAMES)
    if setting not in store.settings():
        store.add_test_set(
            StoredTestSet(
                setting=setting,
                examples=names,
                labels=np.array([int(name[1]) for name in FRAMES]),
                fingerprint="f" + setting,
                label_policy="all 4 classes",
            )
        )
    for model, own in answers.items():
        store.write_part(model, setting, 0, part_from_top(np.asarray(own), readable))
        store.write_cell(model, setting, {"status": "complete"})


TRUTH = np.array([int(name[1]) for name in FRAMES])


def test_models_of_a_store(tmp_path):
    store = PredictionStore(tmp_path)
    off = TRUTH.copy()
    off[[1, 5 + 4, 10 + 2]] = 9  # video 0 at distance 1, 1 at distance 2, 2 at its anchor
    fill(store, {"perfect": TRUTH, "off": off})
    found = consistency(store, FILES, k=(0, 1, 2))
    values = {(r["model"], r["k"]): r["value"] for r in found.frame.iter_rows(named=True)}
    assert [values["perfect", k] for k in (0, 1, 2)] == [1, 1, 1]
    assert [values["off", k] for k in (0, 1, 2)] == [0.75, 0.5, 0.25]
    assert (found.rule, found.anchors, found.frames) == ("frame", 4, 20)
    assert found.frame["n"].unique().to_list() == [4]
    assert found.missing == {"perfect": (), "off": ()}


def test_missing_frames_are_listed(tmp_path):
    store = PredictionStore(tmp_path)
    readable = np.ones(20, bool)
    readable[3] = False
    fill(store, {"m": TRUTH}, readable=readable)
    more = FrameFiles(
        frames=dict(FILES.frames) | {"w/001.jpg": ("w/002.jpg",)},
        labels=dict(FILES.labels) | {"w/001.jpg": (1,), "w/002.jpg": (1,)},
    )
    found = consistency(store, more, k=(0, 2))
    assert set(found.missing["m"]) == {"v0/003.jpg", "w/001.jpg", "w/002.jpg"}
    row = found.frame.row(0, named=True)
    assert (row["n"], row["left_out"], row["missing"]) == (3, 2, 3)
    assert "2 anchors left out" in row["note"]
    near = consistency(store, more, k=(0,))
    assert near.missing["m"] == ("w/001.jpg",)


def test_no_anchor_is_left(tmp_path):
    store = PredictionStore(tmp_path)
    fill(store, {"m": TRUTH}, readable=np.arange(20) % 5 != 0)
    row = consistency(store, FILES).frame.row(0, named=True)
    assert (row["value"], row["n"]) == (None, 0)
    assert "every anchor lacks a frame" in row["note"]


def test_superclasses_from_what_is_stored(tmp_path):
    """Logits are merged by max; best classes too, and undecided frames are counted."""
    store = PredictionStore(tmp_path)
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1, (20, 12)).astype(np.float16).astype(np.float32)
    policy = class_map({c: [2 * c, 2 * c + 1] for c in range(4)}, "max-logit", targets=4)
    merged = policy.apply(logits).argmax(axis=1)
    fill(store, {"none": TRUTH})
    part = part_from_logits(logits, TRUTH, keep_logits=True)
    store.write_part("logits", "frames", 0, part)
    store.write_part("top", "frames", 0, part_from_logits(logits, TRUTH, top=2))
    for model in ("logits", "top"):
        store.write_cell(model, "frames", {"status": "complete"})
    found = consistency(store, FILES, model=["logits", "top"], class_map=policy, k=(0,))
    first, second = found.frame.iter_rows(named=True)
    anchors = [2, 7, 12, 17]
    assert first["value"] == (merged[anchors] == TRUTH[anchors]).mean()
    assert first["undecided"] == 0
    best = np.argsort(-logits, axis=1)[:, :2]
    assert second["undecided"] == (best >= 8).all(axis=1).sum()
    assert first["label_policy"] == "8 classes mapped to 4 by max of logits"


@pytest.mark.skipif(not MAPS.is_dir(), reason="the authors' metadata is not beside the checkout")
def test_the_real_metadata_from_a_store(tmp_path):
    files = read_frame_files([MAPS / "vid_robust_pmsets.json", MAPS / "vid_robust_labels.json"])
    frames = sorted(json.loads((MAPS / "vid_robust_labels.json").read_text()))
    store = PredictionStore(tmp_path)
    truth = np.array([files.labels["/".join(f.split("/")[-2:])][0] for f in frames])
    store.add_test_set(
        StoredTestSet(
            setting="imagenet-vid-robust-frames",
            examples=tuple(f.removeprefix("val/") for f in frames),
            labels=truth,
            fingerprint="f",
        )
    )
    p, rng = 0.97, np.random.default_rng(3)
    answers = np.where(rng.random(len(truth)) < p, truth, 31)
    store.write_part("m", "imagenet-vid-robust-frames", 0, part_from_top(answers))
    store.write_cell("m", "imagenet-vid-robust-frames", {"status": "complete"})
    found = consistency(store, files, k=range(11), level=0.999)
    sizes = [len(own) + 1 for own in files.frames.values()]
    row = found.frame.row(10, named=True)
    assert (row["k"], row["n"], row["missing"]) == (10, 1109, 0)
    assert row["low"] < np.mean(p ** np.array(sizes)) < row["high"]
    assert (found.frame["value"].diff().drop_nulls() <= 0).all()


def test_names_that_do_not_fit(tmp_path):
    store = PredictionStore(tmp_path)
    fill(store, {"m": TRUTH})
    with pytest.raises(InputError, match="did you mean 'm'"):
        consistency(store, FILES, model=["mm"])
    with pytest.raises(InputError, match="did you mean 'frames'"):
        consistency(store, FILES, setting="frame")
    fill(store, {"m": TRUTH}, setting="again")
    with pytest.raises(InputError, match="again, frames do; name it with --setting"):
        consistency(store, FILES)
    other = FrameFiles(frames={"x/1.jpg": ()}, labels={"x/1.jpg": (1,)})
    with pytest.raises(InputError, match="none of its settings"):
        consistency(store, other)
    with pytest.raises(InputError, match="has none of the frames"):
        consistency(store, other, setting="frames")
    fill(store, {}, setting="empty")
    with pytest.raises(InputError, match="no model is complete"):
        consistency(store, FILES, setting="empty")


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
    assert sets.distance.max() == 8


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
    with pytest.raises(InputError, match="no such file"):
        read_frame_files([tmp_path / "none.json"])


def test_frames_need_numbers(tmp_path):
    paths = write(tmp_path, a={"v/x.jpg": ["v/2.jpg"]}, b={"v/x.jpg": [1], "v/2.jpg": [1]})
    with pytest.raises(InputError, match="no number"):
        read_frame_files(paths).sets(None)


class TestAsSettings:
    """pm-k of a store as a setting with its pm-0 twin, on generated answers."""

    K = (0, 1, 2)

    @pytest.fixture(scope="class")
    @staticmethod
    def store(tmp_path_factory):
        """Twelve models that are right on each frame with probability p, apart from each other."""
        rng = np.random.default_rng(5)
        names = [f"v{a}/{f:03d}.jpg" for a in range(400) for f in range(5)]
        files = FrameFiles(
            frames={
                f"v{a}/002.jpg": tuple(f"v{a}/{f:03d}.jpg" for f in (0, 1, 3, 4))
                for a in range(400)
            },
            labels=dict.fromkeys(names, (1,)),
        )
        store = PredictionStore(tmp_path_factory.mktemp("frames"))
        store.add_test_set(
            StoredTestSet(
                setting="frames",
                record=Setting(test_set="frames"),
                examples=tuple(names),
                labels=np.ones(2000, dtype=np.int64),
                fingerprint="f",
                label_policy="all 2 classes",
                classes=2,
            )
        )
        answers = {}
        for model in range(12):
            right = rng.random(2000) < 0.6 + 0.03 * model
            answers[f"m{model}"] = right.reshape(400, 5)
            store.write_part(f"m{model}", "frames", 0, part_from_top(right.astype(np.int64)))
            info = {"kind": "standard", "in_fit_set": model < 10}
            store.write_cell(f"m{model}", "frames", {"status": "complete", "info": info})
        found = consistency(store, files, k=TestAsSettings.K[1:], write=True)
        assert found.written == ("frames@pm-0", "frames@pm-1", "frames@pm-2")
        return store, answers, files

    def test_identities(self, store):
        """pm-0 is accuracy on anchors, pm-k a product over frames, and it can only fall with k."""
        store, answers, _ = store
        bed = from_store(store)
        for k in self.K:
            found = bed.accuracy(f"frames@pm-{k}")
            wanted = [own[:, 2 - k : 3 + k].all(axis=1).mean() for own in answers.values()]
            order = [bed.model_index(name) for name in answers]
            np.testing.assert_allclose(found[order], wanted)
            assert set(bed.size(f"frames@pm-{k}")) == {400}  # anchors, not frames
        assert (np.diff([bed.accuracy(f"frames@pm-{k}") for k in self.K], axis=0) <= 0).all()
        for name, own in answers.items():
            p = own.mean()
            row = bed.model_index(name)
            for k in self.K:  # independent frames: p to the power of their number
                error = 4 * np.sqrt(0.25 / 400)
                assert bed.accuracy(f"frames@pm-{k}")[row] == pytest.approx(
                    p ** (2 * k + 1), abs=error
                )

    def test_the_shift_has_a_line_and_ranks(self, store):
        store, _, _ = store
        bed = from_store(store)
        shift = bed.shift("frames@pm-2")
        assert (shift.kind, shift.source) == ("consistency", ("frames@pm-0",))
        assert bed.records["frames@pm-2"].clean.id == "frames@pm-0"
        line = bed.fit(shift, bootstrap=0)
        assert line.n == 10
        assert line.r2 > 0.9
        judged = bed.judge(line)
        assert np.isfinite(judged.low).all()
        ranked = sb.rank(store, shift="frames@pm-2").frame
        assert set(ranked["interval"]) == {"paired"}  # the same anchors, jointly over models
        assert sb.place(testbed=store, id={"frames@pm-0": 0.9},
                        ood={"frames@pm-2": 0.7}).frame["effective"].is_finite().all()  # fmt: skip

    def test_written_again_it_is_the_same(self, store):
        store, _, files = store
        before = {name: store.files.read(name) for name in store.files.below("cells")}
        consistency(store, files, k=(1, 2), write=True)
        assert {name: store.files.read(name) for name in store.files.below("cells")} == before
        assert not verify(store)

    def test_anchors_that_lack_a_frame_do_not_count(self, tmp_path):
        store = PredictionStore(tmp_path)
        readable = np.arange(20) != 3
        fill(store, {"m": TRUTH, "n": TRUTH}, readable=readable)
        consistency(store, FILES, k=(2,), write=True)
        bed = from_store(store)
        assert bed.size("frames@pm-2").tolist() == [3, 3]
        assert bed.accuracy("frames@pm-2").tolist() == [1.0, 1.0]
