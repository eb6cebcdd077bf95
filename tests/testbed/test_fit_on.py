"""A shift's own fit set: baseline models trained on its ID data."""

import numpy as np
import polars as pl
import pytest

from shiftbed.errors import InputError
from shiftbed.page.findings import findings
from shiftbed.page.report import payload
from shiftbed.records import Shift
from shiftbed.results.charts.scatter import scatter
from shiftbed.results.plot import open_source
from shiftbed.testbed import Testbed, open_testbed
from shiftbed.testbed.files import write_testbed


@pytest.fixture
def bed() -> Testbed:
    """Twelve models on a line of slope 1 through one data set, twelve on another line."""
    rng = np.random.default_rng(0)
    z = np.linspace(-1.5, 1.5, 12)
    noise = 0.01 * rng.standard_normal((2, 12))
    source = 1 / (1 + np.exp(-np.tile(z, 2)))
    target = 1 / (1 + np.exp(-np.concatenate([z - 0.5 + noise[0], 0.5 * z + 1 + noise[1]])))
    names = [f"{data}-{i}" for data in ("mnist", "usps") for i in range(12)]
    models = pl.DataFrame(
        {
            "model": names,
            "kind": "standard",
            "in_fit_set": [i % 12 != 5 for i in range(24)],
            "parent": pl.Series([None] * 24, dtype=pl.String),
            "training_data": [name.partition("-")[0] for name in names],
        }
    )
    whole = Shift(name="all", kind="natural-dataset", source=("a",), target="b")
    some = Shift(name="own", kind="natural-dataset", source=("a",), target="b",
                 fit_on="training_data=mnist")  # fmt: skip
    return Testbed(
        name="two", models=models, settings=("a", "b"), value=np.stack([source, target], axis=1),
        n=np.full((24, 2), 10_000), shifts=(whole, some),
    )  # fmt: skip


def test_the_line_goes_through_the_fit_set_that_meets_the_condition(bed):
    line = bed.fit("own", bootstrap=0)
    assert set(line.models) == {f"mnist-{i}" for i in range(12) if i != 5}
    assert line.weights[0] == pytest.approx(1, abs=0.02)
    assert line.r2 > 0.99 > bed.fit("all", bootstrap=0).r2
    found = bed.effective_robustness("own")
    assert found["fitted"].sum() == 11
    assert scatter(bed, "own").fitted.sum() == 11
    low = found.filter(pl.col("model").str.starts_with("usps"))["effective"].to_list()[0]
    assert low > 0.3  # far above a line it takes no part in


def test_models_named_by_hand_replace_it(bed):
    assert bed.fit("own", models="all", bootstrap=0).n == 24
    assert bed.fit("own", models="fit-set", bootstrap=0).n == 11


def test_it_is_kept_in_files_and_in_the_page(bed, tmp_path):
    write_testbed(bed, tmp_path / "bed.parquet")
    again = open_testbed(str(tmp_path / "bed.parquet"))
    assert again.shift("own").fit_on == "training_data=mnist"
    assert again.fit("own", bootstrap=0).n == 11
    found = findings(bed)
    assert found.lines["n"].to_list() == [22, 11]
    shifts = {one["name"]: one for one in payload(open_source(bed), found, [], [], [bed])["shifts"]}
    assert shifts["all"]["fit_set"] is None
    assert sum(shifts["own"]["fit_set"]) == 11


def test_an_unknown_column_is_named(bed):
    wrong = Shift(name="w", kind="natural-dataset", source=("a",), target="b", fit_on="data=x")
    with pytest.raises(InputError, match="column of models"):
        bed.fit(wrong)
