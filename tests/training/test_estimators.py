"""Lines of scikit-learn's classifiers in recipes: ids, what is refused, and the dry run."""

import json
import subprocess
import sys

import pytest
from PIL import Image

from shiftbed.errors import InputError
from shiftbed.training import read_recipe
from shiftbed.training.estimators import read_estimator
from shiftbed.training.train import train
from tests.training.estimator_grids import KNN, LINEAR, MLP, SVM, command, grid
from tests.training.places import GRID, HEAD, place


class TestIds:
    def jobs(self, folder, *models, **options):
        return read_recipe(place(folder, grid(*models, **options))).jobs()

    def test_one_spelling_for_one_meaning(self, tmp_path):
        (one,) = self.jobs(tmp_path, "sklearn:svm.SVC?C=0.1&size=8&shrinking=true")
        (two,) = self.jobs(tmp_path, "sklearn:svm.SVC?shrinking=True&size=8&C=1e-1", more="seed=0")
        assert one.id == two.id
        assert one.arguments == {
            "model": "sklearn:svm.SVC?C=0.1&shrinking=true&size=8",
            "data": {"name": "digits"},
            "seed": 0,
            "sources": {"digits": {"file": "digits.npz:train", "held_out": 0.1}},
        }

    def test_what_they_depend_on(self, tmp_path):
        others = [
            grid(f"{KNN}&weights=distance"),
            grid(f"{KNN}&size=8"),
            grid(f"{KNN}&mode=L"),
            grid(KNN, more="seed = 1"),
            grid(KNN, data='"other"'),
            grid(KNN, data='{name = "digits", shots = 3}'),
        ]
        own = [read_recipe(place(tmp_path, text)).jobs()[0].id for text in [grid(KNN), *others]]
        assert len(set(own)) == 7
        labels = 'kind = "x"\nin_fit_set = "none"\nevaluate = ["test"]'
        assert self.jobs(tmp_path, KNN, more=labels)[0].id == own[0]

    def test_a_known_id(self, tmp_path):
        """Ids are for ever."""
        (job,) = self.jobs(tmp_path, KNN)
        assert job.run == "KNeighborsClassifier-600064eb90e8"

    def test_sweeps(self, tmp_path):
        data = '{name = ["digits", "other"], shots = ["all", 3]}'
        found = self.jobs(tmp_path, KNN, SVM, data=data, more="seed = [0, 1, 2]")
        assert len(found) == len({job.id for job in found}) == 2 * 2 * 2 * 3


class TestErrors:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("optimiser", '"SGD"'),
            ("schedule", '"constant"'),
            ("epochs", "1"),
            ("steps", "1"),
            ("batch_size", "64"),
            ("tune", '"head"'),
            ("objective", '"mse"'),
            ("augmentation", '"none"'),
            ("prune", '{method = "magnitude"}'),
            ("phase_out", '{scores = "x.csv"}'),
            ("switch", '{scores = "x.csv"}'),
            ("watch", '{data = "other"}'),
            ("checkpoints", "{every = 1}"),
            ("start", '"random"'),
        ],
    )
    def test_keys_of_networks(self, tmp_path, key, value):
        with pytest.raises(InputError, match=f"grid 'grid-1': {key} does not go with sklearn:"):
            read_recipe(place(tmp_path, grid(KNN, more=f"{key} = {value}")))

    def test_stages(self, tmp_path):
        alone = f'\n[[grid]]\nmodel = "{KNN}"\n[[grid.stages]]\ndata = "digits"\n'
        assert len(read_recipe(place(tmp_path, alone)).jobs()) == 1
        for more in ("", 'model = "timm:resnet18"\noptimiser = "SGD"\nepochs = 1\n'):
            text = f'{alone}[[grid.stages]]\ndata = "other"\n{more}'
            with pytest.raises(InputError, match="stages do not go with sklearn:"):
                read_recipe(place(tmp_path, text))
        text = GRID + f'[[grid.stages]]\ndata = "digits"\n[[grid.stages]]\nmodel = "{KNN}"\n'
        with pytest.raises(InputError, match="stages do not go with sklearn:"):
            read_recipe(place(tmp_path, text))

    @pytest.mark.parametrize(
        ("model", "said"),
        [
            ("svm.SCV", "unknown classifier in sklearn.svm 'SCV'; did you mean 'SVC'"),
            ("swm.SVC", "unknown module of sklearn 'swm'; did you mean 'svm'"),
            ("svm.SVR", "unknown classifier in sklearn.svm 'SVR'"),
            ("linear_model.Ridge", "did you mean 'RidgeClassifier'"),
            ("LogisticRegression", "unknown classifier in sklearn 'LogisticRegression'"),
            ("linear_model._logistic.LogisticRegression", "unknown module of sklearn.linear_model"),
            ("os.path", "unknown module of sklearn 'os'"),
            ("tests.common.X", "unknown module of sklearn 'tests'"),
            ("base.BaseEstimator", "unknown classifier in sklearn.base"),
            ("linear_model.np", "unknown classifier in sklearn.linear_model 'np'"),
            ("model.skops", "is a fitted estimator; a recipe fits a class"),
            ("svm.SVC?gama=3", "unknown option of SVC 'gama'; did you mean 'gamma'"),
            ("svm.SVC?random_state=3", "random_state of SVC is the run's seed"),
            ("svm.SVC?C=abc", "'C' parameter of SVC must be a float"),
            ("svm.SVC?C=1e999", "too large"),
            ("svm.SVC?kernel=lineal", "'kernel' parameter of SVC must be"),
            ("svm.SVC?size=0", "size must be a whole number of pixels from 1, got '0'"),
            ("svm.SVC?size=8x8", "size must be a whole number of pixels from 1, got '8x8'"),
            ("svm.SVC?mode=BGR", "unknown mode of SVC 'BGR'"),
            ("svm.SVC?C", "must be key=value"),
            ("neural_network.MLPClassifier?hidden_layer_sizes=5,,5", "between commas is missing"),
            ("multiclass.OneVsRestClassifier", "needs estimator, another estimator"),
        ],
    )
    def test_lines(self, tmp_path, model, said):
        with pytest.raises(InputError) as caught:
            read_recipe(place(tmp_path, grid(f"sklearn:{model}")))
        assert said in str(caught.value)
        assert "recipe.toml: grid 'grid-1': " in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_values(self):
        line = "sklearn:ensemble.RandomForestClassifier?max_depth=none&max_features=0.5"
        line += "&criterion=entropy&bootstrap=false&n_estimators=7"
        assert read_estimator(line).options == {
            "max_depth": None,
            "max_features": 0.5,
            "criterion": "entropy",
            "bootstrap": False,
            "n_estimators": 7,
        }
        again = read_estimator(read_estimator(f"{MLP}&early_stopping=true").text)
        assert again.options["hidden_layer_sizes"] == (12, 8)
        one = read_estimator("sklearn:neural_network.MLPClassifier?hidden_layer_sizes=5,")
        assert read_estimator(one.text).options == {"hidden_layer_sizes": (5,)}

    def test_what_only_fitting_finds_out(self, tmp_path):
        text = grid("sklearn:neighbors.KNeighborsClassifier?n_neighbors=3", SVM)
        text = text.replace('"digits"', '{name = "digits", classes = [[4]]}')
        summary = train(place(tmp_path, text))
        assert len(summary.failed) == 2
        assert not list(tmp_path.glob("runs/*/done.json"))
        assert any("number of classes" in why for why in summary.failed.values())

    def test_images_of_several_sizes(self, tmp_path):
        for label in range(2):
            folder = tmp_path / "pictures" / f"class{label}"
            folder.mkdir(parents=True)
            for side in (8, 10):
                Image.new("L", (side, 8), 99 * label).save(folder / f"{side}.png")
        head = HEAD + '[data.pictures]\npath = "pictures"\n'
        text = grid("sklearn:svm.SVC", "sklearn:svm.SVC?size=8", data='"pictures"')
        summary = train(place(tmp_path, text, head))
        ((_, why),) = summary.failed.items()
        assert "images of 'pictures' have 2 sizes (8×8, 8×10, …): give the model a size" in why
        assert len(summary.finished) == 1

    def test_more_than_memory_has(self, tmp_path):
        summary = train(place(tmp_path, grid(KNN), "memory_gib = 1e-6\n" + HEAD))
        ((_, why),) = summary.failed.items()
        assert "540 images of 8×8 pixels are 0.000257 GiB as numbers" in why


CHECKED = """
import sys
from shiftbed.cli import main
try:
    main()
finally:
    assert not {"torch", "torchvision", "timm", "onnxruntime"} & sys.modules.keys()
"""


class TestDryRun:
    def test_it_needs_no_torch_and_lists_all(self, tmp_path):
        path = place(tmp_path, GRID + grid(LINEAR, KNN))
        for options in ((), ("--json",)):
            done = subprocess.run(
                [sys.executable, "-c", CHECKED, "train", str(path), "--dry-run", *options],
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert (done.returncode, done.stderr) == (0, "")
            if not options:
                assert "1 networks, 2 classical models" in " ".join(done.stdout.split())
        found = json.loads(done.stdout)
        assert (found["networks"], found["classical"], len(found["jobs"])) == (1, 2, 3)
        job = found["jobs"][2]
        assert job["model"] == KNN
        assert not {"optimiser", "tune", "epochs", "batch_size"} & job.keys()
        assert not (tmp_path / "runs").exists()

    def test_errors_end_with_two(self, tmp_path):
        path = place(tmp_path, grid(KNN, more="epochs = 3"))
        done = subprocess.run(
            command(path, "--dry-run"), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2
        assert "epochs does not go with sklearn:" in done.stderr
