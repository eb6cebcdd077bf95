import polars as pl
import pytest

import shiftbed as sb
from shiftbed.results.sensitivity import sensitivity


def test_every_choice_is_the_fit_it_says(imagenet):
    found = sensitivity(imagenet, "resnet50_augmix", "objectnet")
    fits = found.frame.filter(estimator="least-squares")
    assert len(fits) == 3 * 3 * 3 + 3 * 3 * 2  # with the threshold only on its own axis
    assert found.frame["estimator"].value_counts(sort=True).rows() == [
        ("least-squares", 45),
        ("huber", 5),
        ("theil-sen", 3),
    ]
    row = found.frame.filter(
        pl.col("fit_set") == "all",
        pl.col("scale") == "probit",
        pl.col("id") == "val",
        pl.col("threshold").is_null(),
    )
    line = imagenet.fit("objectnet", models="all", scale="probit", full_source=True)
    rho = imagenet.judge(line).effective[imagenet.model_index("resnet50_augmix")]
    assert row["effective"].to_list() == [pytest.approx(rho)]
    assert found.low == min(found.values)
    assert found.high == max(found.values)


def test_signs(imagenet):
    sure = sensitivity(imagenet, "efficientnet-l2-noisystudent", "imagenet-v2")
    assert sure.sign_survives
    assert sure.out_of_line >= 18  # of 22; with all models in the fit set it is one of many
    unsure = sensitivity(imagenet, "resnet50_augmix", "imagenet-a")
    assert not unsure.sign_survives


def test_planes_and_knees_are_among_the_choices(imagenet):
    choices = sensitivity(imagenet, "resnet50_augmix", "imagenet-a").frame
    assert choices.filter(pl.col("id").str.contains(r"\+"), pl.col("knee").is_not_null()).is_empty()
    assert not choices.filter(pl.col("id").str.contains(r"\+")).is_empty()
    assert set(choices["knee"].drop_nulls()) == {0.9186, 0.7613}


def test_what_cannot_be_computed_is_a_row_with_a_reason(imagenet):
    few = imagenet.where("model=*vgg1[16]*")
    choices = sensitivity(few, "vgg16", "imagenet-a").frame
    reasons = choices.filter(pl.col("effective").is_null())["why"]
    assert len(reasons)
    assert reasons.str.contains("too few models").all()


def test_models_without_the_accuracy_are_named(imagenet):
    bed = imagenet.with_model("mine", {"val": 0.7})
    with pytest.raises(sb.InputError, match="'mine' has no accuracy"):
        sensitivity(bed, "mine", "imagenet-v2")
