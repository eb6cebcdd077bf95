import pytest

import shiftbed as sb
from shiftbed.results.plan import design, plan


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


def test_large_effects_are_planned_for(imagenet):
    """Far out a non-central t has no closed form in floating point, but a power of one."""
    found = plan(0.05, imagenet)
    assert found.frame["power"].to_list() == pytest.approx([1.0, 1.0])
    assert found.frame["models_needed"].to_list() == [4, 4]
    assert "nan" not in str(found)


def test_plans_are_checked_by_simulation(imagenet):
    found = plan(0.012, imagenet, models=12, simulate=400).frame
    assert found["simulated_power"].to_list() == pytest.approx(found["power"].to_list(), abs=0.1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delta": 2}, "delta must be a fraction"),
        ({"delta": 0.01, "power": 80}, "power must lie between 0 and 1"),
        ({"delta": 0.01, "accuracy": 0.0}, "accuracy must be a fraction between"),
        ({"delta": 0.01, "models": 3}, "models must be at least 4"),
        ({"delta": 0.01, "simulate": -1}, "simulate must not be negative"),
    ],
)
def test_impossible_plans_are_refused(imagenet, given, message):
    with pytest.raises(sb.InputError, match=message):
        plan(testbed=imagenet, **given)
