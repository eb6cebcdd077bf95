"""Where files are: a path of this machine, or a URL that fsspec reaches. Decided here alone.

A file or folder to be read by URL is fetched into the cache once, under its address and what the
other side says of its content, and read from there; a file to be written is put there whole when it
is complete. Requests are tried again with growing pauses. Credentials come by the usual chain
(environment, profiles, roles of the machine); a URL that carries some is refused, because URLs are
kept in records.
"""

import hashlib
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from shiftbed import hub
from shiftbed.errors import EXTRAS, InputError, Unreachable, brief

T = TypeVar("T")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):(/+)(.*)", re.DOTALL)
_SECRET = re.compile(r"(?i)(signature|credential|token|secret|password|api_?key)[^=&]*=")
_FOLDERS = re.compile(r"(?<=[:=])(?:~[^/?&]*/|/(?!/))(?:[^?&]*/)?(?=[^/?&])")
"""Those of an absolute path within a line; what follows ``s3:`` is none."""
PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds between the tries of a request, give or take a half."""
PATIENCE = 30.0
"""Seconds after which a request that fails is not tried again: libraries have their own tries."""
_FINAL = (
    *(FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError),
    NotImplementedError,
)
"""What trying again does not help."""
_VERSIONS = (
    *("ETag", "etag", "checksum", "Content-MD5", "Digest", "mtime", "LastModified"),
    *("Last-Modified", "created", "version_id"),
)
"""What file systems call that which changes with a file's content."""
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs"}


def url_of(place: str | Path) -> str | None:
    """The URL that a text or path is, None for a path of this machine.

    A URL that was taken for a path has lost a slash, and is still a URL.

    >>> url_of("s3://bucket/a"), url_of(Path("s3://bucket/a")), url_of("results/a")
    ('s3://bucket/a', 's3://bucket/a', None)
    """
    text = str(place)
    match = _URL.fullmatch(text)
    if match is None or match[1].lower() in ("file", "local", "pipe"):
        return None
    if len(match[2]) == 1:
        if match[1] not in _protocols():
            return None
        text = f"{match[1]}://{match[3]}"
    parts = urlsplit(text)
    if parts.password or _SECRET.search(parts.query):
        hidden = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
        raise InputError(
            f"{hidden}: a URL with credentials in it; they come from the environment or a profile"
        )
    return text


def known_url(text: str) -> None:
    """Refuse what looks like a URL of a kind that nothing reads, before it becomes a folder.

    >>> known_url("s4://bucket/report.html")
    Traceback (most recent call last):
    shiftbed.errors.InputError: s4://bucket/report.html: no known kind of URL; did you mean s3://?
    """
    match = _URL.fullmatch(text)
    if match is None or len(match[2]) < 2 or match[1] in ("file", "local"):
        return
    known = sorted(_protocols())
    if match[1] not in known:
        close = [one for one in ("s3", *known) if one[0] == match[1][0]][:1] or ["s3"]
        raise InputError(f"{text}: no known kind of URL; did you mean {close[0]}://?")


def path_of(place: str | Path) -> Path:
    """A place of this machine as a path; ``file:///a`` is ``/a``.

    >>> path_of("file:///a/b%20c"), path_of("a/b")
    (PosixPath('/a/b c'), PosixPath('a/b'))
    """
    match = _URL.fullmatch(str(place))
    if match is not None and match[1].lower() in ("file", "local"):
        return Path("/" + unquote(match[3]))
    return Path(place)


def shown_place(place: str | Path) -> str:
    """A place as it was given: a URL with both its slashes."""
    return url_of(place) or str(place)


def keys_in(line: str) -> dict[str, str]:
    """What follows the ``?`` of a line that names a model or a test set; ``%26`` stands for ``&``.

    >>> keys_in("timm:resnet18?weights=a.pt&num_classes=7")
    {'weights': 'a.pt', 'num_classes': '7'}
    """
    found: dict[str, str] = {}
    for item in filter(None, line.partition("?")[2].split("&")):
        key, equals, value = item.partition("=")
        if not equals or not value or key in found:
            raise InputError(f"{line}: {item!r} must be key=value, each key once")
        found[key] = unquote(value)
    return found


def without_folders(value: Any) -> Any:
    """Lines of models, in whatever record, with the base names of absolute paths.

    Where a file lies on one machine is no name of a model, and nobody else's business.

    >>> without_folders("onnx:/home/me/net.onnx"), without_folders("onnx:s3://nets/net.onnx")
    ('onnx:net.onnx', 'onnx:s3://nets/net.onnx')
    >>> without_folders({"spec": "nets:resnet8?size=8&weights=~/runs/1/a.pt"})
    {'spec': 'nets:resnet8?size=8&weights=a.pt'}
    """
    if isinstance(value, str):
        return _FOLDERS.sub("", value)
    if isinstance(value, Mapping):
        return {key: without_folders(one) for key, one in value.items()}
    return [without_folders(one) for one in value] if isinstance(value, list | tuple) else value


def only_here(place: str | Path, what: str) -> Path:
    """A path of this machine; ``what`` cannot be anywhere else."""
    url = url_of(place)
    if url is not None:
        raise InputError(f"{url}: {what} must be on this machine, not at a URL")
    return path_of(place)


def _protocols() -> frozenset[str]:
    """What begins a URL; the most usual ones where fsspec is not installed."""
    try:
        from fsspec.registry import available_protocols
    except ImportError:
        return frozenset(("s3", "gs", "gcs", "az", "abfs", "http", "https", "ftp", "hf", "memory"))
    return frozenset(available_protocols())


def file_system(url: str, **options: Any) -> tuple[Any, str]:
    """The fsspec file system of a URL, without listings kept from before, and the path in it."""
    scheme = urlsplit(url).scheme
    try:
        import fsspec

        found, path = fsspec.core.url_to_fs(url, use_listings_cache=False, **options)
        return found, str(path).rstrip("/")
    except ImportError as error:
        package = _PACKAGES.get(scheme)
        extra = EXTRAS.get(package or "fsspec")
        fix = f": pip install 'shiftbed[{extra}]'" if package or error.name == "fsspec" else ""
        raise InputError(f"{url} needs {package or brief(error)}{fix}") from None
    except ValueError as error:
        raise InputError(f"{url}: {brief(error)}") from None


def version_of(about: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """The size of a file, and what changes with its content, as its file system says them."""
    return about.get("size"), [about.get(k) for k in _VERSIONS]


_under_way: list[str] = []


def requesting() -> bool:
    """Whether a request of ours is under way, in any thread."""
    return bool(_under_way)


def patiently(work: Callable[[], T], what: str) -> T:
    """What ``work`` returns; tried again when the other side is slow, busy or cut off."""
    _under_way.append(what)
    try:
        return _tried(work, what)
    finally:
        _under_way.remove(what)


def _tried(work: Callable[[], T], what: str) -> T:
    begun = time.monotonic()
    for tries, pause in enumerate((*PAUSES, None), 1):
        try:
            return work()
        except _FINAL:
            raise
        except Exception as error:
            if "Credentials" in type(error).__name__:
                raise InputError(f"{what}: {brief(error)}") from None
            library = type(error).__module__.partition(".")[0]
            passing = isinstance(error, OSError) or library in ("aiohttp", "botocore", "asyncio")
            if not passing:
                raise
            if pause is None or time.monotonic() - begun > PATIENCE:
                raise Unreachable(f"{what}: {brief(error)} (tried {tries} times)") from None
            time.sleep(pause * random.uniform(0.5, 1.5))
    raise AssertionError("not reached")


def put(url: str, source: Path) -> None:
    """A local file to a URL, whole."""
    files, path = file_system(url)

    def work() -> None:
        files.makedirs(path.rpartition("/")[0], exist_ok=True)
        files.put_file(str(source), path)

    try:
        patiently(work, f"cannot write {url}")
    except _FINAL as error:
        raise InputError(f"cannot write {url}: {brief(error)}") from None


def matching(url: str) -> list[str]:
    """The URLs that a pattern stands for, sorted."""
    if hub.address_of(url) is not None:
        return hub.files_at(url)
    files, path = file_system(url)
    found = patiently(lambda: files.glob(path), url)
    return sorted(str(files.unstrip_protocol(one)) for one in found)


def there(place: str | Path) -> bool:
    """Whether there is such a file or folder."""
    url = url_of(place)
    if url is None:
        return path_of(place).exists()
    if hub.address_of(url) is not None:
        try:
            return local(url).exists()
        except InputError:
            return False
    files, path = file_system(url)
    return bool(patiently(lambda: files.exists(path), url))


def local(place: str | Path, what: str = "") -> Path:
    """A path of this machine for a file or folder to read; fetched first if it is a URL.

    What is there is fetched once, and again when it has changed on the other side, or when the
    other side does not say.
    """
    url = url_of(place)
    if url is None:
        return path_of(place)
    said = f"{what}: {url}" if what else url
    on_hub = hub.address_of(url)
    if on_hub is not None:
        return hub.snapshot(on_hub, said) / on_hub.path
    files, path = file_system(url)
    try:
        about = patiently(lambda: files.info(path), said)
        folder = about["type"] == "directory"
        entries = {path: about}
        if folder:
            entries = patiently(lambda: files.find(path, detail=True), said)
    except _FINAL as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else brief(error)
        raise InputError(f"{said}: {reason}") from None
    if not entries:
        raise InputError(f"{said}: no such file or folder")
    stamp = hashlib.sha256(url.encode())
    versioned = True
    for name, one in sorted(entries.items()):
        versioned = versioned and any(one.get(k) for k in _VERSIONS)
        stamp.update(repr((name, *version_of(one))).encode())
    if not versioned:  # nothing says whether it has changed: fetched each time it is asked for
        stamp.update(os.urandom(16))
    place_of = cache_folder() / "fetched" / stamp.hexdigest()[:32]
    target = place_of / (path.rpartition("/")[2] or "root")
    if not target.exists():
        place_of.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place_of.parent, prefix=".fetching-") as temporary:
            inside = Path(temporary, "whole", target.name)
            goals = {
                name: inside / name[len(path) :].lstrip("/") if folder else inside
                for name in entries
            }
            for name, goal in goals.items():
                if not goal.resolve().is_relative_to(inside.resolve()):
                    raise InputError(f"{said}: a name in it leads out of it: {name!r}")
            with ThreadPoolExecutor(16) as pool:
                todo = [
                    pool.submit(_fetch, files, name, goal, entries[name].get("size"), said)
                    for name, goal in goals.items()
                ]
                for one in todo:
                    one.result()
            try:
                os.replace(inside.parent, place_of)
            except OSError:  # another process was faster
                if not target.exists():
                    shutil.move(str(inside.parent), place_of)
    return target


def _fetch(files: Any, name: str, goal: Path, size: int | None, said: str) -> None:
    def work() -> None:
        goal.parent.mkdir(parents=True, exist_ok=True)
        files.get_file(name, str(goal))
        if size is not None and goal.stat().st_size != size:
            raise OSError(f"{goal.stat().st_size} of {size} bytes came")

    try:
        patiently(work, said)
    except _FINAL as error:
        raise InputError(f"{said}: {brief(error)}") from None


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
