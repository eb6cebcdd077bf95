import polars as pl
import pytest

import shiftbed as sb
from shiftbed.results.place import Measured, nearest, of_model, place, shifts_of

V2 = "imagenetv2-matched-frequency-format-val"


def test_a_published_model_lands_where_it_is(imagenet):
    """Placing resnet152-imagenet11k's own accuracies gives its published ρ."""
    row = imagenet.model_index("resnet152-imagenet11k")
    value = {s: float(imagenet.accuracy(s)[row]) for s in ("val", V2)}
    placed = place(
        imagenet, {"val": Measured(accuracy=value["val"])}, {V2: Measured(accuracy=value[V2])}
    )
    own = of_model(imagenet, "resnet152-imagenet11k", ["imagenet-v2"])
    for column in ("effective", "low", "high", "prediction_low", "p_value", "n_id", "n_ood"):
        assert placed[column][0] == pytest.approx(own[column][0])


def test_counts_carry_their_n(imagenet):
    few = place(
        imagenet,
        {"val": Measured(accuracy=0.76, n=1000)},
        {V2: Measured(accuracy=0.66, n=500)},
    )
    assert (few["n_id"][0], few["n_ood"][0]) == (1000, 500)
    many = place(imagenet, {"val": Measured(accuracy=0.76)}, {V2: Measured(accuracy=0.66)})
    assert few["p_value"][0] > many["p_value"][0]


def test_which_shift_is_meant(imagenet):
    def names(ids, ood):
        return [(s.name, s.source) for s in shifts_of(imagenet, ids, ood)]

    twin = "val-on-objectnet-classes"
    assert names(["val"], [V2]) == [("imagenet-v2", ("val",))]
    assert names([twin, "val"], ["objectnet-1.0-beta"]) == [("objectnet", (twin,))]
    assert names(["val"], ["objectnet-1.0-beta"]) == [("objectnet", ("val",))]
    assert names(["greyscale"], [V2]) == [(V2, ("greyscale",))]


def test_a_plane_on_request(imagenet):
    ids = {"val": Measured(accuracy=0.76), "val-on-objectnet-classes": Measured(accuracy=0.78)}
    table = place(imagenet, ids, {"objectnet-1.0-beta": Measured(accuracy=0.36)}, multi=True)
    assert len(table) == 1
    assert table["reference"][0] is None


def test_false_discoveries_are_counted_over_the_model_alone(imagenet):
    table = of_model(imagenet, "resnet50_augmix")
    assert table["model"].unique().to_list() == ["resnet50_augmix"]
    assert table["q_value"].min() >= table["p_value"].min()
    assert (table["out_of_line"] == (table["q_value"] <= 0.05)).all()


def test_nearest(imagenet):
    table = nearest(imagenet, "imagenet-v2", 0.7613)
    assert table["model"][0] == "resnet50"
    gaps = (table["source"] - 0.7613).abs()
    assert gaps.to_list() == sorted(gaps)
    assert isinstance(table, pl.DataFrame)


def test_needs_both_sides(imagenet):
    with pytest.raises(sb.InputError, match="at least one ID and one OOD"):
        place(imagenet, {"val": Measured(accuracy=0.7)}, {})
