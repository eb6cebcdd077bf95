"""Files of the Hugging Face hub by URL: ``hf://datasets/OWNER/NAME[@REVISION]/PATH``.

They are kept in the hub's own cache by commit, where other libraries find them too. A pinned commit
that is there is not asked for again; a branch or tag is looked up where the hub can be reached, and
taken as it was last seen where it cannot.
"""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from shiftbed.errors import EXTRAS, InputError, brief

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "SHIFTBED_OFFLINE")
"""Setting any of these forbids the network."""
PATIENCE = 4.0
"""Seconds a host has to answer anything at all."""
_ADDRESS = re.compile(r"hf://(?:(datasets|spaces|models)/)?([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.*))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


class Address(NamedTuple):
    """A file, folder or pattern in a repository of the hub."""

    kind: str
    repository: str
    revision: str
    path: str

    @property
    def url(self) -> str:
        kinds = "" if self.kind == "model" else f"{self.kind}s/"
        return f"hf://{kinds}{self.repository}@{self.revision}/{self.path}"


def address_of(url: str) -> Address | None:
    """What a URL names on the hub; None for other URLs.

    >>> address_of("hf://datasets/owner/set@v1/data/test-*.parquet")
    Address(kind='dataset', repository='owner/set', revision='v1', path='data/test-*.parquet')
    """
    if not url.startswith("hf://"):
        return None
    found = _ADDRESS.fullmatch(url)
    if found is None:
        raise InputError(f"{url}: expected hf://datasets/OWNER/NAME[@REVISION]/PATH")
    revision = unquote(found[3] or "main")
    return Address((found[1] or "models")[:-1], found[2], revision, (found[4] or "").strip("/"))


def snapshot(where: Address, said: str) -> Path:
    """The folder of one commit in the hub's cache, with what an address names in it.

    Its name is the commit.
    """
    try:
        from huggingface_hub import constants, snapshot_download
    except ImportError:
        raise InputError(
            f"{said} needs huggingface_hub: pip install 'shiftbed[{EXTRAS['transformers']}]'"
        ) from None
    patterns = [where.path, f"{where.path}/*"] if where.path else None

    def ask(cached: bool) -> Path:
        with _without_bars():
            return Path(
                snapshot_download(
                    where.repository,
                    repo_type=where.kind,
                    revision=where.revision,
                    allow_patterns=patterns,
                    local_files_only=cached,
                )
            )

    pinned = _COMMIT.fullmatch(where.revision) is not None
    reason = None if pinned else unreachable(constants.ENDPOINT)
    if pinned or reason is not None:
        try:
            found = ask(cached=True)
            if _files(found, where.path):
                return found
        except (OSError, ValueError):  # what huggingface_hub's errors are
            pass
        reason = reason or unreachable(constants.ENDPOINT)
    if reason is None:
        try:
            found = ask(cached=False)
            if _files(found, where.path):
                return found
            reason = "the repository has no such file"
        except (OSError, ValueError) as error:
            reason = brief(error)
    raise InputError(f"{said}: not in the hub's cache and could not be fetched ({reason})")


def files_at(url: str) -> list[str]:
    """The URLs that a pattern stands for, sorted, each with its commit."""
    where = address_of(url)
    assert where is not None
    folder = snapshot(where, url)
    found = [one.relative_to(folder).as_posix() for one in _files(folder, where.path)]
    return [where._replace(revision=folder.name, path=one).url for one in sorted(found)]


def commit_of(url: str) -> str | None:
    """The commit that a file, folder or pattern on the hub was read at; None for other URLs."""
    where = address_of(url)
    return None if where is None else snapshot(where, url).name


def _files(folder: Path, path: str) -> list[Path]:
    if not path:
        return [folder]
    exact = folder / path
    return [exact] if exact.exists() else list(folder.glob(path))


@contextmanager
def _without_bars() -> Iterator[None]:
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    hidden = are_progress_bars_disabled()
    if not hidden:
        disable_progress_bars()
    try:
        yield
    finally:
        if not hidden:
            enable_progress_bars()


def unreachable(address: str) -> str | None:
    """Why nothing can be fetched from an address, or None; asked once per host.

    The libraries retry for half a minute when there is no network; this says so in seconds.
    """
    for name in OFFLINE:
        if os.environ.get(name, "").lower() in ("1", "true", "yes", "on"):
            return f"{name} is set"
    parts = urlsplit(address)
    return _ask(f"{parts.scheme}://{parts.netloc}", PATIENCE)


@cache
def _ask(root: str, patience: float) -> str | None:
    import urllib.error
    import urllib.request  # which takes as long to load as a table to read

    answer: list[str | None] = []

    def ask() -> None:
        try:
            request = urllib.request.Request(root, method="HEAD")
            with urllib.request.urlopen(request, timeout=patience):
                answer.append(None)
        except urllib.error.HTTPError as error:  # it answered
            error.close()
            answer.append(None)
        except (OSError, ValueError) as error:
            answer.append(str(getattr(error, "reason", error)))

    thread = threading.Thread(target=ask, daemon=True)  # looking up a name knows no time-out
    thread.start()
    thread.join(patience + 1)
    return answer[0] if answer else f"no answer within {patience + 1:g} s"
