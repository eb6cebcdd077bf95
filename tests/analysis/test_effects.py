"""Matched differences, chosen networks and Wilcoxon's test, against scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import permutation_test, quantile_test, wilcoxon

from shiftbed.analysis.effects import (
    choose_networks,
    id_sets,
    matched_differences,
    median_interval,
    signed_rank,
)
from shiftbed.analysis.pairs import PairTable
from shiftbed.errors import InputError

AUGMENTATIONS = ("none", "RandAugment", "AugMix")


def study(rng, effect=0.0, sets=4, targets=2, rates=(0.1, 0.01)):
    """Networks of one recipe per (architecture, learning rate, augmentation) on each ID set."""
    recipes = [(a, r, g) for a in ("ViT", "ResNet") for r in rates for g in AUGMENTATIONS]
    models = tuple(f"{a}-{r}-{g}" for a, r, g in recipes)
    info = {
        "architecture": [a for a, _, _ in recipes],
        "rate": [float(r) for _, r, _ in recipes],
        "augmentation": [g for _, _, g in recipes],
        "parent": [None if g == "none" else f"{a}-{r}-none" for a, r, g in recipes],
    }
    moved = np.array([g != "none" for _, _, g in recipes])
    pairs = []
    for s in range(sets):
        own = rng.normal(0.2, 0.02, len(models)) - 0.5 * effect * moved
        for t in range(targets):
            ood = own + rng.normal(0.3, 0.02, len(models)) - 0.5 * effect * moved
            pairs.append(
                PairTable(
                    task="t",
                    source=f"s{s}",
                    target=f"o{t}",
                    models=models,
                    metrics=("id:error", "ood:error"),
                    values=np.column_stack([own, ood]),
                    info=info,
                )
            )
    return pairs


def by_hand(pairs, source, of, against, rate, architecture, metric):
    """The mean over an ID set's OOD sets, network by network."""
    total = 0.0
    here = [p for p in pairs if p.source == source]
    for side, sign in ((of, 1), (against, -1)):
        values = []
        for g in side:
            name = f"{architecture}-{rate}-{g}"
            values.append(np.mean([p.column(metric)[p.models.index(name)] for p in here]))
        total += sign * np.mean(values)
    return total


def test_augmentations_are_averaged_first_and_targets_do_not_count_twice():
    pairs = study(np.random.default_rng(0))
    of, against = ("RandAugment", "AugMix"), ("none",)
    found = matched_differences(pairs, "ood:error", "augmentation", of, against, unit="network")
    assert len(found.differences) == found.matched == 4 * 4
    assert found.unmatched == 0
    name = found.units[0]
    assert name == "t: s0: ViT, 0.1"
    expected = by_hand(pairs, "s0", of, against, 0.1, "ViT", "ood:error")
    assert found.differences[0] == pytest.approx(expected)
    sets = matched_differences(pairs, "ood:error", "augmentation", of, against)
    assert sets.units == ("t: s0", "t: s1", "t: s2", "t: s3")
    assert sets.differences[0] == pytest.approx(found.differences[:4].mean())


def test_id_metrics_count_once_per_id_set():
    pairs = study(np.random.default_rng(0), targets=5)
    found = matched_differences(
        pairs, "id:error", "augmentation", ["AugMix"], ["none"], unit="network"
    )
    assert len(found.differences) == 16


def test_a_network_without_a_counterpart_is_counted():
    pairs = study(np.random.default_rng(0), sets=1, targets=1)
    pair = pairs[0]
    values = pair.values.copy()
    values[pair.models.index("ViT-0.1-AugMix"), 1] = np.nan
    lacking = PairTable(**{**vars(pair), "values": values})
    found = matched_differences(
        [lacking], "ood:error", "augmentation", ["AugMix"], ["none"], unit="network"
    )
    assert (found.matched, found.unmatched) == (3, 1)


def test_explicit_columns_average_what_differs_otherwise():
    pairs = study(np.random.default_rng(0), sets=1, targets=1)
    found = matched_differences(
        pairs,
        "ood:error",
        "augmentation",
        ["AugMix"],
        ["none"],
        match=["architecture"],
        unit="network",
    )
    both = [by_hand(pairs, "s0", ["AugMix"], ["none"], r, "ViT", "ood:error") for r in (0.1, 0.01)]
    assert found.differences[0] == pytest.approx(np.mean(both))
    assert len(found.differences) == 2


@pytest.mark.parametrize("unit", ["id-set", "network"])
def test_null_effects_are_significant_at_the_nominal_rate(unit):
    rng = np.random.default_rng(7)
    hits, runs = 0, 200
    for _ in range(runs):
        pairs = study(rng, sets=12, targets=1, rates=(0.1,))
        found = matched_differences(
            pairs, "ood:error", "augmentation", ("RandAugment", "AugMix"), ("none",), unit=unit
        )
        hits += signed_rank(found.differences).p_value <= 0.05
    assert abs(hits / runs - 0.05) < 4 * np.sqrt(0.05 * 0.95 / runs)


def test_related_id_sets_of_a_task_are_one_piece_of_evidence():
    """Differences of a task's ID sets share an effect: by task the null is rejected as said."""
    rng = np.random.default_rng(8)
    hits, runs = {"task": 0, "id-set": 0}, 300
    info = {"augmentation": ["none", "AugMix"]}
    for _ in range(runs):
        pairs = []
        for task in range(9):
            shared = rng.normal(0, 0.02)
            for s in range(4):
                moved = shared + rng.normal(0, 0.01)
                values = np.array([[0.2, 0.4], [0.2, 0.4 + moved]])
                named = {"task": f"t{task}", "source": f"s{s}", "target": "o"}
                metrics = ("id:error", "ood:error")
                models = ("a", "b")
                pairs.append(
                    PairTable(**named, models=models, metrics=metrics, values=values, info=info)
                )
        for unit in hits:
            chosen = None if unit == "task" else unit
            found = matched_differences(
                pairs, "ood:error", "augmentation", ["AugMix"], ["none"], unit=chosen
            )
            hits[unit] += signed_rank(found.differences).p_value <= 0.05
    assert len(found.differences) == 36
    assert hits["task"] / runs < 0.085
    assert hits["id-set"] / runs > 0.12


def test_a_true_effect_is_found_with_its_size():
    pairs = study(np.random.default_rng(3), effect=0.03, sets=36)
    found = matched_differences(
        pairs, "ood:error", "augmentation", ("RandAugment", "AugMix"), ("none",)
    )
    test = signed_rank(found.differences)
    assert test.p_value < 1e-6
    assert test.low < -0.03 < test.high
    assert test.rank_biserial < -0.9


class TestRefused:
    @pytest.fixture
    def pairs(self):
        return study(np.random.default_rng(0))

    def test_unknown_names(self, pairs):
        with pytest.raises(InputError, match="did you mean 'augmentation'"):
            matched_differences(pairs, "ood:error", "augmentations", ["AugMix"], ["none"])
        with pytest.raises(InputError, match="did you mean 'AugMix'"):
            matched_differences(pairs, "ood:error", "augmentation", ["AugMax"], ["none"])
        with pytest.raises(InputError, match="unit"):
            matched_differences(pairs, "ood:error", "augmentation", ["AugMix"], ["none"], unit="x")
        with pytest.raises(InputError, match="recipe column of"):
            matched_differences(
                pairs, "ood:error", "augmentation", ["AugMix"], ["none"], match=["size"]
            )

    def test_one_value_on_both_sides(self, pairs):
        with pytest.raises(InputError, match="on both sides"):
            matched_differences(pairs, "ood:error", "augmentation", ["none"], ["none"])


class TestArchitectures:
    def test_the_network_is_chosen_on_id_data_per_id_set(self):
        pairs = study(np.random.default_rng(1))
        chosen, left_out = choose_networks(pairs)
        assert not left_out
        assert len(chosen) == 2 * len(pairs)
        for one in chosen:
            pair = next(p for p in pairs if (p.source, p.target) == (one.source, one.target))
            rows = [i for i, a in enumerate(pair.info["architecture"]) if a == one.architecture]
            best = min(rows, key=lambda i: pair.column("id:error")[i])
            assert one.model == pair.models[best]
            assert one.ood_error == pair.column("ood:error")[best]

    def test_a_missing_value_is_counted(self):
        pairs = study(np.random.default_rng(1), sets=1)
        values = pairs[1].values.copy()
        values[:] = np.nan
        pairs[1] = PairTable(**{**vars(pairs[1]), "values": values})
        _, left_out = choose_networks(pairs)
        assert left_out == {"ViT": 2, "ResNet": 2}  # no ID error in all pairs of the ID set


def test_pairs_of_an_id_set_go_together():
    pairs = study(np.random.default_rng(0), sets=3, targets=4)
    assert [len(here) for here in id_sets(pairs).values()] == [4, 4, 4]


@pytest.mark.parametrize("alternative", ["less", "greater"])
@pytest.mark.parametrize("n", [4, 13, 36, 50])
def test_exact_p_values_equal_scipy(n, alternative):
    d = np.random.default_rng(n).normal(0.2, 1, n)
    theirs = wilcoxon(d, alternative=alternative, method="exact")
    found = signed_rank(d, alternative)
    assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert found.statistic == theirs.statistic
    assert found.method == "exact"


@pytest.mark.parametrize("alternative", ["less", "greater"])
def test_normal_p_values_with_ties_and_zeros_equal_scipy(alternative):
    d = np.round(np.random.default_rng(0).normal(0.1, 1, 200), 1)
    theirs = wilcoxon(d, alternative=alternative, method="asymptotic", correction=False)
    found = signed_rank(d, alternative)
    assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert found.zeros == (d == 0).sum() > 0
    assert found.method == "normal"


def test_exact_p_values_with_ties_equal_all_sign_flips():
    d = np.array([0.1, 0.1, -0.2, 0.3, 0.3, -0.3, 0.5, 0.1])

    def statistic(x, axis):
        ranks = np.array([2, 2, 4, 6, 6, 6, 8, 2.0])
        return (ranks * (x > 0)).sum(axis=axis)

    theirs = permutation_test(
        (d,), statistic, permutation_type="samples", alternative="greater", n_resamples=np.inf
    )
    assert signed_rank(d, "greater").p_value == pytest.approx(theirs.pvalue)


def test_36_unanimous_id_sets_give_the_smallest_p_value_of_wenzel2022():
    """Fig. 5 prints 8e-8 for corrupted error; no smaller one is possible with 36 ID sets."""
    found = signed_rank(-np.arange(1.0, 37.0), method="normal")
    assert f"{found.p_value:.0e}" == "8e-08"
    assert found.rank_biserial == -1.0


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=30))
def test_the_two_alternatives_mirror_each_other(values):
    d = np.array(values) / 7
    less, greater = signed_rank(d, "less"), signed_rank(-d, "greater")
    assert less.p_value == pytest.approx(greater.p_value)
    assert less.rank_biserial == pytest.approx(-greater.rank_biserial)
    assert 0 < less.p_value <= 1
    assert -1 <= less.rank_biserial <= 1


@pytest.mark.parametrize("n", [6, 15, 37, 200])
def test_the_interval_of_the_median_equals_scipy(n):
    x = np.random.default_rng(n).normal(size=n)
    theirs = quantile_test(x, q=0, p=0.5).confidence_interval(0.95)
    assert median_interval(x)[:2] == pytest.approx((theirs.low, theirs.high))


def test_null_differences_are_significant_at_the_nominal_rate():
    rng = np.random.default_rng(0)
    p = np.array([signed_rank(rng.standard_t(3, 36)).p_value for _ in range(1500)])
    for level in (0.01, 0.05, 0.2):
        rate = (p <= level).mean()
        assert abs(rate - level) < 4 * np.sqrt(level * (1 - level) / 1500)


class TestEdges:
    def test_few_differences_have_no_interval_but_a_reason(self):
        found = signed_rank([0.1, 0.2])
        assert np.isnan(found.low)
        assert "too few differences (2)" in found.note
        assert found.p_value == 1.0

    def test_zeros_only(self):
        found = signed_rank(np.zeros(8))
        assert (found.p_value, found.rank_biserial, found.zeros) == (1.0, 0.0, 8)
        assert "all differences are zero" in found.note

    def test_none_at_all(self):
        found = signed_rank([])
        assert found.n == 0
        assert found.note

    def test_bad_input(self):
        with pytest.raises(InputError, match="finite"):
            signed_rank([0.1, np.nan])
        with pytest.raises(InputError, match="less"):
            signed_rank([0.1], "two-sided")
