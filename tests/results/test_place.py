import json

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure

import shiftbed as sb
from shiftbed.results.place import Measured, place, shifts_of

V2 = "imagenetv2-matched-frequency-format-val"
TWIN = "val-on-objectnet-classes"


def test_a_published_model_lands_where_it_is(imagenet):
    """Placing resnet50_augmix's own accuracies gives its published ρ."""
    row = imagenet.model_index("resnet50_augmix")
    value = {s: float(imagenet.accuracy(s)[row]) for s in ("val", V2)}
    placed = place(imagenet, {"val": value["val"]}, {V2: value[V2]}).frame
    own = place(imagenet, model="resnet50_augmix").frame
    own = own.filter(pl.col("shift") == "imagenet-v2")
    for column in ("effective", "low", "high", "prediction_low", "p_value", "n_id", "n_ood"):
        assert placed[column][0] == pytest.approx(own[column][0])


def test_an_accuracy_is_written_in_any_way(imagenet):
    ways = [(7613, 10000), "7613/10000", Measured(accuracy=0.7613, n=10000)]
    found = [place(imagenet, {"val": way}, {"imagenet-v2": 0.63}).to_dict() for way in ways]
    assert found[0] == found[1] == found[2]
    assert found[0]["shifts"][0]["n_id"] == 10000
    plain = place(imagenet, {"val": "0.7613"}, {V2: 0.63}).to_dict()["shifts"][0]
    assert plain["n_id"] == 50000
    assert plain["effective"] == pytest.approx(found[0]["shifts"][0]["effective"])


def test_counts_carry_their_n(imagenet):
    few = place(imagenet, {"val": (760, 1000)}, {V2: (330, 500)}).frame
    assert (few["n_id"][0], few["n_ood"][0]) == (1000, 500)
    many = place(imagenet, {"val": 0.76}, {V2: 0.66}).frame
    assert few["p_value"][0] > many["p_value"][0]


def test_which_shift_is_meant(imagenet):
    def names(ids, ood):
        return [(s.name, s.source) for s in shifts_of(imagenet, ids, ood)]

    assert names(["val"], [V2]) == [("imagenet-v2", ("val",))]
    assert names([TWIN, "val"], ["objectnet-1.0-beta"]) == [("objectnet", (TWIN,))]
    assert names(["val"], ["objectnet-1.0-beta"]) == [("objectnet", ("val",))]
    assert names(["greyscale"], [V2]) == [(V2, ("greyscale",))]


def test_a_plane_on_request(imagenet):
    placed = place(imagenet, {"val": 0.76, TWIN: 0.78}, {"objectnet": 0.36}, multi=True,
                   sensitivity=True)  # fmt: skip
    assert len(placed.frame) == 1
    assert placed.frame["reference"][0] is None
    assert placed.shifts[0].source == ("val", TWIN)
    (tried,) = placed.sensitivity
    assert set(tried.frame["id"]) == {f"val + {TWIN}"}


def test_false_discoveries_are_counted_over_the_model_alone(imagenet):
    table = place(imagenet, model="resnet50_augmix").frame
    assert table["model"].unique().to_list() == ["resnet50_augmix"]
    assert table["q_value"].min() >= table["p_value"].min()
    assert (table["out_of_line"] == (table["q_value"] <= 0.05)).all()


def test_the_nearest_models_are_others(imagenet):
    placed = place(imagenet, {"val": 0.7613}, {"imagenet-v2": 0.6})
    assert placed.nearest["model"][0] == "resnet50"
    gaps = (placed.nearest["source"] - 0.7613).abs()
    assert gaps.to_list() == sorted(gaps)
    own = place(imagenet, model="resnet50").nearest
    assert len(own) == 5
    assert "resnet50" not in own["model"].to_list()


def test_relative_robustness_against_a_parent(imagenet):
    placed = place(imagenet, {"val": 0.8}, {V2: 0.7}, parent="resnet50")
    parent = imagenet.accuracy(V2)[imagenet.model_index("resnet50")]
    assert placed.frame["relative"][0] == pytest.approx(0.7 - parent)


def test_unknown_sizes_give_no_interval_and_no_shares(imagenet):
    bed = imagenet.where("fit-set")
    bed = sb.Testbed(
        name="sizeless", models=bed.models, settings=bed.settings, value=bed.value,
        n=np.zeros_like(bed.n), shifts=bed.shifts,
    )  # fmt: skip
    placed = place(bed, {"val": 0.76}, {"imagenet-v2": 0.7})
    row = placed.to_dict()["shifts"][0]
    assert {row[key] for key in ("low", "high", "fit_share", "id_share", "ood_share")} == {None}
    assert row["out_of_line"]
    assert not any("Variance" in note or "conservative" in note for note in placed.notes)
    assert "unknown" in placed.notes[-1]
    unremarkable = str(place(bed, {"val": 0.76}, {"imagenet-v2": 0.64}))
    assert "on the line" not in unremarkable


def test_it_shows_itself(imagenet):
    placed = place(imagenet, {"val": 0.76}, {"imagenet-v2": 0.63}, name="mine")
    found = json.loads(placed.to_json())
    assert found["model"] == "mine"
    assert "mine on imagenet-testbed-2020" in str(placed)
    assert "Cite: Taori" in str(placed)
    assert "<table>" in placed._repr_html_()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id": {"val": 0.7}}, "at least one ID and one OOD"),
        ({"id": {"val": 0.7}, "ood": {V2: 0.6, "imagenet-v2": 0.6}}, "given twice"),
        ({"id": {"val": 0.7}, "ood": {V2: 0.6}, "multi": True}, "two or more"),
        ({"id": {"val": (8, 7)}, "ood": {V2: 0.6}}, "8/7 is not a count"),
        ({"id": {"val": 0.7}, "ood": {V2: 0.6}, "parent": "resnet51"}, "did you mean"),
        ({"id": {"val": 0.7}, "ood": {V2: 0.6}, "fdr": 5}, "fdr must lie between 0 and 1"),
        ({"id": {"val": 0.7}, "ood": {V2: 0.6}, "threshold": 50}, "threshold must be a fraction"),
        ({"id": {"val": 0.7}, "ood": {V2: 0.6}, "predictions": {"val": "x"}}, "given twice|no per"),
        ({"model": "resnet50", "parent": "vgg16"}, "goes with no id"),
        ({"model": "resnet50", "name": "mine"}, "goes with no id"),
    ],
)
def test_what_cannot_be_honoured_is_refused(imagenet, given, message):
    with pytest.raises(sb.InputError, match=message):
        place(imagenet, **given)


def test_it_draws_itself_onto_given_axes(imagenet):
    placed = place(imagenet, {"val": 0.76}, {"imagenet-v2": 0.63, "objectnet": 0.4}, name="mine",
                   scale="probit")  # fmt: skip
    chart = placed.chart("objectnet")
    assert np.array(chart.models)[chart.highlighted].tolist() == ["mine"]
    at = chart.models.index("mine")
    row = placed.frame.row(1, named=True)
    assert (chart.effective[at], chart.low[at]) == pytest.approx((row["effective"], row["low"]))
    assert chart.x_axis.scale.name == "probit"
    ax = Figure().subplots()
    assert placed.plot(ax, shift="objectnet") is ax
    with pytest.raises(sb.InputError, match="unknown shift"):
        placed.plot(ax, shift="imagenet-a")
    plane = place(imagenet, {"val": 0.76, TWIN: 0.78}, {"objectnet": 0.36}, multi=True).chart()
    assert plane.x.shape[1] == 2
