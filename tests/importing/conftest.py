"""Files to import, written on the spot, and what a refusal must look like."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.importing import import_results
from tests.conftest import SHARED

Write = Callable[..., Path]
Refused = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write text or bytes, or arrays as .npz, and return the path."""

    def write(name: str, content: str | bytes | None = None, **arrays: Any) -> Path:
        path = tmp_path / name
        if content is None:
            np.savez_compressed(path, **arrays)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_bytes(content.encode())
        return path

    return write


@pytest.fixture
def refused() -> Refused:
    """Import files, expect one line of complaint with all these words in it."""

    def refused(paths: Path | list[Path], *words: str, **options: Any) -> str:
        listed = paths if isinstance(paths, list) else [paths]
        with pytest.raises(InputError) as caught:
            import_results(listed, **options)
        message = str(caught.value)
        assert "\n" not in message
        assert "Traceback" not in message
        assert message.startswith(tuple(str(path) for path in listed)) or "FILELESS" in words
        for word in words:
            assert word in message or word == "FILELESS", f"{word!r} is not in {message!r}"
        return message

    return refused


@pytest.fixture(scope="session")
def figures() -> Path:
    folder = SHARED / "figures"
    if not folder.is_dir():
        pytest.skip("public figures are not beside the checkout")
    return folder
