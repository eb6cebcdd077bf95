"""What tests share: the published testbed, and the folder of public data beside the checkout."""

from pathlib import Path

import pytest
from hypothesis import settings

import shiftbed as sb

settings.register_profile("shiftbed", deadline=None)  # no test asserts a time
settings.load_profile("shiftbed")

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
