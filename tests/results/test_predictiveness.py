import numpy as np
import polars as pl
import pytest
from scipy.stats import spearmanr

from shiftbed.analysis.pairs import PairTable
from shiftbed.errors import InputError
from shiftbed.results.pairs.averages import by_group, matrix, matrix_table, scores, study, transfer

METRICS = ("id:error", "id:ece", "corrupted:error", "held-out:error", "ood:error", "ood:ece")


def pairs(rng, networks=40, tasks=("a", "a", "a", "b", "b", "c"), metrics=METRICS):
    found = []
    for i, task in enumerate(tasks):
        ability = rng.normal(size=networks)
        values = ability[:, None] + rng.normal(size=(networks, len(metrics)))
        found.append(
            PairTable(
                task=task,
                source=f"s{i // 2}",
                target=f"o{i}",
                models=tuple(f"m{j}" for j in range(networks)),
                metrics=metrics,
                values=values,
                kind="real" if i % 2 else "artificial",
            )
        )
    return found


def by_hand(tables, a, b):
    """Mean within tasks of scipy's r, then over tasks."""
    by_task = {}
    for table in tables:
        r = spearmanr(table.column(a), table.column(b)).statistic
        by_task.setdefault(table.task, []).append(r)
    return np.mean([np.mean(values) for values in by_task.values()])


@pytest.fixture
def tables():
    return pairs(np.random.default_rng(0))


def test_scores_are_the_papers_average(tables):
    found = scores(study(tables))
    assert found["metric"].to_list() == list(METRICS[:4])
    for row in found.iter_rows(named=True):
        assert row["r"] == pytest.approx(by_hand(tables, row["metric"], "ood:error"))
        assert row["low"] < row["r"] < row["high"]
        assert (row["pairs"], row["tasks"]) == (6, 3)
        assert (row["networks_least"], row["networks_most"]) == (40, 40)
        if row["metric"] != "id:error":
            more = row["r"] - by_hand(tables, "id:error", "ood:error")
            assert row["more"] == pytest.approx(more)
            assert row["more_low"] < row["more"] < row["more_high"]
        else:
            assert row["more"] is None
            assert "compared with" in row["note"]


def test_a_better_predictor_is_told_from_a_worse_one():
    rng = np.random.default_rng(1)
    tables = []
    for i in range(20):
        y = rng.normal(size=60)
        good, bad = y + 0.3 * rng.normal(size=60), y + 3 * rng.normal(size=60)
        own = y + rng.normal(size=60)
        values = np.column_stack([own, bad, good, y])
        names = ("id:error", "corrupted:error", "held-out:error", "ood:error")
        tables += pairs(rng, 60, ("t",), names)
        tables[-1] = PairTable(**{**vars(tables[-1]), "values": values, "target": str(i)})
    found = {row["metric"]: row for row in scores(study(tables)).iter_rows(named=True)}
    assert found["held-out:error"]["more_low"] > 0
    assert found["corrupted:error"]["more_high"] < 0
    assert found["held-out:error"]["adjusted_low"] > 0.5


def test_the_matrix_and_its_table(tables):
    of = study(tables)
    whole, long = matrix(of), matrix_table(of)
    assert whole.metrics == METRICS
    assert np.array_equal(whole.r, whole.r.T)
    assert np.allclose(np.diag(whole.r), 1.0)
    assert len(long) == 15
    for row in long.iter_rows(named=True):
        i, j = METRICS.index(row["a"]), METRICS.index(row["b"])
        assert row["r"] == whole.r[i, j] == pytest.approx(by_hand(tables, row["a"], row["b"]))


def test_transfer_of_each_metric(tables):
    found = transfer(study(tables))
    rows = {(r["metric"], r["from"]): r for r in found.iter_rows(named=True)}
    assert set(rows) == {(m, p) for m in ("error", "ece") for p in ("id", "corrupted", "held-out")}
    expected = by_hand(tables, "held-out:error", "ood:error")
    assert rows["error", "held-out"]["r"] == pytest.approx(expected)
    assert rows["ece", "id"]["r"] == pytest.approx(by_hand(tables, "id:ece", "ood:ece"))
    assert rows["ece", "corrupted"]["r"] is None
    assert rows["ece", "corrupted"]["note"] == "corrupted:ece is not measured"


def test_by_task_and_by_type_of_shift(tables):
    of = study(tables)
    found = by_group(of, "task")
    assert found["task"].unique(maintain_order=True).to_list() == ["a", "b", "c"]
    row = found.filter(task="a", metric="id:ece").row(0, named=True)
    assert row["r"] == pytest.approx(by_hand(tables[:3], "id:ece", "ood:error"))
    alone = found.filter(task="c", metric="id:ece").row(0, named=True)
    assert alone["low"] is None
    assert "no interval" in alone["note"]
    kinds = by_group(of, "kind", transfer)
    row = kinds.filter(pl.col("from") == "id", kind="real", metric="error").row(0, named=True)
    assert row["r"] == pytest.approx(by_hand(tables[1::2], "id:error", "ood:error"))
    with pytest.raises(InputError, match="grouping"):
        by_group(of, "tasks")


def test_what_the_ood_set_has_no_part_in_is_drawn_by_id_set():
    """Two pairs of one ID set repeat its ID metrics: they are one piece of evidence."""
    rng = np.random.default_rng(0)
    tables = []
    for s in range(10):
        own = rng.normal(size=(50, 2)) + rng.normal(size=(50, 1))
        for target in range(4):
            values = np.column_stack([own, own[:, 0] + rng.normal(size=50)])
            table = pairs(rng, 50, ("t",), ("id:error", "id:ece", "ood:error"))[0]
            changes = {"values": values, "source": f"s{s}", "target": str(target)}
            tables.append(PairTable(**{**vars(table), **changes}))
    long = matrix_table(study(tables)).filter(a="id:error", b="id:ece").row(0, named=True)
    sets = [spearmanr(t.column("id:error"), t.column("id:ece")).statistic for t in tables[::4]]
    width = 2 * 2.26 * np.std(sets, ddof=1) / np.sqrt(10)
    assert long["high"] - long["low"] == pytest.approx(width, rel=0.2)


def test_a_null_is_never_without_a_note():
    rng = np.random.default_rng(3)
    tables = pairs(rng, 12)
    values = tables[0].values.copy()
    values[:, 1] = 0.5  # constant
    values[rng.random(values.shape) < 0.2] = np.nan
    tables[0] = PairTable(**{**vars(tables[0]), "values": values})
    tables[5] = PairTable(
        **{**vars(tables[5]), "values": tables[5].values[:2], "models": ("x", "y")}
    )
    for frame in (scores(study(tables)), matrix_table(study(tables)), transfer(study(tables))):
        for row in frame.iter_rows(named=True):
            if any(value is None for value in row.values()):
                assert row["note"]
    one = scores(study(tables[5:]))
    assert one["r"].null_count() == len(one)
    assert one["note"].str.contains("fewer than 3 networks").all()
    grouped = by_group(study(tables), "task")
    lacking = grouped.filter(pl.col("r").is_null() | pl.col("low").is_null())
    assert (lacking["note"] != "").all()


def test_reruns_agree(tables):
    assert scores(study(tables)).equals(scores(study(tables)))
    assert not scores(study(tables)).equals(scores(study(tables, seed=1)))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"unit": "network"}, "unit of the bootstrap"),
        ({"bootstrap": 10}, "at least 100"),
        ({"given": "ood:error"}, "for itself"),
        ({"level": 95}, "level"),
    ],
)
def test_bad_options(tables, options, match):
    with pytest.raises(InputError, match=match):
        scores(study(tables, **options))
