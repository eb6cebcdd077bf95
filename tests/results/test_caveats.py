"""One model on one shift is told alike by every command, with all that a reader must know."""

import json
import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shiftbed as sb
from shiftbed.page.document import data_of
from shiftbed.page.findings import findings
from shiftbed.results.caveats import caveat_notes, headline, in_words, judge, plain_sentence
from tests.conftest import SHIFT

SAME = ("effective", "low", "high", "verdict", "trusted", "extrapolated", "r2", "interval",
        "q_value", "families", "artefact", "caveats")  # fmt: skip
BED = sb.published("imagenet-testbed-2020")
NATURAL = [s.name for s in BED.shifts if s.kind not in ("corruption", "adversarial")]


@settings(max_examples=12)
@given(
    model=st.sampled_from(BED.model_names),
    other=st.sampled_from(BED.model_names),
    shift=st.sampled_from(NATURAL),
)
def test_every_command_says_the_same(model, other, shift):
    """place, rank, compare, card and the page: the same ρ, interval, verdict, trust, caveats."""
    there = set(judge(BED, [BED.shift(shift)]).frame["model"])
    if not {model, other} <= there:
        return

    def mine(rows):
        return [r for r in rows if (r.get("model", model), r["shift"]) == (model, shift)]

    placed = json.loads(sb.place(BED, model=model).to_json())["shifts"]
    ranked = json.loads(sb.rank(BED, shift, most=0).to_json())["models"]
    compared = json.loads(sb.compare(model, other, BED, shift=shift).to_json())["shifts"][0]
    carded = json.loads(sb.card(model, BED, shifts=[shift]).to_json())["rows"]
    found = [mine(placed)[0], mine(ranked)[0], compared["rows"][0], mine(carded)[0]]
    assert compared["effective"][0] == found[0]["effective"]
    assert compared["caveats"][: len(found[0]["caveats"])] == found[0]["caveats"]
    for key in SAME:
        assert all(one[key] == found[0][key] for one in found), key
    row = findings(BED).robustness.filter(model=model, shift=shift).row(0, named=True)
    assert all(row[key] == found[0][key] for key in SAME)


def test_the_report_carries_the_same_of_every_model(imagenet):
    names = ["imagenet-a", "imagenet-v2", "objectnet", "ytbb"]
    made = sb.report(imagenet, shifts=names)
    payload = data_of(made.page)
    at = {name: i for i, name in enumerate(payload["models"]["name"])}
    judged = [shift for shift in payload["shifts"] if "robustness" in shift]
    assert {shift["name"] for shift in judged} == set(names)
    for shift in judged:
        rows = judge(imagenet, [imagenet.shift(shift["name"])]).frame
        for row in rows.iter_rows(named=True):
            told = {k: values[at[row["model"]]] for k, values in shift["robustness"].items()}
            for key in ("effective", "low", "high"):
                assert told[key] == pytest.approx(row[key], rel=1e-6, abs=1e-9)
            assert told["verdict"] == row["verdict"]
            assert told["extrapolated"] is row["extrapolated"]
            assert [shift["caveats"][i] for i in told["caveats"]] == row["caveats"]
            assert (shift["reason"] is None) == row["trusted"]


def test_the_id_setting_is_never_switched_silently(imagenet):
    whole = sb.place(imagenet, {"val": 0.76}, {"imagenet-r": 0.4}).frame
    assert whole["id_settings"][0].to_list() == ["val"]
    assert "ID accuracy on all of val, not on the OOD set's classes" in whole["caveats"][0]
    twin = sb.place(imagenet, {"val-on-imagenet-r-classes": 0.92}, {"imagenet-r": 0.4}).frame
    assert any("class twin val-on-imagenet-r-classes" in one for one in twin["caveats"][0])


def test_artefacts_are_badged_and_no_headline(imagenet):
    found = sb.rank(imagenet, "fog_in-memory", most=0)
    first = found.frame.filter(pl.col("artefact").is_not_null())
    assert first["model"].to_list() == ["resnet50_with_fog_aws"]
    best = headline(found.frame)
    assert best is None or (best["trusted"] and best["artefact"] is None)
    a = sb.rank(imagenet, "imagenet-a").frame.filter(model="resnet50").row(0, named=True)
    assert a["artefact"] in a["caveats"]
    r = sb.rank(imagenet, "ytbb")
    assert not r.frame["trusted"].any()
    assert r.headline == "No model is out of line on a line that is trusted."
    assert r.to_dict()["largest"] is None


def test_extrapolation_names_the_fitted_range(small):
    row = judge(small, [SHIFT]).frame.filter(model="m26").row(0, named=True)
    low, high = small.fit(SHIFT).support[0]
    assert row["extrapolated"]
    assert f"beyond the fitted {100 * low:.1f} to {100 * high:.1f} %" in row["caveats"][-1]


def test_unknown_sizes_are_said(small):
    bed = sb.Testbed(name="sizeless", models=small.models, settings=small.settings,
                     value=small.value, n=np.zeros_like(small.n), shifts=small.shifts)  # fmt: skip
    row = judge(bed, [SHIFT]).frame.filter(model="m3").row(0, named=True)
    assert row["interval"] is None
    assert "number of test images unknown: no measurement interval" in row["caveats"]


def test_one_model_at_zero_blocks_no_other_shift(small):
    value = np.column_stack([small.value, small.value[:, 1]])
    value[3, 2] = 0.0
    other = sb.Shift(name="t", kind="natural-dataset", source=("id",), target="ood2")
    bed = sb.Testbed(name="two", models=small.models, settings=("id", "ood", "ood2"), value=value,
                     n=np.full((30, 3), 1000), shifts=(SHIFT, other))  # fmt: skip
    found = sb.rank(bed)
    assert found.frame["shift"].unique().to_list() == ["s"]
    ((name, why),) = found.not_computed
    assert name == "t"
    assert "t: 'm3' has an accuracy of exactly 0 or 1 (1 of 20 models to fit)" in why
    assert any("Not computed: t" in note for note in found.notes)
    with pytest.raises(sb.InputError, match="t: 'm3' has"):
        sb.rank(bed, "t")
    for policy, said in (("drop", True), ("clip", False)):
        rows = sb.rank(bed, "t", on_boundary=policy).frame
        assert (
            "1 baseline model at exactly 0 or 1 left out of the fit" in rows["caveats"][0]
        ) is said
    assert len(sb.place(bed, model="m5", on_boundary="drop").frame) == 2
    assert set(sb.compare("m4", "m5", bed, on_boundary="clip").frame["shift"]) == {"s", "t"}
    assert len(sb.card("m5", bed, on_boundary="drop").frame) == 2


def test_notes_say_each_caveat_once(imagenet):
    rows = judge(imagenet, [imagenet.shift("imagenet-a"), imagenet.shift("ytbb")]).frame
    notes = caveat_notes(rows, most=99)
    assert len(notes) == len(set(notes))
    assert (
        "1 model on imagenet-a: ImageNet-A keeps only images that this ResNet-50 got wrong."
        in notes
    )
    assert len(caveat_notes(rows, most=2)) == 3


def test_groups_carry_them_too(imagenet):
    rows = sb.groups(imagenet, shift=["imagenet-a", "imagenet-v2"]).to_dict()["groups"]
    first = next(r for r in rows if (r["shift"], r["group"]) == ("imagenet-a", "standard"))
    assert first["trusted"] == imagenet.trust(imagenet.fit("imagenet-a")).trusted
    assert any("class twin val-on-imagenet-a-classes" in one for one in first["caveats"])
    assert f"1 of {first['n']} models: ImageNet-A keeps only" in " ".join(first["caveats"])
    both = sb.groups(imagenet, by="testbed", shift=["imagenet-v2"], others=["openclip"]).frame
    assert both["group"].to_list() == ["imagenet-testbed-2020", "openclip"]


def said_of(text):
    """How far off a sentence says that a model is, signed, and within which ends others lie."""
    how, where = re.search(r"([\d.]+) points (above|below)", text).groups()
    ends = re.search(r"lie within (?:±([\d.]+)|(\S+) to (\S+?))(?:,|$)", text).groups()
    low, high = (f"-{ends[0]}", ends[0]) if ends[0] else ends[1:]
    return float(how) * (1 if where == "above" else -1), float(low), float(high)


def test_the_sentence_never_contradicts_the_verdict(imagenet):
    """Of every model on every natural shift; on few images, too, where chance does more."""
    frames = [judge(imagenet, [imagenet.shift(name)]).frame for name in NATURAL]
    rng = np.random.default_rng(0)
    for _ in range(40):
        x = float(rng.uniform(0.5, 0.85))
        y = float(np.clip(0.92 * x - 0.06 + rng.normal(0, 0.02), 0.01, 0.99))
        n = [int(rng.choice([200, 10_000])) for _ in range(2)]
        counts = [(round(p * size), size) for p, size in zip((x, y), n, strict=True)]
        frames.append(sb.place(imagenet, {"val": counts[0]}, {"imagenet-v2": counts[1]}).frame)
    seen = set()
    for row in pl.concat(frames, how="diagonal").iter_rows(named=True):
        text = plain_sentence(row, 0.95)
        rho, low, high = said_of(text)
        if "ordinary" in text:
            assert low <= rho <= high, text
        if "robust than" in text or "outside" in text:
            assert not low <= rho <= high, text
        assert ("robust than" in text) is row["out_of_line"]
        assert ("as robust as" in text) is (row["verdict"] == "on the line")
        assert text in in_words(row, 0.95)
        seen |= {word for word in ("ordinary", "not out of line", "as robust", "more", "less")
                 if word in text}  # fmt: skip
    assert len(seen) == 5
