"""What tests share: the published testbed, a small one whose corners are known, and the folder of
public data beside the checkout."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import settings
from scipy.special import expit

import shiftbed as sb

settings.register_profile("shiftbed", deadline=None)  # no test asserts a time
settings.load_profile("shiftbed")

SHIFT = sb.Shift(name="s", kind="natural-dataset", source=("id",), target="ood", title="A shift")
SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def imagenet() -> sb.Testbed:
    return sb.published("imagenet-testbed-2020")


@pytest.fixture(scope="session")
def predictions() -> Path:
    folder = SHARED / "predictions"
    if not folder.is_dir():
        pytest.skip("public per-image predictions are not beside the checkout")
    return folder


@pytest.fixture(scope="session")
def small() -> sb.Testbed:
    """30 models of two architectures on two lines, one far out, one at 0, one missing."""
    rng = np.random.default_rng(7)
    z = np.linspace(-1.0, 2.0, 30)
    ood = 0.9 * z - 0.5 + rng.normal(0.0, 0.03, 30) + np.where(np.arange(30) % 2, 0.4, 0.0)
    value = np.column_stack([expit(z), expit(ood)])
    value[27] = [0.7, 0.2]
    value[28, 1] = 0.0
    value[29, 1] = np.nan
    models = pl.DataFrame(
        {
            "model": [f"m{i}" for i in range(30)],
            "kind": ["standard"] * 20 + ["intervention"] * 10,
            "in_fit_set": [True] * 20 + [False] * 10,
            "parent": [None] * 30,
            "architecture": ["conv" if i % 2 else "vit" for i in range(30)],
        },
        schema_overrides={"parent": pl.String},
    )
    return sb.Testbed(
        name="small",
        models=models,
        settings=("id", "ood"),
        value=value,
        n=np.full((30, 2), 1000, dtype=np.int64),
        shifts=(SHIFT,),
        citation="Somebody: Something. 2020.",
    )
