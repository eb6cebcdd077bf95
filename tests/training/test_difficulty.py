"""Difficulty from an ensemble, and its file."""

import io
import tarfile

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.stats import beta

from shiftbed.errors import InputError
from shiftbed.training import difficulty as module
from shiftbed.training.difficulty import design, difficulty, train_member
from shiftbed.training.networks import Network
from shiftbed.training.select import difficulty_rows, read_scores, scores_of
from tests.training.digit_runs import SEEN, digits, images, network, training_data


@given(
    n=st.integers(20, 60),
    share=st.sampled_from([0.25, 0.5, 0.75, 0.9, 2 / 3]),
    repeats=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@settings(max_examples=30)
def test_every_example_is_held_out_equally_often(n, share, repeats, seed):
    labels = np.arange(n) % 3
    ids = [f"e{i}" for i in range(n)]
    members = design(ids, labels, share=share, repeats=repeats, seed=seed)
    asked = np.zeros(n, dtype=int)
    for member in members:
        both = np.concatenate([member.train, member.held_out])
        assert np.array_equal(np.sort(both), np.arange(n))
        assert abs(len(member.train) - share * n) <= 1
        own = np.bincount(labels[member.train], minlength=3) - share * np.bincount(labels)
        assert (np.abs(own) < 2).all()
        asked[member.held_out] += 1
    assert len(set(asked.tolist())) == 1
    assert asked[0] == round(len(members) * (1 - share))


def test_folds_follow_ids_and_not_rows():
    ids, labels = [f"e{i}" for i in range(40)], np.arange(40) % 4
    order = np.random.default_rng(0).permutation(40)
    one = design(ids, labels, seed=5)
    other = design([ids[i] for i in order], labels[order], seed=5)
    for a, b in zip(one, other, strict=True):
        assert {ids[i] for i in a.train} == {ids[order[i]] for i in b.train}


def test_scores_are_the_share_of_unseen_members_that_are_wrong():
    data = digits(slice(0, 60))

    def answer(member):  # right on even rows, and by every second member
        right = (member.held_out % 2 == 0) | (member.number % 2 == 0)
        labels = data.labels[member.held_out]
        return np.where(right, labels, labels + 1)

    heard = []
    found = difficulty(
        data,
        model=answer,
        share=0.5,
        repeats=4,
        heard=lambda done, total: heard.append((done, total)),
    )
    assert heard[-1] == (8, 8)
    assert (found.frame["n"] == 4).all()
    score, consistency = (found.frame[name].to_numpy() for name in ("score", "consistency"))
    assert (score[::2] == 0).all()
    assert set(consistency[1::2].tolist()) <= {0, 0.25, 0.5, 0.75, 1}
    assert np.allclose(score + consistency, 1)
    assert 0.3 < score[1::2].mean() < 0.7
    assert found.to_dict()["always_right"] >= 30
    assert "Difficulty of arrays" in str(found)


def test_a_share_that_leaves_nothing_is_refused():
    for share in (0.0, 1.0, 0.999):
        with pytest.raises(InputError, match="share must lie between"):
            design(["a", "b"], np.zeros(2, int), share=share)


@pytest.fixture
def small(monkeypatch):
    """The package's trainer with a network small enough for a test."""

    def make(spec, classes, seed=0, **options):
        inner, head = network(classes, seed)
        return Network(
            module=inner,
            heads=(head,),
            preprocessing=SEEN,
            classes=classes,
            spec=spec,
            start="random",
        )

    monkeypatch.setattr(module, "make_network", make)


def test_an_ensemble_finds_wrong_labels_hard(small, tmp_path):
    """Ten of 300 digits get a wrong label: they are among the hardest."""
    x, y = images()
    labels = y[:300].copy()
    wrong = np.arange(0, 300, 30)
    labels[wrong] = (labels[wrong] + 5) % 10
    data = training_data(x[:300], labels)
    state = torch.get_rng_state()
    kept = {name: tmp_path / f"scores.{name}" for name in ("csv", "parquet")}
    given = {"model": "small", "epochs": 15, "lr": 0.005, "repeats": 2}
    found = difficulty(data, output=kept["csv"], **given)
    difficulty(data, output=kept["parquet"], model=lambda m: data.labels[m.held_out], repeats=1)
    assert torch.equal(torch.get_rng_state(), state)
    swapped = {f"arrays/{row:04d}" for row in wrong}
    hard = [
        score
        for example, score in found.frame.select("example", "score").iter_rows()
        if example in swapped
    ]
    assert np.mean(hard) > 0.8
    assert found.frame["score"].mean() < 0.5
    scores = read_scores(kept["csv"])
    assert scores == dict(found.frame.select("example", "score").iter_rows())
    assert set(read_scores(kept["parquet"]).values()) == {0.0}
    table = pl.read_csv(kept["csv"])
    numbers = ["score", "consistency", "error", "low", "high", "n"]
    assert table.columns == ["example", "label", *numbers]
    assert (table["low"] <= table["consistency"]).all()
    assert (table["n"] == 2).all()
    hard = scores_of(kept["csv"], data.examples)
    rows = difficulty_rows(data.examples, data.labels, hard, keep="hardest", count=5)
    assert np.bincount(data.labels[rows]).tolist() == [5] * 10
    picked = {data.examples[row] for row in rows}
    assert len(picked & swapped) >= 8


def test_a_member_never_sees_what_it_is_asked(small):
    """Labels of held-out examples do not matter to the answers."""
    x, y = images()
    data = training_data(x[:120], y[:120])
    member = design(data.examples, data.labels)[0]
    first = train_member(data, "small", epochs=2)(member)
    labels = data.labels.copy()
    labels[member.held_out] = 0
    from dataclasses import replace

    again = train_member(replace(data, labels=labels), "small", epochs=2)(member)
    assert np.array_equal(first, again)


def test_a_stated_number_of_models_and_its_standard_error():
    data = digits(slice(0, 40))

    def answer(member):
        labels = data.labels[member.held_out]
        return np.where(member.held_out % 4 == 0, labels + 1, labels)

    found = difficulty(data, model=answer, per_example=6, share=0.5)
    assert found.frame["n"].to_list() == [6] * 40
    k = np.where(np.arange(40) % 4 == 0, 0, 6)
    np.testing.assert_allclose(found.frame["error"], beta(k + 0.5, 6 - k + 0.5).std())
    assert found.to_dict()["models_per_example"] == 6
    with pytest.raises(InputError, match=r"multiple of 3 with share 0\.7"):
        difficulty(data, model=answer, per_example=4, share=0.7)


@pytest.mark.parametrize("kind", ["npz", "folder", "tar", "csv"])
def test_examples_of_every_format(tmp_path, kind):
    pixels, labels = (part[:30] for part in images())
    source = tmp_path / f"data.{kind}"
    names = [f"{k % 3}/{i:03}.png" for i, k in enumerate(labels)]
    if kind == "npz":
        np.savez(source, images=pixels, labels=labels % 3)
    else:
        source = tmp_path / "data" if kind == "folder" else source
        for name, one in zip(names, pixels, strict=True):
            (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(one).save(tmp_path / "data" / name)
    if kind == "tar":
        with tarfile.open(source, "w") as tar:
            for i, name in enumerate(names):
                tar.add(tmp_path / "data" / name, f"{i:03}.png")
                label = tarfile.TarInfo(f"{i:03}.cls")
                label.size = 1
                tar.addfile(label, io.BytesIO(name[:1].encode()))
    if kind == "csv":
        rows = "".join(f"data/{name},{name[0]}\n" for name in names)
        source.write_text("path,label\n" + rows)
    found = difficulty(source, model=lambda member: member.held_out * 0, repeats=1)
    assert len(found.frame) == 30
    assert found.frame.filter(pl.col("score") == 0)["label"].unique().to_list() == [0]
    with pytest.raises(InputError, match="names a data set of a recipe"):
        difficulty(source, "digits", model=lambda member: member.held_out * 0)
