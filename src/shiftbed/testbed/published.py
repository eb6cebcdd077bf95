"""The testbeds that come with the package."""

from functools import lru_cache
from importlib.resources import as_file, files

from shiftbed.errors import unknown
from shiftbed.testbed.files import read_testbed
from shiftbed.testbed.record import Testbed

PUBLISHED = ("imagenet-testbed-2020", "robustnets-2022", "timm", "openclip")


@lru_cache(maxsize=len(PUBLISHED))
def published(name: str) -> Testbed:
    """A published testbed, such as ``imagenet-testbed-2020``.

    >>> published("imagenet-testbed-2020").value.shape[0]
    204
    """
    if name not in PUBLISHED:
        raise unknown("published testbed", name, PUBLISHED)
    with as_file(files("shiftbed") / "published" / f"{name}.parquet") as path:
        return read_testbed(path)
