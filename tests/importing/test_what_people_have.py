"""Files as they are found, from an empty directory and with one command to a table of ρ."""

import json

import numpy as np
import polars as pl
import pytest

from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.importing import import_results
from shiftbed.testbed import published
from tests.cli.in_process import shiftbed

BED = published("imagenet-testbed-2020")
V2 = "imagenetv2-matched-frequency-format-val"
MODELS = ["resnet50", "vgg16", "alexnet", "inceptionv4", "densenet121"]
ID, OOD = (np.array([BED.accuracy(s)[BED.model_index(m)] for m in MODELS]) for s in ("val", V2))
RHO = {
    m: BED.effective_robustness("imagenet-v2").filter(model=m)["effective"].item() for m in MODELS
}


def placed(folder, *files):
    """ρ by model as one command prints it."""
    done = shiftbed("place", "--from", *files, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    models = json.loads(done.stdout)["models"]
    return {m["model"]: m["shifts"][0]["effective"] for m in models}


def test_a_timm_results_csv(tmp_path, figures):
    few = pl.read_csv(figures / "timm.csv").head(40)
    few.write_csv(tmp_path / "timm.csv")
    found = placed(tmp_path, "timm.csv")
    assert len(found) == 40
    one = few.row(0, named=True)
    line = BED.fit("imagenet-v2")
    wanted = one["imagenetv2_mf"] / 100 - float(line.predict([one["imagenet"] / 100])[0])
    name = f"{one['model']}@{one['img_size']}-{one['crop_pct']:g}"
    assert found[name] == pytest.approx(wanted)


def test_an_object_per_checkpoint_with_nested_metadata(tmp_path):
    rows = [
        {
            "checkpoint": model,
            "metadata": {"lr": 10.0**-i, "epochs": 10 * i, "layers": [1, 2]},
            "results": {
                "ImageNet": {"acc1": x, "acc5": 0.9},
                "ImageNetV2": {"acc1": y, "acc5": 0.8},
            },
        }
        for i, (model, x, y) in enumerate(zip(MODELS, ID, OOD, strict=True))
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert placed(tmp_path, "log.jsonl") == pytest.approx(RHO)
    bed = import_results(tmp_path / "log.jsonl")
    assert bed.models["metadata.epochs"].to_list() == [0, 10, 20, 30, 40]


def test_a_long_csv_of_a_benchmark(tmp_path):
    head = "acc1,acc5,mean_per_class_recall,dataset,model,pretrained,task,model_fullname"
    rows = [
        f"{v},0.9,{v},{setting},ViT,{m},zeroshot,{m}"
        for setting, values in (("wds/imagenet1k", ID), ("wds/imagenetv2", OOD))
        for m, v in zip(MODELS, values, strict=True)
    ]
    (tmp_path / "benchmark.csv").write_text("\n".join([head, *rows]))
    assert placed(tmp_path, "benchmark.csv") == pytest.approx(RHO)


def test_percentages_and_a_second_file_of_fractions(tmp_path):
    frame = pl.DataFrame({"model": MODELS, "imagenet": ID, "imagenetv2": OOD})
    frame.head(3).with_columns(pl.col("imagenet", "imagenetv2") * 100).write_csv(tmp_path / "a.csv")
    frame.tail(2).write_csv(tmp_path / "b.csv")
    done = shiftbed(
        *("import", "a.csv", "b.csv", "-o", "both.parquet", "--like", "imagenet-testbed-2020"),
        cwd=tmp_path,
    )
    assert "2 settings in percent" in done.stdout
    assert "2 settings in fractions" in done.stdout
    assert placed(tmp_path, "both.parquet") == pytest.approx(RHO)


def test_published_intervals_and_no_n(tmp_path):
    rows = []
    for setting, values, n in (("imagenet", ID, 50_000), ("imagenet-v2", OOD, 10_000)):
        low, high = clopper_pearson(values, n)
        rows += [
            f"{m},{setting},{100 * v:.3f},{100 * a:.3f},{100 * b:.3f}"
            for m, v, a, b in zip(MODELS, values, low, high, strict=True)
        ]
    (tmp_path / "paper.csv").write_text("\n".join(["method,dataset,top-1,lower,upper", *rows]))
    assert placed(tmp_path, "paper.csv") == pytest.approx(RHO, abs=2e-5)
    bed = import_results(tmp_path / "paper.csv")
    assert (bed.usual_size("imagenet"), bed.usual_size("imagenet-v2")) == (50_000, 10_000)


def test_a_trajectory(tmp_path):
    steps = np.arange(1, 6)
    frame = pl.DataFrame({"run": ["r"] * 5, "epoch": steps, "imagenet": ID, "imagenetv2": OOD})
    frame.write_csv(tmp_path / "log.csv")
    found = placed(tmp_path, "log.csv")
    wanted = dict(zip((f"r@{s}" for s in steps), RHO.values(), strict=True))
    assert found == pytest.approx(wanted)


def test_the_command_takes_roles_and_level(tmp_path):
    low, high = clopper_pearson(ID, 2_000, 0.99)
    rows = [f"{m},{v},{a},{b}" for m, v, a, b in zip(MODELS, ID, low, high, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["who,mine=1,from,to", *rows]))
    command = ("import", "a.csv", "-o", "a.parquet", "--column", "model=who")
    wrong = shiftbed(*command, "--column", "modle=who", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "did you mean 'model'" in wrong.stderr
    done = shiftbed(*command, "--column", "setting=mine=1", "--level", "0.99", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 setting in fractions: mine=1" in done.stdout
    bad = shiftbed(*command, "--column", "who", cwd=tmp_path)
    assert "expected ROLE=COLUMN" in bad.stderr
