"""Training data: the rows a job names, apart from what is held out, in an order of its own."""

import io
import tarfile

import numpy as np
import polars as pl
import pytest
from PIL import Image

from shiftbed.captioning import captions
from shiftbed.errors import InputError
from shiftbed.evaluation.data import TestSet
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.training.prepare import open_data, open_part, prepare, whole
from shiftbed.training.sources import DataSpec

GREY = Preprocessing(size=(8, 8), mode="L")


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    """Two folders of three classes, 20 and 10 images each; grey levels tell them apart."""
    root = tmp_path_factory.mktemp("folders")
    for name, count, step in (("a", 20, 1), ("b", 10, 3)):
        for label in range(3):
            folder = root / name / f"class{label}"
            folder.mkdir(parents=True)
            for i in range(count):
                Image.new("L", (8, 8), 60 * label + step * i).save(folder / f"{i:02d}.png")
    return {name: DataSpec(name=name, path=str(root / name)) for name in "ab"}


class TestSelections:
    @pytest.mark.parametrize(
        ("selection", "counts"),
        [
            ({"name": "a"}, {"a": 60}),
            ({"name": "a", "fraction": 0.25}, {"a": 15}),
            ({"name": "a", "fraction": 0.1, "balanced": True}, {"a": 6}),
            ({"name": "a", "shots": 4}, {"a": 12}),
            ({"name": "a", "classes": 2}, {"a": 40}),
            ({"name": "a", "classes": [0, 2], "shots": 5}, {"a": 10}),
            ({"mix": {"a": 0.1, "b": 0.9}}, {"a": 6, "b": 27}),
            ({"mix": {"a": 0.5, "b": 0.5}, "total": 21}, {"a": 11, "b": 10}),
            ({"mix": {"a": 0.0, "b": 1.0}}, {"a": 0, "b": 30}),
            ({"mix": {"a": 1.0, "b": 1.0}, "shots": 3}, {"a": 9, "b": 9}),
        ],
    )
    def test_counts(self, specs, selection, counts):
        found = prepare(selection, specs)
        assert found.counts == counts
        assert len(found) == len(set(found.examples)) == sum(counts.values())
        assert found.classes == 3

    def test_labels_and_pixels_belong_together(self, specs):
        found = prepare({"mix": {"a": 0.5, "b": 1.0}}, specs)
        pixels = found.pixels(GREY)
        assert np.array_equal(pixels[:, 0, 0, 0] // 60, found.labels)
        for at in (0, 17, 41):
            assert np.array_equal(np.asarray(found.load(at)), pixels[at, :, :, 0])

    def test_seeds(self, specs):
        def one(seed):
            return set(prepare({"name": "a", "fraction": 0.5, "seed": seed}, specs).examples)

        assert one(0) == one(0) != one(1)

    def test_difficulty_from_a_file(self, specs, tmp_path):
        examples = prepare({"name": "a"}, specs).examples
        lines = [f"{e},{int(e[-6:-4])}" for e in examples]
        (tmp_path / "scores.csv").write_text("example,score\n" + "\n".join(lines) + "\n")
        table = {"scores": "scores.csv", "keep": "hardest", "count": 2, "per_class": True}
        found = prepare({"name": "a", "difficulty": table}, specs, tmp_path)
        assert sorted(e[-6:-4] for e in found.examples) == ["18"] * 3 + ["19"] * 3

    def test_the_fingerprint_knows_content_labels_and_choice(self, specs):
        one = prepare({"name": "a"}, specs).fingerprint
        assert one == prepare({"name": "a"}, specs).fingerprint
        assert one != prepare({"name": "a", "fraction": 0.9}, specs).fingerprint
        pixels = np.zeros((4, 8, 8), np.uint8)
        first = whole(TestSet(pixels, [0, 1, 0, 1])).fingerprint
        assert first != whole(TestSet(pixels, [0, 1, 1, 1])).fingerprint
        assert first != whole(TestSet(pixels + 1, [0, 1, 0, 1])).fingerprint


class TestOrder:
    def test_the_order_of_rows_does_not_matter(self):
        generator = np.random.default_rng(0)
        pixels = generator.integers(0, 256, (50, 8, 8), dtype=np.uint8)
        labels = generator.integers(0, 5, 50)
        ids = [f"image-{i}" for i in range(50)]
        order = generator.permutation(50)
        one = whole(TestSet(pixels, labels, examples=ids))
        two = whole(TestSet(pixels[order], labels[order], examples=[ids[i] for i in order]))
        assert one.examples == two.examples
        assert np.array_equal(one.labels, two.labels)
        assert np.array_equal(one.pixels(GREY), two.pixels(GREY))

    def test_it_is_not_the_order_of_the_files(self, specs):
        labels = prepare({"name": "a"}, specs).labels
        assert not np.array_equal(labels, np.sort(labels))


class TestKeptOut:
    def test_the_held_out_part(self, specs):
        spec = DataSpec(name="a", path=specs["a"].path, held_out=0.25)
        out = open_part(spec.path, {}, "held-out", 0.25)
        assert np.bincount(out.labels).tolist() == [5, 5, 5]
        assert not set(out.examples) & set(open_data(spec).examples)
        assert len(open_data(spec)) == 45
        few = prepare({"name": "a", "shots": 15}, {"a": spec})
        assert len(few) == 45
        assert not {e.partition("/")[2] for e in few.examples} & set(out.examples)

    @pytest.mark.parametrize("form", ["csv", "txt"])
    def test_excluded_examples(self, specs, tmp_path, form):
        ids = list(open_data(specs["a"]).examples[:7])
        path = tmp_path / f"out.{form}"
        path.write_text("\n".join((["example"] if form == "csv" else []) + ids) + "\n")
        spec = DataSpec(name="a", path=specs["a"].path, exclude=str(path))
        assert set(open_data(spec).examples) == set(open_data(specs["a"]).examples) - set(ids)

    def test_a_list_that_names_nothing_is_refused(self, specs, tmp_path):
        (tmp_path / "out.txt").write_text("elsewhere/1.png\n")
        spec = DataSpec(name="a", path=specs["a"].path, exclude=str(tmp_path / "out.txt"))
        with pytest.raises(InputError, match=r"none of its 1 ids \('elsewhere/1.png', …\) is an"):
            open_data(spec)

    @pytest.mark.parametrize("kind", ["csv", "tar"])
    def test_what_captions_holds_out_is_left_out(self, tmp_path, kind):
        """The list that ``captions`` writes, read as it is."""
        rng, rows = np.random.default_rng(0), []
        for k in range(24):
            name, word = f"{k:04}", ("cat", "dog")[k % 2]
            file = io.BytesIO()
            Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(file, "PNG")
            (tmp_path / f"{name}.png").write_bytes(file.getvalue())
            rows.append((f"{name}.png", f"a {word}", k % 2, file.getvalue()))
        if kind == "csv":
            text = "".join(f"{path},{caption},{label}\n" for path, caption, label, _ in rows)
            (tmp_path / "pairs.csv").write_text("path,text,label\n" + text)
        else:
            with tarfile.open(tmp_path / "pairs.tar", "w") as tar:
                for path, caption, label, data in rows:
                    parts = {"png": data, "txt": caption.encode(), "cls": str(label).encode()}
                    for end, content in parts.items():
                        member = tarfile.TarInfo(f"{path[:4]}.{end}")
                        member.size = len(content)
                        tar.addfile(member, io.BytesIO(content))
        source = tmp_path / f"pairs.{kind}"
        (tmp_path / "classes.txt").write_text("cat\ndog\n")
        options = {"min_matches": 10, "per_class": 4}
        captions([str(source)], tmp_path / "classes.txt", tmp_path / "held", **options)
        held = tmp_path / "held" / "holdout.csv"
        out = pl.read_csv(held, infer_schema=False)["id"]
        names = {one.removeprefix("pairs/").removesuffix(".png") for one in out.fill_null("")}
        left = open_data(DataSpec(name="a", path=str(source), exclude=str(held))).examples
        assert len(left) == 16
        if kind == "tar":
            assert len(names) == 8
            assert not names & set(left)

    def test_no_such_list(self, specs):
        spec = DataSpec(name="a", path=specs["a"].path, exclude="nowhere.csv")
        with pytest.raises(InputError, match="no such file"):
            open_data(spec)


class TestErrors:
    def test_an_image_that_cannot_be_read_is_named(self, tmp_path):
        for label in range(2):
            (tmp_path / f"c{label}").mkdir()
            Image.new("L", (8, 8)).save(tmp_path / f"c{label}" / "good.png")
        (tmp_path / "c1" / "bad.png").write_bytes(b"no image")
        data = prepare({"name": "x"}, {"x": DataSpec(name="x", path=str(tmp_path))})
        with pytest.raises(InputError, match=r"cannot read c1/bad\.png"):
            data.pixels(GREY)

    def test_images_without_a_label_are_left_out(self):
        found = whole(TestSet(np.zeros((3, 8, 8), np.uint8), ["b", None, "a"], "named"))
        assert sorted(found.examples) == ["named/0", "named/2"]
        assert (sorted(found.labels.tolist()), found.classes) == ([0, 1], 2)

    def test_nothing_left(self, specs):
        with pytest.raises(InputError, match="no example of 'a' is left"):
            prepare({"name": "a", "fraction": 0.001}, specs)


def test_data_that_was_replaced_is_read_again_by_the_next_recipe(tmp_path):
    """In one process; within a run, one state of the files is seen."""

    def write(value):
        images = np.full((6, 4, 4), value, dtype=np.uint8)
        np.savez(tmp_path / "d.npz", images=images, labels=np.arange(6) % 2)

    write(1)
    spec = DataSpec(name="d", path=str(tmp_path / "d.npz"))
    first = open_data(spec)
    write(2)
    assert open_data(spec) is first
    again = open_data(DataSpec(name="d", path=str(tmp_path / "d.npz")))
    assert np.asarray(again.load(0)).max() == 2
    assert np.asarray(open_part(spec.path, {}, "held-out", 0.5).load(0)).max() == 2
