import json

import numpy as np
import pytest

from shiftbed.catalogue import common_classes
from shiftbed.cli.imports import policy_of
from shiftbed.errors import InputError
from shiftbed.labels import class_map, read_class_map, subset
from shiftbed.records import Setting
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits, part_from_top
from tests.cli.in_process import shiftbed


@pytest.fixture
def place(tmp_path):
    store = PredictionStore(tmp_path / "store")
    labels = np.repeat([6, 11, 500], 10)
    store.add_test_set(
        StoredTestSet(
            setting="val",
            examples=tuple(map(str, range(30))),
            labels=labels,
            fingerprint="f",
            label_policy="all 1000 classes",
            classes=1000,
        )
    )
    best = np.stack([labels, labels], axis=1)
    best[:4] = [500, 6]
    store.write_part("m", "val", 0, part_from_top(best))
    best[9] = [500, 501]
    store.write_part("short", "val", 0, part_from_top(best))
    for model in ("m", "short"):
        store.write_cell(model, "val", {"status": "complete"})
    return tmp_path


def test_twins_like_a_known_test_set(place):
    command = ["store", "twin", "store", "--setting", "val", "--like", "imagenet-a"]
    done = shiftbed(*command, "--json", cwd=place)
    assert done.returncode == 1, done.stderr  # one image is undecided
    found = json.loads(done.stdout)
    assert found["policy"] == "subset of 200 of 1000 classes, logits sliced before argmax"
    first, second = found["twins"]
    assert first["setting"] == "val@imagenet-a-classes"
    assert (first["value"], first["n"], first["undecided"]) == (1.0, 20, 0)
    assert (second["value"], second["undecided"]) == (None, 1)
    assert (second["at_least"], second["at_most"]) == (0.95, 1.0)
    shown = shiftbed(*command, cwd=place)
    assert "95.00 to 100.00" in shown.stdout
    scores = shiftbed("score", "store", "--setting", "val@imagenet-a-classes", "--json", cwd=place)
    assert [one["model"] for one in json.loads(scores.stdout)["settings"]] == ["m"]
    assert shiftbed("store", "verify", "store", cwd=place).returncode == 0


def test_one_policy_is_named(place):
    none = shiftbed("store", "twin", "store", "--setting", "val", cwd=place)
    assert none.returncode == 2
    assert "give one of --subset, --class-map and --like" in none.stderr
    with pytest.raises(InputError, match="--how goes with"):
        policy_of("1,2", None, "sum")
    with pytest.raises(InputError, match="did you mean 'imagenet-a'"):
        policy_of(None, None, None, ["imagenet-aa"])
    assert policy_of("3,1", None, None) == subset([3, 1])


def test_the_classes_that_several_settings_have(place):
    """shi2023's class subsampling, in the model's own classes whatever each is judged on."""
    store = PredictionStore(place / "store")
    record = Setting(test_set="r", policy=subset([11, 500, 600], of=1000), policy_name="three")
    labels = np.array([0, 0, 1, 2, 2])
    store.add_test_set(
        StoredTestSet(
            setting="r",
            record=record,
            examples=tuple(map(str, range(5))),
            labels=labels,
            fingerprint="r",
            label_policy=record.policy.describe(),
            classes=3,
        )
    )
    logits = np.eye(3)[labels] + 2 * np.eye(3)[[2, 0, 1, 2, 2]]
    store.write_part("m", "r", 0, part_from_logits(logits.astype(np.float32), labels))
    store.write_cell("m", "r", {"status": "complete"})
    command = ["store", "twin", "store", "--setting", "val", "--setting", "r", "--model", "m"]
    found = json.loads(shiftbed(*command, "--json", cwd=place).stdout)
    by = {one["setting"]: one for one in found["twins"]}
    assert found["policy"] == "subset of 2 of 1000 classes, logits sliced before argmax"
    assert by["val@common"]["n"] == 20  # classes 11 and 500 of 6, 11 and 500
    assert by["r@common"]["n"] == 3  # the images of 600 are left out
    # class 600 was answered for the first image: sliced away, its own class is left
    assert by["r@common"]["value"] == 1.0
    named = shiftbed(*command, "--name", "x", cwd=place)
    assert named.returncode == 2
    assert "one name for the twins of 2 settings" in named.stderr


def test_several_test_sets_of_the_catalogue(place):
    command = ["store", "twin", "store", "--setting", "val", "--model", "m", "--json"]
    both = [*command, "--like", "imagenet-a", "--like", "imagenet-r"]
    found = json.loads(shiftbed(*both, cwd=place).stdout)
    assert found["policy"] == common_classes(["imagenet-a", "imagenet-r"]).describe()
    assert found["twins"][0]["setting"] == "val@imagenet-a+imagenet-r-classes"


@pytest.mark.parametrize(
    ("read", "policy"),
    [
        ({"bird": [1, 2], "dog": [3]}, class_map({"bird": [1, 2], "dog": [3]}, "sum")),
        ({"1": 0, "2": 0, "3": 2}, class_map({0: [1, 2], 2: [3]}, "sum", targets=3)),
        ({"0": [1, 2], "2": [3]}, class_map({0: [1, 2], 2: [3]}, "sum", targets=3)),
        ({"1": "bird", "3": "dog"}, class_map({"bird": [1], "dog": [3]}, "sum")),
    ],
)
def test_class_maps_either_way_round(tmp_path, read, policy):
    (tmp_path / "m.json").write_text(json.dumps(read))
    assert read_class_map(tmp_path / "m.json", "sum") == policy


@pytest.mark.parametrize("data", [b"{", b"[1]", b"{}", b'{"a": true}', b'{"a": 1}', b"\xff"])
def test_files_that_are_no_class_maps(tmp_path, data):
    (tmp_path / "m.json").write_bytes(data)
    with pytest.raises(InputError, match=r"class map|expected"):
        read_class_map(tmp_path / "m.json", "max")
