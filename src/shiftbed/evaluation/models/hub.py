"""Weights from the libraries' own caches, fetched only where the network answers at once."""

import os
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from shiftbed.errors import InputError

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "SHIFTBED_OFFLINE")
"""Setting any of these forbids the network."""
_WITH_WEIGHTS = "pass it as weights=FILE"
PATIENCE = 4.0
"""Seconds a host has to answer anything at all."""


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


def hub_file(
    repository: str, names: Sequence[str], what: str, instead: str = _WITH_WEIGHTS
) -> Path:
    """One of the named files of a hub repository: from the cache, else fetched.

    ``repository`` may carry a revision, ``OWNER/NAME@REVISION``. A file that was put into the
    cache by hand, as ``snapshots/ANYTHING/FILE``, is found too. ``instead`` is what else the user
    can do, for the error.
    """
    from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    name, _, revision = repository.partition("@")
    for file in names:
        found = try_to_load_from_cache(name, file, revision=revision or None)
        if isinstance(found, str):
            return Path(found)
    folder = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "snapshots"
    by_hand = [p for f in names for p in sorted(folder.glob(f"{revision or '*'}/{f}"))]
    if by_hand:
        return by_hand[0]
    reason = unreachable(constants.ENDPOINT)
    for file in names if reason is None else ():
        try:
            return Path(hf_hub_download(name, file, revision=revision or None))
        except EntryNotFoundError:
            reason = f"{name} has no {' or '.join(names)}"
        except (HfHubHTTPError, OSError) as error:
            reason = str(error).splitlines()[0]
            break
    place = folder / (revision or "main") / names[0]
    raise _missing(what, f"{name} on the hub", place, reason, instead)


def url_file(url: str, what: str, folder: Path | None = None) -> Path:
    """The file at a URL: from torch's hub cache (or ``folder``), else fetched."""
    import torch

    name = Path(urlsplit(url).path).name
    place = (folder or Path(torch.hub.get_dir()) / "checkpoints") / name
    if place.is_file():
        return place
    reason = unreachable(url)
    if reason is None:
        place.parent.mkdir(parents=True, exist_ok=True)
        stated = torch.hub.HASH_REGEX.search(name)
        try:
            torch.hub.download_url_to_file(
                url, str(place), hash_prefix=stated.group(1) if stated else None, progress=False
            )
            return place
        except (OSError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
    raise _missing(what, urlsplit(url).netloc, place, reason, _WITH_WEIGHTS)


def _missing(what: str, source: str, place: Path, reason: str | None, instead: str) -> InputError:
    return InputError(
        f"{what}: its files are not on this machine and could not be fetched ({reason}). "
        f"Get {place.name} of {source} and put it at {place}, or {instead}; "
        "'?pretrained=false' takes random weights"
    )
