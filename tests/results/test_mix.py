"""Chords and votes of stored predictions."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from shiftbed.analysis.baseline import fit_baseline
from shiftbed.errors import InputError
from shiftbed.results.joint_answers import answers_from_store
from shiftbed.results.mix import mix
from shiftbed.results.ranking import rank
from tests.results.digits import predictions as predictions_of_digits
from tests.results.digits import write_store


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    store = write_store(tmp_path_factory.mktemp("mixing") / "store")
    return [answers_from_store(store, name) for name in ("clean", "noisy")]


def test_the_chord(sides):
    frame = mix(*sides, model=["model7", "model0"]).frame[[0, 3, 10]]
    ends = [side.right[[0, 7]].mean(axis=1) for side in sides]
    for column, (b, a) in zip(("id_accuracy", "ood_accuracy"), ends, strict=True):
        assert frame[column].to_list() == pytest.approx([b, 0.7 * b + 0.3 * a, a])
    line = fit_baseline(*(side.right.mean(axis=1) for side in sides), bootstrap=0)
    rho = frame["ood_accuracy"].to_numpy() - line.predict(frame["id_accuracy"].to_numpy())
    assert frame["effective"].to_numpy() == pytest.approx(rho)
    assert (frame["low"] < frame["effective"]).all()
    assert (frame["n_id"] == sides[0].n).all()


def test_the_line_is_that_of_rank(tmp_path):
    """The ends of a chord are predicted as ``rank`` predicts the two models themselves."""
    store = write_store(tmp_path / "store")
    fitted = ["model1", "model3", "model4", "model6"]
    about = {f"model{k}": {"in_fit_set": f"model{k}" in fitted} for k in range(8)}
    store.write_about({"name": "digits", "models": about})
    where = {"id": "clean", "ood": "noisy"}
    for fit_on in (None, "all", "model=model[0-4]"):
        ends = mix(store, **where, model=["model7", "model0"], fit_on=fit_on)
        ranked = rank(store, id=["clean"], ood="noisy", fit_on=fit_on, most=0).frame
        want = [ranked.filter(model=name)["predicted"][0] for name in ("model0", "model7")]
        assert ends.frame["predicted"][[0, 10]].to_list() == pytest.approx(want)
        assert ends.models == {None: 4, "all": 8}.get(fit_on, 5)
    with pytest.raises(InputError, match="value of model"):
        mix(store, **where, fit_on="model=resnet")


def test_votes(sides):
    frame = mix(*sides).frame.filter(rule="majority vote")
    assert frame["members"].to_list() == [3, 5, 8]
    assert frame["ood_accuracy"][1] >= np.median(sides[1].right.mean(axis=1))
    alone = mix(*(replace(side, store=None) for side in sides))
    assert alone.frame["classifier"].equals(frame["classifier"])
    assert alone.frame["effective"].to_list() == pytest.approx(frame["effective"].to_list())
    assert any("No mean probabilities" in note for table in alone.tables() for note in table.notes)


def test_mean_probabilities_where_logits_were_kept(tmp_path):
    store = write_store(tmp_path / "store")
    both = [answers_from_store(store, name) for name in ("clean", "noisy")]
    members = ["model2", "model5", "model7"]
    frame = mix(*(side.of(members) for side in both)).frame
    assert frame["rule"].to_list() == ["majority vote", "mean probability"]
    logits, labels = predictions_of_digits()
    p = np.mean([softmax(logits["noisy"][m], axis=1) for m in members], axis=0)
    right = (p.argmax(axis=1) == labels["noisy"]).mean()
    assert frame["ood_accuracy"][1] == pytest.approx(right, abs=1.5 / len(p))  # 16-bit logits
    lean = write_store(tmp_path / "lean", keep_logits=False)
    assert set(mix(lean, id="clean", ood="noisy").frame["rule"]) == {"majority vote"}


def test_a_vote_of_67_models_on_validation_and_v2(predictions):
    """Plain votes of the ten best stay on the line: ρ is no larger than its noise."""
    names = ("imagenet-validation-original", "imagenetv2-b-33")
    files = [str(predictions / f"imagenetv2_67models_{name}.npz") for name in names]
    frame = mix(*files).frame
    ten = frame.row(2, named=True)
    assert (ten["id_accuracy"], ten["ood_accuracy"]) == (
        pytest.approx(0.8409, abs=5e-5),
        pytest.approx(0.7416, abs=5e-5),
    )
    assert ten["low"] < 0 < ten["high"]


def test_what_cannot_be_mixed(sides):
    with pytest.raises(InputError, match="two models"):
        mix(*sides, model=["model1", "model1"])
    with pytest.raises(InputError, match="unknown model"):
        mix(*sides, model=["model1", "modell"])
