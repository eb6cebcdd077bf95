"""Perturbed settings: how a testbed.toml names them, and what a run makes of them."""

import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from shiftbed.engine.run import run_spec
from shiftbed.engine.testbed_file import read_testbed_toml
from shiftbed.errors import InputError
from shiftbed.evaluation.corrupt_tree import corrupt
from shiftbed.evaluation.data import open_test_set
from shiftbed.store import PredictionStore
from shiftbed.testbed import open_testbed
from tests.engine.digits import HEAD, make_digits, write
from tools.kill_fifty import predictions, start

ATTACK = "pgd-linf:16/255"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_digits(tmp_path_factory.mktemp("digits"))


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    copy = tmp_path / "bed"
    shutil.copytree(made, copy)
    monkeypatch.syspath_prepend(str(copy))
    sys.modules.pop("digit_nets", None)
    return copy


def settings_of(folder, text, head=HEAD):
    return [s.id for s in read_testbed_toml(write(folder, text, head), allow_code=True).settings]


class TestSpec:
    def test_one_perturbation_alone(self, folder):
        text = '[[settings]]\ntest_set = "val"\nperturbation = "gaussian_noise:3"\nseed = 4'
        (setting,) = read_testbed_toml(write(folder, text), allow_code=True).settings
        assert (
            setting.id,
            setting.setting.clean.id,
            setting.setting.kind,
            setting.setting.seed,
        ) == (
            *("val+gaussian_noise:3", "val", "corruption"),
            4,
        )

    def test_many_with_their_clean_setting(self, folder):
        text = '[[settings]]\ntest_set = "val"\ncorruptions = ["fog:2-3", "snow:1"]\n'
        text += 'attacks = ["pgd-linf:2/255"]\nshare = 0.1'
        expected = ["", "+fog:2", "+fog:3", "+snow:1", "+pgd-linf:2/255"]
        assert settings_of(folder, text) == [f"val@share-0.1{end}" for end in expected]

    def test_all_and_a_papers_attacks(self, folder):
        text = '[[settings]]\ntest_set = "val"\ncorruptions = ["all"]\nattacks = ["taori2020"]'
        found = settings_of(folder, text)
        assert len(found) == 1 + 96 + 4
        assert found[-4:] == [
            f"val+pgd-{ball}?keep=last"  # as the paper ran it
            for ball in ("linf:0.5/255", "linf:2/255", "l2:0.1", "l2:0.5")
        ]

    def test_subsets_and_options_are_in_the_id(self, folder):
        text = '[[settings]]\ntest_set = "val"\nsubset = [1, 2]\nshare = 0.5\nseed = 2\n'
        text += 'attacks = ["pgd-l2:0.5"]\nattack_options = {steps = 5}'
        assert settings_of(folder, text) == [
            "val@classes-1-2.share-0.5-seed-2",
            "val@classes-1-2.share-0.5-seed-2+pgd-l2:0.5?seed=2&steps=5",
        ]

    def test_every_perturbed_setting_makes_a_shift(self, folder):
        text = '[[settings]]\ntest_set = "val"\ncorruptions = ["fog:2"]\n'
        text += 'attacks = ["pgd-l2:0.5"]\n'
        text += '[[shifts]]\nname = "mist"\nid = "val"\nood = "val+fog:2"\nkind = "corruption"'
        shifts = read_testbed_toml(write(folder, text), allow_code=True).shifts
        assert [(s.name, s.kind, s.source, s.target) for s in shifts] == [
            ("mist", "corruption", ("val",), "val+fog:2"),
            ("val+pgd-l2:0.5", "adversarial", ("val",), "val+pgd-l2:0.5"),
        ]

    def test_a_setting_may_have_a_name_of_its_own(self, folder):
        text = '[[settings]]\ntest_set = "val"\nperturbation = "fog:2"\nid = "mist"'
        (setting,) = read_testbed_toml(write(folder, text), allow_code=True).settings
        assert (setting.id, setting.setting.clean.id) == ("mist", "val")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('corruptions = ["fogg:2"]', "did you mean 'fog'"),
            ('corruptions = ["fog:7"]', "severities go from 1 to 5"),
            ('corruptions = ["greyscale:2"]', "severity must be 1"),
            ('corruptions = "fog:2"', "must be a list"),
            ('perturbation = "fog"', "NAME:SEVERITY"),
            ('perturbation = "pdg-linf:2/255"', "did you mean"),
            ('attacks = ["fog:2"]', "unknown attack"),
            ('attacks = ["pgd-linf:2"]', "write 2/255"),
            ('attacks = ["pgd-l2:1"]\nattack_options = {step_count = 2}', "option of pgd-l2"),
            ('corruptions = ["fog:2"]\nattack_options = {steps = 2}', "but no attack"),
            ('corruptions = ["fog:2"]\nfrost = "x"', "but no frost"),
            ('corruptions = ["fog:2"]\nperturbation = "fog:3"', "not both"),
            ("disk = true", "disk has nothing to add"),
            ("frost = 'x'", "no perturbation goes with"),
            ("share = 2", "share must be"),
            ("seed = -1", "seed must be"),
            ("seed = 3", "nothing is drawn"),
            ('corruption = ["fog:2"]', "did you mean 'corruptions'"),
            ('corruptions = ["frost:1"]\nfrost = "nowhere"', "frost"),
        ],
    )
    def test_mistakes_are_named(self, folder, text, message):
        with pytest.raises(InputError, match=message):
            read_testbed_toml(
                write(folder, f'[[settings]]\ntest_set = "val"\n{text}'), allow_code=True
            )


def accuracies(folder):
    bed = open_testbed(str(folder / "store"))
    return bed, {s: dict(zip(bed.model_names, bed.accuracy(s), strict=True)) for s in bed.settings}


def test_a_run_with_corruptions_and_attacks(folder):
    text = '[[settings]]\ntest_set = "val"\n'
    text += 'corruptions = ["gaussian_noise:5", "python:digit_nets:dim:9"]\n'
    text += f'attacks = ["{ATTACK}"]\nattack_options = {{steps = 10}}'
    summary = run_spec(read_testbed_toml(write(folder, text), allow_code=True))
    attack = f"val+{ATTACK}?steps=10"
    assert set(summary.failed) == {("plain", attack)}
    assert "not applicable" in summary.failed["plain", attack]
    bed, found = accuracies(folder)
    noise, dim = "val+gaussian_noise:5", "val+python:digit_nets:dim:9"
    assert found["val"]["net"] == found["val"]["plain"] > 0.85
    assert found[noise]["net"] == found[noise]["plain"]  # the same noise for both
    assert 0.2 < found[noise]["net"] < found["val"]["net"]
    assert found[attack]["net"] < found[noise]["net"]
    assert len({bed.results[s].images for s in bed.settings}) == 1  # so intervals are paired
    assert {s.name: s.kind for s in bed.shifts} == {
        noise: "corruption",
        dim: "corruption",
        attack: "adversarial",
    }
    store = PredictionStore(folder / "store")
    record = store.cell("net", attack)
    assert record["backend"] == "torch"
    assert record["perturbation"]["steps"] == 10
    assert record["perturbation"]["seed"] == 0
    assert store.cell("plain", attack)["status"] == "failed"
    assert store.cell("net", dim)["perturbation"]["code"]["file"] == "digit_nets.py"


def test_warnings_of_attacks_are_in_the_record(folder):
    """A model that rounds its input has no gradients: its robustness is not to be trusted."""
    text = f'[[settings]]\ntest_set = "val"\nperturbation = "{ATTACK}"\nshare = 0.1\n'
    text += "attack_options = {steps = 5}"
    head = HEAD.replace("digit_nets:net()", "digit_nets:stepped()")
    summary = run_spec(read_testbed_toml(write(folder, text, head), allow_code=True))
    setting = f"val@share-0.1+{ATTACK}?steps=5"
    (warning, *_) = PredictionStore(folder / "store").cell("net", setting)["warnings"]
    assert "gradient" in warning
    assert any(note.startswith(f"net on {setting}: warning: ") for note in summary.notes)


def test_the_backend_is_measured_once_per_model(folder, monkeypatch):
    from shiftbed.engine import cell as execute

    measured = []
    choose = execute.choose_backend

    def counted(*given, **options):
        if "images" in options:
            measured.append(options["images"])
        return choose(*given, **options)

    monkeypatch.setattr(execute, "choose_backend", counted)
    monkeypatch.setattr(execute, "_measured", {})
    text = '[[settings]]\ntest_set = "val"\ncorruptions = ["fog", "snow:1"]\nshare = 0.1'
    summary = run_spec(read_testbed_toml(write(folder, text), allow_code=True))
    assert len(summary.complete) == 14
    assert len(measured) == 2  # one per model
    assert len(set(measured)) == 1
    assert measured[0] * 2 == summary.images


def test_predictions_are_those_of_the_corrupted_pixels(folder):
    from shiftbed.evaluation.corruptions import Corruption

    text = '[[settings]]\ntest_set = "val"\nperturbation = "shot_noise:4"\nseed = 3'
    assert not run_spec(read_testbed_toml(write(folder, text), allow_code=True)).failed
    test_set = open_test_set(folder / "val.npz")
    x = np.stack([np.asarray(test_set.load(i)) for i in range(len(test_set))])[:, None]
    x = np.multiply(x, np.float32(1 / 255), dtype=np.float32)
    y = Corruption(name="shot_noise", severity=4, seed=3)(x, list(test_set.examples))
    import digit_nets

    kept = PredictionStore(folder / "store").read("plain", "val+shot_noise:4")
    assert kept["class_1"].to_list() == digit_nets.plain(y).argmax(axis=1).tolist()


def test_another_seed_or_option_is_another_setting(folder):
    text = '[[settings]]\ntest_set = "val"\nperturbation = "fog:4"\n'
    assert not run_spec(read_testbed_toml(write(folder, text), allow_code=True)).failed
    before = predictions(folder)
    assert run_spec(read_testbed_toml(write(folder, text), allow_code=True)).images == 0
    summary = run_spec(read_testbed_toml(write(folder, text + "seed = 1"), allow_code=True))
    assert all("seed 0, now 1" in why for why in summary.failed.values())
    assert len(summary.failed) == 2
    assert predictions(folder) == before


def test_attacks_are_judged_under_the_label_policy(folder):
    """Within two classes fewer images can be fooled than within ten."""
    text = '[[settings]]\ntest_set = "val"\nsubset = [1, 7]\n'
    text += f'attacks = ["{ATTACK}"]\nattack_options = {{steps = 10}}\n'
    text += f'[[settings]]\ntest_set = "val"\nattacks = ["{ATTACK}"]\n'
    text += "attack_options = {steps = 10}"
    run_spec(read_testbed_toml(write(folder, text), allow_code=True))
    bed, found = accuracies(folder)
    few, many = f"val@classes-1-7+{ATTACK}?steps=10", f"val+{ATTACK}?steps=10"
    assert found[many]["net"] < found[few]["net"] < found["val@classes-1-7"]["net"]
    assert bed.results[few].images == bed.results["val@classes-1-7"].images
    assert bed.results[few].images != bed.results["val"].images


def test_a_share_is_balanced_and_the_same_for_all(folder):
    text = '[[settings]]\ntest_set = "val"\nshare = 0.1\ncorruptions = ["fog:1"]'
    run_spec(read_testbed_toml(write(folder, text), allow_code=True))
    store = PredictionStore(folder / "store")
    clean, fog = store.test_set("val@share-0.1"), store.test_set("val@share-0.1+fog:1")
    assert clean.examples == fog.examples
    assert clean.fingerprint == fog.fingerprint
    counts = np.bincount(clean.labels, minlength=10)
    assert counts.min() >= 5
    assert counts.max() <= 7


def test_workers_make_the_same_store(folder, tmp_path):
    text = '[[settings]]\ntest_set = "val"\ncorruptions = ["speckle_noise:2", "glass_blur:1"]\n'
    text += f'attacks = ["{ATTACK}"]\nattack_options = {{steps = 3}}\n'
    plain = '[[models]]\nid = "python:digit_nets:plain"\nname = "plain"\n'
    assert plain in HEAD
    write(folder, text, HEAD.replace(plain, ""))
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    assert not run_spec(read_testbed_toml(folder / "testbed.toml", allow_code=True)).failed
    assert start(other / "testbed.toml", "processes").wait(timeout=120) == 0
    assert len(predictions(folder)) == 4
    assert predictions(folder) == predictions(other)


class TestDisk:
    @pytest.fixture
    def tree(self, folder):
        test_set = open_test_set(folder / "val.npz").subset(range(100))
        clean = folder / "val"
        for row, label in enumerate(test_set.labels):
            (clean / str(label)).mkdir(parents=True, exist_ok=True)
            test_set.load(row).save(clean / str(label) / f"{row:04d}.png")
        corrupt(clean, folder / "val-c", ["fog:1-2"], size=8, resize=8, format="png")
        (folder / "stylized").mkdir()
        for name in map(str, range(10)):
            (folder / "stylized" / name).mkdir()
            Image.new("L", (8, 8)).save(folder / "stylized" / name / "0.png")
        return HEAD.replace('path = "val.npz"', 'path = "val"') + (
            '[[test_sets]]\npath = "val-c"\ncorrupted = "val"\n'
            '[[test_sets]]\nname = "stylized"\npath = "stylized"\ncorrupted = "val"\n'
        )

    def test_disk_and_memory_are_different_settings(self, folder, tree):
        text = '[[settings]]\ntest_set = "val"\ndisk = true\ncorruptions = ["fog:2"]'
        spec = read_testbed_toml(write(folder, text, tree), allow_code=True)
        ids = ["val", "val+fog:2", "val+fog:1@disk", "val+fog:2@disk", "val+stylized@disk"]
        assert [s.id for s in spec.settings] == ids
        assert not run_spec(spec).failed
        bed, found = accuracies(folder)
        assert {s.name for s in bed.shifts} == {*ids[1:], "val+fog:1,2@disk"}  # and their mean
        assert found["val+fog:1@disk"]["net"] > found["val+fog:2@disk"]["net"]
        same = {s: bed.results[s].images == bed.results["val"].images for s in ids}
        assert same == dict.fromkeys(ids, True) | {"val+stylized@disk": False}

    def test_every_test_set_is_a_setting_by_default(self, folder, tree):
        ids = ["val", "val+fog:1@disk", "val+fog:2@disk", "val+stylized@disk"]
        assert settings_of(folder, "", tree) == ids

    def test_under_a_label_policy(self, folder, tree):
        text = '[[settings]]\ntest_set = "val"\nsubset = [0, 1]\ndisk = true'
        assert settings_of(folder, text, tree)[1] == "val@classes-0-1+fog:1@disk"
        text = '[[settings]]\ntest_set = "val+fog:1@disk"\nsubset = [0, 1]'
        (setting,) = read_testbed_toml(write(folder, text, tree), allow_code=True).settings
        assert (setting.id, setting.setting.clean.id) == (
            "val@classes-0-1+fog:1@disk",
            "val@classes-0-1",
        )

    def test_what_is_corrupted_is_not_corrupted_again(self, folder, tree):
        text = '[[settings]]\ntest_set = "val+fog:1@disk"\nperturbation = "fog:1"'
        with pytest.raises(InputError, match="perturbed already"):
            read_testbed_toml(write(folder, text, tree), allow_code=True)
