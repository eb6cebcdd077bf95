"""Tasks in recipes: parts per domain, what the networks of a domain are evaluated on."""

import numpy as np
import pytest
from PIL import Image

from shiftbed.catalogue import find_task
from shiftbed.catalogue.maps import domain_classes
from shiftbed.engine.open_setting import open_setting
from shiftbed.errors import InputError
from shiftbed.evaluation.data import open_test_set
from shiftbed.training import read_recipe
from shiftbed.training.prepare import prepare

EACH = 10
RECIPE = """
name = "tiny"

[tasks.pacs]
path = "PACS"
held_out = 0.2
validation = 0.1
MORE

[[grid]]
model = "nets:resnet8?size=8"
data = {name = "pacs/*", shots = ["all", 3]}
optimiser = {name = "SGD", lr = 0.1}
epochs = 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """PACS with ten plain images of 8 px per class and domain."""
    root, generator = tmp_path_factory.mktemp("tasks"), np.random.default_rng(0)
    for domain in find_task("pacs").domains:
        for name in domain_classes("pacs"):
            for i in range(EACH):
                path = root / "PACS" / domain.folders[0] / name / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
    return root


def read(folder, more=""):
    path = folder / "recipe.toml"
    path.write_text(RECIPE.replace("MORE", more))
    return read_recipe(path)


def test_parts_do_not_overlap_and_are_those_of_the_catalogue(folder):
    recipe = read(folder)
    plans = {one.id: one for one in recipe.sources.settings}
    assert len(plans) == 8
    for domain in ("photo", "sketch"):
        name = f"pacs/{domain}"
        trained = {
            one.removeprefix(f"{name}/")
            for one in prepare({"name": name}, recipe.sources.data).examples
        }
        parts = [trained]
        for part in ("validation", "held-out"):
            opened = open_setting(plans[f"{name}/{part}"])
            same = open_test_set(f"{name}/{part}@{folder / 'PACS'}")
            assert opened.stored.fingerprint == same.fingerprint
            parts.append(set(opened.stored.examples))
        assert [len(one) for one in parts] == [7 * 7, 7 * 1, 7 * 2]
        assert len(set().union(*parts)) == 7 * EACH


def test_networks_are_chosen_by_their_own_validation_part(folder):
    recipe = read(folder)
    for shift in recipe.sources.shifts:
        domain = shift.trained_on
        assert shift.source == (f"{domain}/held-out",)
        assert shift.validation == f"{domain}/validation"
    for job in recipe.jobs():
        chosen_by = [one for one in job.evaluate if one.endswith("/validation")]
        assert chosen_by == [f"{job.training_data}/validation"]
        assert sum(one.endswith("/held-out") for one in job.evaluate) == 4


def test_without_validation_nothing_changes(folder):
    """Ids of runs made before there was a validation part stay."""
    text = RECIPE.replace("MORE", "")
    path = folder / "recipe.toml"
    path.write_text(text.replace("validation = 0.1\n", ""))
    recipe = read_recipe(path)
    assert {one.validation for one in recipe.sources.shifts} == {""}
    job = recipe.jobs()[0]
    assert job.arguments["sources"] == {
        "pacs/art_painting": {"file": "pacs/art_painting", "held_out": 0.2}
    }


def test_corruptions_of_the_id_part_and_attacks_on_all(folder):
    more = (
        'corruptions = ["wenzel2022:3", "fog:1"]\nattacks = ["wenzel2022"]\n'
        "attack_options = {steps = 2}\nattack_share = 0.5\n"
    )
    recipe = read(folder, more)
    records = {one.id: one.setting for one in recipe.sources.settings}
    for job in recipe.jobs():
        own = [records[one] for one in job.evaluate]
        corrupted = [one for one in own if one.kind == "corruption"]
        assert len(corrupted) == 18
        assert {one.clean.id for one in corrupted} == {f"{job.training_data}/held-out"}
        attacked = [one for one in own if one.kind == "adversarial"]
        assert len(attacked) == 2 * 4
        assert {one.share for one in attacked} == {0.5}
        assert all(one.perturbation.details["steps"] == 2 for one in attacked)
    assert len(records) == 8 + 4 * 18 + 8


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("validatoin = 0.1", "did you mean 'validation'"),
        ("attack_share = 0.5", "an attack_share, but no attacks"),
        ('corruptions = ["fgo:3"]', "did you mean 'fog'"),
        ("attack_options = {steps = 2}", "no perturbation goes with"),
    ],
)
def test_errors(folder, more, said):
    with pytest.raises(InputError, match=said):
        read(folder, more)


def test_something_must_be_left(folder):
    path = folder / "recipe.toml"
    path.write_text(RECIPE.replace("MORE", "").replace("held_out = 0.2", "held_out = 0.9"))
    with pytest.raises(InputError, match="leave nothing to train on"):
        read_recipe(path)
