"""Rows of one name: other columns, runs of training, tags and hyper-parameters tell them apart."""

import json

import pytest

from shiftbed.importing import import_results


def test_a_full_name_where_the_short_one_repeats(write):
    text = "model,model_fullname,dataset,acc1\nv,v x,val,0.5\nv,v x,v2,0.4\nv,v y,val,0.6\n"
    bed = import_results([write("a.csv", text)])
    assert bed.model_names == ["v x", "v y"]
    assert bed.models["architecture"].to_list() == ["v", "v"]


def test_tags(write):
    bed = import_results([write("a.csv", "model,pretrained,val\nv,laion,0.5\nv,openai,0.6\n")])
    assert bed.model_names == ["v/laion", "v/openai"]
    assert bed.models["pretrained"].to_list() == ["laion", "openai"]
    bed = import_results([write("b.csv", "model,seed,val\nv,0,0.5\nv,1,0.6\n")])
    assert bed.model_names == ["v@seed-0", "v@seed-1"]


@pytest.mark.parametrize("step", ["step", "epoch", "global_step", "iteration"])
@pytest.mark.parametrize("run", ["run", "model", "experiment"])
def test_runs(write, run, step):
    rows = [f"{r},{s},{0.3 + s / 1000},{0.2 + s / 1000}" for r in "ab" for s in (0, 100, 250)]
    bed = import_results([write("a.csv", "\n".join([f"{run},{step},val,v2", *rows]))])
    assert bed.model_names == ["a@0", "a@100", "a@250", "b@0", "b@100", "b@250"]
    assert bed.models["run"].to_list() == list("aaabbb")
    assert bed.models["step"].to_list() == [0, 100, 250] * 2
    assert bed.settings == ("val", "v2")
    assert "2 runs with steps" in bed.notes[0]


def test_runs_in_a_long_table(write):
    rows = [f"a,{s},{d},{v}" for s in (1, 2) for d, v in (("val", 0.5 + s / 10), ("v2", 0.4))]
    bed = import_results([write("a.csv", "\n".join(["name,epoch,dataset,acc", *rows]))])
    assert bed.model_names == ["a@1", "a@2"]
    assert bed.accuracy("val").tolist() == [0.6, 0.7]
    assert bed.models["step"].to_list() == [1, 2]


def test_runs_of_models_that_have_names_already(write):
    bed = import_results([write("a.csv", "model,run,step,val\nx,r,1,0.5\ny,r,2,0.6\n")])
    assert bed.model_names == ["x", "y"]
    assert bed.models.select("run", "step").rows() == [("r", 1), ("r", 2)]


def test_runs_of_several_models(write):
    rows = [f"{m},{r},{s},0.5" for m in "xy" for r in (1, 2) for s in (0, 9)]
    bed = import_results([write("a.csv", "\n".join(["model,run,step,val", *rows]))])
    assert bed.model_names[:3] == ["x/1@0", "x/1@9", "x/2@0"]
    assert bed.models["run"].n_unique() == 4


def test_hyper_parameters(write):
    rows = [
        {"arch": "v", "hparams": {"lr": lr, "wd": wd}, "val": 0.5, "v2": 0.4}
        for lr in (0.1, 0.2)
        for wd in (0, 1)
    ]
    bed = import_results([write("a.jsonl", "\n".join(map(json.dumps, rows)))])
    assert bed.model_names[:2] == ["v@lr-0.1,wd-0", "v@lr-0.1,wd-1"]
    assert bed.models["hparams.wd"].to_list() == [0, 1, 0, 1]


def test_settings_of_several_columns(write):
    rows = [f"{e},{t},{s},0.5" for e in "xy" for t in ("income", "votes") for s in ("id", "ood")]
    bed = import_results([write("a.csv", "\n".join(["estimator,task,domain_split,acc", *rows]))])
    assert bed.settings == ("income/id", "income/ood", "votes/id", "votes/ood")
    assert bed.model_names == ["x", "y"]


def test_rows_that_nothing_tells_apart(write, refused):
    path = write("a.csv", "model,step,val\nx,1,0.5\nx,1,0.6\n")
    refused(path, "line 3", "model 'x' already has a value", "line 2")


def test_columns_that_differ_between_rows_of_a_model(write):
    text = "model,dataset,acc,host,family\na,val,0.5,h1,f\na,v2,0.4,h2,f\n"
    bed = import_results([write("a.csv", text)])
    assert bed.models["family"].to_list() == ["f"]
    assert "host" not in bed.models.columns
    assert "left out: host (not the same in all rows of a model)" in bed.notes[0]
