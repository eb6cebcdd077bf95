"""ImageNet weights on CIFAR-10: its grids, its rules, and a miniature of all of it."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.special import expit, logit

from examples.imagenet_cifar10 import findings, judged
from examples.imagenet_cifar10.alike import dominance
from examples.imagenet_cifar10.judged import HOLDS, NOT, OPEN, Answers, Figure, figure, verdict
from examples.imagenet_cifar10.published import read_published
from examples.imagenet_cifar10.recipe import FULL, QUICK, TINY, recipe_text
from shiftbed.analysis.similarity import similarity
from shiftbed.errors import InputError
from shiftbed.training import read_recipe

RNG = np.random.default_rng(0)


def jobs_of(profile, tmp_path):
    (tmp_path / "recipe.toml").write_text(recipe_text(profile, {}))
    return read_recipe(tmp_path / "recipe.toml").jobs()


@pytest.mark.parametrize("profile", [QUICK, FULL], ids=["quick", "full"])
def test_thirty_networks_in_the_line_and_three_seeds_of_every_kind(profile, tmp_path):
    jobs = jobs_of(profile, tmp_path)
    counts = Counter(job.grid for job in jobs)
    line = {"line", "line-wide", "line-deep"}
    assert sum(counts.pop(grid) for grid in line) >= 30
    assert min(counts.values()) >= 3
    fitted = {job.grid for job in jobs if job.in_fit_set != "none"}
    assert fitted == line


def test_the_full_profile_has_every_variant_of_the_paper(tmp_path):
    jobs = jobs_of(FULL, tmp_path)
    said = {job.grid: job.arguments for job in jobs}
    assert {f"head-lite{k}" for k in (0, 1, 2)} < set(said)
    assert said["head-mse"]["objective"]["name"] == "mse"
    assert (
        said["head-pull-large"]["objective"]["pull"] > said["head-pull-small"]["objective"]["pull"]
    )
    assert {said[f"head-replay-{n}"]["objective"]["ratio"] for n in (1, 10)} == {1, 10}
    keeps = {said[f"head-{keep}"]["data"]["difficulty"]["keep"] for keep in ("easiest", "hardest")}
    assert keeps == {"easiest", "hardest"}
    assert said["whole-replay"]["objective"]["name"] == "replay"
    kept = [job for job in jobs if job.grid == "whole-keep"]
    assert {job.arguments["head"] for job in kept} == {"keep"}
    (parent,) = {job.parent for job in kept}
    assert parent in {job.run for job in jobs if job.grid == "head-lite0"}
    assert said["whole-random"]["start"] == "random"


def test_running_statistics_follow_short_runs():
    """After 128 steps of pictures unlike ImageNet's a network answers by their statistics."""
    pytest.importorskip("efficientnet_lite_pytorch")
    from examples.imagenet_cifar10.nets import lite0_random

    norms = [one for one in lite0_random().modules() if isinstance(one, torch.nn.BatchNorm2d)]
    assert len(norms) > 40
    assert all((1 - one.momentum) ** 128 < 0.01 for one in norms)


def made(seed=0, models=6, line=8, n=4000, gain=0.0):
    """Answers whose line is logit(ood) = 0.8·logit(id) − 0.3, and models ``gain`` above it."""
    rng = np.random.default_rng(seed)

    def right(share):
        return rng.random((len(share), n)) < share[:, None]

    x, own = np.linspace(0.3, 0.8, line), np.full(models, 0.6)
    below = lambda share: expit(0.8 * logit(share) - 0.3)  # noqa: E731
    return Answers(
        id=right(own), ood=right(below(own) + gain), line_id=right(x), line_ood=right(below(x)),
        paired=False,
    )  # fmt: skip


def test_rho_is_that_of_the_package():
    from shiftbed.analysis.baseline import fit_baseline

    answers = made(gain=0.05)
    line = fit_baseline(answers.line_id.mean(1), answers.line_ood.mean(1), scale="logit")
    expected = 100 * (answers.ood.mean(1) - line.predict(answers.id.mean(1)))
    np.testing.assert_allclose(judged.rho(answers, answers.once()), expected, atol=1e-9)


def test_intervals_hold_the_images_and_the_line():
    """Of 40 studies without any robustness about 95 % of the intervals hold 0."""
    inside = 0
    for seed in range(40):
        answers = made(seed, models=3, n=600)
        found = figure(lambda counts, a=answers: [judged.rho(a, counts)], answers)
        inside += found.low <= 0 <= found.high
    assert inside >= 34


@pytest.mark.parametrize(
    ("claim", "low", "high", "said"),
    [
        ("above", 0.1, 3.0, HOLDS), ("above", -3.0, -0.1, NOT), ("above", -0.1, 3.0, OPEN),
        ("within", -0.9, 0.9, HOLDS), ("within", 1.1, 2.0, NOT), ("within", -0.5, 1.5, OPEN),
        ("no more", -5.0, 0.9, HOLDS), ("no more", 1.1, 2.0, NOT), ("no more", 0.5, 1.5, OPEN),
    ],
)  # fmt: skip
def test_verdicts_look_at_the_whole_interval(claim, low, high, said):
    assert verdict(claim, Figure(value=(low + high) / 2, low=low, high=high, n=(3,))) == said
    assert verdict(claim, None).startswith(OPEN)


def test_dominance_is_that_of_the_package():
    right = RNG.random((5, 200)) < 0.6
    found = similarity(right)
    expected = found.dominance[0, 1:].sum() / found.independent_dominance[0, 1:].sum()
    own = dominance(right[:1], right[1:], np.ones(200))
    np.testing.assert_allclose(own, 100 * expected)


def test_what_ran_but_cannot_be_judged_is_not_called_not_run():
    found = findings._along(made(), {}, {"head-lite0"})
    said = {one["finding"]: one["verdict"] for one in found}
    assert said["a head on ImageNet features: ρ peaks above 0"] == findings.BELOW
    assert said["whole network from ImageNet weights: ρ peaks above 0"] == findings.NOT_RUN
    assert said["squared error peaks as cross-entropy does"] == findings.NOT_RUN


def test_published_answers_are_taken_row_by_row(tmp_path):
    answers = RNG.integers(0, 10, (3, 10_000), dtype=np.uint8)
    labels, new = RNG.integers(0, 10, 10_000, dtype=np.uint8), RNG.integers(0, 10, (3, 20))
    file, truth = tmp_path / "published.npz", RNG.integers(0, 10, 20)
    np.savez(file, original=answers, labels_original=labels, v6=new, labels_v6=truth)
    rows = np.array([5, 17, 9_999])
    found = read_published(file, rows)
    assert found.id.tolist() == (answers[:, rows] == labels[rows]).tolist()
    assert found.ood["cifar-10.1"].shape == (3, 20)
    with pytest.raises(InputError, match="another version"):
        found.line_of(made(), "cifar-10.1")
    np.savez(file, original=answers)
    with pytest.raises(InputError, match="expected original"):
        read_published(file, rows)


@pytest.fixture
def pictures(tmp_path):
    """A made-up CIFAR-10 whose classes are colours, and CIFAR-10.1 and 10.2 of it."""
    rng = np.random.default_rng(1)

    def some(each, noise):
        labels = np.repeat(np.arange(10), each)
        base = np.random.default_rng(2).integers(40, 215, (10, 1, 1, 3))
        images = base[labels] + rng.normal(0, noise, (len(labels), 32, 32, 3))
        order = rng.permutation(len(labels))
        return images.clip(0, 255).astype(np.uint8)[order], labels[order].astype(np.int64)

    parts = {"train": some(40, 40), "test": some(10, 40)}
    whole = tmp_path / "cifar.npz"
    np.savez(
        whole,
        **{
            f"{p}_{k}": a
            for p, v in parts.items()
            for k, a in zip(("images", "labels"), v, strict=True)
        },
    )
    one, two = tmp_path / "data" / "cifar-10.1", tmp_path / "data" / "cifar-10.2"
    one.mkdir(parents=True)
    two.mkdir()
    images, labels = some(200, 60)
    np.save(one / "cifar10.1_v6_data.npy", images)
    np.save(one / "cifar10.1_v6_labels.npy", labels)
    np.savez(two / "cifar102_test.npz", images=images, labels=labels)
    return whole


@pytest.mark.slow
def test_a_miniature_with_natural_shifts_from_images_to_the_table(pictures, tmp_path, monkeypatch):
    pytest.importorskip("efficientnet_lite_pytorch")
    from examples.imagenet_cifar10 import __main__ as study

    monkeypatch.setenv("DATA", str(tmp_path / "data"))
    monkeypatch.setitem(study.PROFILES, "quick", TINY)
    folder = tmp_path / "study"
    study.main([str(folder), "--data", str(pictures), "--workers", "1"])
    found = json.loads((folder / "results.json").read_text())
    assert set(found["shifts"]) == {"corrupted", "cifar-10.1", "cifar-10.2"}
    table = found["shifts"]["corrupted"]["findings"]
    assert len(table) >= 20
    assert {one["verdict"].partition(" (")[0] for one in table} <= {HOLDS, NOT, OPEN}
    assert "| finding |" in (folder / "findings.md").read_text()
    assert (folder / "report.html").exists()
    assert (folder / "trajectories.svg").exists()
    before = (folder / "findings.md").read_text().split("\n", 1)[1]
    study.main([str(folder), "--data", str(pictures), "--workers", "1"])
    assert (folder / "findings.md").read_text().split("\n", 1)[1] == before
    with pytest.raises(InputError, match="other options"):
        study.prepare(folder, QUICK, pictures)
