"""Against public data beside the checkout; skipped, saying so, where it is absent."""

import numpy as np
import polars as pl
import pytest

from shiftbed.importing import import_results, read_predictions
from shiftbed.records import Shift
from shiftbed.testbed import published, read_testbed, write_testbed

SETTINGS = ("imagenet-validation-original", "imagenetv2-a-44", "imagenetv2-b-33", "imagenetv2-c-12")
V2 = Shift(name="b-33", kind="natural-dataset", source=SETTINGS[:1], target="imagenetv2-b-33")


@pytest.fixture(scope="module")
def files(predictions):
    return {s: predictions / f"imagenetv2_67models_{s}.npz" for s in SETTINGS}


@pytest.fixture(scope="module")
def bed(files):
    return import_results(list(files.values()), shifts=[V2])


def test_67_models(bed, files):
    assert bed.settings == SETTINGS
    assert bed.value.shape == (67, 4)
    for setting, path in files.items():
        with np.load(path) as arrays:
            right = arrays["top1"] == arrays["labels"]
            assert bed.model_names == arrays["models"].tolist()
        assert np.array_equal(bed.accuracy(setting), right.mean(axis=1))
        assert np.array_equal(bed.results[setting].right, right)
        assert (bed.size(setting) == right.shape[1]).all()
    nobody = ~bed.results[SETTINGS[0]].right.any(axis=0)
    assert nobody.sum() == 2384
    assert len({one.images for one in bed.results.values()}) == 4


def test_the_line_of_67_models(bed):
    line = bed.fit("b-33")
    assert line.weights[0] == pytest.approx(0.94737, abs=5e-6)
    assert line.intercept == pytest.approx(-0.52198, abs=5e-6)
    assert line.r2 == pytest.approx(0.9986, abs=5e-5)


def test_intervals_are_paired(bed):
    judged = bed.judge(bed.fit("b-33"))
    assert judged.paired.all()
    half = (judged.high - judged.low) / 2
    assert np.median(half) == pytest.approx(1.96 * 0.0029, rel=0.15)


def test_67_models_come_back_from_a_testbed_file(bed, tmp_path):
    write_testbed(bed, tmp_path / "67.parquet")
    back = read_testbed(tmp_path / "67.parquet")
    assert np.array_equal(back.value, bed.value)
    for setting in SETTINGS:
        assert back.results[setting].images == bed.results[setting].images
        assert np.array_equal(back.results[setting].right, bed.results[setting].right)


def test_one_more_model_joins_the_67(bed, files, tmp_path):
    paths = list(files.values())
    for setting, name in ((SETTINGS[0], "mine_val"), (SETTINGS[2], "mine_b33")):
        with np.load(files[setting]) as arrays:
            np.savez(
                tmp_path / f"{name}.npz",
                models=np.array(["mine"]),
                top1=arrays["top1"][:1].astype(np.int64),
                labels=arrays["labels"].astype(np.uint16),
            )
    mine = [tmp_path / "mine_val.npz", tmp_path / "mine_b33.npz"]
    names = {f"imagenetv2_67models_{setting}": setting for setting in SETTINGS}
    together = import_results([*paths, *mine], setting_names=names | {"mine_val": SETTINGS[0]})
    assert together.settings == SETTINGS
    assert len(together.models) == 68
    row = together.model_index("mine")
    assert together.value[row, 0] == bed.value[0, 0]
    assert together.value[row, 2] == bed.value[0, 2]
    (again,) = read_predictions(mine[0], SETTINGS[0])
    assert again.images == bed.results[SETTINGS[0]].images


def test_30_models_on_cifar(predictions):
    bed = import_results([predictions / "cifar10_predictions_30models.npz"])
    assert bed.settings == ("original", "v4", "v6")
    assert [bed.usual_size(s) for s in bed.settings] == [10_000, 2_021, 2_000]
    line = bed.fit(Shift(name="v6", kind="natural-dataset", source=("original",), target="v6"))
    assert len(line.models) == 30


@pytest.mark.slow
def test_204_models(figures):
    path = figures / "imagenet_testbed_2020.csv"
    sizes = dict(
        pl.read_csv(figures / "imagenet_testbed_2020_sizes.csv")[
            "setting", "test_set_size"
        ].iter_rows()
    )
    bed = import_results([path], unit="percent")
    shipped = published("imagenet-testbed-2020")
    base = [i for i, s in enumerate(shipped.settings) if s not in shipped.derived]
    assert bed.settings == tuple(shipped.settings[i] for i in base)
    assert bed.model_names == shipped.model_names
    assert np.array_equal(bed.value, shipped.value[:, base], equal_nan=True)
    known = {s: n for s, n in sizes.items() if s in bed.settings}
    assert import_results([path], unit="percent", sizes=known).usual_size("val") == 50_000


def test_probes_among_the_percentages_of_447_models(figures, refused):
    path = figures / "robustnets_2022.csv"
    refused(path, "'high_freq_fracs_within'", "in setting 'cifar10_acc'", "--ignore")
    probes = [c for c in pl.read_csv(path).columns if c.startswith(("jac", "high", "consistent"))]
    bed = import_results([path], ignore=probes)
    assert bed.value.shape == (447, 18)
    assert bed.models["sparsity"].dtype == pl.Float64
