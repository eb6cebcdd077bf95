"""Models of a recipe are named by what sets them apart."""

import polars as pl

from shiftbed.testbed.labels import called, labels


def models(**columns: list[object]) -> pl.DataFrame:
    count = len(next(iter(columns.values())))
    return pl.DataFrame({"model": [f"cnn-{i:012x}@150" for i in range(count)], **columns})


def test_a_label_says_what_was_done():
    made = models(
        training_data=["mnist", "mnist", "mnist+digits"],
        data_size=["full", "fraction-0.25", "full"],
        augmentation=["none", "gaussian-noise:0.1", "none"],
        pruning=[None, None, "magnitude"],
        sparsity=[None, None, 0.8],
        seed=[0, 1, 0],
    )
    assert labels(made) == [
        "cnn · MNIST · seed 0 · step 150",
        "cnn · MNIST 25 % · gaussian-noise:0.1 · seed 1 · step 150",
        "cnn · MNIST + digits · magnitude 80 % · seed 0 · step 150",
    ]


def test_twins_are_told_apart_by_a_column_or_by_their_hash():
    made = models(seed=[0, 0], lr=[0.1, 0.01])
    assert labels(made) == ["cnn · lr 0.1 · seed 0 · step 150", "cnn · lr 0.01 · seed 0 · step 150"]
    same = pl.DataFrame({"model": ["cnn-aaaaaa000000@9", "cnn-bbbbbb000000@9"], "seed": [0, 0]})
    assert labels(same) == ["cnn · seed 0 · step 9 · aaaaaa", "cnn · seed 0 · step 9 · bbbbbb"]


def test_as_few_columns_as_tell_all_twins_apart():
    made = models(
        seed=[0, 0, 0, 0],
        optimiser=["SGD"] * 4,
        lr=[0.1, 0.1, 0.01, 0.01],
        tune=["whole", "head", "whole", "head"],
        start=["random", "random", "random", "pretrained"],
    )
    assert labels(made) == [
        "cnn · lr 0.1 · tune whole · seed 0 · step 150",
        "cnn · lr 0.1 · tune head · seed 0 · step 150",
        "cnn · lr 0.01 · tune whole · seed 0 · step 150",
        "cnn · lr 0.01 · tune head · seed 0 · step 150",
    ]


def test_the_name_a_recipe_gave_is_kept():
    made = models(called=["cnn · lr 0.1 · seed 0", None], seed=[0, 1])
    assert labels(made) == ["cnn · lr 0.1 · seed 0 · step 150", "cnn · seed 1 · step 150"]
    assert called(made)[f"cnn-{0:012x}"] == "cnn · lr 0.1 · seed 0"


def test_a_label_does_not_depend_on_other_models():
    made = models(training_data=["mnist"] * 3, seed=[0, 1, 2])
    assert labels(made)[1] == labels(made[1:2])[0]
    assert labels(pl.DataFrame({"model": ["resnet50", "soup"]})) == ["resnet50", "soup"]
