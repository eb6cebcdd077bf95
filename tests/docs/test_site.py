"""The site is built without a warning, links lead somewhere, nothing is fetched from elsewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

from shiftbed.cli import app

ROOT = Path(__file__).parents[2]


class Page(HTMLParser):
    """Names that can be linked to, links, and what the browser loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        self.names |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("script", "img", "iframe") and "src" in given:
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "preconnect", "icon"):
            self.loaded.append(given["href"])


def test_site(tmp_path):
    """One test, so that the site is built once however many workers there are."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    assert not re.search(r"WARNING|ERROR", done.stdout), done.stdout
    pages = {
        path.resolve(): Page(path.read_text(encoding="utf-8"))
        for path in tmp_path.rglob("*.html")
        if path.name != "404.html"  # its links start at the address of the site
    }
    assert len(pages) > 30
    assert not dead_links(pages)
    assert not foreign(tmp_path, pages)
    names = set().union(*(page.names for page in pages.values()))
    assert not unexplained(names)
    assert {f"shiftbed-{name}" for name in commands()} <= names


def dead_links(pages: dict[Path, Page]) -> list[str]:
    """Links to pages, files and headings of the site that are not there."""
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            names = pages[target].names if target in pages else set()
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in names):
                dead.append(f"{path.name}: {link}")
    return dead


def foreign(site: Path, pages: dict[Path, Page]) -> set[str]:
    """What a browser would load from elsewhere."""
    found = {url for page in pages.values() for url in page.loaded if urlsplit(url).netloc}
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        found |= set(re.findall(r"url\([\"']?((?:https?:)?//[^)]*)", text))
    return found


def unexplained(names: set[str]) -> list[str]:
    """Names in a package's ``__all__`` without a place in the reference."""
    source = ROOT / "src" / "shiftbed"
    missing = []
    for package in ("", *(path.parent.name for path in source.glob("*/__init__.py"))):
        if package == "cli":  # has a page of its own
            continue
        dotted = f"shiftbed.{package}".rstrip(".")
        exported = getattr(import_module(dotted), "__all__", ())
        ends = {name.rpartition(".")[2] for name in names if name.startswith(dotted)}
        missing += [f"{dotted}.{name}" for name in exported if name not in ends]
    return missing


def commands() -> set[str | None]:
    known = {command.name for command in app.registered_commands}
    return known | {group.name for group in app.registered_groups}


def test_the_reference_needs_no_deep_learning_framework():
    """Its pages are written with torch and its kin blocked."""
    code = (
        "import sys\n"
        "for name in ('torch', 'torchvision', 'timm', 'onnxruntime', 'ray', 'open_clip'):\n"
        "    sys.modules[name] = None\n"
        "sys.path.insert(0, 'docs/site')\n"
        "import reference\n"
        "pages = dict(reference._pages())\n"
        "assert len(pages) > 15 and '::: shiftbed.analysis.baseline' in pages['analysis']\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
