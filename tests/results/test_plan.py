import pytest

import shiftbed as sb
from shiftbed.results.plan import design


def test_the_testbed_makes_the_design(imagenet):
    line = imagenet.fit("imagenet-v2", bootstrap=0)
    made = design(imagenet, "imagenet-v2")
    assert (made.models, made.id_images, made.ood_images) == (78, 50_000, 10_000)
    assert made.slope == line.weights[0]
    assert made.scatter == line.lines[0].sigma
    assert made.predicted == pytest.approx(float(line.predict([made.accuracy])[0]))


def test_what_is_given_is_kept(imagenet):
    made = design(imagenet, "imagenet-a", accuracy=0.8, models=10, ood_images=99)
    assert (made.accuracy, made.models, made.ood_images) == (0.8, 10, 99)


def test_unknown_sizes_must_be_given():
    bed = sb.published("openclip")
    shift = sb.Shift(
        name="x", kind="natural-dataset", source=("ImageNet 1k",), target="Dollar Street"
    )
    with pytest.raises(sb.InputError, match="OOD test-set size is unknown"):
        design(bed, shift)
    assert design(bed, shift, ood_images=3503).ood_images == 3503
