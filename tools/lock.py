"""``python -m tools.lock``: requirements.lock, the exact versions of constraints.txt with hashes.

pip resolves the ``dev`` extra under constraints.txt without installing it; of every version all
SHA-256 are taken that the configured indexes list, so that the lock serves every platform and names
no index. torch is left out: its builds differ by platform and by where they come from.
"""

import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
LEFT_OUT = ("torch", "shiftbed")
BESIDE = ("setuptools", "torchattacks")
"""Installed besides: what builds the package, and a reference that pins an old requests."""
HEAD = """# Made by python -m tools.lock. make setup installs it with --require-hashes --no-deps;
# torch, which has other files on other platforms, follows at the version of constraints.txt.
"""


def main() -> int:
    """Write the lock; exit 1 where a version has no hash."""
    constraints = ROOT / "constraints.txt"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        pip("--report", str(report), "-c", str(constraints), "-e", f"{ROOT}[dev]", BESIDE[0])
        found = list(resolved(report))
        pip("--report", str(report), "-c", str(constraints), "--no-deps", BESIDE[1])
        found += resolved(report)
    places = indexes()
    with ThreadPoolExecutor(8) as pool:
        sums = list(pool.map(lambda one: one[2] | listed(places, *one[:2]), found))
    lines = []
    for (name, version, _), own in sorted(zip(found, sums, strict=True)):
        if not own:
            print(f"{name}=={version}: no index has a hash of it", file=sys.stderr)
            return 1
        hashes = " \\\n".join(f"    --hash=sha256:{one}" for one in sorted(own))
        lines.append(f"{name}=={version} \\\n{hashes}\n")
    LOCK.write_text(HEAD + "".join(lines))
    print(f"{LOCK.name}: {len(lines)} packages, {sum(map(len, sums))} hashes")
    return 0


def pip(*arguments: str) -> None:
    """Resolve without installing."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    subprocess.run([*command, *arguments], check=True)


def resolved(report: Path) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Name, version and the hash of the file chosen here of each package, but those left out."""
    for one in json.loads(report.read_text())["install"]:
        name = canonical(one["metadata"]["name"])
        if name not in LEFT_OUT:
            sums = one["download_info"].get("archive_info", {}).get("hashes", {})
            yield name, one["metadata"]["version"], frozenset({sums.get("sha256")} - {None})


def canonical(name: str) -> str:
    """As indexes spell it.

    >>> canonical("Ipython_Pygments.lexers")
    'ipython-pygments-lexers'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def indexes() -> list[str]:
    """Where pip looks, as it is configured."""
    from pip._internal.models.index import PyPI  # its default, which nothing else says

    shown = [sys.executable, "-m", "pip", "config", "list"]
    text = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    given = dict(re.findall(r"\.(index-url|extra-index-url)='([^']*)'", text))
    main = given.get("index-url", PyPI.simple_url)
    return [main, *given.get("extra-index-url", "").split()]


def listed(places: list[str], name: str, version: str) -> frozenset[str]:
    """The SHA-256 of all files of a version that the indexes list."""
    found: set[str] = set()
    for place in places:
        base = f"{place.rstrip('/')}/{name}/"
        try:
            address = f"{base}index.html" if base.startswith("file:") else base
            with urllib.request.urlopen(address, timeout=60) as page:
                text = page.read().decode()
        except OSError:  # not at this index
            continue
        for link, sha in re.findall(r'href="([^"#]+)#sha256=([0-9a-f]{64})', text):
            if version_of(unquote(link.rpartition("/")[2]), name) == version:
                found.add(sha)
    return frozenset(found)


def version_of(file: str, name: str) -> str | None:
    """The version in a file's name; None where it is of another kind.

    >>> version_of("numpy-2.4.1-cp311-cp311-win_amd64.whl", "numpy")
    '2.4.1'
    >>> version_of("flask_cors-6.0.5.tar.gz", "flask-cors")
    '6.0.5'
    """
    if file.endswith(".whl"):
        return file.split("-")[1]
    stem = re.sub(r"\.(tar\.gz|zip|tar\.bz2)$", "", file)
    head, _, version = stem.rpartition("-")
    return version if stem != file and canonical(head) == name else None


if __name__ == "__main__":
    raise SystemExit(main())
