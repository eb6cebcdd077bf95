import json

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from scipy.special import expit

import shiftbed as sb
from shiftbed.records import Bits, ImageResults
from shiftbed.results.lines import fit
from shiftbed.results.place import place
from shiftbed.results.ranking import compare, rank


def random_bed(seed: int, models: int, per_image: bool) -> sb.Testbed:
    """Models on two shifts from one ID setting, with answers per image or only accuracies."""
    rng = np.random.default_rng(seed)
    skill, images = rng.normal(0.8, 0.5, models), {"id": 400, "a": 300, "b": 200}
    right = {}
    for i, (setting, n) in enumerate(images.items()):
        logit = skill * (1 - 0.1 * i) - 0.4 * i + rng.normal(0, 0.1, models)
        right[setting] = rng.random((models, n)) < expit(logit)[:, None]
        right[setting][:, :2] = [True, False]
    known = np.ones(models, dtype=bool)
    results = {s: ImageResults(images=s, bits=Bits.of(r), known=known) for s, r in right.items()}
    return sb.Testbed(
        name="random",
        models=pl.DataFrame(
            {
                "model": [f"m{i}" for i in range(models)],
                "kind": ["standard"] * (models - 2) + ["other"] * 2,
                "in_fit_set": [True] * (models - 2) + [False] * 2,
                "parent": pl.Series([None] * models, dtype=pl.String),
            }
        ),
        settings=tuple(images),
        value=np.column_stack([r.mean(axis=1) for r in right.values()]),
        n=np.tile(list(images.values()), (models, 1)),
        shifts=tuple(
            sb.Shift(name=s, kind="natural-dataset", source=("id",), target=s) for s in "ab"
        ),
        results=results if per_image else {},
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(5, 30), st.booleans(), st.sampled_from("ab"), st.data())
def test_place_rank_and_compare_agree(seed, models, per_image, shift, data):
    bed = random_bed(seed, models, per_image)
    pair = data.draw(st.lists(st.sampled_from(bed.model_names), min_size=2, max_size=2))
    ranked = rank(bed, shift).frame
    compared = compare(*pair, bed, shift=shift).frame.row(0, named=True)
    for which, model in zip("ab", pair, strict=True):
        placed = place(bed, model=model).frame
        one = placed.filter(pl.col("shift") == shift).row(0, named=True)
        other = ranked.filter(pl.col("model") == model).row(0, named=True)
        for key in ("effective", "low", "high"):
            assert one[key] == other[key] == compared[f"{key}_{which}"]
        assert one["paired"] == other["paired"] == per_image
        assert one["low"] <= one["effective"] <= one["high"]
    gap = compared["effective_a"] - compared["effective_b"]
    assert compared["difference"] == pytest.approx(gap, abs=1e-12)
    assert compared["low"] <= gap <= compared["high"]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
@example(10486)  # two models left: their line has no noise but rounding, below zero
def test_an_interval_contains_its_estimate_with_few_models(seed):
    for shift in "ab":
        found = rank(random_bed(seed, 5, True), shift).frame
        assert (found["low"] <= found["effective"]).all()
        assert (found["effective"] <= found["high"]).all()


def test_a_fit_has_its_coefficients_with_intervals(imagenet):
    found = fit(imagenet, "imagenet-v2", bootstrap=0)
    slope = found.frame.row(1, named=True)
    assert (slope["coefficient"], slope["n"]) == ("val", 78)
    assert slope["estimate"] == found.baseline.weights[0]
    assert slope["low"] < slope["estimate"] < slope["high"]
    assert json.loads(found.to_json())["weights"] == [slope["estimate"]]
    assert "logit(OOD) = weight · logit(ID) + intercept" in str(found)


def test_pieces_and_groups_are_rows(imagenet):
    broken = fit(imagenet, "imagenet-a", bootstrap=0)
    assert broken.frame["from"].to_list() == [0.0, 0.0, 0.9186, 0.9186]
    assert "x < 0.9186" in str(broken)
    by_kind = fit(imagenet, "imagenet-v2", by="kind", fit_on="all", bootstrap=0)
    assert by_kind.frame["group"].n_unique() == 4
    assert list(by_kind.to_dict()["groups"]) == sorted(by_kind.lines)


def test_the_choice_of_id_settings_is_shown(imagenet):
    ids = ["val", "val-on-objectnet-classes"]
    found = fit(imagenet, id=ids, ood="objectnet-1.0-beta", choose_ids=True, bootstrap=0)
    keys = {"fit", "n", "best", "chosen", "subsets", "ridge", "collinearity", "partial_residuals"}
    assert found.to_dict().keys() == keys
    assert [table.title.split()[0] for table in found.tables()] == ["Which", "Ridge:", "How"]


def test_ranks_show_some_and_keep_all(imagenet):
    found = rank(imagenet, "imagenet-v2", only="kind=more-data", most=3)
    assert found.frame["kind"].unique().to_list() == ["more-data"]
    assert found.frame["effective"].to_list() == sorted(found.frame["effective"], reverse=True)
    shown = found.to_dict()
    assert (len(shown["models"]), shown["n"]) == (3, len(found.frame))
    everything = rank(imagenet, "imagenet-v2", most=0)
    assert len(everything.to_dict()["models"]) == len(everything.frame) == 201


def test_what_was_not_evaluated_is_named(imagenet):
    bed = imagenet.with_model("mine", {"val": 0.7, "greyscale": 0.6})
    found = compare("mine", "vgg16", bed)
    assert found.frame["shift"].to_list() == ["greyscale"]
    assert "imagenet-v2" in found.not_evaluated
    with pytest.raises(sb.InputError, match="not both evaluated"):
        compare("mine", "vgg16", bed, shift="imagenet-v2")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda bed: fit(bed), "give a shift, or at least one ID setting"),
        (lambda bed: fit(bed, "imagenet-v2", id=["val"]), "either a shift, or ID settings"),
        (lambda bed: fit(bed, "imagenet-v2", full_id=True), "already uses the whole ID set"),
        (lambda bed: fit(bed, id=["val"], ood="greyscale", full_id=True), "already uses"),
        (lambda bed: fit(bed, id=["val", "greyscale"], ood="imagenet-a", knee=0.5), "one ID set"),
        (lambda bed: fit(bed, "imagenet-v2", knee=76), "knee must be"),
        (lambda bed: fit(bed, "imagenet-v2", bootstrap=-1), "at least 40 resamples"),
        (lambda bed: fit(bed, "imagenet-v2", on_boundary="skip"), "raise, drop or clip"),
        (lambda bed: fit(bed, "imagenet-v2", choose_ids=True), "two or more ID settings"),
        (
            lambda bed: fit(bed, "imagenet-v2", by="model"),
            "model 'BiT-S-R50x1|model 'FixPNASNet|model '.*': too few models",
        ),
        (lambda bed: rank(bed, "imagenet-v2", full_id=True), "already uses"),
        (lambda bed: rank(bed, "imagenet-v2", most=-1), "most must not be negative"),
        (lambda bed: rank(bed, "imagenet-v2", fdr=0), "fdr must lie between"),
        (lambda _: rank("openclip", full_id=True), "no shift of openclip has a class twin"),
    ],
)
def test_what_cannot_be_honoured_is_refused(imagenet, call, message):
    with pytest.raises(sb.InputError, match=message):
        call(imagenet)


def test_charts_show_what_the_frames_say(imagenet):
    fitted = fit(imagenet, "imagenet-v2", bootstrap=0, level=0.9)
    (trend,) = fitted.chart().trends
    assert (trend.n, trend.slope) == (78, fitted.baseline.weights[0])
    assert fitted.chart().band_level == 0.9
    ids = ["val", "val-on-objectnet-classes"]
    plane = fit(imagenet, id=ids, ood="objectnet-1.0-beta", bootstrap=0).chart()
    assert plane.x.shape[1] == 2
    both = compare("resnet50", "vgg16", imagenet, shift=["imagenet-v2", "objectnet"])
    chart = both.chart("objectnet")
    assert np.array(chart.models)[chart.highlighted].tolist() == ["resnet50", "vgg16"]
    at = chart.models.index("vgg16")
    assert chart.effective[at] == pytest.approx(both.frame["effective_b"][1])
    ranked = rank(imagenet, "imagenet-v2", fit_on="all")
    assert ranked.chart().trends[0].n == 201


def test_charts_are_drawn_onto_given_axes(imagenet):
    axes = Figure().subplots(1, 3)
    results = (
        fit(imagenet, "imagenet-v2", bootstrap=0),
        rank(imagenet, "imagenet-v2", most=3),
        compare("resnet50", "vgg16", imagenet, shift="imagenet-v2"),
    )
    for ax, result in zip(axes, results, strict=True):
        assert result.plot(ax) is ax
        assert ax.has_data()


def test_planes_by_group_have_no_chart(imagenet):
    ids = ["val", "greyscale"]
    found = fit(imagenet, id=ids, ood="stylized_imagenet", by="kind", bootstrap=0)
    with pytest.raises(sb.InputError, match="planes by group have no chart"):
        found.chart()
