"""Many shifts judged together give what each gives by itself."""

import itertools
from dataclasses import fields, replace

import numpy as np
import polars as pl
import pytest

import shiftbed as sb
from shiftbed.analysis.modelled import Modelled
from shiftbed.analysis.robustness import effective_robustness
from shiftbed.analysis.stacks import Stack, alike
from shiftbed.records import Bits, ImageResults, Shift
from shiftbed.testbed.judging import positions

OVER_THE_TABLE = ("q_value", "out_of_line")
"""They depend on the other rows."""


def bed_2020() -> sb.Testbed:
    return sb.published("imagenet-testbed-2020")


def with_holes() -> sb.Testbed:
    """Some accuracies and sizes are missing, some models have few images, some accuracies 0."""
    bed, rng = bed_2020(), np.random.default_rng(0)
    value, n = bed.value.copy(), bed.n.copy()
    value[rng.random(value.shape) < 0.004] = np.nan
    n[:, rng.random(n.shape[1]) < 0.1] = 0
    n[[3, 100, 200]] = 150
    value[150] = 0.0
    return replace(bed, value=value, n=n)


def with_planes() -> sb.Testbed:
    bed = bed_2020()
    targets = [s.target for s in bed.shifts[:6]]
    planes = [
        Shift(name=f"plane {i}", kind="natural-dataset", source=("val", a), target=b)
        for i, (a, b) in enumerate(itertools.pairwise(targets))
    ]
    return replace(bed, shifts=(*planes, *bed.shifts[:4]))


def with_answers() -> sb.Testbed:
    """Answers per image for most models, so that some intervals are paired and others not."""
    rng, m = np.random.default_rng(1), 40
    ability = rng.normal(0.8, 0.5, (m, 1))
    right = {"id": ability + rng.normal(size=500) + 0.5 * rng.normal(size=(m, 500)) > 0}
    for i in range(3):
        harder = 0.9 * ability - 0.3 * i + rng.normal(0, 0.1, (m, 1))
        right[f"ood {i}"] = harder + rng.normal(size=400) + 0.5 * rng.normal(size=(m, 400)) > 0
    known = np.arange(m) < 37
    return sb.Testbed(
        name="answers",
        models=pl.DataFrame(
            {
                "model": [f"m{i}" for i in range(m)],
                "kind": ["standard"] * 30 + ["more-data"] * 5 + ["own"] * 5,
                "in_fit_set": np.arange(m) < 30,
                "parent": [None] * 36 + ["m1", "m2", None, "m37"],
                "family": [f"family {i % 11}" for i in range(m)],
            }
        ),
        settings=tuple(right),
        value=np.column_stack([one.mean(axis=1) for one in right.values()]),
        n=np.tile([500, 400, 400, 400], (m, 1)),
        shifts=tuple(
            Shift(name=ood, kind="natural-dataset", source=("id",), target=ood)
            for ood in list(right)[1:]
        ),
        results={
            name: ImageResults(images=name, bits=Bits.of(one), known=known)
            for name, one in right.items()
        },
    )


@pytest.mark.parametrize(
    ("bed", "options"),
    [
        (bed_2020, {}),
        (bed_2020, {"families": "none", "scale": "probit"}),
        (bed_2020, {"estimator": "huber", "weighted": True}),
        (with_holes, {"on_boundary": "drop"}),
        (with_planes, {}),
        (with_answers, {}),
    ],
    ids=["families and a knee", "independent", "weights", "holes", "planes", "answers"],
)
def test_together_as_one_by_one(bed, options):
    testbed = bed()
    own = [testbed.model_names[i] for i in (-1, -2)]
    lines = [testbed.fit(shift, bootstrap=0, **options) for shift in testbed.shifts]
    assert max(map(len, alike(lines, 10**6))) > 1
    together = testbed.robustness(lines, own_images=own)
    alone = pl.concat([testbed.robustness([line], own_images=own) for line in lines])
    assert together.columns == alone.columns
    for name in together.columns:
        if name in OVER_THE_TABLE:
            continue
        if together[name].dtype == pl.Float64:
            a, b = together[name].to_numpy(), alone[name].to_numpy()
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10, err_msg=name)
        else:
            assert together[name].equals(alone[name], null_equal=True), name
    for found, line in zip(testbed.trust_all(lines), lines, strict=True):
        wanted = testbed.trust(line)
        assert (found.trusted, found.reasons) == (wanted.trusted, wanted.reasons)
        for a, b in zip(found.checks, wanted.checks, strict=True):
            assert (a.name, a.passed, a.text) == (b.name, b.passed, b.text)
            assert a.value == pytest.approx(b.value, rel=1e-10, abs=1e-10)


def test_a_stack_is_its_baselines():
    """Without an axis in front, and with one: the same formulas, the same numbers."""
    bed = bed_2020()
    lines = [bed.fit(s, bootstrap=10) for s in bed.shifts if s.source == ("val",)][:6]
    at = np.array([[bed.setting_index("val"), bed.setting_index(b.ood_setting)] for b in lines])
    images = Modelled.of(bed.value, bed.n.astype(float))
    value, n = (np.moveaxis(one[:, at], 0, 1) for one in (bed.value, bed.n))
    position = positions(bed, lines[0])

    def judged(fit, value, n, columns):
        return effective_robustness(
            fit,
            value[..., :1],
            value[..., 1],
            n_id=n[..., :1],
            n_ood=n[..., 1],
            position=position,
            covariance=images.settings(columns),
        )

    groups = alike(lines, 10**6)
    assert sorted(i for group in groups for i in group) == list(range(6))
    some = groups[0]
    stacked = judged(Stack.of([lines[i] for i in some]), value[some], n[some], at[some])
    for j, i in enumerate(some):
        alone = judged(lines[i], value[i], n[i], at[i])
        for field in fields(alone):
            a, b = getattr(stacked, field.name)[j], getattr(alone, field.name)
            if b.dtype == np.float64:
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12, err_msg=field.name)
            else:
                assert (a == b).all(), field.name


def test_only_lines_through_the_same_models_are_stacked():
    bed = bed_2020()
    lines = [
        bed.fit("imagenet-v2", bootstrap=0),
        bed.fit("imagenet-v2", bootstrap=0, scale="probit"),
        bed.fit("imagenet-sketch", bootstrap=0),
        bed.fit("imagenet-v2", bootstrap=0, families="none"),
        bed.fit("imagenet-sketch", bootstrap=0, models="all", on_boundary="drop"),
    ]
    assert alike(lines, 10) == [[0, 2], [1], [3], [4]]
    assert alike([lines[0]] * 5, 2) == [[0, 1], [2, 3], [4]]
    assert alike(lines[:1], 0) == [[0]]
