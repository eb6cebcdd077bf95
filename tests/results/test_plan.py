from dataclasses import replace

import numpy as np
import pytest

import shiftbed as sb
from shiftbed.analysis.planning import QUESTIONS, power_of, residual_noise
from shiftbed.results.plan import _simulated, design, plan, simulated_power


def test_the_testbed_makes_the_design(imagenet):
    line = imagenet.fit("imagenet-v2", bootstrap=0)
    made = design(imagenet, "imagenet-v2")
    assert (made.models, made.id_images, made.ood_images) == (78, 50_000, 10_000)
    assert made.slope == line.weights[0]
    assert made.families == 25
    assert made.interval == "modelled"
    noise = residual_noise(replace(made, models=line.lines[0].n))
    assert made.scatter**2 + noise == pytest.approx(line.lines[0].sigma ** 2)
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


GRID = {
    "alone": ({}, 0.02),
    "families": ({"families": 20, "correlation": 0.3}, 0.02),
    "few": ({"models": 12}, 0.02),
    "unlike": ({"interval": "independent"}, 0.025),
    "scatter": ({"scatter": 0.05}, 0.03),
}


@pytest.mark.parametrize("case", GRID)
def test_the_promised_power_is_that_of_simulated_studies(imagenet, case):
    """Models and images are drawn and placed by ``place``; 120 studies, so ± 9 points is 2σ."""
    changes, delta = GRID[case]
    small = {"id_images": 3000, "ood_images": 2000, "models": 40}
    made = replace(design(imagenet, "imagenet-v2", **small), families=None, correlation=0.0)
    made = replace(made, **changes)
    found = simulated_power(made, delta, simulations=120, seed=1)
    for question in QUESTIONS:
        assert found[question] == pytest.approx(power_of(made, delta, question), abs=0.125)


def test_a_plan_says_what_it_is_about(imagenet):
    found = plan(0.012, imagenet, models=12, id_images=2000, ood_images=2000, simulate=20)
    assert found.frame["simulated_power"].is_between(0, 1).all()
    about = found.to_dict()
    assert (about["interval"], about["families"]) == ("modelled", 4)
    assert about["flags"] == ["only 4 families: power may be less than said"]
    paired = plan(0.012, imagenet, paired=True, families=30).to_dict()
    assert (paired["interval"], paired["families"], paired["flags"]) == ("paired", 30, [])
    unlike = plan(0.012, imagenet, paired=False)
    assert unlike.frame["power"][0] < found.frame["power"][0] + 1
    assert "independent" in unlike.flags[0]


def test_answers_per_image_are_placed_as_paired(imagenet):
    made = design(imagenet, "imagenet-v2", id_images=500, ood_images=500, models=8, paired=True)
    bed = _simulated(made, 0.02, np.random.default_rng(0))
    assert bed.effective_robustness("planned")["interval"].unique().to_list() == ["paired"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delta": 2}, "delta must be a fraction"),
        ({"delta": 0.01, "power": 80}, "power must lie between 0 and 1"),
        ({"delta": 0.01, "accuracy": 0.0}, "accuracy must be a fraction between"),
        ({"delta": 0.01, "models": 3}, "models must be at least 4"),
        ({"delta": 0.01, "families": 2}, "families must be at least 3"),
        ({"delta": 0.01, "models": 10, "families": 20}, "cannot have 20 families"),
        ({"delta": 0.01, "simulate": -1}, "simulate must not be negative"),
    ],
)
def test_impossible_plans_are_refused(imagenet, given, message):
    with pytest.raises(sb.InputError, match=message):
        plan(testbed=imagenet, **given)
