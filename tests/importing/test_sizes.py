"""n from printed intervals, with statsmodels' intervals as the other implementation."""

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from shiftbed.importing import import_results
from shiftbed.importing.sizes import recover_size

KINDS = {"beta": "Clopper–Pearson", "wilson": "Wilson", "normal": "normal"}
SIZES = (500, 2_000, 10_000, 18_514, 50_000)


def printed(n, kind, digits=None, level=0.95, models=10, seed=0):
    """Accuracies and their intervals on n images, rounded as they are printed."""
    rng = np.random.default_rng(seed)
    right = rng.binomial(n, rng.uniform(0.3, 0.9, models))
    low, high = proportion_confint(right, n, alpha=1 - level, method=kind)
    arrays = right / n, low, high
    return arrays if digits is None else tuple(np.round(one, digits) for one in arrays)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_unrounded_intervals_give_n_and_their_kind(kind, n):
    found = recover_size(*printed(n, kind))
    assert found is not None
    assert (found.n, found.methods) == (n, (KINDS[kind],))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_four_digits_give_a_range_with_n_in_it(kind, n, seed):
    found = recover_size(*printed(n, kind, 4, seed=seed), resolution=1e-4)
    assert found is not None
    assert found.least <= n <= found.most
    assert KINDS[kind] in found.methods
    assert abs(found.n / n - 1) < 0.03


def test_a_known_size_is_taken_if_the_intervals_allow_it():
    some = printed(18_514, "beta", 3)
    assert recover_size(*some, resolution=1e-3, known=18_514).n == 18_514
    assert recover_size(*some, resolution=1e-3, known=50_000).n != 50_000


def test_a_known_size_is_taken_where_ends_are_rounded_outwards():
    """ImageNet: 50,000 images give 0.7572 to 0.7647 to the nearest digit, 0.7648 outwards."""
    assert recover_size(0.761, 0.7572, 0.7648, resolution=1e-4, known=50_000).n == 50_000
    assert recover_size(0.761, 0.7572, 0.7648, resolution=1e-4, known=40_000).n != 40_000


def test_sizes_known_by_name_and_digits_by_setting(write):
    text = "model,dataset,acc,lower,upper\na,imagenet,0.761,0.757,0.765\na,{},0.65,0.6406,0.6594\n"
    bed = import_results([write("a.csv", text.format("imagenet-v2"))])
    assert bed.n.tolist() == [[50_000, 10_000]]
    assert sum("as the test set of that name has" in one for one in bed.notes) == 2
    bed = import_results([write("a.csv", text.format("photos"))])
    assert bed.n.tolist() == [[50_000, 10_000]]


def test_other_levels():
    some = printed(10_000, "beta", level=0.99)
    assert recover_size(*some, level=0.99).n == 10_000
    assert recover_size(*some, level=0.95).n != 10_000


def test_intervals_that_are_none_of_a_number_of_images():
    p, low, high = printed(10_000, "beta")
    assert recover_size(p, low - 0.1, high) is None
    width = np.linspace(0.01, 0.1, len(p))
    assert recover_size(p, p - width, p + width) is None
    assert recover_size(p, high, low) is None
    assert recover_size([], [], []) is None


def test_digits_that_leave_n_open():
    p, low, high = printed(50_000, "beta", 2)
    assert recover_size(p, low, high, resolution=1e-2) is None


def long_table(n, columns, scale=1, digits=4):
    arrays = [np.round(scale * one, digits) for one in printed(n, "beta", 6)]
    rows = "\n".join(
        f"m{i},v2,{p},{a},{b}" for i, (p, a, b) in enumerate(zip(*arrays, strict=True))
    )
    return f"{columns}\n{rows}\n"


@pytest.mark.parametrize(
    "columns",
    [
        "model,setting,value,low,high",
        "arch,test_set,acc1,ci_low,ci_high",
        "name,dataset,acc,lower,upper",
    ],
)
@pytest.mark.parametrize("scale", [1, 100])
def test_a_table_with_intervals_and_no_n(write, columns, scale):
    path = write("a.csv", long_table(10_000, columns, scale, 5 if scale == 1 else 3))
    bed = import_results([path])
    assert set(bed.size("v2")) == {10_000}
    assert any("n = 10,000 by its 95 % intervals (Clopper–Pearson" in one for one in bed.notes)


def test_ends_in_one_column_and_half_widths(write):
    p, low, high = printed(10_000, "normal", 5)
    rows = [
        f'm{i},{a:.5f},"[{b:.5f}, {c:.5f}]"'
        for i, (a, b, c) in enumerate(zip(p, low, high, strict=True))
    ]
    bed = import_results([write("a.csv", "model,v2,v2_ci\n" + "\n".join(rows))])
    assert abs(bed.usual_size("v2") / 10_000 - 1) < 0.01
    half = [
        f"m{i},v2,{100 * a:.3f},±{50 * (c - b):.3f}"
        for i, (a, b, c) in enumerate(zip(p, low, high, strict=True))
    ]
    bed = import_results([write("b.csv", "model,setting,accuracy,ci95\n" + "\n".join(half))])
    assert abs(bed.usual_size("v2") / 10_000 - 1) < 0.01


def test_what_is_said_comes_before_what_is_recovered(write):
    text = long_table(10_000, "model,setting,value,low,high")
    assert import_results([write("a.csv", text)], sizes={"v2": 7}).usual_size("v2") == 7
    kept = text.replace("low,high", "low,high,n").replace("\nm0", "\nx").replace("\n", ",3\n")
    kept = kept.replace("high,n,3", "high,n", 1)
    assert set(import_results([write("b.csv", kept)]).size("v2")) == {3}


def test_intervals_at_odds_with_the_name(write):
    text = long_table(5_000, "model,setting,value,low,high", digits=6).replace(",v2,", ",val,")
    bed = import_results([write("a.csv", text)], like="imagenet-testbed-2020")
    assert bed.usual_size("val") == 5_000
    assert any("although the test set of that name has 50,000" in one for one in bed.notes)


def test_no_n_is_said(write):
    text = "model,val,val_low,val_high\na,0.7,0.6,0.71\nb,0.8,0.4,0.9\n"
    bed = import_results([write("a.csv", text)])
    assert bed.usual_size("val") == 0
    assert any("n is not taken from them" in one for one in bed.notes)
