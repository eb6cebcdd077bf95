"""Commands on studies of (ID, OOD) pairs: files in, tables, JSON and pictures out."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

from shiftbed.analysis.factors import factor_analysis
from shiftbed.analysis.pairs import network_table
from shiftbed.cli import main
from shiftbed.cli.main import app
from shiftbed.cli.output import write_table
from shiftbed.errors import InputError
from shiftbed.results.pairs import long_table, open_pairs
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits
from tests.analysis.test_effects import study as augmented
from tests.cli.test_cli import shiftbed as in_a_process

METRICS = [
    f"{where}:{metric}"
    for where in ("id", "corrupted", "ood")
    for metric in ("error", "nll", "ece", "disparity", "adversarial", "brier")
    if where != "corrupted" or metric in ("error", "nll", "ece", "disparity")
]


@pytest.fixture
def shiftbed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """The command line in this process: exit code, output, errors."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["shiftbed", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as left:
            code = int(left.code or 0)
        found = capsys.readouterr()
        return code, found.out, found.err

    return call


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks with 16 metrics of four factors; in one task OOD follows ID, in the other not."""
    rng = np.random.default_rng(6)
    rows = []
    for task, source in (("lines", "a"), ("lines", "b"), ("clouds", "c")):
        n = 80
        ability, shift, calibration, disparity = rng.standard_normal((4, n))
        for target in ("x", "y"):
            for i in range(n):
                row: dict[str, object] = {"task": task, "id": source, "ood": target}
                row |= {"model": f"m{i}", "architecture": "cnn" if i % 2 else "vit"}
                for name in METRICS:
                    where, _, metric = name.partition(":")
                    driver = {"ece": calibration, "disparity": disparity}.get(metric, ability)
                    follows = 0.3 if task == "clouds" else 1.2
                    value = 0.8 * driver[i] + 0.35 * rng.standard_normal()
                    if where == "ood":
                        value = 0.5 * follows * driver[i] + 0.7 * shift[i] * (task == "clouds")
                        value += 0.3 * rng.standard_normal()
                    row[name] = expit(0.5 * value - 1.0) if metric != "nll" else np.exp(value)
                rows.append(row)
    path = tmp_path_factory.mktemp("study") / "study.csv"
    pl.DataFrame(rows).write_csv(path)
    return path


class TestFactors:
    def test_json_is_what_the_analysis_finds(self, shiftbed: Callable, study: Path) -> None:
        code, out, _ = shiftbed("factors", study, "--bootstrap", 40, "--json")
        assert code == 0
        found = json.loads(out)
        assert found["metrics"] == METRICS
        assert found["n"] == 240
        expected = factor_analysis(network_table(open_pairs(str(study))), bootstrap=40)
        assert found["factors"] == expected.k
        loadings = [row["loading"] for row in found["loadings"]]
        np.testing.assert_allclose(loadings, expected.loadings.ravel())
        assert all(row["low"] <= row["high"] for row in found["loadings"])
        assert len(found["eigenvalues"]) == 16
        assert found["by_parallel"] >= 3
        assert found["resampled"] == {"unit": "model", "units": 80, "draws": 40}

    def test_table_files_and_figure(self, shiftbed: Callable, study: Path, tmp_path: Path) -> None:
        for suffix in ("csv", "parquet", "json"):
            path = tmp_path / f"found.{suffix}"
            code, out, err = shiftbed(
                *("factors", study, "--factors", 3, "--bootstrap", 40, "-o", path),
                *("--rotation", "varimax"),
                *(("--figure", tmp_path / "found.svg") if suffix == "csv" else ()),
            )
            assert code == 0, err
            read = {"csv": pl.read_csv, "parquet": pl.read_parquet, "json": pl.read_json}[suffix]
            frame = read(path)
            assert frame.height == 48
            assert frame["factor"].max() == 3
            assert frame.select(pl.col("loading").is_null().any()).item() is False
        assert "Loadings of 3 factors" in out
        assert "eigenvalues ≥ 1" in out
        assert "<svg" in (tmp_path / "found.svg").read_text()

    def test_a_published_testbed(self, shiftbed: Callable) -> None:
        """Test sets as columns: ImageNet-A, -R and -Sketch have a factor of their own."""
        code, out, err = shiftbed(
            *("factors", "imagenet-testbed-2020", "--columns", "settings"),
            *("--metric", "ood:error", "--bootstrap", 40, "--json"),
        )
        assert code == 0, err
        found = json.loads(out)
        assert (found["n"], found["factors"], found["left_out"]) == (195, 2, 9)
        second = {
            r["metric"].partition("@")[2]: r["loading"]
            for r in found["loadings"]
            if r["factor"] == 2
        }
        best = sorted(second, key=lambda name: -second[name])[:3]
        assert set(best) == {"imagenet-a", "imagenet-r", "imagenet-sketch"}
        assert any("Heywood" in note for note in found["notes"])

    def test_choosing_networks(self, shiftbed: Callable, study: Path) -> None:
        code, out, _ = shiftbed(
            *("factors", study, "--only", "architecture=vit", "--task", "lines"),
            *("--bootstrap", 0, "--json"),
        )
        assert code == 0
        found = json.loads(out)
        assert found["n"] == 80
        assert all(row["low"] is None for row in found["loadings"])
        assert any("no intervals: no resampling was asked for" in n for n in found["notes"])

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--rotation", "varmax"], "did you mean 'varimax'"),
            (["--extraction", "ml"], "unknown extraction 'ml'"),
            (["--columns", "rows"], "unknown kind of columns"),
            (["--metric", "ood:eror"], "did you mean 'ood:error'"),
            (["--metric", "ood:error"], "at least 3 metrics that vary, got 1"),
            (["--factors", "3", "--choose-by", "parallel"], "--factors does already"),
            (["--factors", "40"], "between 1 and 16"),
            (["--factors", "12"], "16 metrics determine at most 10 factors, 12 asked for"),
            (["--only", "vit"], "say COLUMN=PATTERN"),
            (["--only", "depth=3"], "unknown column of models 'depth'"),
            (["--resample", "image"], "unknown unit of resampling"),
            (["-o", "found.xlsx"], "a table is written to"),
            (["--figure", "found.bmp"], "a figure is written to"),
            (["--level", "95"], "level must lie between 0 and 1"),
        ],
    )
    def test_what_is_wrong_is_said_in_one_line(
        self, shiftbed: Callable, study: Path, arguments: list[str], message: str
    ) -> None:
        code, _, err = shiftbed("factors", study, *arguments)
        assert code == 2
        assert message in err
        assert err.count("\n") == 1


class TestPatterns:
    def test_each_task_has_its_pattern(self, shiftbed: Callable, study: Path) -> None:
        code, out, err = shiftbed("patterns", study, "--bootstrap", 50, "--json")
        assert code == 0, err
        found = json.loads(out)
        by_task = {p["task"]: p["pattern"] for p in found["pairs"]}
        assert by_task == {"lines": "increasing", "clouds": "no clear trend"}
        assert len(found["pairs"]) == 6
        for pair in found["pairs"]:
            assert pair["n"] == 80
            assert pair["rank_low"] < pair["rank"] < pair["rank_high"]
            assert pair["margin"] is not None
            assert pair["nearest"] != pair["pattern"]
        counts = {(c["task"], c["pattern"]): c["pairs"] for c in found["counts"]}
        assert counts["lines", "increasing"] == 4
        assert counts["clouds", "no clear trend"] == 2
        assert counts["all", "increasing"] == 4
        assert sum(c["pairs"] for c in found["counts"] if c["task"] == "all") == 6

    def test_the_published_shifts_are_lines_and_some_cannot_be_trusted(
        self, shiftbed: Callable
    ) -> None:
        """taori2020 breaks ImageNet-A's line in two; the gate finds it curved. V2's is trusted."""
        code, out, err = shiftbed(
            "patterns", "imagenet-testbed-2020", "--groups", "model_kind", "--json"
        )
        assert code == 0, err
        found = {p["ood"]: p for p in json.loads(out)["pairs"]}
        assert len(found) == 15
        assert {p["pattern"] for p in found.values()} == {"increasing"}
        assert found["imagenetv2-matched-frequency-format-val"]["trusted"]
        assert "curved" in found["imagenet-a"]["why_not"]
        assert "groups lie on lines of their own" in found["imagenet-r"]["why_not"]
        assert not any("sizes are unknown" in (p["note"] or "") for p in found.values())

    def test_corruptions_of_a_testbed(self, shiftbed: Callable) -> None:
        """Some of the 60 shifts are no lines: attacks of the strongest kind."""
        code, out, err = shiftbed(
            *("patterns", "imagenet-testbed-2020", "--kind", "adversarial", "--classes", "1000"),
            *("--bootstrap", 50, "--json"),
        )
        assert code == 0, err
        found = json.loads(out)["pairs"]
        assert found
        assert all(p["reason"] for p in found)
        assert any(p["pattern"] != "increasing" for p in found)

    def test_table_and_figures(self, shiftbed: Callable, study: Path, tmp_path: Path) -> None:
        for draw in ("scatters", "counts"):
            figure = tmp_path / f"{draw}.svg"
            code, out, err = shiftbed(
                *("patterns", study, "--classes", "10", "--bootstrap", 40, "--groups"),
                *("architecture", "-o", tmp_path / "p.csv", "--figure", figure, "--draw", draw),
            )
            assert code == 0, err
            assert "<svg" in figure.read_text()
        assert "no clear trend" in (tmp_path / "scatters.svg").read_text()
        assert "Patterns by task" in out
        frame = pl.read_csv(tmp_path / "p.csv")
        assert frame.height == 6
        assert frame["chance"].to_list() == [0.1] * 6

    def test_sizes_can_be_given(self, shiftbed: Callable, study: Path) -> None:
        sizes = [o for name in "abcxy" for o in ("--images", f"{name}=1000")]
        _, out, _ = shiftbed("patterns", study, *sizes, "--bootstrap", 40, "--json")
        notes = [p["note"] or "" for p in json.loads(out)["pairs"]]
        assert not any("sizes are unknown" in note for note in notes)

    def test_two_models_and_one_pair(self, shiftbed: Callable, tmp_path: Path) -> None:
        path = tmp_path / "two.csv"
        path.write_text(
            "task,id,ood,model,id:accuracy,ood:accuracy\nt,a,b,m1,0.8,0.5\nt,a,b,m2,0.9,\n"
        )
        code, out, err = shiftbed("patterns", path, "--json")
        assert code == 0, err
        (pair,) = json.loads(out)["pairs"]
        assert (pair["pattern"], pair["n"], pair["left_out"]) == ("undecided", 1, 1)
        assert pair["reason"] == "1 network with both accuracies, at least 10 are needed"
        assert not pair["trusted"]
        assert "NaN" not in out
        code, _, err = shiftbed("factors", path)
        assert code == 2
        assert "at least 3 metrics" in err

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--classes", "ten"], "classes: expected a whole number"),
            (["--classes", "line=10"], "did you mean 'lines'"),
            (["--classes", "10", "--classes", "20"], "one number for all tasks"),
            (["--images", "a=0"], "images: expected a whole number of at least 1"),
            (["--images", "q=5"], "unknown setting 'q'"),
            (["--groups", "depth"], "unknown recipe column"),
            (["--draw", "counts"], "--draw goes with --figure"),
            (["--draw", "lines", "--figure", "x.svg"], "unknown figure 'lines'"),
            (["--scale", "log"], "unknown scale 'log'"),
            (["--only", "architecture=mlp"], "unknown value of architecture 'mlp'"),
        ],
    )
    def test_what_is_wrong_is_said_in_one_line(
        self, shiftbed: Callable, study: Path, arguments: list[str], message: str
    ) -> None:
        code, _, err = shiftbed("patterns", study, "--bootstrap", 0, *arguments)
        assert code == 2
        assert message in err
        assert err.count("\n") == 1


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 models whose answers on sketches are worse than on photographs, by the same amount."""
    rng = np.random.default_rng(2)
    path = tmp_path_factory.mktemp("predictions") / "store"
    found = PredictionStore(path)
    for harder, setting in enumerate(("photo", "photo+fog:3", "sketch")):
        labels = rng.integers(0, 4, 300)
        examples = tuple(map(str, range(300)))
        found.add_test_set(
            StoredTestSet(setting=setting, examples=examples, labels=labels, fingerprint=setting)
        )
        for m in range(30):
            logits = rng.normal(0, 1, (300, 4)).astype(np.float32)
            logits[np.arange(300), labels] += 0.8 + 0.08 * m - 0.3 * harder
            found.write_part(f"m{m}", setting, 0, part_from_logits(logits, labels))
            found.write_cell(f"m{m}", setting, {"status": "complete", "info": {}})
    shift = {"name": "sketch", "kind": "natural-dataset", "source": ["photo"], "target": "sketch"}
    found.write_about({"name": "mine", "shifts": [shift]})
    return path


def test_a_store_will_do(shiftbed: Callable, store: Path) -> None:
    code, out, err = shiftbed("patterns", store, "--classes", 4, "--json")
    assert code == 0, err
    (pair,) = json.loads(out)["pairs"]
    assert (pair["pattern"], pair["n"], pair["note"]) == ("increasing", 30, None)
    metrics = [f"{w}:{m}" for w in ("id", "corrupted", "ood") for m in ("error", "nll", "brier")]
    wanted = [option for name in metrics for option in ("--metric", name)]
    code, out, err = shiftbed("factors", store, *wanted, "--bootstrap", 40, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["n"], found["factors"], found["by_parallel"]) == (30, 1, 1)
    assert min(row["loading"] for row in found["loadings"]) > 0.8


@pytest.fixture
def run(capsys):
    """A command in this process: what it prints."""

    def printed(*arguments: str) -> str:
        app([*arguments], standalone_mode=False)
        return capsys.readouterr().out

    return printed


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "study.parquet"
    write_table(long_table(augmented(np.random.default_rng(0), effect=0.04, sets=8)), path)
    return str(path)


def test_predictiveness_of_a_published_testbed(run, tmp_path):
    table, figure = tmp_path / "scores.csv", tmp_path / "scores.svg"
    files = ["-o", str(table), "--figure", str(figure)]
    found = json.loads(run("predictiveness", "imagenet-testbed-2020", *files, "--json"))
    assert len(found["pairs"]) == 15
    assert found["matrix"]["metrics"][0] == "id:error"
    rows = {row["metric"]: row for row in found["scores"]}
    assert rows["id:error"]["r"] == pytest.approx(0.956, abs=5e-4)
    assert rows["held-out:error"]["pairs"] == 12
    size = len(found["matrix"]["metrics"])
    assert [len(row) for row in found["matrix"]["r"]] == [size] * size
    written = pl.read_csv(table)
    assert written["r"].to_list() == pytest.approx([row["r"] for row in found["scores"]])
    assert "<svg" in figure.read_text()


def test_upstream_and_transfer(run, file):
    printed = run("predictiveness", "timm", "--upstream", "model", "--show", "transfer")
    assert "held-out" in printed
    found = json.loads(run("predictiveness", "timm", "--upstream", "model", "--json"))
    assert "upstream:real" in found["matrix"]["metrics"]


def test_an_error_in_a_process_of_its_own(file):
    done = in_a_process("predictiveness", file, "--upstream", "architecture")
    assert done.returncode == 2
    assert "backbone in timm 'ViT'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_plain_file_by_task(run, file):
    options = ["--by", "task", "--method", "pearson", "--json"]
    found = json.loads(run("predictiveness", file, *options))
    assert found["method"] == "pearson"
    assert {row["task"] for row in found["groups"]} == {"t"}
    assert found["notes"] == ["12 networks in each of 16 pairs."]


def test_effects_of_an_augmentation(run, file, tmp_path):
    sides = ["--column", "augmentation", "--of", "RandAugment", "--of", "AugMix"]
    table = tmp_path / "effects.json"
    sides += ["--against", "none"]
    found = json.loads(run("effects", file, *sides, "-o", str(table), "--json"))
    assert found["alternative"] == "RandAugment + AugMix is lower (better) than none"
    row = found["rows"][1]
    assert (row["metric"], row["n"], row["networks"]) == ("ood:error", 8, 32)
    assert row["p_value"] == pytest.approx(2**-8)
    assert json.loads(table.read_text()) == found["rows"]
    printed = run("effects", file, *sides)
    assert "alternative: RandAugment + AugMix is lower (better) than none" in printed


@pytest.mark.parametrize("show", ["architectures", "difficulty"])
def test_the_other_tables(run, file, show, tmp_path):
    figure = tmp_path / "figure.html"
    found = json.loads(run("effects", file, "--show", show, "--figure", str(figure), "--json"))
    assert found["rows"]
    assert figure.stat().st_size > 1000
    assert "gap" in run("effects", file, "--show", show)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["predictiveness", "nowhere.csv"], "no such file or store"),
        (["predictiveness", "FILE", "--show", "score"], "did you mean 'scores'"),
        (["predictiveness", "FILE", "-o", "x.txt"], ".parquet, .csv, .json"),
        (["predictiveness", "FILE", "--figure", "x.gif"], "a figure is written to"),
        (["predictiveness", "FILE", "--task", "u"], "unknown task 'u'"),
        (["predictiveness", "FILE", "--target", "ood:eror"], "did you mean 'ood:error'"),
        (["predictiveness", "FILE", "--also", "x"], "for a testbed only"),
        (["predictiveness", "FILE", "--by", "kind"], "no pair of this study has a type of shift"),
        (["effects", "FILE"], "needs --column with --of and --against"),
        (["effects", "FILE", "--show", "difficulty", "--of", "x"], "--of does not go with"),
        (["effects", "FILE", "--show", "tables"], "unknown table"),
    ],
)
def test_bad_input_of_either_is_one_line(file, arguments, match):
    with pytest.raises(InputError) as error:
        app([file if word == "FILE" else word for word in arguments], standalone_mode=False)
    assert match in str(error.value)
    assert "\n" not in str(error.value)
