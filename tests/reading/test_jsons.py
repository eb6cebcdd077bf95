import json

import pytest

from shiftbed.importing import import_results

ROWS = [
    {"model": "resnet50", "setting": "val", "value": 0.75, "n": 500},
    {"model": "resnet50", "setting": "v2", "value": 0.625, "n": None},
    {"model": "vgg16", "setting": "val", "value": 0.5},
]


def check(path):
    bed = import_results([path])
    assert bed.settings == ("val", "v2")
    assert bed.accuracy("val").tolist() == [0.75, 0.5]
    assert bed.n.tolist() == [[500, 0], [0, 0]]


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json", "a"])
def test_json_lines(write, name):
    check(write(name, "\n".join(map(json.dumps, ROWS)) + "\n\n"))


@pytest.mark.parametrize("indent", [None, 4])
def test_a_list_of_objects(write, indent):
    check(write("a.json", json.dumps(ROWS, indent=indent)))


def test_one_object(write):
    bed = import_results([write("a.json", json.dumps({"model": "a", "val": 0.5}, indent=4))])
    assert bed.value.tolist() == [[0.5]]


def test_an_object_of_objects_is_a_row_per_key(write):
    text = json.dumps({"a": {"val": 0.5, "v2": 0.4}, "b": {"val": 0.6, "v2": 0.5}})
    bed = import_results([write("a.json", text)])
    assert bed.model_names == ["a", "b"]
    assert bed.value.tolist() == [[0.5, 0.4], [0.6, 0.5]]


def test_an_object_of_lists_is_a_column_per_key(write, refused):
    bed = import_results([write("a.json", '{"model": ["a", "b"], "val": [0.5, 0.6]}')])
    assert bed.accuracy("val").tolist() == [0.5, 0.6]
    refused(write("b.json", '{"model": ["a", "b"], "val": [0.5]}'), "different lengths")


def test_rows_under_a_key(write):
    bed = import_results([write("a.json", json.dumps({"date": "today", "results": ROWS}))])
    assert bed.settings == ("val", "v2")


def test_nested_objects_become_columns_and_lists_are_left_out(write):
    row = {"model": "a", "metadata": {"lr": 0.1, "optimiser": {"name": "sgd"}, "layers": [1, 2]}}
    bed = import_results([write("a.jsonl", json.dumps(row | {"results": {"val": 0.5}}))])
    assert bed.settings == ("val",)
    assert bed.models["metadata.lr"].to_list() == [0.1]
    assert bed.models["metadata.optimiser.name"].to_list() == ["sgd"]
    assert "left out: metadata.layers (a list)" in bed.notes[0]


def test_numbers_may_be_text_and_names_numbers(write):
    bed = import_results([write("a.jsonl", '{"model": 18, "val": "0.5", "in_fit_set": true}')])
    assert bed.model_names == ["18"]
    assert bed.value.tolist() == [[0.5]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"model": "a", "val": 0.5}\n{"model": "b", "val": }\n', ["line 2", "not JSON"]),
        ('{"model": "a", "val": 0.5}\n\n{"model": "b"\n', ["line 3", "not JSON"]),
        ('{"model": "a", "val": 0.5}\n[1, 2]\n', ["line 2", "object"]),
        ('{"model": "a", "val": 0.5, "val": 0.6}\n', ["line 1", "'val'", "twice"]),
        ('{"model": "a", "val": [0.5]}\n', ["no column holds numbers"]),
        ('{"model": "a", "val": {"x": 0.5, "x": 1}}\n', ["line 1", "'val.x'", "twice"]),
        ('{"model": "a", "val": NaN}\n', ["no column holds numbers"]),
        ('{"model": "a", "val": 176.1}\n', ["line 1", "'val'", "'176.1'", "percent"]),
        ('{"model": "a", "val": true}\n', ["no column holds numbers"]),
        ('{"model": "a\\ud800", "val": 0.5}\n', ["'model'", "not Unicode"]),
        ("[" * 100_000, ["line 1"]),
        ("\n \n", ["no rows"]),
        ("{}\n{}\n", ["no column 'model'"]),
    ],
)
def test_what_is_refused(write, refused, text, words):
    refused(write("a.jsonl", text), *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"model": "a", "val": 0.5}, 7]', ["item 2", "object"]),
        ('[{"model": "a", "val": 0.5}, {"model": "b", "val": -1}]', ["item 2", "'val'", "'-1'"]),
        ('"text"', ["a list of objects"]),
        ('{\n"model": "a",\n"val": \n}', ["line 4", "not JSON"]),
        ("", ["empty"]),
        ("  ", ["empty"]),
        ("[]", ["no rows"]),
    ],
)
def test_what_is_refused_of_whole_documents(write, refused, text, words):
    refused(write("a.json", text), *words)
