import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.importing import assemble, import_results
from shiftbed.records import Shift

ID = "model,kind,val\na,standard,0.75\nb,own,0.5\nc,standard,0.6\n"
OOD = "model,v2\nb,0.25\na,0.5\nd,0.3\n"
V2 = Shift(name="v2", kind="natural-dataset", source=("val",), target="v2")


@pytest.fixture
def files(write):
    return [write("id.csv", ID), write("ood.csv", OOD)]


def test_files_merge_by_model(files):
    bed = import_results(files)
    assert bed.name == "imported"
    assert bed.model_names == ["a", "b", "c", "d"]
    expected = [[0.75, 0.5], [0.5, 0.25], [0.6, np.nan], [np.nan, 0.3]]
    assert np.array_equal(bed.value, expected, equal_nan=True)
    assert bed.models["kind"].to_list() == ["standard", "own", "standard", "unspecified"]
    assert bed.models["in_fit_set"].all()


def test_files_merge_by_setting(write):
    files = [write("a.csv", "model,val\na,0.5\n"), write("b.csv", "model,v2,val\nb,0.4,0.3\n")]
    bed = import_results(files)
    assert bed.settings == ("val", "v2")
    assert bed.accuracy("val").tolist() == [0.5, 0.3]


def test_layouts_may_mix(write):
    files = [write("a.csv", ID), write("b.jsonl", '{"model":"a","setting":"v2","accuracy":0.5}')]
    assert import_results(files).accuracy("v2")[0] == 0.5


def test_a_cell_twice(files, write, refused):
    again = write("again.csv", "model,val\n\nb,0.5\n")
    words = ["again.csv, line 3", "'b'", "'val'", "id.csv, line 3"]
    refused([*files, again], *words)


def test_the_first_of_many_doubles_is_named(write, refused):
    refused(write("a.csv", "model,val\nz,0.5\ny,0.5\ny,0.5\nz,0.5\n"), "line 4", "'y'", "line 3")


def test_contradictions_about_a_model(write, refused):
    files = [write("a.csv", ID), write("b.csv", "model,kind,v2\na,own,0.5\n")]
    refused(files, "b.csv, line 2", "'kind'", "'own'", "'a'", "a.csv, line 2", "'standard'")
    files = [write("a.csv", "model,in_fit_set,val\na,1,0.5\n")]
    files.append(write("b.csv", "model,in_fit_set,v2\na,no,0.5\n"))
    refused(files, "'in_fit_set'", "'False'", "'True'")


def test_what_one_file_leaves_open_another_may_say(write):
    files = [
        write("a.csv", "model,kind,val\na,,0.5\n"),
        write("b.csv", "model,kind,v2\na,own,0.5\n"),
    ]
    assert import_results(files).models["kind"].to_list() == ["own"]


# --- sizes -----------------------------------------------------------------------------------


def test_sizes_fill_what_files_leave_open(write):
    path = write("a.csv", "model,val,v2,n:val\na,0.5,0.4,100\nb,0.5,0.4,\n")
    bed = import_results([path], sizes={"val": 100, "v2": 50})
    assert bed.n.tolist() == [[100, 50], [100, 50]]


def test_sizes_that_contradict_a_file(write, refused):
    path = write("a.csv", "model,val,n:val\na,0.5,100\nb,0.5,90\n")
    refused(path, "line 3", "'val'", "90 images, not 100", sizes={"val": 100})


def test_sizes_of_unknown_settings(files):
    with pytest.raises(InputError, match="unknown setting 'vall'; did you mean 'val'"):
        import_results(files, sizes={"vall": 100})


@pytest.mark.parametrize("size", [0, -1, 2**31, 0.5, "many"])
def test_sizes_that_are_none(files, size):
    with pytest.raises(InputError, match="size of setting 'val' must be a whole number"):
        import_results(files, sizes={"val": size})


# --- shifts and the fit set ------------------------------------------------------------------


def test_shifts(files):
    bed = import_results(files, shifts=[V2])
    assert bed.shift("v2") == V2
    assert bed.settings == ("val", "v2")


def test_shifts_over_renamed_settings(files):
    shift = Shift(name="v2", kind="natural-dataset", source=("imagenet",), target="v2")
    bed = import_results(files, shifts=[shift], setting_names={"val": "imagenet"})
    assert bed.shifts == (shift,)


@pytest.mark.parametrize("part", ["source", "target", "full_source"])
def test_shifts_over_unknown_settings(files, part):
    options = {"name": "x", "kind": "corruption", "source": ("val",), "target": "v2"}
    options[part] = ("vall",) if part == "source" else "vall"
    with pytest.raises(InputError, match="unknown setting in imported 'vall'"):
        import_results(files, shifts=[Shift(**options)])


def test_the_fit_set(files, write):
    bed = import_results(files, fit="kind=standard")
    assert bed.models["in_fit_set"].to_list() == [True, False, True, False]
    marked = write("m.csv", "model,in_fit_set,val\na,yes,0.5\nb,no,0.5\n")
    bed = import_results([marked])
    assert bed.models["in_fit_set"].to_list() == [True, False]
    bed = import_results([marked], fit="all")
    assert bed.models["in_fit_set"].all()
    other = write("o.csv", "model,val\nmine,0.5\n")
    bed = import_results([marked, other])
    assert bed.models["in_fit_set"].to_list() == [True, False, False]


def test_an_empty_fit_set(files, write):
    with pytest.raises(InputError, match="no model is a baseline model"):
        import_results(files, fit="model=zzz*")
    with pytest.raises(InputError, match="unknown column of models 'kid'"):
        import_results(files, fit="kid=standard")
    with pytest.raises(InputError, match="no model is a baseline model"):
        import_results([write("m.csv", "model,in_fit_set,val\na,no,0.5\n")])


# --- metrics and limits ----------------------------------------------------------------------


def test_metrics_that_contradict(write, refused):
    long = "model,setting,metric,value\n"
    files = [write("a.csv", long + "a,val,F1,0.5\n"), write("b.csv", long + "b,val,,0.5\n")]
    refused(files, "b.csv", "'val'", "accuracy", "F1", "a.csv")
    refused(files[::-1], "a.csv", "'val'", "accuracy", "F1", "b.csv")


def test_too_many_cells(write, monkeypatch):
    monkeypatch.setattr(assemble, "_LIMIT", 3)
    path = write("a.csv", "model,setting,value\na,x,0.5\nb,y,0.5\n")
    with pytest.raises(InputError, match="2 models × 2 settings are too many"):
        import_results([path])


def test_too_many_results(write, monkeypatch):
    monkeypatch.setattr(assemble, "LIMIT", 9)
    labels = np.arange(5)
    path = write("a.npz", models=["a", "b"], top1=np.tile(labels, (2, 1)), labels=labels)
    with pytest.raises(InputError, match=r"a\.npz: 2 models × 5 images are too many"):
        import_results([path])
