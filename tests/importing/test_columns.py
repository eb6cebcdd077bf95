"""What columns are: by their usual names, by their numbers, or as the caller says."""

import itertools

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.importing import import_results
from shiftbed.importing.columns import ROLES, plain

LONG = "{},{},{}\na,val,0.75\na,v2,0.5\nb,val,0.25\nb,v2,0.125\n"
CASES = list(
    itertools.zip_longest(
        (n for n in ROLES["model"] if n != "name"),
        (n for n in ROLES["setting"] if n != "setting"),
        (n for n in ROLES["value"] if n != "value"),
    )
)


@pytest.mark.parametrize(("model", "setting", "value"), CASES)
@pytest.mark.parametrize("style", [str, str.upper, lambda s: s.replace("_", "-").title()])
def test_usual_names_in_a_long_table(write, style, model, setting, value):
    names = (model or "model", setting or "dataset", value or "acc1")
    bed = import_results([write("a.csv", LONG.format(*map(style, names)))])
    assert bed.model_names == ["a", "b"]
    assert bed.settings == ("val", "v2")
    assert bed.value.tolist() == [[0.75, 0.5], [0.25, 0.125]]


@pytest.mark.parametrize("name", ROLES["n"])
def test_usual_names_of_n(write, name):
    bed = import_results([write("a.csv", f"arch,dataset,acc,{name}\na,val,0.5,100\n")])
    assert bed.usual_size("val") == 100


@pytest.mark.parametrize("name", ["n:val", "n_val", "val_n", "val n", "val_num_examples"])
def test_n_of_a_setting_in_a_wide_table(write, name):
    bed = import_results([write("a.csv", f"model,val,v2,{name}\na,0.5,0.4,100\n")])
    assert bed.settings == ("val", "v2")
    assert (bed.usual_size("val"), bed.usual_size("v2")) == (100, 0)


@pytest.mark.parametrize(
    "name",
    [
        *("lr", "learning_rate", "epochs", "epoch", "params", "params (M)", "Params", "flops"),
        *(
            "GFLOPs",
            "img_size",
            "seed",
            "step",
            "weight_decay",
            "batch_size",
            "depth",
            "num_layers",
        ),
        *("train_time", "n_params", "year"),
    ],
)
@pytest.mark.parametrize("numbers", [("0.1", "0.2"), ("10", "20"), ("1000", "2000")])
def test_numbers_that_describe_a_model_are_no_accuracies(write, name, numbers):
    one, two = numbers
    bed = import_results([write("a.csv", f"model,{name},val\na,{one},0.5\nb,{two},0.6\n")])
    assert bed.settings == ("val",)
    described = bed.models.select(bed.models.columns[-1]).to_series()
    assert plain(described.name) == plain(name)
    assert described.to_list() == [float(one), float(two)]
    assert "metadata:" in bed.notes[0]


@pytest.mark.parametrize("name", ["acc5", "top-5", "loss", "val_loss", "ECE", "top1_err", "std"])
def test_other_metrics_are_left_out_and_said(write, name):
    bed = import_results([write("a.csv", f"model,{name},val\na,0.9,0.5\nb,0.8,0.6\n")])
    assert bed.settings == ("val",)
    assert f"left out: {name} (other metrics)" in bed.notes[0]


@pytest.mark.parametrize("cells", [("-3.5", "-2"), ("1234.5", "777"), ("7", "12")])
def test_numbers_that_can_be_no_accuracies(write, cells):
    text = f"model,odd,val,v2\na,{cells[0]},0.5,0.4\nb,{cells[1]},0.6,0.5\n"
    bed = import_results([write("a.csv", text)])
    assert bed.settings == ("val", "v2")
    assert bed.models["odd"].to_list() == [float(c) for c in cells]


def test_a_setting_may_have_any_name_if_it_is_said(write):
    path = write("a.csv", "model,depth,width,val\na,0.5,0.4,0.3\nb,0.6,0.5,0.4\n")
    assert import_results([path]).settings == ("val",)
    chosen = import_results([path], columns={"setting": ["depth", "width"]})
    assert chosen.settings == ("depth", "width")
    renamed = import_results([path], setting_names={"depth": "nyu"})
    assert renamed.settings == ("nyu", "val")


def test_roles_that_are_said(write):
    text = "who,arch,where,right,out of,score\na,x,val,3,4,7\nb,x,val,1,4,9\n"
    columns = {"model": "who", "setting": "where", "correct": "right", "n": "out of"}
    bed = import_results([write("a.csv", text)], columns=columns)
    assert bed.model_names == ["a", "b"]
    assert bed.accuracy("val").tolist() == [0.75, 0.25]
    assert bed.notes[0].startswith(
        f"{write('a.csv', text)}: model from 'who', setting from 'where'"
    )


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"modle": "who"}, "unknown role of a column 'modle'; did you mean 'model'"),
        ({"model": "whom"}, "unknown column 'whom'; did you mean 'who'"),
        ({"model": ["who", "val"]}, "model is one column, got 2"),
    ],
)
def test_roles_and_columns_that_do_not_exist(write, columns, words):
    with pytest.raises(InputError, match=words):
        import_results([write("a.csv", "who,val\na,0.5\n")], columns=columns)


def test_two_columns_of_one_name(write, refused):
    refused(write("a.csv", "model,Model,val\na,b,0.5\n"), "'model' and 'Model'", "the model")


def test_a_file_per_test_set(write):
    files = [write(f"{s}.csv", "Name,Acc@1,Acc@5\na,75,90\nb,50,80\n") for s in ("val", "sketch")]
    bed = import_results(files)
    assert bed.settings == ("val", "sketch")
    assert bed.value.tolist() == [[0.75, 0.75], [0.5, 0.5]]
    renamed = import_results(files, setting_names={"val.csv": "imagenet"})
    assert renamed.settings == ("imagenet", "sketch")


@pytest.mark.parametrize("form", ["{}_acc1", "{} top-1", "{} (%)", "{} Acc [%]", "wds/{}"])
def test_known_test_sets_with_more_in_their_names(write, form):
    names = [form.format(one) for one in ("imagenet", "imagenet-r", "mine")]
    bed = import_results([write("a.csv", f"model,{','.join(names)}\na,76,40,30\nb,80,45,31\n")])
    assert bed.settings == ("imagenet", "imagenet-r", names[2])
    assert bed.usual_size("imagenet") == 50_000
    kept = import_results([write("a.csv", f"model,{names[0]}\na,76\n")], sizes={names[0]: 5})
    assert kept.settings == (names[0],)


def test_what_pandas_writes(write):
    bed = import_results([write("a.csv", ",val,v2\nx,0.5,0.4\ny,0.6,0.5\n")])
    assert bed.model_names == ["x", "y"]
    numbered = import_results([write("b.csv", ",model,val\n0,x,0.5\n1,y,0.6\n")])
    assert (numbered.model_names, numbered.settings) == (["x", "y"], ("val",))


def test_several_metrics_in_a_long_table(write):
    text = "model,dataset,metric,value\na,val,acc1,0.5\na,val,acc5,0.8\na,val,ece,0.1\n"
    bed = import_results([write("a.csv", text)])
    assert bed.value.tolist() == [[0.5]]
    assert "not acc5, ece" in bed.notes[1]


def test_cells_that_say_there_is_no_value(write):
    path = write("a.csv", "model,val,v2\na,0.5,nan\nb,N/A,0.4\nc,-,0.3\nd,0.4,0.2\n")
    bed = import_results([path])
    assert np.isnan(bed.value).sum() == 3
    assert "3 cells with nan, n/a or the like left empty" in bed.notes[1]


def test_what_was_guessed_travels_with_the_testbed(write, tmp_path):
    from shiftbed.importing import save_testbed
    from shiftbed.testbed import open_testbed

    path = write("a.csv", "estimator,lr,epochs,val,v2\na,0.1,3,76.1,63.2\nb,0.2,4,70,60\n")
    bed = import_results([path])
    words = "model from 'estimator'; 2 settings in percent: val, v2; metadata: lr, epochs"
    assert bed.notes == (f"{path}: {words}",)
    saved = save_testbed(bed, tmp_path / "a.parquet")
    assert words in str(saved)
    assert saved.to_dict()["notes"] == list(bed.notes)
    assert open_testbed(saved.file).notes == bed.notes
