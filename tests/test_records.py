"""Settings as values: rendered once, kept as JSON, never read from their id."""

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.errors import InputError
from shiftbed.labels import subset
from shiftbed.records import Bits, Perturbation, Setting, older_setting

FOG = Perturbation(kind="corruption", name="fog", severity=3, id="fog:3", details={"seed": 1})
names = st.text("abcdefgh-_/", min_size=1, max_size=8)
perturbations = st.builds(
    Perturbation,
    kind=st.sampled_from(["corruption", "adversarial"]),
    name=names,
    id=names,
    severity=st.none() | st.integers(1, 5),
    on_disk=st.booleans(),
    details=st.dictionaries(names, st.integers() | st.text() | st.booleans()),
)
plain = st.builds(
    Setting,
    test_set=names,
    policy=st.none() | st.builds(lambda n: subset(range(n)), st.integers(1, 4)),
    policy_name=st.just("") | names,
    relabel=st.booleans(),
    share=st.none() | st.floats(0.01, 1),
    seed=st.integers(0, 9),
    window=st.none() | st.integers(0, 10),
    name=st.just("") | names,
)
settings = plain | st.builds(lambda one, what: one.perturbed(what), plain, perturbations)


@given(settings | st.builds(lambda parts: Setting(test_set="", mean_of=parts), st.tuples(settings)))
def test_json_gives_the_same_setting_back(setting):
    again = Setting.from_json(setting.to_json())
    assert again == setting
    assert again.id == setting.id


@given(plain)
def test_a_perturbed_setting_knows_its_clean_one(setting):
    made = setting.perturbed(FOG)
    assert made.clean == setting
    assert made.id == f"{setting.id}+fog:3"
    assert made.kind == "corruption"
    with pytest.raises(InputError, match="perturbed already"):
        made.perturbed(FOG)


def test_disk_and_memory_are_different_settings():
    clean = Setting(test_set="val")
    disk = Perturbation(kind="corruption", name="fog", severity=3, id="fog:3", on_disk=True)
    assert clean.perturbed(disk).id == "val+fog:3@disk"
    assert clean.perturbed(FOG).id == "val+fog:3"


def test_a_share_belongs_to_the_whole():
    attack = Perturbation(kind="adversarial", name="fgsm-linf", id="fgsm-linf:1/255")
    some = Setting(test_set="val", share=0.1, seed=3).perturbed(attack)
    assert some.id == "val@share-0.1-seed-3+fgsm-linf:1/255"
    assert some.clean.whole.id == "val"


def test_class_twins_are_named_after_their_policy():
    noisy = Setting(test_set="val").perturbed(FOG)
    assert noisy.under(subset([1, 2])).id == "val@classes-1-2+fog:3"
    assert noisy.under(subset([1, 2])).clean.id == "val@classes-1-2"
    assert noisy.under(subset([1, 2]), name="few").id == "few"


@pytest.mark.parametrize(
    ("id", "kind"),
    [
        ("val", ""),
        ("val@imagenet-a-classes", ""),
        ("val@share-0.1", ""),
        ("val+fog:3", "corruption"),
        ("val+fog:3@disk", "corruption"),
        ("val@classes-1.share-0.1-seed-2+pgd-linf:2/255?steps=9", "adversarial"),
        ("mist", "corruption"),
    ],
)
def test_older_ids_become_records_of_the_same_id(id, kind):
    found = older_setting(id, kind)
    assert found.id == id
    assert found.kind == kind


def test_an_older_attack_without_a_shift_is_no_corruption():
    found = older_setting("val+fgsm-linf:1/255", "adversarial", {"id": "x", "eps": 1})
    assert found.kind == "adversarial"
    assert found.perturbation.details == {"eps": 1}


def test_only_readers_of_older_files_read_ids():
    """Nobody else may call ``older_setting``: what a setting is, its record says."""
    source = Path(__file__).parents[1] / "src" / "shiftbed"
    users = set()
    for path in source.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        if "older_setting" in names:
            users.add(path.relative_to(source).as_posix())
    assert users == {"store/store.py", "store/twin.py", "testbed/files.py"}


@given(st.integers(1, 4), st.integers(1, 40), st.integers(0, 2**32 - 1), st.data())
def test_bits_are_as_the_array(rows, columns, seed, data):
    whole = np.random.default_rng(seed).random((rows, columns)) < 0.5
    bits = Bits.of(whole)
    row = data.draw(st.integers(-rows, rows - 1))
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, columns)] * 2)))
    chosen = np.array(data.draw(st.lists(st.integers(0, columns - 1), max_size=9)), dtype=np.int64)
    assert bits.shape == whole.shape
    assert (bits[:] == whole).all()
    for at in (
        *(
            row,
            slice(0, row),
            whole[:, 0],
            (slice(None), slice(start, stop)),
            (row, slice(start, None)),
        ),
        *(
            (slice(None), slice(start, stop, 2)),
            (slice(None), chosen),
            (row, chosen),
            (row, start - 1),
        ),
    ):
        assert bits[at].dtype == np.bool_
        assert np.array_equal(bits[at], whole[at])
    assert np.array_equal(bits.take(whole[:, 0])[:], whole[whole[:, 0]])
    more = bits.more(2)
    more.put([-1], whole[:1])
    assert np.array_equal(more[:], np.vstack([whole, np.zeros((1, columns), bool), whole[:1]]))
