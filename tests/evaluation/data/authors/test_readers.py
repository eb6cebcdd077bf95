"""What each layout's reader makes of it: labels, groups, borders, splits."""

import json

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from sklearn.datasets import load_digits

from shiftbed.catalogue.maps import groups, imagenet_synsets, indices
from shiftbed.errors import InputError
from shiftbed.evaluation.data import open_test_set
from tests import trees
from tests.conftest import SHARED

SYNSETS = imagenet_synsets()


def test_labels_do_not_shift_where_folders_are_missing(tmp_path):
    trees.folders(tmp_path, [trees.A[7], trees.A[150]])
    found = open_test_set(f"imagenet-a@{tmp_path}")
    a = indices("imagenet-a")
    assert found.labels.tolist() == [a[7], a[7], a[150], a[150]]
    assert "198 of 200 classes have no folder" in " ".join(found.notes)


def test_a_class_of_another_set_is_refused(tmp_path):
    outside = next(s for s in SYNSETS if s not in trees.A)
    trees.folders(tmp_path, [trees.A[0], outside])
    with pytest.raises(InputError, match=f"folder '{outside}' is none of its classes"):
        open_test_set(f"imagenet-a@{tmp_path}")


def test_imagenet_v2_is_numbered_by_numbers(tmp_path):
    trees.folders(tmp_path, ["2", "10", "999"], each=1)
    found = open_test_set(f"imagenet-v2@{tmp_path}")
    assert dict(zip(found.examples, found.labels.tolist(), strict=True)) == {
        "2/0.jpg": 2,
        "10/0.jpg": 10,
        "999/0.jpg": 999,
    }


def flat(root):
    for number in (1, 2, 3):
        trees.picture(root / f"ILSVRC2012_val_{number:08d}.JPEG", number)


def test_the_flat_validation_set_with_each_list_of_labels(tmp_path):
    wanted = [65, 970, 230]
    flat(tmp_path / "val")
    with pytest.raises(InputError, match="no list of their labels"):
        open_test_set(f"imagenet@{tmp_path}")
    lines = [f"ILSVRC2012_val_{i + 1:08d}.JPEG {label}" for i, label in enumerate(wanted)]
    (tmp_path / "val.txt").write_text("\n".join(lines) + "\n")
    assert open_test_set(f"imagenet@{tmp_path}").labels.tolist() == wanted
    rows = [f"ILSVRC2012_val_{i + 1:08d},{SYNSETS[w]} 1 2 3 4 " for i, w in enumerate(wanted)]
    (tmp_path / "val.txt").unlink()
    text = "\n".join(["ImageId,PredictionString", *reversed(rows)])
    (tmp_path / "LOC_val_solution.csv").write_text(text)
    assert open_test_set(f"imagenet@{tmp_path}").labels.tolist() == wanted
    assert open_test_set(f"imagenet@{tmp_path / 'val'}").labels.tolist() == wanted  # beside it


def test_the_development_kit_has_numbers_of_its_own(tmp_path):
    flat(tmp_path)
    kit = tmp_path / "ILSVRC2012_devkit_t12" / "data"
    kit.mkdir(parents=True)
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O")]
    rows = [(1, SYNSETS[500], "a"), (2, SYNSETS[3], "b"), (3, "n00001740", "no leaf")]
    savemat(kit / "meta.mat", {"synsets": np.array(rows, dtype=kind)})
    truth = kit / "ILSVRC2012_validation_ground_truth.txt"
    truth.write_text("2\n1\n2\n")
    assert open_test_set(f"imagenet@{tmp_path}").labels.tolist() == [3, 500, 3]
    truth.write_text("2\n1\n3\n")
    with pytest.raises(InputError, match="line 3: '3' is none of ImageNet's class numbers"):
        open_test_set(f"imagenet@{tmp_path}")
    (kit / "meta.mat").write_bytes(b"not a MATLAB file at all" * 20)
    with pytest.raises(InputError, match=r"meta\.mat: cannot be read"):
        open_test_set(f"imagenet@{tmp_path}")


def test_real_labels_go_by_the_number_of_the_image(tmp_path):
    trees.real(tmp_path)
    found = open_test_set(f"imagenet-real@{tmp_path}")
    for example, own in zip(found.examples, found.label_sets, strict=True):
        at = int(example.rpartition("_")[2].partition(".")[0]) - 1
        assert own == (tuple(sorted({at % 3, 7})) if at % 4 else ())
    (tmp_path / "real.json").write_text("[[1], [2]]")
    with pytest.raises(InputError, match="has 2 entries, none for"):
        open_test_set(f"imagenet-real@{tmp_path}")


def test_the_125_classes_come_out_of_the_whole(tmp_path):
    trees.imagenet(tmp_path)
    found = open_test_set(f"imagenet-125@{tmp_path}")
    assert set(found.labels.tolist()) == {4, 26, 31}


def test_objectnets_border_is_cropped_and_other_objects_left_out(tmp_path):
    trees.objectnet(tmp_path)
    two, one, none = (
        open_test_set(f"objectnet{part}@{tmp_path}") for part in ("", "/border-1", "/border-0")
    )
    assert two.load(0).size == (16, 12)
    assert one.load(0).size == (18, 14)
    red = (255, 0, 0)
    for image in (two.load(0), one.load(0)):
        assert red not in [colour for _, colour in image.getcolors()]
    assert red in [colour for _, colour in none.load(0).getcolors()]
    assert len({two.fingerprint, one.fingerprint, none.fingerprint}) == 3
    assert {one.split("/")[0] for one in two.examples} == {"alarm_clock", "backpack", "banana"}
    names = list(groups("objectnet"))
    assert {two.classes[label] for label in two.labels} == {"Alarm clock", "Backpack", "Banana"}
    assert two.classes == tuple(names)
    assert "2 images of objects outside" in " ".join(two.notes)


def test_frames_of_videos(tmp_path):
    trees.vid(tmp_path)
    anchors = open_test_set(f"imagenet-vid-robust@{tmp_path}")
    frames = open_test_set(f"imagenet-vid-robust/frames@{tmp_path}")
    assert anchors.label_sets == ((26,), (4, 8))
    assert anchors.examples[0] == "val/ILSVRC2015_val_00000000/000010.JPEG"
    assert len(frames) == 6
    assert set(frames.groups) == {"ILSVRC2015_val_00000000", "ILSVRC2015_val_00001000"}
    (tmp_path / "val" / "ILSVRC2015_val_00001000" / "000011.JPEG").unlink()
    notes = " ".join(open_test_set(f"imagenet-vid-robust/frames@{tmp_path}").notes)
    assert "1 of 6 images are not there: 'ILSVRC2015_val_00001000/000011.JPEG'" in notes


def test_the_published_frames_are_recognised_by_their_labels(tmp_path):
    metadata = SHARED / "class_maps"
    if not (metadata / "vid_robust_labels.json").is_file():
        pytest.skip("the authors' metadata is not beside the checkout")
    for name in ("labels", "pmsets"):
        text = (metadata / f"vid_robust_{name}.json").read_text()
        (tmp_path / f"{name}.json").write_text(text)
    first = sorted(json.loads(text))[0]
    trees.picture(tmp_path / first)
    for part, images in (("", 1109), ("/frames", 22_179)):
        found = open_test_set(f"imagenet-vid-robust{part}@{tmp_path}")
        assert len(found) == images
        notes = " ".join(found.notes)
        assert f"{images - 1} of {images} images are not there" in notes
        assert "differ" not in notes  # the fingerprint of labels is the published one
    labels = json.loads((tmp_path / "labels.json").read_text())
    labels[first] = [1]
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    changed = open_test_set(f"imagenet-vid-robust@{tmp_path}")
    assert "labels or their order differ" in " ".join(changed.notes)


def test_reviews_decide_which_frames_of_ytbb_count(tmp_path):
    trees.ytbb(tmp_path)
    anchors = open_test_set(f"ytbb-robust@{tmp_path}")
    labels = dict(zip(anchors.examples, anchors.label_sets, strict=True))
    assert labels == {
        "A_weMKVolQM_82466/frame-2062.jpg": (23,),  # 22 in the table is car, 23 here
        "KxDh7a8_AmU_44666/frame-1117.jpg": (0, 10),  # the video's own label and one added
    }
    frames = open_test_set(f"ytbb-robust/frames@{tmp_path}")
    assert set(frames.examples) - set(anchors.examples) == {"KxDh7a8_AmU_44666/frame-1118.jpg"}
    (tmp_path / "ytbb_robustness_test_anchors_full.csv").unlink()
    with pytest.raises(InputError, match="without which labels are incomplete"):
        open_test_set(f"ytbb-robust@{tmp_path}")


def test_cifars_binary_version(tmp_path):
    trees.cifar(tmp_path)
    found = open_test_set(f"cifar-10@{tmp_path}")
    raw = np.fromfile(tmp_path / "cifar-10-batches-bin" / "test_batch.bin", dtype=np.uint8)
    records = raw.reshape(-1, 3073)
    assert found.labels.tolist() == records[:, 0].tolist()
    wanted = records[13, 1:].reshape(3, 32, 32).transpose(1, 2, 0)
    assert (np.asarray(found.subset([13]).load(0)) == wanted).all()
    raw[:3000].tofile(tmp_path / "cifar-10-batches-bin" / "test_batch.bin")
    with pytest.raises(InputError, match="3000 bytes, expected a multiple of 3073"):
        open_test_set(f"cifar-10@{tmp_path}")


def test_cifars_pickles_are_not_read(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(b"\x80\x04cos\nsystem\n.")
    with pytest.raises(InputError, match=r"pickles are not read.*test_batch\.bin"):
        open_test_set(f"cifar-10@{tmp_path}")


def test_published_labels_of_cifar_are_recognised(tmp_path, predictions):
    known = np.load(predictions / "cifar10_predictions_30models.npz")
    for name, version, key in (("cifar-10.1-v4", "v4", "v4"), ("cifar-10.1", "v6", "v6")):
        labels = known[f"labels_{key}"]
        images = np.zeros((len(labels), 32, 32, 3), np.uint8)
        np.save(tmp_path / f"cifar10.1_{version}_data.npy", images)
        np.save(tmp_path / f"cifar10.1_{version}_labels.npy", labels)
        assert open_test_set(f"{name}@{tmp_path}").notes == ()
        np.save(tmp_path / f"cifar10.1_{version}_labels.npy", labels[::-1])
        assert "labels or their order differ" in open_test_set(f"{name}@{tmp_path}").notes[0]
    records = np.zeros((10_000, 3073), np.uint8)
    records[:, 0] = known["labels_original"]
    records.tofile(tmp_path / "test_batch.bin")
    assert open_test_set(f"cifar-10@{tmp_path}").notes == ()


def test_severities_are_blocks_of_one_array(tmp_path):
    trees.cifar_c(tmp_path / "c")
    every = np.load(tmp_path / "c" / "fog.npy")
    found = open_test_set(f"cifar-10-c/fog-3@{tmp_path / 'c'}")
    assert len(found) == 10
    assert (np.asarray(found.load(4)) == every[24]).all()
    with pytest.raises(InputError, match=r"there is no snow\.npy"):
        open_test_set(f"cifar-10-c/snow-1@{tmp_path / 'c'}")
    np.save(tmp_path / "c" / "labels.npy", np.arange(48) % 10)
    np.save(tmp_path / "c" / "fog.npy", every[:48])
    with pytest.raises(InputError, match="expected five severities"):
        open_test_set(f"cifar-10-c/fog-3@{tmp_path / 'c'}")


def test_where_cinics_images_are_from(tmp_path):
    trees.cinic(tmp_path)
    found = open_test_set(f"cinic-10@{tmp_path}")
    assert sorted(found.groups.tolist()).count("imagenet") == 2
    assert "bird/n02690373" in " ".join(found.notes)


def test_the_label_space_is_the_tasks_not_the_domains(tmp_path):
    trees.folders(tmp_path / "sketch", ["horse", "person"])
    found = open_test_set(f"pacs/sketch@{tmp_path}")
    assert found.labels.tolist() == [4, 4, 6, 6]
    assert set(found.groups) == {"sketch"}
    with pytest.raises(InputError, match="there is no folder photo"):
        open_test_set(f"pacs/photo@{tmp_path}")


def test_official_splits_of_pacs_and_domainnet(tmp_path):
    trees.domain(tmp_path, "pacs")
    lists = tmp_path / "PACS" / "sketch_crossval_kfold.txt"
    lists.write_text("sketch/elephant/1.jpg 2\nsketch/dog/0.jpg 1\n")  # numbers start at 1
    found = open_test_set(f"pacs/sketch/crossval@{tmp_path}")
    assert found.examples == ("elephant/1.jpg", "dog/0.jpg")
    assert found.labels.tolist() == [1, 0]
    lists.write_text("sketch/elephant/1.jpg 5\nsketch/dog/0.jpg 1\n")
    with pytest.raises(InputError, match="class numbers are not those"):
        open_test_set(f"pacs/sketch/crossval@{tmp_path}")
    with pytest.raises(InputError, match=r"there is no list sketch_test_kfold\.txt"):
        open_test_set(f"pacs/sketch/test@{tmp_path}")
    trees.domain(tmp_path, "domainnet")
    lists = tmp_path / "domain_net" / "real_test.txt"
    lists.write_text("real/alarm_clock/0.jpg 2\nreal/zebra/gone.jpg 343\n")
    found = open_test_set(f"domainnet/real/test@{tmp_path}")
    assert found.labels.tolist() == [2]
    assert "1 of 2 images of real_test.txt are not there" in " ".join(found.notes)
    with pytest.raises(InputError, match="has no official splits"):
        open_test_set(f"officehome/Art/test@{tmp_path}")


def test_vlcs_in_the_release_with_splits(tmp_path):
    for split, each in (("full", 3), ("train", 2), ("test", 1)):
        trees.folders(tmp_path / "CALTECH" / split, ["0", "4"], each=each)
    assert open_test_set(f"vlcs/Caltech101@{tmp_path}").labels.tolist() == [0, 0, 0, 4, 4, 4]
    assert open_test_set(f"vlcs/Caltech101/test@{tmp_path}").labels.tolist() == [0, 4]


def test_wilds_splits(tmp_path):
    trees.camelyon(tmp_path / "c")
    assert len(open_test_set(f"camelyon17/id@{tmp_path / 'c'}")) == 2
    ood = open_test_set(f"camelyon17/ood@{tmp_path / 'c'}")
    assert ood.labels.tolist() == [0, 1]
    assert ood.groups.tolist() == ["slide 4", "slide 5"]
    assert len(open_test_set(f"camelyon17/val@{tmp_path / 'c'}")) == 1
    trees.fmow(tmp_path / "f")
    found = {
        split: open_test_set(f"fmow/{split}@{tmp_path / 'f'}")
        for split in ("train", "id", "val", "ood")
    }
    assert {split: one.examples for split, one in found.items()} == {
        "train": ("images/rgb_img_0.png",),
        "id": ("images/rgb_img_1.png",),
        "val": ("images/rgb_img_2.png",),
        "ood": ("images/rgb_img_4.png",),
    }
    assert found["ood"].classes[found["ood"].labels[0]] == "zoo"
    assert found["id"].groups.tolist() == ["Europe"]
    assert found["ood"].groups.tolist() == ["Other"]
    trees.iwildcam(tmp_path / "i")
    assert open_test_set(f"iwildcam/ood@{tmp_path / 'i'}").labels.tolist() == [102, 105]
    assert open_test_set(f"iwildcam/id@{tmp_path / 'i'}").labels.tolist() == [104]
    trees.rxrx1(tmp_path / "r")
    assert open_test_set(f"rxrx1/id@{tmp_path / 'r'}").labels.tolist() == [1001]
    assert open_test_set(f"rxrx1/ood@{tmp_path / 'r'}").labels.tolist() == [1003, 1004]
    assert open_test_set(f"rxrx1/train@{tmp_path / 'r'}").labels.tolist() == [1000]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tumor", "tumour", "did you mean 'tumour'"),
        (",3328,4,0,", ",3328,4,7,", "label '7' is none of the 2 classes"),
        (",004,4,", ",../../etc,4,", "is not below the directory"),
    ],
)
def test_hostile_metadata(tmp_path, old, new, message):
    trees.camelyon(tmp_path)
    table = tmp_path / "metadata.csv"
    text = table.read_text()
    assert old in text
    table.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=message):
        open_test_set(f"camelyon17/ood@{tmp_path}")


def test_scikit_learns_digits_need_no_file():
    found = open_test_set("digits/sklearn@")
    assert len(found) == 1797
    assert found.notes == ()
    own = load_digits()
    assert (found.labels == own.target).all()
    assert (np.asarray(found.load(5)) == np.rint(own.images[5] * 255 / 16)).all()
    with pytest.raises(InputError, match="nothing more"):
        open_test_set("digits/sklearn@somewhere")
    with pytest.raises(InputError, match="must follow the @"):
        open_test_set("digits/usps@")


def test_mnist_in_idx_files(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
    sizes = b"".join(n.to_bytes(4, "big") for n in images.shape)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(
        bytes([0, 0, 8, 3]) + sizes + images.tobytes()
    )
    labels = bytes([0, 0, 8, 1]) + (5).to_bytes(4, "big") + bytes([3, 1, 4, 1, 5])
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(labels)
    found = open_test_set(f"digits/mnist@{tmp_path}")
    assert found.labels.tolist() == [3, 1, 4, 1, 5]
    assert (np.asarray(found.load(3)) == images[3]).all()
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(b"\x1f\x8b" + bytes(100))
    with pytest.raises(InputError, match="not an IDX file"):
        open_test_set(f"digits/mnist@{tmp_path}")


def test_the_real_digits_are_complete():
    file = SHARED / "images" / "digits.npz"
    if not file.is_file():
        pytest.skip("digits.npz is not beside the checkout")
    for domain, size, images in (("usps", 16, 2007), ("mnist", 28, 10_000)):
        found = open_test_set(f"digits/{domain}@{file}")
        assert len(found) == images
        assert found.notes == ()  # count and labels are the published ones
        assert found.load(0).size == (size, size)
        assert isinstance(found.load(0), Image.Image)
    assert len(open_test_set(f"digits/usps/train@{file.parent}")) == 7291
