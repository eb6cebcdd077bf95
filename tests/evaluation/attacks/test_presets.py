"""Names, sizes, presets and records."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.errors import InputError
from shiftbed.evaluation.attacks import (
    APGD,
    FAMILIES,
    FGSM,
    PGD,
    PRESET_GROUPS,
    PRESETS,
    attack_from_name,
    is_attack,
)
from shiftbed.evaluation.attacks.attack import read_size, size_text


@given(st.floats(1e-9, 1e3))
def test_a_size_survives_its_spelling(value):
    assert read_size(size_text(value)) == pytest.approx(value, rel=1e-12)
    assert size_text(read_size(size_text(value))) == size_text(value)


@pytest.mark.parametrize(
    ("spellings", "canonical"),
    [
        (("0.5/255", ".5/255", "1/510", "5e-1/255"), "0.5/255"),
        (("0.1", "1e-1", ".10", "25.5/255"), "0.1"),
        (("8/255", "16/510", "0.03137254901960784"), "8/255"),
        (("0.001", "1e-3"), "0.001"),
    ],
)
def test_all_spellings_of_a_size_make_one_name(spellings, canonical):
    assert {attack_from_name(f"pgd-linf:{one}").id for one in spellings} == {
        f"pgd-linf:{canonical}"
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_read_and_written(family):
    attack = attack_from_name(f"{family}:0.25")
    assert attack.id == f"{family}:0.25"
    assert attack.family == family
    assert is_attack(attack.id)
    assert attack.describe()["eps"] == 0.25


options = st.fixed_dictionaries(
    {},
    optional={
        "restarts": st.integers(1, 9),
        "steps": st.integers(1, 500),
        "target": st.sampled_from(["label", "own"]),
        "clamp": st.booleans(),
        "early_stop": st.booleans(),
        "seed": st.integers(0, 99),
    },
)


@given(st.sampled_from([PGD, APGD]), st.sampled_from(["linf", "l2"]), options)
def test_the_name_holds_every_option(kind, norm, chosen):
    attack = kind(norm=norm, eps=0.3, **chosen)
    assert attack_from_name(attack.id) == attack


def test_taori2020s_four_attacks():
    # Appendix E.2: eps, step size, steps
    printed = {
        "taori2020:pgd.linf.eps0.5": ("linf", 0.5 / 255, 5.88e-5),
        "taori2020:pgd.linf.eps2": ("linf", 2 / 255, 2.35e-4),
        "taori2020:pgd.l2.eps0.1": ("l2", 0.1, 0.01),
        "taori2020:pgd.l2.eps0.5": ("l2", 0.5, 0.05),
    }
    assert set(PRESET_GROUPS["taori2020"]) == set(printed)
    for name, (norm, eps, step) in printed.items():
        attack = PRESETS[name]
        assert isinstance(attack, PGD)
        assert (attack.norm, attack.eps, attack.steps) == (norm, eps, 100)
        assert attack.step_size == pytest.approx(step, rel=2e-3)  # printed to three digits
        assert attack.random_start
        assert attack.clamp
        assert attack.target == "label"
        assert attack.keep == "last"  # an image counts by the last iterate, as it ran them
        assert attack_from_name(attack.id) == attack
        released = PRESETS[name.replace("taori2020", "taori2020-released")]
        assert released == replace(attack, target="own", clamp=False)


def test_wenzel2022s_attacks():
    assert [PRESETS[name].eps for name in PRESET_GROUPS["wenzel2022"]] == [0.001, 0.02]
    assert all(isinstance(PRESETS[name], APGD) for name in PRESET_GROUPS["wenzel2022"])
    every_pixel = PRESETS["wenzel2022-released:dlr.l2.0.5"]
    assert every_pixel.eps == pytest.approx(
        np.linalg.norm(np.full(3 * 224 * 224, 0.5 / 255)), rel=1e-9
    )
    assert attack_from_name("wenzel2022:l2.0.02", restarts=2).restarts == 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pgd-linf", "needs a size"),
        ("pgd-linf:", "needs a size"),
        ("pgd-linf:two", "must be a number"),
        ("pgd-linf:0", "above 0"),
        ("pgd-linf:1/0", "above 0"),
        ("pgd-linf:8", "write 8/255"),
        ("pgd-l1:8", "did you mean 'pgd-l2'"),
        ("pgd-l2:1?stepz=3", "did you mean 'step' or 'steps'"),
        ("pgd-l2:1?steps=three", "cannot be read"),
        ("pgd-l2:1?steps=0", "at least 1"),
        ("pgd-l2:1?steps=3&steps=4", "twice"),
        ("pgd-l2:1?target=cat", "unknown target"),
        ("apgd-ce-l2:1?rho=2", "between 0 and 1"),
        ("apgd-ce-l2:1?keep=last", "does not apply"),
        ("pgd-l2:1?keep=last&early_stop=true", "keep='worst'"),
        ("pgd-l2:1?restarts=2&random_start=false", "all the same"),
        ("fgsm-l2:1?step=0", "above 0"),
        ("gaussian_noise:3", "unknown attack"),
    ],
)
def test_bad_names(name, says):
    with pytest.raises(InputError) as caught:
        attack_from_name(name)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_records():
    for eps in (0, -1, math.nan, math.inf):
        with pytest.raises(InputError, match="above 0"):
            PGD(norm="l2", eps=eps)
    with pytest.raises(InputError, match="unknown norm"):
        FGSM(norm="l1", eps=0.1)
    with pytest.raises(InputError, match="unknown option"):
        attack_from_name("fgsm-l2:0.1", steps=3)
