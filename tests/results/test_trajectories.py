"""Runs averaged with their like, and the table of runs, against numpy and scipy."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, logit
from scipy.stats import binned_statistic, linregress

from shiftbed.errors import InputError
from shiftbed.figures import figure_of
from shiftbed.results.plot import chart
from shiftbed.results.trajectories import BIASED, trajectories
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits
from tests.cli.in_process import shiftbed

N = 4000
STEPS = (0, 10, 20, 40, 80, 160)
KINDS = list(product(("pretrained", "random"), (0.1, 0.01, 0.001)))
"""Start and learning rate: six kinds, two seeds each."""


def rho_of(start: str, lr: float, at: int) -> float:
    """Up and down from a pre-trained start, none from a random one."""
    return (0.06 + lr / 2) * np.sin(np.pi * (at + 1) / len(STEPS)) if start == "pretrained" else 0.0


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Ten models on a line and twelve runs; answers are right on a random share of the images."""
    rng = np.random.default_rng(0)
    store = PredictionStore(tmp_path_factory.mktemp("runs") / "store")
    labels = rng.integers(0, 2, N)
    for setting in ("id", "ood"):
        ids = tuple(f"{setting}{i}" for i in range(N))
        store.add_test_set(
            StoredTestSet(setting=setting, examples=ids, labels=labels, fingerprint=setting)
        )
    about = {}

    def add(name, x, y, **info):
        for setting, accuracy in (("id", x), ("ood", y)):
            right = rng.permutation(N) < round(accuracy * N)
            answer = np.where(right, labels, 1 - labels)
            logits = np.eye(2, dtype=np.float32)[answer]
            store.write_part(name, setting, 0, part_from_logits(logits[:1024], labels[:1024]))
            for part in range(1, -(-N // 1024)):
                rows = slice(1024 * part, 1024 * (part + 1))
                store.write_part(
                    name, setting, 1024 * part, part_from_logits(logits[rows], labels[rows])
                )
            store.write_cell(name, setting, {"status": "complete"})
        about[name] = info

    for i, x in enumerate(np.linspace(0.3, 0.95, 10)):
        add(f"base{i}", x, expit(0.85 * logit(x) - 0.45) + 0.004 * (-1) ** i)
    for (start, lr), seed in product(KINDS, (0, 1)):
        for at, step in enumerate(STEPS):
            x = 0.4 + 0.09 * at + 0.01 * seed
            y = expit(0.85 * logit(x) - 0.45) + rho_of(start, lr, at) + rng.normal(0, 0.004)
            run = f"{start}-{lr}-{seed}"
            info = {"run": run, "step": step, "start": start, "lr": lr, "seed": seed}
            info |= {"in_fit_set": False, "epoch": step / 10, "data_size": int(100 * lr * 1000)}
            add(f"{run}@{step}", x, y, **info)
    shift = {"name": "s", "kind": "natural-dataset", "source": ["id"], "target": "ood"}
    store.write_about({"name": "twelve", "models": about, "shifts": [shift]})
    return store


@pytest.fixture(scope="module")
def found(store):
    return trajectories(store)


@pytest.fixture(scope="module")
def reference(store):
    """ρ of every checkpoint by numpy: {(start, lr): {seed: (x, ρ)}}, and the line."""
    right = {}
    for setting in ("id", "ood"):
        labels = store.test_set(setting).labels
        for name in store.complete_models(setting):
            answers = store.read(name, setting, ["class_1"])["class_1"].to_numpy()
            right[name, setting] = (answers == labels).mean()
    base = [f"base{i}" for i in range(10)]
    xs, ys = (np.array([right[name, s] for name in base]) for s in ("id", "ood"))
    line = linregress(logit(xs), logit(ys))

    def beta(x):
        return expit(line.slope * logit(x) + line.intercept)

    made = {}
    for (start, lr), seed in product(KINDS, (0, 1)):
        names = [f"{start}-{lr}-{seed}@{step}" for step in STEPS]
        x, y = (np.array([right[name, s] for name in names]) for s in ("id", "ood"))
        made.setdefault((start, lr), {})[seed] = (x, y - beta(x), x - beta(x))
    return made


def kind_of(found, start, lr):
    (row,) = found.kinds.filter(start=start, lr=lr).iter_rows(named=True)
    return row


def test_six_kinds_of_two_runs(found):
    assert len(found.kinds) == 6
    assert found.kinds["runs"].to_list() == [2] * 6
    assert found.frame["run"].n_unique() == 12
    seen = set(zip(found.kinds["start"], found.kinds["lr"], strict=True))
    assert seen == set(KINDS)


@pytest.mark.parametrize(("start", "lr"), KINDS)
def test_chart_and_tables_are_numpys_per_kind(found, reference, start, lr):
    runs, kind = reference[start, lr], kind_of(found, start, lr)
    x, rho = (np.concatenate([runs[seed][i] for seed in (0, 1)]) for i in (0, 1))
    mean, edges, _ = binned_statistic(x, rho, "mean", bins=len(STEPS))
    std = binned_statistic(x, rho, "std", bins=len(STEPS))[0]
    there = np.isfinite(mean)
    curve = found.curves.filter(kind=kind["kind"])
    centre = (edges[1:] + edges[:-1]) / 2
    np.testing.assert_allclose(curve["mean"], mean[there])
    np.testing.assert_allclose(curve["std"], std[there], atol=1e-12)
    np.testing.assert_allclose(curve["centre"], centre[there])
    (drawn,) = [c for c in found.chart().curves if c.name == f"{kind['kind']} (2 runs)"]
    np.testing.assert_allclose(drawn.y, 100 * mean[there])
    np.testing.assert_allclose(drawn.high - drawn.y, 100 * std[there], atol=1e-9)
    assert kind["largest"] == pytest.approx(mean[there].max())
    assert kind["largest_std"] == pytest.approx(std[there].max())
    both = np.stack([runs[seed][1] for seed in (0, 1)])
    chosen = both.argmax(axis=1)[::-1]
    assert kind["peak_rho"] == pytest.approx(both[[0, 1], chosen].mean())
    for part, at in (("start", 0), ("final", -1)):
        assert kind[f"{part}_rho"] == pytest.approx(both[:, at].mean())
    assert kind["lost_rho"] == pytest.approx(both[[0, 1], chosen].mean() - both[:, -1].mean())
    for seed in (0, 1):
        (row,) = found.frame.filter(run=f"{start}-{lr}-{seed}").iter_rows(named=True)
        at = runs[1 - seed][1].argmax()
        assert row["step"] == STEPS[at]
        assert row["peak_rho"] == pytest.approx(runs[seed][1][at])
        assert row["peak_source"] == pytest.approx(runs[seed][0][at])
        assert row["peak_share"] == pytest.approx(runs[seed][1][at] / runs[seed][2][at])
        assert (row["start_rho"], row["final_rho"]) == pytest.approx(tuple(runs[seed][1][[0, -1]]))
        assert row["largest"] == pytest.approx(runs[seed][1].max())
        assert row["rule"] == "the other runs of its kind"


def test_the_testbed_stands_behind_and_no_gap_is_drawn(found, reference):
    drawn = found.chart()
    assert drawn.behind.names == tuple(f"base{i}" for i in range(10))
    assert (drawn.behind.y_low < drawn.behind.y_high).all()
    last = drawn.curves[-1]
    assert last.name == "y = x"
    want = found.line.predict(last.x / 100)
    np.testing.assert_allclose(last.y, last.x - 100 * want)
    share = found.chart("share")
    kind = kind_of(found, "pretrained", 0.1)["kind"]
    (one,) = [c for c in share.curves if c.name.startswith(kind)]
    mean = found.curves.filter(kind=kind)
    gap = mean["centre"].to_numpy() - found.line.predict(mean["centre"].to_numpy())
    np.testing.assert_allclose(one.y, 100 * mean["mean"].to_numpy() / gap)
    assert [line.name for line in share.lines] == ["the line", "y = x"]


def test_thin_bins_are_not_drawn(store):
    fine = trajectories(store, bins=1000)
    assert not len(fine.curves)  # no two runs meet in a bin as narrow as that
    assert [curve.name for curve in fine.chart().curves] == ["y = x"]
    assert fine.kinds["largest"].null_count() == 6
    coarse = trajectories(store, bins=3)
    assert coarse.curves["runs"].min() == 2


def test_kinds_of_models_look_as_everywhere(found):
    """Blue is standard training in every chart, whatever comes first."""
    one, two = found.kinds["kind"][:2]
    called = {one: "more-data", two: "standard"}
    kept = [
        frame.filter(pl.col(name).is_in([one, two])).with_columns(pl.col(name).replace(called))
        for frame, name in (
            (found.kinds, "kind"),
            (found.checkpoints, "kind_of_run"),
            (found.curves, "kind"),
        )
    ]
    kinds, checkpoints, curves = kept
    chart = replace(found, kinds=kinds, checkpoints=checkpoints, curves=curves).chart()
    assert [curve.group for curve in chart.curves[:2]] == ["more-data", "standard"]
    assert chart.curves[1].name == "Standard training (2 runs)"
    drawn = {line.get_label(): line.get_color() for line in figure_of(chart).axes[0].lines}
    assert drawn["Trained on more data (2 runs)"] == "#009E73"
    assert drawn["Standard training (2 runs)"] == "#0072B2"
    assert drawn["the line"] == "#D55E00"


def test_options_are_honoured(store, found):
    by = trajectories(store, by="start")
    assert by.kinds["kind"].to_list() == ["pretrained", "random"]
    assert by.kinds["runs"].to_list() == [6, 6]
    few = trajectories(store, only="start=random", run=["random-0.1-0"])
    assert few.frame["run"].to_list() == ["random-0.1-0"]
    alone = few.frame.row(0, named=True)
    assert alone["rule"] == "the other half of the images"
    assert alone["peak_rho"] < alone["largest"] + 1e-12
    fitted = trajectories(store, fit_on=["model=base[0-7]"])
    assert fitted.line.n == 8
    wide, narrow = (trajectories(store, level=level).frame for level in (0.995, 0.5))
    width = [(one["final_high"] - one["final_low"]).mean() for one in (wide, narrow)]
    assert width[0] > 3 * width[1]
    drawn = found.chart(colour="start", highlight=["base3", "random-0.1-0"])
    assert {curve.group for curve in drawn.curves} == {"pretrained", "random", ""}
    assert drawn.behind.labelled == ("base3",)
    assert [c.name for c in drawn.curves if c.bold] == ["random-0.1-0"]
    same = chart(store, "trajectories", only="start=random", colour="lr", level=0.9)
    assert len(same.curves) == 4
    for wrong in ({"by": "epoch"}, {"by": "nothing"}, {"run": ["none"]}, {"over": "epoch"}):
        with pytest.raises(InputError):
            trajectories(store, **wrong)
    with pytest.raises(InputError, match="unknown model"):
        found.chart(highlight=["nobody"])


def test_a_run_in_the_fit_is_judged_by_the_others(store):
    fit_on = [f"run!=random-{lr}-1" for lr in (0.1, 0.01)] + ["start!=pretrained"]
    found = trajectories(store, fit_on=fit_on, only="start=random")
    bed = found.testbed
    others = bed.fit("s", models=[*fit_on, "run!=random-0.001-0"], bootstrap=0)
    own = found.checkpoints.filter(run="random-0.001-0")
    want = own["target"].to_numpy() - others.predict(own["source"].to_numpy())
    np.testing.assert_allclose(own["effective"], want)
    assert others.n == found.line.n - len(STEPS)


def test_the_largest_by_size(store):
    found = trajectories(store, over="data_size", only="start=pretrained", draw="largest")
    sizes = found.largest()["data_size"].to_list()
    assert sizes == sorted(sizes) == [100, 1000, 10000]
    drawn = found.chart()
    np.testing.assert_allclose(drawn.curves[0].y, 100 * found.largest()["peak_rho"].to_numpy())
    assert drawn.curves[0].x.tolist() == sizes
    assert any("Maximum ρ by data_size" in table.title for table in found.tables())


def test_a_run_without_answers_says_that_its_peak_is_biased(store):
    from dataclasses import replace

    bare = replace(trajectories(store).testbed, results={})
    found = trajectories(bare, run=["pretrained-0.1-0"])
    assert found.frame["rule"].to_list() == [BIASED]
    assert found.kinds["peak_rho"].to_list() == [None]


def test_the_command(store, tmp_path):
    root = str(store.files.root)
    picture = tmp_path / "along.png"
    done = shiftbed(
        "trajectories", root, "--by", "start", "--figure", picture, "--json", cwd=tmp_path
    )
    said = json.loads(done.stdout)
    assert [one["runs"] for one in said["kinds"]] == [6, 6]
    assert len(said["runs"]) == 12
    assert picture.stat().st_size > 1000
    table = shiftbed("trajectories", root, "-o", tmp_path / "runs.csv", cwd=tmp_path).stdout
    assert "ρ along training, s" in table
    assert pl.read_csv(tmp_path / "runs.csv").height == 12


def test_kinds_are_named_by_what_tells_them_apart(store, found):
    """Not by all that differs, and no share is given of a gap that is not there."""
    assert all(len(name.split(", ")) == 2 for name in found.kinds["kind"])
    flat = trajectories(store, fit_on="all", on_boundary="clip", by="start").checkpoints
    small = flat.filter(pl.col("reference").abs() < 0.005)
    assert small["share_of_gap"].null_count() == len(small)
    assert flat.filter(pl.col("reference").abs() > 0.005)["share_of_gap"].null_count() == 0
