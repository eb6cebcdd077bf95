import numpy as np
import pytest

from shiftbed.importing import import_results

WIDE = "Model,type,in_fit_set,parent,architecture,val,v2,n:val\n"
WIDE += "a,STANDARD,true,,resnet,0.75,0.5,50000\n"
WIDE += "b,ROBUST,false,a,resnet,,0.25,\n"


def test_wide(write):
    bed = import_results([write("results.csv", WIDE)])
    assert bed.name == "results"
    assert bed.settings == ("val", "v2")
    assert np.array_equal(bed.value, [[0.75, 0.5], [np.nan, 0.25]], equal_nan=True)
    assert bed.n.tolist() == [[50000, 0], [0, 0]]
    assert bed.models.rows(named=True) == [
        {"model": "a", "kind": "STANDARD", "in_fit_set": True, "parent": None}
        | {"architecture": "resnet"},
        {"model": "b", "kind": "ROBUST", "in_fit_set": False, "parent": "a"}
        | {"architecture": "resnet"},
    ]


@pytest.mark.parametrize("header", ["model", "Model", "MODEL", "name", "Name"])
def test_the_model_column(write, header):
    assert import_results([write("a.csv", f"{header},val\nx,0.5\n")]).model_names == ["x"]


def test_name_beside_model_describes_it(write):
    bed = import_results([write("a.csv", "name,model,val\nResNet,x,0.5\n")])
    assert bed.model_names == ["x"]
    assert bed.models["name"].to_list() == ["ResNet"]


def test_numeric_columns_that_describe_models(write):
    text = "model,param_count,depth,year,note,val\nx,25.6,50,2015,,0.5\ny,138,16,2014,,0.4\n"
    path = write("a.csv", text)
    bed = import_results([path], info=["depth"], ignore=["year"])
    assert bed.settings == ("val",)
    assert bed.models["param_count"].to_list() == [25.6, 138.0]
    assert bed.models["depth"].to_list() == [50, 16]
    assert not {"year", "note"} & set(bed.models.columns)


def test_undeclared_numeric_columns_are_settings(write, refused):
    path = write("a.csv", "model,norm,val\nx,50.5,0.5\n")
    refused(path, "'val'", "50.5 in setting 'norm'", "--info")
    assert import_results([path], info=["norm"]).settings == ("val",)


def test_image_size_and_crop_belong_to_the_name(write):
    text = "model,img_size,crop_pct,val\nx,224,0.900,0.5\nx,256,1,0.6\n"
    bed = import_results([write("a.csv", text)])
    assert bed.model_names == ["x@224-0.9", "x@256-1"]
    assert bed.models["name"].to_list() == ["x", "x"]
    assert bed.models["img_size"].to_list() == [224, 256]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("setup,val\nx,0.5\n", ["no column 'model'", "'setup'"]),
        ("model,val\nx,0.5\n,0.6\n", ["line 3", "'model'", "missing"]),
        ("model,val\nx,0.5\ny,76.1\n", ["line 2: 0.5", "'val'", "76.1", "--unit val=percent"]),
        ("model,val\nx,0.5\ny,0.6\nz,1.2\n", ["line 4", "'val'", "'1.2'", "--unit percent"]),
        ("model,val\nx,-0.5\n", ["line 2", "'val'", "'-0.5'"]),
        ("model,val\nx,0.5\ny,nan\n", ["line 3", "'y'", "no value at all"]),
        ("model,val\nx,inf\n", ["line 2", "'val'", "'inf'"]),
        ("model,val\nx,0.5\ny,tbd\n", ["line 3", "'tbd'", "not a number"]),
        ("model,val\nx,76.1%\ny,70\n", ["line 2", "'76.1%'", "--unit percent"]),
        ("model,val\nx,0.5\nx,0.6\n", ["line 3", "'x'", "'val'", "line 2"]),
        ("model,kind\nx,standard\n", ["no column holds numbers"]),
        ("model,val,v2,n\nx,0.5,0.4,100\n", ["column 'n'", "'n:SETTING'"]),
        ("model,val,n:vall\nx,0.5,100\n", ["'vall'", "did you mean 'val'"]),
        ("model,val,n:val\nx,0.5,1e4\n", ["line 2", "'n:val'", "'1e4'", "whole number"]),
        ("model,in_fit_set,val\nx,perhaps,0.5\n", ["line 2", "'in_fit_set'", "'perhaps'"]),
        ("model,val,v2\nx,0.5,0.4\ny,,\n", ["line 3", "'y'", "no value at all"]),
        ("model,right,val\nx,left,0.5\n", ["'right'"]),
        ("model,img_size,crop_pct,val\nx,,0.9,0.5\n", ["line 2", "'img_size'", "missing"]),
        ("model,img_size,crop_pct,val\nx,big,0.9,0.5\n", ["line 2", "'img_size'", "'big'"]),
        ("model,img_size,crop_pct,val\nx,9,wide,0.5\n", ["line 2", "'crop_pct'", "'wide'"]),
    ],
)
def test_wide_tables_that_are_refused(write, refused, text, words):
    # `unknown` names the file inside its message, not at its start.
    start = ["FILELESS"] if "did you mean 'val'" in words else []
    refused(write("a.csv", text), *words, *start)


LONG = "model,setting,value,n,kind\na,val,0.75,50000,standard\na,v2,0.5,10000,standard\n"
LONG += "b,val,0.25,,own\nb,v2,,10000,own\n"


@pytest.mark.parametrize("header", ["value", "accuracy", "Accuracy"])
def test_long(write, header):
    bed = import_results([write("a.csv", LONG.replace("value", header))])
    assert bed.settings == ("val", "v2")
    assert np.array_equal(bed.value, [[0.75, 0.5], [0.25, np.nan]], equal_nan=True)
    assert bed.n.tolist() == [[50000, 10000], [50000, 0]]  # 50,000 are ImageNet's by name
    assert "n by the name of the test set: val 50,000" in bed.notes
    assert bed.models["kind"].to_list() == ["standard", "own"]


def test_counts(write):
    bed = import_results(
        [
            write(
                "a.csv",
                "model,setting,correct,n\na,val,38065,50000\nb,val,,7\na,v2,1,2\nb,v2,0,2\n",
            )
        ]
    )
    assert bed.accuracy("val")[0] == 38065 / 50000
    assert bed.n.tolist() == [[50000, 2], [0, 2]]


def test_metrics_are_kept_and_not_converted(write):
    text = "model,setting,metric,value\na,val,accuracy,76\na,v2,,50\na,norm,Jacobian norm,7.5\n"
    bed = import_results([write("a.csv", text)], unit="percent")
    assert bed.value.tolist() == [[0.76, 0.5, 7.5]]
    assert bed.metrics == {"norm": "Jacobian norm"}


def test_scores_of_a_testbed_come_back(write, tmp_path):
    bed = import_results([write("a.csv", LONG)])
    bed.scores().write_csv(tmp_path / "scores.csv")
    back = import_results([tmp_path / "scores.csv"])
    assert np.array_equal(back.value, bed.value, equal_nan=True)
    assert np.array_equal(back.n, bed.n)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model,setting\na,val\n", ["one column of values", "none of"]),
        ("model,setting,value,correct\na,val,0.5,1\n", ["'value' and 'correct'", "--ignore"]),
        ("model,setting,correct\na,val,1\n", ["'correct'", "'n'"]),
        ("model,setting,correct,n\na,val,1,\n", ["line 2", "'n'", "number of images"]),
        ("model,setting,correct,n\na,val,3,2\n", ["line 2", "'correct'", "'3'", "2 images"]),
        ("model,setting,correct,n\na,val,0,0\n", ["line 2", "'n'", "'0'"]),
        ("model,setting,correct,n\na,val,0.5,2\n", ["line 2", "'correct'", "'0.5'"]),
        ("model,setting,value\n,val,0.5\n", ["line 2", "'model'", "missing"]),
        ("model,setting,value\na,,0.5\n", ["line 2", "'setting'", "missing"]),
        ("setup,setting,value\na,val,0.5\n", ["no column 'model'"]),
        ("model,setting,value\na,val,-5\n", ["line 2", "'value'", "'-5'"]),
        ("model,setting,value\na,val,x\n", ["line 2", "'value'", "'x'"]),
        ("model,setting,value\na,val,\n", ["no row has a value"]),
        ("model,setting,value,n\na,val,0.5,x\n", ["line 2", "'n'", "'x'"]),
        ("model,setting,value\na,val,0.5\na,val,0.5\n", ["line 3", "'a'", "'val'", "line 2"]),
        (
            "model,setting,value,kind\na,val,0.5,x\na,v2,0.5,y\n",
            ["line 3", "'kind'", "'y'", "line 2", "'x'"],
        ),
        (
            "model,setting,value,metric\na,val,0.5,F1\nb,val,0.5,recall\n",
            ["line 3", "'metric'", "'recall'", "'val'"],
        ),
        ("model,setting,value,metric\na,val,1e999,F1\n", ["line 2", "'value'", "'1e999'"]),
    ],
)
def test_long_tables_that_are_refused(write, refused, text, words):
    refused(write("a.csv", text), *words)
