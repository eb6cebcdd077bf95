"""Files that are either the old one or the whole new one, whenever the writer is killed."""

import os
import tempfile
from pathlib import Path
from typing import BinaryIO

from shiftbed.errors import InputError

_MASK = os.umask(0)  # can only be read by setting it; once, before there are threads
os.umask(_MASK)
_MODE = 0o666 & ~_MASK


class write_atomically:
    """A binary file that appears at ``path`` only once it is complete and on disk."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __enter__(self) -> BinaryIO:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, self.temporary = tempfile.mkstemp(
                dir=self.path.parent, prefix=f".{self.path.name}.", suffix=".part"
            )
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}") from None
        self.file: BinaryIO = os.fdopen(handle, "wb")
        return self.file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.file.flush()
            os.fsync(self.file.fileno())
        self.file.close()
        if kind is None:
            os.chmod(self.temporary, _MODE)
            os.replace(self.temporary, self.path)
        else:
            os.unlink(self.temporary)
