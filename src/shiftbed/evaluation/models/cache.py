"""The folder for what is costly to compute again."""

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.store.files import LocalFiles


def cache_folder() -> Path:
    """``$SHIFTBED_CACHE``, or ``shiftbed`` in the platform's folder for caches."""
    given = os.environ.get("SHIFTBED_CACHE")
    if given:
        return Path(given).expanduser()
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "shiftbed"


def remembered(name: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """The array cached under a name; computed and written if it is missing or damaged.

    Where nothing can be written, it is computed every time.
    """
    folder = cache_folder()
    try:
        found: NDArray[Any] = np.load(folder / name, allow_pickle=False)
        return found
    except (OSError, ValueError, EOFError):
        pass
    found = compute()
    buffer = io.BytesIO()
    np.save(buffer, found, allow_pickle=False)
    with suppress(OSError, InputError):
        LocalFiles(folder).write(name, buffer.getvalue())
    return found
