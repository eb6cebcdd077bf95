"""Subsets of training data: exact counts, seeds, disjoint parts, any order of the rows."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.errors import InputError
from shiftbed.evaluation.data.parts import exact, held_out_rows, ranked
from shiftbed.training.select import (
    class_rows,
    difficulty_rows,
    few_shot_rows,
    fraction_rows,
    mix_counts,
    read_scores,
    scores_of,
)

SETS = st.lists(st.integers(0, 4), min_size=1, max_size=60)
SHARES = st.decimals(0, 1, places=3).map(float)


def named(labels: list[int]) -> tuple[list[str], np.ndarray]:
    return [f"image-{i}" for i in range(len(labels))], np.array(labels)


def chosen(examples, rows) -> set[str]:
    return {examples[row] for row in rows}


class TestCounts:
    @given(SETS, SHARES)
    def test_a_fraction_is_exact(self, labels, share):
        examples, y = named(labels)
        rows = fraction_rows(examples, y, share)
        assert len(rows) == len(set(rows)) == exact(share, len(labels))
        assert abs(len(rows) - Fraction(str(share)) * len(labels)) <= Fraction(1, 2)

    @given(SETS, SHARES)
    def test_a_balanced_one_is_exact_in_every_class(self, labels, share):
        examples, y = named(labels)
        rows = fraction_rows(examples, y, share, balanced=True)
        for label in set(labels):
            assert (y[rows] == label).sum() == exact(share, labels.count(label))

    @given(SETS, st.integers(1, 12))
    def test_few_shots_without_over_sampling(self, labels, shots):
        examples, y = named(labels)
        rows = few_shot_rows(examples, y, shots)
        assert len(rows) == len(set(rows))
        for label in set(labels):
            assert (y[rows] == label).sum() == min(shots, labels.count(label))

    @given(st.integers(1, 500), st.integers(1, 500), SHARES)
    def test_a_mix_takes_lambda_of_one_and_the_rest_of_the_other(self, a, b, share):
        other = float(1 - Fraction(str(share)))
        found = mix_counts({"a": a, "b": b}, {"a": share, "b": other})
        assert found == {"a": exact(share, a), "b": exact(other, b)}

    @given(st.integers(1, 200), SHARES)
    def test_a_mix_with_a_total_has_it(self, total, share):
        other = float(1 - Fraction(str(share)))
        found = mix_counts({"a": 200, "b": 200}, {"a": share, "b": other}, total)
        assert sum(found.values()) == total
        assert abs(found["a"] - Fraction(str(share)) * total) < 1

    def test_a_total_that_cannot_be_had(self):
        with pytest.raises(InputError, match="needs 50 of 'a', which has 10"):
            mix_counts({"a": 10, "b": 100}, {"a": 0.5, "b": 0.5}, 100)

    def test_published_shares(self):
        """shi2023's 5 % and taori2020's 1/32 of ImageNet's 1,281,167 images."""
        assert exact(0.05, 1_281_167) == 64_058
        assert exact(1 / 32, 1_281_167) == 40_036


class TestDraws:
    @given(SETS, SHARES, st.randoms(use_true_random=False))
    def test_the_order_of_rows_does_not_matter(self, labels, share, random):
        examples, y = named(labels)
        order = list(range(len(labels)))
        random.shuffle(order)
        again = [examples[i] for i in order]
        for balanced in (False, True):
            first = fraction_rows(examples, y, share, balanced=balanced)
            second = fraction_rows(again, y[order], share, balanced=balanced)
            assert chosen(examples, first) == chosen(again, second)
        assert chosen(examples, few_shot_rows(examples, y, 2)) == chosen(
            again, few_shot_rows(again, y[order], 2)
        )

    @given(SETS, SHARES, SHARES)
    def test_a_smaller_share_is_part_of_a_larger_one(self, labels, one, two):
        examples, y = named(labels)
        small, large = sorted((one, two))
        inside = set(fraction_rows(examples, y, small)) <= set(fraction_rows(examples, y, large))
        assert inside

    def test_seeds_draw_differently_and_evenly(self):
        examples, y = named([0] * 1000)
        draws = [chosen(examples, fraction_rows(examples, y, 0.5, seed=s)) for s in range(40)]
        assert len({frozenset(d) for d in draws}) == 40
        shared = [len(a & b) for i, a in enumerate(draws) for b in draws[i + 1 :]]
        assert np.mean(shared) == pytest.approx(250, abs=3)  # two independent halves of 1,000
        times = np.array([sum(e in d for d in draws) for e in examples])
        assert times.mean() == pytest.approx(20)
        assert times.std() == pytest.approx(np.sqrt(40 / 4), rel=0.1)  # binomial

    @given(SETS, st.decimals("0.01", "0.99", places=2).map(float))
    def test_the_held_out_part_is_apart(self, labels, share):
        examples, y = named(labels)
        out = held_out_rows(examples, y, share)
        for label in set(labels):
            assert (y[out] == label).sum() == exact(share, labels.count(label))
        left = np.setdiff1d(np.arange(len(labels)), out)
        trained = left[fraction_rows([examples[i] for i in left], y[left], 0.5)]
        assert not set(trained) & set(out)

    def test_ranked_is_a_permutation(self):
        examples = [str(i) for i in range(100)]
        assert sorted(ranked(examples, "a")) == list(range(100))


class TestClasses:
    def test_so_many_classes_nest(self):
        y = np.repeat(np.arange(50), 3)
        few, more = class_rows(y, 5), class_rows(y, 20)
        assert len(few) == 15
        assert len(more) == 60
        assert set(y[few]) < set(y[more])

    def test_the_core_is_always_among_them(self):
        y = np.repeat(np.arange(50), 2)
        core = [7, 11, 13]
        assert set(y[class_rows(y, 3, core=core)]) == set(core)
        assert set(core) < set(y[class_rows(y, 10, core=core)])

    def test_listed_classes(self):
        y = np.array([0, 1, 2, 1, 0])
        assert class_rows(y, [1, 2]).tolist() == [1, 2, 3]
        with pytest.raises(InputError, match="no example of class 9"):
            class_rows(y, [9])
        with pytest.raises(InputError, match="there are 3"):
            class_rows(y, 4)


class TestDifficulty:
    @given(SETS, st.integers(1, 6), st.integers(0, 3))
    def test_easiest_and_hardest(self, labels, count, seed):
        examples, y = named(labels)
        generator = np.random.default_rng(seed)
        hard = generator.integers(0, 4, len(examples)).astype(float)
        easiest = difficulty_rows(examples, y, hard, keep="easiest", count=count)
        hardest = difficulty_rows(examples, y, hard, keep="hardest", count=count)
        for label in set(labels):
            own = hard[y == label]
            n = min(count, len(own))
            assert sorted(hard[easiest][y[easiest] == label]) == sorted(own)[:n]
            assert sorted(hard[hardest][y[hardest] == label]) == sorted(own)[len(own) - n :]

    def test_over_all_classes(self):
        examples, y = named([0, 0, 1, 1])
        hard = np.array([3.0, 1.0, 2.0, 4.0])
        rows = difficulty_rows(examples, y, hard, keep="hardest", count=2, per_class=False)
        assert sorted(rows) == [0, 3]

    def test_random_ignores_scores(self):
        examples, y = named([0] * 30)
        a = difficulty_rows(examples, y, np.ones(30), keep="random", count=5)
        b = difficulty_rows(examples, y, np.arange(30.0), keep="random", count=5)
        assert sorted(a) == sorted(b)

    @pytest.mark.parametrize("lines", ["a,1\n", "a,1\nb,nan\n", "a,1\nb,inf\n"])
    def test_a_score_that_is_missing_or_not_finite(self, tmp_path, lines):
        path = tmp_path / "scores.csv"
        path.write_text("example,score\n" + lines)
        assert scores_of(path, ["data/a"]).tolist() == [1.0]
        with pytest.raises(InputError, match="no finite difficulty score for example 'data/b'"):
            scores_of(path, ["data/a", "data/b"])

    def test_files(self, tmp_path):
        path = tmp_path / "scores.csv"
        path.write_text("example,score\n007,0.5\n8,1\n")
        assert read_scores(path) == {"007": 0.5, "8": 1.0}
        path.write_text("example,score\na,1\na,2\n")
        with pytest.raises(InputError, match="an example has two scores"):
            read_scores(path)
        path.write_text("image,hard\na,1\n")
        with pytest.raises(InputError, match="expected columns 'example' and 'score'"):
            read_scores(path)
        with pytest.raises(InputError, match="no such file"):
            read_scores(tmp_path / "none.csv")
