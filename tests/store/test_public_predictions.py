"""The public predictions of 67 models against the accuracies published for them."""

import polars as pl

import shiftbed as sb
from shiftbed.importing.exchange import import_predictions
from shiftbed.results.scores import scores
from shiftbed.store import PredictionStore
from shiftbed.testbed import testbed_from_store as from_store


def test_accuracies_are_those_of_the_2020_testbed(tmp_path, predictions):
    files = {
        "val": "imagenetv2_67models_imagenet-validation-original.npz",
        "v2": "imagenetv2_67models_imagenetv2-b-33.npz",
    }
    for setting, name in files.items():
        import_predictions(tmp_path / "store", [predictions / name], setting=setting)
    store = PredictionStore(tmp_path / "store")
    table = scores(store).pivot("setting", index="model", values="value")
    published = sb.published("imagenet-testbed-2020")
    both = [m for m in table["model"] if m in published.model_names]
    assert len(both) == 45
    for row in table.filter(pl.col("model").is_in(both)).iter_rows(named=True):
        at = published.model_index(row["model"])
        assert abs(row["val"] - published.accuracy("val")[at]) < 1.0001e-4
        assert abs(row["v2"] - published.accuracy("imagenetv2-matched-frequency")[at]) < 1.0001e-4
    bed = from_store(store)
    shift = sb.Shift(name="v2", kind="natural-dataset", source=("val",), target="v2")
    line = bed.fit(shift)
    assert (round(line.weights[0], 5), round(line.intercept, 5)) == (0.94737, -0.52198)
    assert bed.judge(line).paired.all()
