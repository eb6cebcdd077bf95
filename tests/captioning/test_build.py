import csv
import hashlib
import io
import json
import random
import subprocess
import sys
import tarfile

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftbed.captioning import CaptionClass, captions
from shiftbed.errors import InputError

CLASSES = [
    CaptionClass(name="dog", synonyms=("hound",)),
    CaptionClass(name="fox"),
    CaptionClass(name="sea lion"),
]
TEXTS = ["a dog", "Hounds!", "two foxes", "sea-lion", "dog and fox", "a tree", ""]
ROW = st.tuples(st.integers(0, 30), st.sampled_from(TEXTS))


def write_csv(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "caption"])
        writer.writerows((f"im/{i}.jpg", text) for i, text in rows)
    return path


def read_rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def drawn_in(folder):
    return [
        (row["path"], int(row["label"]), row["class_name"])
        for row in read_rows(folder / "test.csv")
    ]


def held_of(folder):
    return [
        (row["source"].rpartition("/")[2], int(row["row"]))
        for row in read_rows(folder / "holdout.csv")
    ]


def class_of(text):
    words = text.lower().replace("-", " ")
    names = (("dog", "hound"), ("fox",), ("sea lion",))
    hits = [k for k, one in enumerate(names) if any(name in words for name in one)]
    return hits[0] if len(hits) == 1 else None if not hits else -2


@settings(max_examples=40)
@given(st.lists(ROW, max_size=60), st.integers(0, 60), st.randoms(), st.integers(0, 3))
def test_what_is_drawn(tmp_path_factory, rows, cut, shuffle, seed):
    """Unique matches only, balance, threshold, every copy held out, and no order."""
    folder = tmp_path_factory.mktemp("captions")
    one = write_csv(folder / "one.csv", rows)
    options = {"min_matches": 3, "per_class": 2, "seed": seed}
    report = captions([one], CLASSES, folder / "a", **options)

    seen = {}
    for i, text in rows:
        seen.setdefault(f"im/{i}.jpg", set()).add(class_of(text))
    sure = {path: next(iter(c - {None})) for path, c in seen.items() if len(c - {None}) == 1}
    sure = {path: c for path, c in sure.items() if c >= 0}
    enough = {c for c in range(3) if sum(own == c for own in sure.values()) >= 3}
    test = drawn_in(folder / "a")
    assert all(sure[path] == label for path, label, _ in test)
    assert all(name == CLASSES[label].name for _, label, name in test)
    assert len({path for path, *_ in test}) == len(test)
    assert {c: sum(label == c for _, label, _ in test) for c in enough} == dict.fromkeys(enough, 2)
    assert len(test) == report.test_examples == 2 * len(enough)
    assert report.kept_classes == len(enough)

    paths = {path for path, *_ in test}
    expected = [("one.csv", n + 2) for n, (i, _) in enumerate(rows) if f"im/{i}.jpg" in paths]
    assert held_of(folder / "a") == expected
    assert report.held_out_rows == len(expected)
    assert report.rows == len(rows)
    assert report.rows == report.empty + report.unmatched + report.ambiguous + report.labelled

    mixed = list(rows)
    shuffle.shuffle(mixed)
    parts = [write_csv(folder / "x.csv", mixed[:cut]), write_csv(folder / "w.csv", mixed[cut:])]
    again = captions(parts, CLASSES, folder / "b", **options)
    assert drawn_in(folder / "b") == test
    same = ("rows", "ambiguous", "labelled", "duplicates", "conflicts", "held_out_rows")
    assert [getattr(again, k) for k in same] == [getattr(report, k) for k in same]


def many(count, seed=0):
    draw = random.Random(seed)
    return [(i, draw.choice(TEXTS)) for i in range(count)]


def test_seeds_differ_and_repeat(tmp_path):
    source = write_csv(tmp_path / "c.csv", many(2000))
    drawn = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        captions([source], CLASSES, tmp_path / name, seed=seed)
        drawn.append(drawn_in(tmp_path / name))
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 150
    assert len(set(drawn[0]) & set(drawn[2])) < 75


def test_batches_change_nothing(tmp_path, monkeypatch):
    source = write_csv(tmp_path / "c.csv", many(500))
    captions([source], CLASSES, tmp_path / "a", min_matches=20, per_class=5)
    monkeypatch.setattr("shiftbed.captioning.sources.BATCH", 7)
    captions([source], CLASSES, tmp_path / "b", min_matches=20, per_class=5)
    for name in ("test.csv", "holdout.csv", "classes.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_parquet_gives_the_same_images(tmp_path):
    rows = many(600)
    source = write_csv(tmp_path / "c.csv", rows)
    frame = {"path": [f"im/{i}.jpg" for i, _ in rows], "caption": [t for _, t in rows]}
    pl.DataFrame(frame).write_parquet(tmp_path / "c.parquet")
    options = {"min_matches": 20, "per_class": 5}
    captions([source], CLASSES, tmp_path / "a", **options)
    captions([tmp_path / "c.parquet"], CLASSES, tmp_path / "b", **options)
    assert drawn_in(tmp_path / "a") == drawn_in(tmp_path / "b")


def test_an_adversarial_file(tmp_path):
    """Everything at once: each bad line is counted, and all good ones are used."""
    good = b"".join(b"im/%d.jpg,a dog\n" % i for i in range(120))
    bad = [
        b"x" * 10_000_000,
        b"im/a.jpg,d\xffg and a dog",
        b"im/b.jpg,",
        b"",
        b"im/c.jpg,a dog\0fox",
        b'im/d.jpg,"a dog',
        b'"im/e.jpg","a ""good"" dog, resting"',
        b'im/f.jpg,5" dog',
        b"im/1.jpg,a dog",
        b"im/2.jpg,a fox",
        b"../../secret,a dog",
        b"only one field",
        b",a dog",
    ]
    source = tmp_path / "c.csv"
    source.write_bytes(b"path,caption\n" + b"\n".join(bad) + b"\n" + good)
    report = captions([source], CLASSES, tmp_path / "out")
    assert report.problems == {
        "invalid_utf8": 1,
        "malformed": 2,
        "too_long": 1,
        "unidentified": 1,
        "unsafe_path": 1,
    }
    assert report.rows == 120 + 7
    assert (report.empty, report.ambiguous) == (1, 1)
    assert (report.duplicates, report.conflicts) == (2, 1)
    assert report.labelled == 120 + 5
    counts = read_rows(tmp_path / "out" / "classes.csv")
    assert counts[0] == {
        "label": "0",
        "class_name": "dog",
        "matches": "122",
        "kept": "True",
        "test_examples": "50",
    }
    assert (report.test_examples, report.kept_classes) == (50, 1)
    assert (tmp_path / "out" / "kept.txt").read_text() == "0\n"


@given(st.binary(max_size=400))
@settings(max_examples=60)
def test_any_bytes_are_handled(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "c.csv").write_bytes(b"path,caption\n" + data)
    report = captions([folder / "c.csv"], CLASSES, folder / "o", min_matches=1, per_class=1)
    assert report.rows == report.empty + report.unmatched + report.ambiguous + report.labelled
    assert report.test_examples == len(drawn_in(folder / "o"))


def test_the_manifest_opens(tmp_path):
    image = pytest.importorskip("PIL.Image")
    data = pytest.importorskip("shiftbed.evaluation.data")
    rows = many(200)
    (tmp_path / "im").mkdir()
    for i, _ in rows:
        image.new("RGB", (4, 4), (i, 0, 0)).save(tmp_path / f"im/{i}.jpg")
    source = write_csv(tmp_path / "c.csv", rows)
    report = captions([source], CLASSES, tmp_path / "out", min_matches=10, per_class=4)
    opened = data.open_test_set(report.opens, root=report.root)
    assert sorted(opened.labels.tolist()) == [0] * 4 + [1] * 4 + [2] * 4
    assert opened.examples == tuple(path for path, *_ in drawn_in(tmp_path / "out"))


def test_tars_make_a_tar(tmp_path):
    image = pytest.importorskip("PIL.Image")
    data = pytest.importorskip("shiftbed.evaluation.data")
    shards = []
    for shard in range(3):
        shards.append(tmp_path / f"s-{shard}.tar")
        with tarfile.open(shards[-1], "w") as tar:
            for i, text in many(60, shard):
                buffer = io.BytesIO()
                image.new("RGB", (4, 4), (i, 80 * shard, 0)).save(buffer, "png")
                for name, content in ((f"{i}.png", buffer.getvalue()), (f"{i}.txt", text.encode())):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    options = {"min_matches": 10, "per_class": 5}
    report = captions([f"{tmp_path}/s-*.tar"], CLASSES, tmp_path / "a", **options)
    captions(shards[::-1], CLASSES, tmp_path / "b", **options)
    tars = [(tmp_path / name / "test.tar").read_bytes() for name in "ab"]
    assert hashlib.sha256(tars[0]).digest() == hashlib.sha256(tars[1]).digest()
    opened = data.open_test_set(report.opens)
    assert sorted(opened.labels.tolist()) == [0] * 5 + [1] * 5 + [2] * 5
    first = read_rows(tmp_path / "a" / "test.csv")[0]
    red, green, _ = opened.images.load(0).getpixel((0, 0))
    assert (red, green // 80) == (int(first["path"][:-4]), int(first["source"][-5]))


def test_urls_get_a_place_to_be_saved_at(tmp_path):
    rows = [(f"http://x/{i}", "a dog") for i in range(5)]
    pl.DataFrame(rows, ["url", "caption"], orient="row").write_csv(tmp_path / "c.csv")
    report = captions([tmp_path / "c.csv"], CLASSES, tmp_path / "o", min_matches=5, per_class=5)
    test = read_rows(tmp_path / "o" / "test.csv")
    assert {row["url"] for row in test} == {url for url, _ in rows}
    assert len({row["path"] for row in test}) == 5
    assert all(row["path"].startswith("images/") for row in test)
    assert "save each at its path" in report.note


def test_no_class_has_enough(tmp_path):
    source = write_csv(tmp_path / "c.csv", [(1, "a dog"), (2, "a dog"), (3, "a fox")])
    report = captions([source], CLASSES, tmp_path / "o")
    assert report.test_examples == 0
    assert "'dog' has the most, 2" in report.note
    assert json.loads((tmp_path / "o" / "report.json").read_text())["ambiguous_share"] == 0


def test_one_path_of_two_ids(tmp_path):
    (tmp_path / "c.csv").write_text("id,path,caption\n1,a.jpg,dog\n2,a.jpg,dog\n")
    options = {"min_matches": 2, "per_class": 2, "id_column": "id"}
    with pytest.raises(InputError, match="the path of two ids"):
        captions([tmp_path / "c.csv"], CLASSES, tmp_path / "o", **options)


def test_a_killed_run_continues(tmp_path, monkeypatch):
    """Files that were matched before are not read for matching again; the result is the same."""
    sources = [write_csv(tmp_path / f"{n}.csv", many(300, n)) for n in range(3)]
    options = {"min_matches": 20, "per_class": 5}
    code = """
import os, sys
from shiftbed.captioning import build
from tests.captioning.test_build import CLASSES
whole = build._match_file
def match(path, *rest):
    if path.name == "2.csv": os.kill(os.getpid(), 9)
    return whole(path, *rest)
build._match_file = match
build.captions(sys.argv[2:], CLASSES, sys.argv[1], min_matches=20, per_class=5)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "a"), *map(str, sources)]
    assert subprocess.run(command, check=False).returncode == -9
    assert [p.name for p in (tmp_path / "a").iterdir()] == [".pieces"]
    from shiftbed.captioning import build

    matched = []
    whole = build._match_file
    monkeypatch.setattr(build, "_match_file", lambda p, *r: matched.append(p.name) or whole(p, *r))
    captions(sources, CLASSES, tmp_path / "a", **options)
    assert matched == ["2.csv"]
    captions(sources, CLASSES, tmp_path / "b", **options)
    for name in ("test.csv", "holdout.csv", "classes.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert not (tmp_path / "a" / ".pieces").exists()


def test_a_damaged_piece_is_made_anew(tmp_path):
    source = write_csv(tmp_path / "c.csv", many(300))
    from shiftbed.captioning import build
    from shiftbed.captioning.match import make_matcher
    from shiftbed.captioning.sources import Asked

    name = build._fingerprint(source, make_matcher(CLASSES), Asked(), 0)
    (tmp_path / "o" / ".pieces").mkdir(parents=True)
    (tmp_path / "o" / ".pieces" / f"{name}.npz").write_bytes(b"PK no")
    report = captions([source], CLASSES, tmp_path / "o", min_matches=20, per_class=5)
    assert report.rows == 300
