"""From files to a testbed to a verdict, through the command line."""

import json

import numpy as np
import pytest

from shiftbed.testbed import read_testbed
from tests.cli.in_process import shiftbed as in_process
from tests.cli.test_cli import shiftbed


@pytest.fixture
def answers(tmp_path):
    """Predictions of 20 models, and of one's own, on two test sets."""
    rng = np.random.default_rng(0)
    ability = np.linspace(-0.5, 1.5, 21)[:, None]
    for name, easier, n in (("val", 0.8, 3000), ("v2", 0.2, 1500)):
        labels = rng.integers(0, 50, n)
        right = ability + easier > rng.normal(0, 1, n) + rng.normal(0, 0.5, (21, n))
        top1 = np.where(right, labels, (labels + 1) % 50)
        names = np.array([f"m{i}" for i in range(21)])
        np.savez(tmp_path / f"all_{name}.npz", models=names[:20], top1=top1[:20], labels=labels)
        np.savez(tmp_path / f"mine_{name}.npz", models=["mine"], top1=top1[20:], labels=labels)
    return tmp_path


def run(folder, *arguments):
    done = shiftbed(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_own_predictions_get_paired_intervals(answers):
    out = run(
        answers,
        *("import", "all_val.npz", "all_v2.npz", "-o", "all.parquet", "--shift", "s=val:v2"),
        *("--setting", "all_val=val", "--setting", "all_v2=v2"),
    )
    assert "20 models (20 in the fit set), 2 settings, per-image results in 2, 1 shift." in out
    paired = json.loads(
        run(
            answers,
            *("place", "--testbed", "all.parquet", "--json"),
            *("--predictions", "val=mine_val.npz", "--predictions", "v2=mine_v2.npz"),
        )
    )["shifts"][0]
    with np.load(answers / "mine_val.npz") as a, np.load(answers / "mine_v2.npz") as b:
        accuracy = [float((z["top1"] == z["labels"]).mean()) for z in (a, b)]
    bare = json.loads(
        run(
            answers,
            *("place", "--testbed", "all.parquet", "--json"),
            *("--id", f"val={accuracy[0]}", "--ood", f"v2={accuracy[1]}"),
        )
    )["shifts"][0]
    assert paired["paired"] is True
    assert bare["paired"] is False
    assert paired["effective"] == pytest.approx(bare["effective"])
    assert (paired["interval"], bare["interval"]) == ("paired", "modelled")
    widths = [one["high"] - one["low"] for one in (paired, bare)]
    assert widths[1] == pytest.approx(widths[0], rel=0.1)


def test_predictions_on_other_images_are_refused(answers):
    run(answers, "import", "all_val.npz", "-o", "all.parquet", "--setting", "all_val=val")
    done = shiftbed(
        *("place", "--testbed", "all.parquet", "--predictions", "val=mine_v2.npz"),
        cwd=answers,
    )
    assert done.returncode == 2
    assert "not those of 'val'" in done.stderr


def test_a_store_is_a_testbed(answers):
    run(answers, "store", "import", "preds", "all_val.npz", "--setting", "val")
    run(answers, "store", "import", "preds", "all_v2.npz", "--setting", "v2")
    assert "nothing missing" in run(answers, "store", "verify", "preds")
    fit = json.loads(run(answers, "fit", "-t", "preds", "--id", "val", "--ood", "v2", "--json"))
    assert fit["n"] == 20
    rank = json.loads(
        run(answers, "rank", "-t", "preds", "--id", "val", "--ood", "v2", "--json", "-n", "0")
    )
    assert all(row["paired"] for row in rank["models"])
    scores = json.loads(run(answers, "score", "preds", "--json"))["settings"]
    assert len(scores) == 40
    keys = {"setting", "metric", "value", "low", "high", "n", "label_policy"}
    assert keys <= scores[0].keys()


@pytest.mark.parametrize("suffix", ["npz", "csv"])
def test_predictions_go_out_and_come_back(answers, suffix):
    run(answers, "store", "import", "preds", "all_val.npz", "--setting", "val")
    run(answers, "store", "export", "preds", "--setting", "val", "-o", f"out.{suffix}")
    if suffix == "npz":
        run(answers, "store", "import", "again", f"out.{suffix}", "--setting", "val")
    else:
        run(answers, "store", "import", "again", "mine_val.npz", "--setting", "val")
        run(answers, "store", "import", "again", f"out.{suffix}", "--setting", "val")
    scores = [
        {r["model"]: r["value"] for r in json.loads(run(answers, "score", s, "--json"))["settings"]}
        for s in ("preds", "again")
    ]
    assert scores[0].items() <= scores[1].items()


def test_every_option_of_import(tmp_path):
    (tmp_path / "a.csv").write_text(
        "name,kind,depth,junk,val,v2\na,standard,50,9,76.1,0.63\nb,own,18,9,69.8,0.5\n"
    )
    done = in_process(
        *("import", "a.csv", "-o", "out.parquet", "--name", "mine", "--layout", "wide"),
        *("--unit", "percent", "--unit", "v2=fraction", "--n", "val=50000"),
        *("--setting", "v2=new", "--shift", "s=val:new", "--fit", "kind=standard"),
        *("--info", "depth", "--ignore", "junk", "--source", "S", "--licence", "L"),
        *("--citation", "C", "--json"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    found.pop("notes")
    assert found == {
        "testbed": "mine",
        "file": "out.parquet",
        "models": 2,
        "settings": 2,
        "shifts": ["s"],
        "fit_set": 1,
        "per_image": [],
    }
    bed = read_testbed(tmp_path / "out.parquet")
    assert bed.value.tolist() == [[76.1 / 100, 0.63], [69.8 / 100, 0.5]]
    assert (bed.source, bed.licence, bed.citation) == ("S", "L", "C")
    assert bed.models["depth"].to_list() == [50, 18]
    wrong = in_process("import", "a.csv", "-o", "out.csv", cwd=tmp_path)
    assert wrong.returncode == 2


def test_a_store_is_cleaned(answers):
    done = in_process("store", "import", "preds", "mine_val.npz", "--setting", "val", cwd=answers)
    assert done.stdout == "preds: 1 cells imported\n"
    (answers / "preds" / "predictions" / "stray.parquet").write_bytes(b"")
    found = in_process("store", "verify", "preds", "--json", cwd=answers)
    assert found.returncode == 1
    assert [one["kind"] for one in json.loads(found.stdout)["problems"]] == ["orphan"]
    young = in_process("store", "gc", "preds", "--json", cwd=answers)
    assert json.loads(young.stdout) == {"removed": [], "dry_run": False}
    for more, dry in ((("--dry-run",), True), ((), False)):
        command = ("store", "gc", "preds", "--minimum-age", "0", *more, "--json")
        cleaned = in_process(*command, cwd=answers)
        said = {"removed": ["predictions/stray.parquet"], "dry_run": dry}
        assert json.loads(cleaned.stdout) == said
    assert in_process("store", "verify", "preds", cwd=answers).returncode == 0
    one = in_process(
        *("store", "export", "preds", "--setting", "val", "--model", "mine", "-o", "x.csv"),
        cwd=answers,
    )
    assert one.stdout == "wrote x.csv: 3000 predictions\n"
