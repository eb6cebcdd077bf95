from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.stats import false_discovery_control, norm, spearmanr, wilcoxon

from shiftbed.analysis.pairs import PairTable
from shiftbed.errors import InputError
from shiftbed.results.effect_tables import (
    architectures,
    difficulty,
    difficulty_effect,
    full_and_head,
    recipe_means,
)
from shiftbed.results.effects import differences, effects
from shiftbed.results.pairs import open_pairs
from shiftbed.results.pairs.averages import study
from tests.analysis.test_effects import study as augmented


def plain(
    values, *, task="t", source="s", target="o", info=None, metrics=("id:error", "ood:error")
):
    values = np.asarray(values, dtype=float)
    return PairTable(
        task=task,
        source=source,
        target=target,
        models=tuple(f"m{i}" for i in range(len(values))),
        metrics=metrics,
        values=values,
        info=info or {},
    )


class TestEffects:
    def test_p_and_q_values_equal_scipy(self):
        pairs = augmented(np.random.default_rng(0), sets=20, effect=0.01)
        found = differences(pairs, "augmentation", ["RandAugment", "AugMix"], ["none"])
        assert found["metric"].to_list() == ["id:error", "ood:error"]
        ps = []
        for row in found.iter_rows(named=True):
            means = []
            for s in range(20):
                here = [p for p in pairs if p.source == f"s{s}"]
                column = np.mean([p.column(row["metric"]) for p in here], axis=0)
                kinds = np.array(here[0].info["augmentation"])
                means.append(column[kinds != "none"].mean() - column[kinds == "none"].mean())
            ps.append(wilcoxon(means, alternative="less", method="exact").pvalue)
            assert row["p_value"] == pytest.approx(ps[-1])
            assert row["median"] == pytest.approx(np.median(means))
            assert (row["n"], row["networks"]) == (20, 80)
            assert row["alternative"] == "less"
        assert found["q_value"].to_list() == pytest.approx(false_discovery_control(ps))

    def test_two_recipes_that_never_meet_say_so(self):
        info = {"augmentation": ["none", "AugMix"], "rate": [0.1, 0.2]}
        found = differences(
            [plain([[0.1, 0.2], [0.2, 0.3]], info=info)], "augmentation", ["AugMix"], ["none"]
        )
        assert found["p_value"].null_count() == 2
        assert found["note"].str.contains("no network").all()
        assert found["unmatched"].to_list() == [2, 2]

    def test_one_id_set(self):
        found = differences(
            augmented(np.random.default_rng(0), sets=1), "augmentation", ["AugMix"], ["none"]
        )
        assert found["low"].null_count() == 2
        assert found["note"].str.contains("too few differences").all()
        assert (found["p_value"] >= 0.5).all()

    def test_an_unknown_metric(self):
        pairs = augmented(np.random.default_rng(0))
        with pytest.raises(InputError, match="did you mean 'ood:error'"):
            differences(pairs, "augmentation", ["AugMix"], ["none"], metric=["ood:erro"])


class TestArchitectures:
    def rows(self, **options):
        pairs = augmented(np.random.default_rng(2), sets=3, targets=2)
        pairs.append(PairTable(**{**vars(pairs[0]), "task": "u", "source": "z"}))
        return pairs, architectures(pairs, **options)

    def test_means_and_standard_errors(self):
        pairs, found = self.rows()
        row = found.filter(architecture="ViT", task="t").row(0, named=True)
        ids, oods = [], []
        for pair in pairs[:-1]:
            rows = [i for i, a in enumerate(pair.info["architecture"]) if a == "ViT"]
            best = min(rows, key=lambda i: pair.column("id:error")[i])
            ids.append(pair.column("id:error")[best])
            oods.append(pair.column("ood:error")[best])
        assert row["id_error"] == pytest.approx(np.mean(ids))
        assert row["id_error_se"] == pytest.approx(np.std(ids[::2], ddof=1) / np.sqrt(3))
        assert row["ood_error_se"] == pytest.approx(np.std(oods, ddof=1) / np.sqrt(6))
        assert row["gap"] == pytest.approx(np.mean(oods) - np.mean(ids))
        assert (row["id_sets"], row["pairs"], row["note"]) == (3, 6, "")

    def test_over_pairs_and_over_tasks(self):
        _, found = self.rows()
        by_task = found.filter(pl.col("task") != "all", architecture="ViT")["ood_error"]
        every = found.filter(architecture="ViT", task="all")["ood_error"][0]
        assert every == pytest.approx((6 * by_task[0] + by_task[1]) / 7)
        _, tasks = self.rows(over="tasks")
        row = tasks.filter(architecture="ViT", task="all").row(0, named=True)
        assert row["ood_error"] == pytest.approx(by_task.mean())
        assert row["ood_error_se"] == pytest.approx(by_task.std() / np.sqrt(2))

    def test_one_pair_has_no_standard_error_and_says_why(self):
        _, found = self.rows()
        row = found.filter(architecture="ViT", task="u").row(0, named=True)
        assert row["gap_se"] is None
        assert row["note"] == "no standard error from one pair"
        assert set(found["chosen_by"]) == {"id:error"}

    def test_validation_error_is_preferred(self):
        info = {"architecture": ["A", "A"]}
        metrics = ("id:error", "id:validation_error", "ood:error")
        found = architectures(
            [plain([[0.1, 0.3, 0.5], [0.2, 0.2, 0.4]], info=info, metrics=metrics)]
        )
        assert found["id_error"].to_list() == [0.2, 0.2]
        assert set(found["chosen_by"]) == {"id:validation_error"}

    def test_bad_options(self):
        pairs = augmented(np.random.default_rng(0))
        with pytest.raises(InputError, match="average"):
            architectures(pairs, over="networks")
        with pytest.raises(InputError, match="recipe column"):
            architectures(pairs, column="architectures")


def tasks(rng, gaps=(0.1, 0.3, 0.5, 0.7, 0.2), per_task=6):
    """Tasks whose OOD accuracy is (1 − gap) of the ID accuracy."""
    found = []
    for t, gap in enumerate(gaps):
        for i in range(per_task):
            acc = rng.uniform(0.6, 0.9, 30)
            noise = rng.normal(0, 0.02 + 0.1 * gap, 30)
            values = np.column_stack([1 - acc, 1 - (1 - gap) * acc + noise])
            found.append(plain(values, task=f"t{t}", source=f"s{i}", target=f"o{i}"))
    return found


class TestDifficulty:
    def test_gaps_are_recovered_within_their_intervals(self):
        gaps, inside = np.array([0.1, 0.3, 0.5, 0.7, 0.2]), 0
        for seed in range(60):
            found = difficulty(tasks(np.random.default_rng(seed)), bootstrap=400)
            low, high = found["low"].to_numpy(), found["high"].to_numpy()
            inside += int(((low < gaps) & (gaps < high)).sum())
        assert inside / 300 >= 0.91
        for row in found.iter_rows(named=True):
            assert row["gap"] == pytest.approx(1 - row["ood_accuracy"] / row["id_accuracy"])
            assert row["pairs"] == 6
        assert (found["scaled"].min(), found["scaled"].max()) == (0.0, 1.0)

    def test_one_pair_and_one_task(self):
        found = difficulty([plain([[0.1, 0.2], [0.3, 0.4]])]).row(0, named=True)
        assert found["gap"] == pytest.approx((0.8 - 0.7) / 0.8)
        assert found["low"] is None
        assert found["note"] == "no interval from one pair"

    def test_predictiveness_over_difficulty(self):
        pairs = tasks(np.random.default_rng(1))
        hard = difficulty(pairs)
        points, trend = difficulty_effect(study(pairs), hard)
        assert len(points) == 5
        row = trend.row(0, named=True)
        expected = spearmanr(points["gap"], points["r"]).statistic
        assert row["r"] == pytest.approx(expected)
        assert row["tasks"] == 5
        assert row["note"] or row["low"] < expected < row["high"]

    def test_an_interval_over_tasks(self):
        gaps = np.linspace(0.1, 0.6, 10)
        pairs = tasks(np.random.default_rng(4), gaps=gaps, per_task=2)
        _, trend = difficulty_effect(study(pairs), difficulty(pairs))
        row = trend.row(0, named=True)
        half = norm.ppf(0.975) * np.sqrt(1.06 / 7)
        assert row["low"] == pytest.approx(np.tanh(np.arctanh(row["r"]) - half))
        assert (row["tasks"], row["note"]) == (10, "")

    def test_too_few_tasks(self):
        pairs = tasks(np.random.default_rng(1), gaps=(0.1, 0.2))
        _, trend = difficulty_effect(study(pairs), difficulty(pairs))
        assert trend["r"].null_count() == 1
        assert trend["note"][0] == "too few tasks (2) for a correlation"

    def test_no_accuracy_at_all(self):
        found = difficulty([plain([[1.0, 1.0], [1.0, 1.0]])]).row(0, named=True)
        assert found["gap"] is None
        assert found["note"] == "the accuracy is zero"


def test_full_against_head_only():
    info = {"tuned": ["full", "full", "head", "head"]}
    one = plain([[0.1, 0.4], [0.1, 0.4], [0.4, 0.6], [0.2, 0.4]], info=info, source="a")
    two = plain([[0.2, 0.4], [0.2, 0.4], [0.4, 0.6], [0.4, 0.6]], info=info, source="b")
    found = full_and_head([one, two], "tuned", ["full"], ["head"])
    own = found.filter(where="id").row(0, named=True)
    assert own["gap"] == pytest.approx((0.85 - 0.65) / 0.85)
    assert own["low"] <= own["gap"] <= own["high"]
    assert own["id_sets"] == 2
    with pytest.raises(InputError, match="value of tuned"):
        full_and_head([one], "tuned", ["full"], ["heads"])
    alone = full_and_head([one], "tuned", ["full"], ["head"]).row(0, named=True)
    assert alone["note"] == "no interval from one ID set"


def test_means_of_recipes_are_plain_means():
    rng = np.random.default_rng(0)
    info = {"tune": ["whole", "head"] * 4, "data_size": ["full"] * 4 + ["few-shot-10"] * 4}
    pairs = [
        plain(rng.uniform(0, 1, (8, 2)), task=task, source=source, target=target, info=info)
        for task in ("a", "b")
        for source in ("s0", "s1")
        for target in ("o0", "o1")
    ]
    found = recipe_means(pairs)
    assert found["data_size"].unique(maintain_order=True).to_list() == ["full", "few-shot-10"]
    assert len(found) == 2 * 2 * 2 * 2
    sizes = ["fraction-0.03", "fraction-0.1", "full", "fraction-0.01"] * 2
    some = recipe_means([replace(p, info=info | {"data_size": sizes}) for p in pairs])
    order = some["data_size"].unique(maintain_order=True).to_list()
    assert order == ["full", "fraction-0.1", "fraction-0.03", "fraction-0.01"]
    row = found.row(
        by_predicate=(pl.col("data_size") == "full")
        & (pl.col("task") == "b")
        & (pl.col("where") == "ood")
        & (pl.col("tune") == "head"),
        named=True,
    )
    mine = [p for p in pairs if p.task == "b"]
    each = [
        1 - np.mean([p.column("ood:error")[model] for p in mine if p.source == source])
        for source in ("s0", "s1")
        for model in (1, 3)
    ]
    assert row["accuracy"] == pytest.approx(np.mean(each))
    assert row["standard_error"] == pytest.approx(np.std(each, ddof=1) / 2)
    assert row["networks"] == 4
    with pytest.raises(InputError, match="'whole' alone"):
        recipe_means([plain([[0.1, 0.2]], info={"tune": ["whole"]})])
    with pytest.raises(InputError, match="did you mean 'tune'"):
        recipe_means(pairs, column="tone")
    with pytest.raises(InputError, match="another column than 'task'"):
        recipe_means(pairs, column="task")


def test_pairs_of_a_store_are_not_chosen_from_twice():
    info = {"training_data": ["s", "other"], "tune": ["whole", "head"]}
    pair = plain([[0.1, 0.3], [0.2, 0.2]], info=info)
    assert open_pairs([pair])[0].models == ("m0",)
    assert open_pairs([replace(pair, chosen=True)])[0].models == ("m0", "m1")


def test_means_are_drawn_by_size_and_place():
    info = {"tune": ["whole", "head"], "data_size": ["full", "full"]}
    pair = plain([[0.1, 0.3], [0.2, 0.2]], info=info)
    made = effects([pair], show="means").chart()
    assert [panel.title for panel in made.panels] == ["ID, all data", "OOD, all data"]
    assert made.panels[1].series == ("head", "whole")
    assert made.panels[1].values[:, 0] == pytest.approx([0.8, 0.7])
