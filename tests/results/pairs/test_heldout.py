import numpy as np

from shiftbed.analysis.pairs import PairTable
from shiftbed.results.pairs import held_out, notes_of


def pair(target, values, models=("a", "b"), task="t", source="s", metrics=("ood:error",)):
    table = np.asarray(values, dtype=float).reshape(len(models), len(metrics))
    named = {"task": task, "source": source, "target": target, "models": tuple(models)}
    return PairTable(**named, metrics=tuple(metrics), values=table)


def test_the_mean_is_over_the_others_of_the_same_task_and_id_set():
    found = held_out(
        [
            pair("x", [0.1, 0.2]),
            pair("y", [0.3, 0.4]),
            pair("z", [0.5, 0.8]),
            pair("y", [0.9, 0.9], source="other"),
            pair("y", [0.9, 0.9], task="other"),
        ]
    )
    assert np.allclose(found[0].column("held-out:error"), [0.4, 0.6])
    assert np.allclose(found[2].column("held-out:error"), [0.2, 0.3])
    assert found[3].metrics == found[4].metrics == ("ood:error",)


def test_networks_in_another_order_and_missing_ones():
    found = held_out([pair("x", [0.1, 0.2]), pair("y", [0.3], models=("b",))])
    column = found[0].column("held-out:error")
    assert np.isnan(column[0])
    assert column[1] == 0.3


def test_several_metrics_and_one_that_is_there_already():
    metrics = ("ood:error", "ood:nll", "held-out:nll")
    one = pair("x", [[0.1, 1.0, 7.0], [0.2, 2.0, 8.0]], metrics=metrics)
    other = pair("y", [[0.3, 3.0], [0.4, 4.0]], metrics=metrics[:2])
    found = held_out([one, other])
    assert found[0].column("held-out:nll").tolist() == [7.0, 8.0]
    assert found[0].column("held-out:error").tolist() == [0.3, 0.4]
    assert found[1].column("held-out:nll").tolist() == [1.0, 2.0]


def test_what_is_missing_is_said():
    values = np.array([0.1, np.nan])
    notes = notes_of(
        held_out([pair("x", values), pair("y", [0.1, 0.2]), pair("z", [1, 2], task="u")])
    )
    assert notes[0].startswith("2 of 10 cells are missing")
    assert "1 of 3 pairs (u)" in notes[1]
    assert notes_of(held_out([pair("x", [0.1, 0.2]), pair("y", [0.1, 0.2])])) == []
