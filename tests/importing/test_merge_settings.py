import numpy as np
import pytest

from shiftbed.importing import import_results

RNG = np.random.default_rng(0)
VAL, V2 = RNG.integers(0, 10, 40), RNG.integers(0, 10, 20)


def top1(labels, models):
    guess = RNG.integers(0, 10, (len(models), len(labels)))
    return np.where(RNG.random(guess.shape) < 0.6, labels, guess)


def one(labels, *models):
    return {"models": np.array(models), "top1": top1(labels, models), "labels": labels}


@pytest.fixture
def four(write):
    return [
        write("67val.npz", **one(VAL, "a", "b")),
        write("67b33.npz", **one(V2, "a", "b")),
        write("mine_val.npz", **one(VAL, "mine")),
        write("mine_b33.npz", **one(V2, "mine")),
    ]


def test_my_model_joins_the_settings_whose_labels_it_has(four):
    bed = import_results(four)
    assert bed.settings == ("67val", "67b33")
    assert bed.model_names == ["a", "b", "mine"]
    assert np.isfinite(bed.value).all()
    for setting, labels, file in (("67val", VAL, four[2]), ("67b33", V2, four[3])):
        right = np.load(file)["top1"][0] == labels
        assert np.array_equal(bed.results[setting].right[2], right)
        assert bed.results[setting].known.all()


def test_chosen_names(four):
    names = {"67val": "val", "67b33.npz": "v2", str(four[2]): "val"}
    bed = import_results(four, setting_names=names)
    assert bed.settings == ("val", "v2")
    assert np.isfinite(bed.value).all()


def test_the_order_of_files_does_not_matter(four):
    straight, back = import_results(four), import_results(four[::-1])
    assert back.settings == ("mine_b33", "mine_val")
    rows = [back.model_index(name) for name in straight.model_names]
    assert np.array_equal(back.value[rows][:, ::-1], straight.value)


def test_what_all_stems_share_is_no_part_of_the_name(write):
    files = [
        write("67models_imagenet-val.npz", **one(VAL, "a")),
        write("67models_imagenet2-b.npz", **one(V2, "a")),
    ]
    assert import_results(files).settings == ("imagenet-val", "imagenet2-b")
    assert import_results(files[:1]).settings == ("67models_imagenet-val",)
    again = [write("x_.npz", **one(VAL, "a")), write("x_b.npz", **one(V2, "a"))]
    assert import_results(again).settings == ("x_", "x_b")


def test_corruptions_of_the_same_images_stay_apart(write):
    files = [
        write("clean.npz", **one(VAL, "a", "b")),
        write("shot_noise.npz", **one(VAL, "a")),
        write("gaussian_noise.npz", **one(VAL, "b")),
    ]
    bed = import_results(files)
    assert set(bed.settings) == {"clean", "shot_noise", "gaussian_noise"}
    assert len({bed.results[s].images for s in bed.settings}) == 1
    assert bed.results["shot_noise"].known.tolist() == [True, False]
    assert np.isnan(bed.accuracy("shot_noise")[1])


def test_files_with_several_settings_join_by_name(write):
    def both(*models):
        return {
            "models": np.array(models),
            "clean": top1(VAL, models),
            "labels_clean": VAL,
            "noisy": top1(VAL, models),
            "labels_noisy": VAL,
        }

    files = [write("x.npz", **both("a", "b")), write("y.npz", **both("mine"))]
    bed = import_results(files)
    assert bed.settings == ("clean", "noisy")
    assert np.isfinite(bed.value).all()
    renamed = import_results(files, setting_names={"clean": "val"})
    assert renamed.settings == ("val", "noisy")


def test_same_labels_under_unlike_names_are_refused(write, refused):
    files = [write("clean.npz", **one(VAL, "a")), write("mine_blur.npz", **one(VAL, "mine"))]
    refused(files, "mine_blur.npz", "'mine_blur'", "'clean'", "setting_names")
    bed = import_results(files, setting_names={"mine_blur": "clean"})
    assert bed.settings == ("clean",)
    bed = import_results(files, setting_names={"clean": "val", "mine_blur": "blur"})
    assert bed.settings == ("val", "blur")


def test_other_labels_under_the_same_name_are_refused(write, refused):
    other = VAL.copy()
    other[7] += 1
    files = [write("a.npz", **one(VAL, "a")), write("b.npz", **one(other, "b"))]
    names = {"a": "val", "b": "val"}
    words = [f"label {other[7]} for image 7", "a.npz", f"has {VAL[7]}", "'val'"]
    refused(files, *words, setting_names=names)
    files[1] = write("b.npz", **one(V2, "b"))
    refused(files, "20 images", "a.npz has 40", "'val'", setting_names=names)


def test_a_model_twice_in_one_setting_is_refused(write, refused):
    files = [write("a.npz", **one(VAL, "x", "y")), write("b.npz", **one(VAL, "z", "y"))]
    names = {"a": "val", "b": "val"}
    refused(files, "b.npz, model 2", "'y'", "'val'", "a.npz, model 2", setting_names=names)


def test_predictions_beside_a_table(write):
    files = [
        write("table.csv", "model,val\nz,0.5\n"),
        write("val.npz", **one(VAL, "a", "b")),
    ]
    bed = import_results(files)
    assert bed.settings == ("val",)
    assert bed.model_names == ["z", "a", "b"]
    assert bed.results["val"].known.tolist() == [False, True, True]
