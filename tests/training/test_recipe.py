"""Recipes: lists are sweeps, ids are hashes of arguments, and errors name what is wrong."""

import inspect
import json
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbed.catalogue.maps import groups, imagenet_synsets
from shiftbed.errors import InputError
from shiftbed.training import arguments, read_recipe
from shiftbed.training.arguments import normalised
from shiftbed.training.recipe import canonical, combinations
from shiftbed.training.sources import DataSpec
from tests.training.places import GRID, HEAD, place

ROOT = Path(__file__).parents[2]


def jobs(folder, grid):
    return read_recipe(place(folder, grid)).jobs()


def changed(**keys: str) -> str:
    """The usual grid with some lines changed or added."""
    lines = [line for line in GRID.splitlines() if line.partition(" =")[0] not in keys]
    return "\n".join([*lines, *(f"{key} = {value}" for key, value in keys.items())]) + "\n"


class TestExpansion:
    @given(st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(), max_size=4)))
    def test_all_combinations_once(self, table):
        found = [canonical(one) for one in combinations(table)]
        expected = 1
        for values in table.values():
            expected *= len(values)
        assert len(found) == expected
        assert len(set(found)) == len(set(map(canonical, combinations(table))))

    def test_at_any_depth(self):
        table = {"a": {"b": [1, {"c": [2, 3]}]}, "d": [[4, 5]]}
        assert list(combinations(table)) == [
            {"a": {"b": 1}, "d": [4, 5]},
            {"a": {"b": {"c": 2}}, "d": [4, 5]},
            {"a": {"b": {"c": 3}}, "d": [4, 5]},
        ]

    def test_a_grid_is_a_product(self, tmp_path):
        found = jobs(
            tmp_path,
            changed(
                data='{name = ["digits", "other"], shots = ["all", 10]}',
                optimiser='{name = "SGD", lr = [0.1, 0.01, 0.001]}',
                tune='["head", "whole"]',
                seed="[0, 1]",
            ),
        )
        assert len(found) == len({job.id for job in found}) == 2 * 2 * 3 * 2 * 2
        assert Counter(job.data_size for job in found) == {"full": 24, "few-shot-10": 24}

    def test_stages_share_what_comes_before(self, tmp_path):
        grid = changed(optimiser='{name = "SGD", lr = 0.1}').replace('data = "digits"\n', "") + (
            '[[grid.stages]]\ndata = {name = "digits", fraction = [0.5, 1.0]}\n'
            '[[grid.stages]]\ndata = "other"\nepochs = [1, 2]\n'
            '[[grid.stages]]\ndata = "digits"\n'
        )
        found = jobs(tmp_path, grid)
        assert Counter(job.stage for job in found) == {0: 2, 1: 4, 2: 4}
        runs = {job.run for job in found}
        assert all(job.parent in runs for job in found if job.stage)
        assert all(job.arguments["start"] == "random" for job in found if not job.stage)

    def test_patterns_of_data_sets(self, tmp_path):
        found = jobs(tmp_path, changed(data='["*"]'))
        assert [job.training_data for job in found] == ["digits", "other"]

    def test_extra_grids_are_asked_for(self, tmp_path):
        recipe = read_recipe(
            place(tmp_path, GRID + GRID.replace("epochs = 2", 'epochs = 3\nname="b"\nextra = true'))
        )
        assert len(recipe.jobs()) == 1
        assert len(recipe.jobs(["all"])) == 2
        assert len(recipe.jobs(["b"])) == 1
        with pytest.raises(InputError, match="unknown grid 'c'"):
            recipe.jobs(["c"])


class TestIdentity:
    def test_ids_depend_on_what_changes_weights_and_nothing_else(self, tmp_path):
        (one,) = jobs(tmp_path, GRID)
        spelled = changed(
            objective='{name = "cross-entropy"}',
            start='"random"',
            augmentation='"none"',
            kind='"intervention"',
            in_fit_set='"none"',
            backbone='"resnet50.tv_in1k"',
            evaluate='["test"]',
            checkpoints='{keep = "last"}',
        )
        (same,) = jobs(tmp_path, spelled)
        assert same.id == one.id
        assert (same.kind, same.keep, same.evaluate) == ("intervention", "last", ("test",))
        assert (same.backbone, one.backbone) == ("resnet50.tv_in1k", None)
        for key, value in {
            "seed": "1",
            "epochs": "3",
            "batch_size": "32",
            "tune": '"head"',
            "data": '{name = "digits", fraction = 0.5}',
            "schedule": '"StepLR"',
            "objective": '"mse"',
        }.items():
            (other,) = jobs(tmp_path, changed(**{key: value}))
            assert other.id != one.id, key

    def test_folders_do_not_matter(self, tmp_path):
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
        first, second = (jobs(tmp_path / name, GRID)[0] for name in ("a", "b"))
        assert first.id == second.id

    def test_a_known_id(self, tmp_path):
        """Ids are for ever: stores and run folders are named by them."""
        (job,) = jobs(tmp_path, GRID)
        assert job.run == f"build-{job.id}"
        assert job.id == "237c40cea6fa"


class TestErrors:
    @pytest.mark.parametrize(
        ("grid", "said"),
        [
            (changed(optimizer='"SGD"'), "did you mean 'optimiser'"),
            (changed(tune='"heads"'), "unknown tune 'heads'; did you mean 'head'"),
            (changed(data='"digit"'), "unknown data set 'digit'; did you mean 'digits'"),
            (changed(data='{name = "digits", shot = 10}'), "did you mean 'shots'"),
            (changed(data='{mix = [["digits"]], lambda = 0.5}'), "mix must be two names"),
            (
                changed(data='{mix = [["digits", "other"]], lambda = 2}'),
                "lambda must be a number in",
            ),
            (changed(data="{mix = {digits = 0.5, other = 0.2}, total = 9}"), "add up to 1"),
            (changed(epochs="0"), "epochs must be a whole number from 1, got 0"),
            (changed(steps="5"), "needs epochs or steps, one of them"),
            (changed(start='"pre-trained"'), "did you mean 'pretrained'"),
            (changed(checkpoints="{evry = 1}"), "did you mean 'every'"),
            (changed(evaluate='["tset"]'), "did you mean 'test'"),
            (changed(in_fit_set='"last"'), "unknown in_fit_set 'last'"),
            (changed(backbone='"resnet50"'), "ambiguous in timm; say which: resnet50.a1_in1k"),
            (changed(backbone='"resnet50.tv_in2k"'), "did you mean 'resnet50.tv_in1k'"),
            (changed(backbone='["resnet50.tv_in1k"]'), "unknown backbone in timm"),
            (changed(augmentation="3"), "augmentation must be a name"),
            (changed(augmentation='{name = "flip", q = 0.1}'), "key in augmentation 'flip' 'q'"),
            (changed(objective='"cross-entrpy"'), "did you mean 'cross-entropy'"),
            (changed(objective='{name = "augmix", wieght = 1}'), "did you mean 'weight'"),
            (changed(prune='{method = "gradual", sparsty = 0.5}'), "did you mean 'sparsity'"),
            (changed(watch='{dat = "other"}'), "unknown key in watch 'dat'"),
            (changed(data='{name = "digits", difficulty = {score = "a.csv"}}'), "'scores'"),
            (GRID + "[[grid.stages]]\nepoch = 1\n", "grid.stages.* did you mean 'epochs'"),
            (changed(start='"pretrained"', model='"nets:conv8"'), "no pretrained weights"),
            (
                changed(model='"torch:a.pt?arch=timm:resnet18"'),
                "'pretrained', not 'random'",
            ),
            (changed(start='"file:b.pt"', model='"nets:conv8?weights=a.pt"'), "names weights"),
            ("", "expected at least one"),
            (
                GRID.replace('optimiser = {name = "SGD", lr = 0.1, momentum = 0.9}\n', ""),
                "optimiser",
            ),
        ],
    )
    def test_grids(self, tmp_path, grid, said):
        with pytest.raises(InputError, match=said) as caught:
            jobs(tmp_path, grid)
        assert "recipe.toml: " in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("head", "said"),
        [
            (HEAD.replace("held_out = 0.1", "held_out = 1.5"), "held_out must be a number in"),
            (HEAD.replace("held_out", "hold_out"), "did you mean 'held_out'"),
            (HEAD + "thread = 2\n", "unknown key"),
            (HEAD.replace('ood = "faint"', 'ood = "fain"'), "did you mean 'faint'"),
            (HEAD.replace('id = "test"', 'source = "test"'), "unknown key in .*shifts"),
            ('threads = "two"\n' + HEAD, "threads must be a int, got 'two'"),
            ("name = [", "not valid TOML"),
            (HEAD.replace('name = "faint"\npath', 'nmae = "faint"\npath'), "did you mean 'name'"),
            (
                HEAD + '[[settings]]\ntest_set = "tset"\n',
                "test set in .*settings.* 'tset'",
            ),
            (HEAD + '[[settings]]\ntest_set = "test"\nshre = 0.5\n', "did you mean 'share'"),
            (HEAD + '[[shifts]]\nid = "test"\nood = "faint"\n', "shift 'faint' is there twice"),
            (HEAD + '[tasks.pacs]\npaht = "a"\n', "did you mean 'path'"),
        ],
    )
    def test_the_rest(self, tmp_path, head, said):
        with pytest.raises(InputError, match=said):
            read_recipe(place(tmp_path, GRID, head))

    def test_no_file(self, tmp_path):
        with pytest.raises(InputError, match="no such file"):
            read_recipe(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("name", "made"),
    [
        pytest.param(name, made, id=name)
        for named in (arguments.OBJECTIVES, arguments.HOOKS, arguments.STEPS)
        for name, made in named.items()
    ],
)
def test_known_keys_are_those_of_what_is_made(name, made):
    """Keys are listed where torch is not needed; what they go to must take all of them."""
    where, keys = made
    module, _, function = where.partition(":")
    taken = inspect.signature(getattr(import_module(module), function)).parameters
    if name != "prune":
        assert list(taken) == list(keys)
        return
    own = {key for _, _, some in import_module(module).METHODS.values() for key in some}
    assert {*taken, "skip", *own} - {"options"} == set(keys)


class TestPapers:
    @pytest.mark.parametrize(
        ("name", "networks", "with_extra"),
        [
            ("wenzel2022", 23_328, 31_104),
            ("shi2023", 3 * (2 * 7 + 7), 63 + 3 * 14 + 2 * 56),
            ("taori2020", 5 + 3, 8 + 15),
            (
                "andreassen2021",
                6 * 3 * 5 * 2 + 6 * 5 + 2 * 5,
                220 + 30 + 2 * 9 + 2 * 3 + 3 + 7 + 12,
            ),
            ("fridovich2022", 447, 447),
        ],
    )
    def test_counts(self, name, networks, with_extra):
        recipe = read_recipe(ROOT / "recipes" / f"{name}.toml")
        assert len(recipe.jobs()) == networks
        assert len({job.id for job in recipe.jobs(["all"])}) == with_extra

    def test_wenzels_grid(self):
        """Appendix H: 9 architectures × 36 data sets × 24 per training-set size."""
        recipe = read_recipe(ROOT / "recipes" / "wenzel2022.toml")
        found = recipe.jobs()
        sizes = Counter(job.data_size for job in found)
        assert sizes == {"full": 7776, "few-shot-100": 7776, "few-shot-10": 7776}
        assert len({job.training_data for job in found}) == 36
        assert len({job.architecture for job in found}) == 9
        assert Counter(Counter(job.training_data for job in found).values()) == {648: 36}
        assert len(recipe.sources.shifts) == 172
        assert all(job.training_data.partition("/")[0] in job.evaluate[0] for job in found)

    def test_shis_test_sets_are_all_judged_by_the_class_map(self):
        """Each class of CIFAR-10: its own output and the ImageNet classes of the shipped map."""
        recipe = read_recipe(ROOT / "recipes" / "shi2023.toml")
        settings = {one.id: one.setting for one in recipe.sources.settings}
        for name in ("imagenet-mapped", "cifar-10", "cifar-10.1", "cifar-10.2", "cinic-10"):
            policy = settings[name].policy
            step = policy.steps[0]
            assert step.names == tuple(groups("cifar-10"))
            wanted = [(*own, 1000 + at) for at, own in enumerate(groups("cifar-10").values())]
            assert list(step.groups) == wanted
            assert settings[name].relabel == (name == "imagenet-mapped")
        listed = (ROOT / "recipes" / "imagenet-cifar-10.txt").read_text().split()
        assert listed == [*imagenet_synsets(), *groups("cifar-10")]

    def test_shis_clip_grids(self):
        """Table 3 and Appendix B.1: two networks, seven sizes, and that at four mixing ratios."""
        recipe = read_recipe(ROOT / "recipes" / "shi2023.toml")
        counts = {grid.name: len(grid.jobs) for grid in recipe.grids}
        assert (counts["clip-yfcc"], counts["clip-laion"]) == (14, 14)
        assert (counts["clip-imagenet+yfcc"], counts["clip-imagenet+laion"]) == (56, 56)
        jobs = recipe.jobs(["clip-imagenet+laion"])
        shares = {job.arguments["data"]["mix"]["imagenet-1k"] for job in jobs}
        assert shares == {0.01, 0.1, 0.25, 0.5}
        assert {job.arguments["objective"]["name"] for job in jobs} == {"contrastive"}
        assert all("cifar-10" not in job.evaluate for job in jobs)

    def test_fridovichs_grid_is_that_of_the_released_networks(self):
        """By pruning method and scope, as in the released table of 447 networks."""
        found = read_recipe(ROOT / "recipes" / "fridovich2022.toml").jobs()
        pruned = [job.arguments.get("hooks", {}).get("prune", {}) for job in found]
        methods = Counter(one.get("method", "dense") for one in pruned)
        assert methods == {
            "dense": 9,
            "magnitude": 87,
            "gradual": 87,
            "edge-popup": 87,
            "biprop": 87,
            "lottery-ticket": 45,
            "lr-rewinding": 45,
        }
        assert sum(one.get("scope") == "layerwise" for one in pruned) == 168

    def test_reading_needs_no_torch(self):
        code = (
            "import sys\nfor n in ('torch', 'torchvision', 'timm'): sys.modules[n] = None\n"
            "from shiftbed.training import read_recipe\n"
            "print(len(read_recipe('recipes/taori2020.toml').jobs()))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert (done.stdout.strip(), done.stderr) == ("8", "")

    @pytest.mark.slow
    def test_wenzels_nine_architectures_can_be_built(self):
        from shiftbed.evaluation.compat import ensure_torchvision

        ensure_torchvision()
        import timm

        recipe = read_recipe(ROOT / "recipes" / "wenzel2022.toml")
        names = {job.architecture for job in recipe.jobs()}
        assert len(names) == 9
        for name in names:
            network = timm.create_model(name, pretrained=False, num_classes=7)
            assert sum(p.numel() for p in network.parameters()) > 10**6, name


def test_every_job_has_an_id_in_the_json(tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from shiftbed.cli import main; main()"),
            *("train", "recipes/taori2020.toml", "--dry-run", "--json"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["networks"] == len(found["jobs"]) == 8
    assert sum(found["by_data_size"].values()) == 8
    assert len({job["id"] for job in found["jobs"]}) == 8


class TestHeads:
    GIVEN: ClassVar = {"model": "nets:resnet8", "optimiser": {"name": "SGD", "lr": 0.1}, "steps": 1}

    def made(self, **more):
        spec = DataSpec(name="cifar-10", path="x")
        return normalised(self.GIVEN | {"data": "cifar-10"} | more, {"cifar-10": spec})

    def test_mapped_is_the_class_map_of_the_data(self):
        found = self.made(head="mapped")
        assert found["objective"] == {"name": "class-map", "map": "cifar-10"}
        same = self.made(objective={"name": "class-map", "map": "cifar-10"})
        assert found == same
        pulled = {"name": "class-map", "map": "cifar-10", "pull": 0.1}
        assert self.made(head="mapped", objective=pulled)["objective"] == pulled

    def test_new_and_keep_are_arguments_of_their_own(self):
        assert self.made(head="new")["head"] == "new"
        assert "head" not in self.made()
        for head, objective, said in (
            ("new", {"name": "class-map", "map": "cifar-10"}, "keeps the old head"),
            ("mapped", "mse", "goes with the objective"),
            ("old", "mse", "unknown head"),
        ):
            with pytest.raises(InputError, match=said):
                self.made(head=head, objective=objective)
