"""The page: one HTML file with its data, its style and its script inside, and nothing else.

The Content-Security-Policy names the script and the style by their SHA-256, so that nothing else in
the page can run, whatever a model or a setting is called; there is no ``unsafe-inline`` and no
``unsafe-eval``, and nothing may be loaded from anywhere.
"""

import base64
import hashlib
import html
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from shiftbed import __version__, figures
from shiftbed.atomic import write_atomically
from shiftbed.errors import InputError, plain_lines
from shiftbed.figures import Chart
from shiftbed.scales import Scale

SUFFIXES = (*figures.SUFFIXES, ".html")
"""Kinds of files a chart is written to."""

SCRIPTS = (
    "core.js",
    "statistics.js",
    "placing.js",
    "looks.js",
    "plot.js",
    "scatter.js",
    "plane.js",
    "grid.js",
    "robustness.js",
    "multiples.js",
    "charts.js",
    "glossary.js",
    "place.js",
    "start.js",
    "leaderboard.js",
    "main.js",
)
"""In the order they are put together: main.js, last, starts the page."""


def save(chart: Chart, path: str | Path, *, dpi: int = 300, style: str = "paper") -> None:
    """Write a chart to a file of the kind its name ends in; ``dpi`` is for .png.

    ``style`` is one of ``figures.STYLES``, for everything but .html, which is interactive.
    """
    if check_suffix(path) != ".html":
        figures.save_static(chart, path, dpi=dpi, style=style)
        return
    with write_atomically(path) as file:
        file.write(chart_page(chart).encode())


def check_suffix(path: str | Path) -> str:
    """The suffix of a figure's file, refused if it is none of ``SUFFIXES``."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: a figure is written to {', '.join(SUFFIXES)}, not {suffix!r}")
    return suffix


def chart_page(chart: Chart) -> str:
    """A page with this one chart and no models besides."""
    shown = {"id": "chart", "title": chart.title, "intro": "", "chart": chart_json(chart)}
    return page({"title": chart.title, "charts": [shown]})


def page(data: dict[str, Any], *, refresh: bool = False) -> str:
    """The whole page as text; with ``refresh`` it looks for newer data while it is open.

    ``data`` is what ``web/core.js`` reads; what it lacks is empty.
    """
    lists = ("findings", "settings", "value", "n", "shifts", "out_of_line", "charts", "missing")
    empty: dict[str, Any] = {name: [] for name in (*lists, "sources")}
    empty |= {"models": {"name": [], "columns": {}}, "metrics": {}}
    data = plain({**empty, "provenance": f"Made by shiftbed {__version__}.", **data})
    title = html.escape(str(data["title"]))
    body = f"""<a class="skip" href="#view">Skip to the view</a>
<header>
<h1>{title}</h1>
<nav aria-label="Views" id="views"></nav>
</header>
<main id="view" tabindex="-1"></main>
<footer><p class="small">Everything is in this file: it loads nothing, sends nothing, and its
address after # is a link to what it shows.</p></footer>
<noscript><p>The charts need JavaScript; the numbers are in the data block of this file
(JSON, deflated, in base64).</p>
</noscript>
<script type="application/octet-stream" id="data">{packed(data)}</script>"""
    return _document(title, body, (*SCRIPTS, *(["refresh.js"] if refresh else [])), refresh)


def waiting_page(reason: str) -> str:
    """A page that says why there is nothing to show yet, and looks again by itself."""
    body = f"""<header><h1>Nothing to show yet</h1></header>
<main><p>{html.escape(reason)}</p>
<p class="small">This page looks again every few seconds.</p></main>"""
    return _document("Waiting", body, ("refresh.js",), True)


def _document(title: str, body: str, scripts: Sequence[str], connect: bool) -> str:
    """The whole file; ``connect`` lets its script ask the server that it came from."""
    script = '"use strict";\n(async () => {\n' + "\n".join(map(_web, scripts)) + "})();\n"
    style = _web("style.css")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    ) + ("; connect-src 'self'" if connect else "")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="referrer" content="no-referrer">
<title>{title} – shiftbed</title>
<style>{style}</style>
</head>
<body>
{body}
<script>{script}</script>
</body>
</html>
"""


def _web(name: str) -> str:
    return resources.files(__package__).joinpath("web", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def packed(value: Any) -> str:
    """A value as JSON, deflated, in base64: small, and without a character of HTML's."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    deflate = zlib.compressobj(7, zlib.DEFLATED, -15)
    return base64.b64encode(deflate.compress(text.encode()) + deflate.flush()).decode()


def data_of(text: str) -> Any:
    """The data of a page, from its HTML.

    >>> data_of(page({"title": "t"}))["title"]
    't'
    """
    _, _, rest = text.partition('id="data">')
    block = base64.b64decode(rest.partition("</script>")[0])
    return json.loads(zlib.decompress(block, -15))


def plain(value: Any) -> Any:
    """Values JSON has: NaN and infinities become null, arrays lists, numbers Python's.

    Texts are without what is invisible or turns a line around.
    """
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {plain_lines(str(key)): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return plain_lines(value) if isinstance(value, str) else value


def chart_json(chart: Chart) -> dict[str, Any]:
    """A finished chart with its kind as ``type``; an infinite slope is null.

    >>> from shiftbed.figures import Bars
    >>> chart = Bars(title="t", categories=("a",), series=("s",), values=np.array([[1.0]]))
    >>> chart_json(chart)["type"], chart_json(chart)["values"]
    ('bars', [[1.0]])
    """

    def value(one: Any) -> Any:
        if isinstance(one, Chart):
            return chart_json(one)
        if isinstance(one, Scale):
            return one.name
        if is_dataclass(one):
            return {f.name: value(getattr(one, f.name)) for f in fields(one)}
        if isinstance(one, tuple):
            return [value(part) for part in one]
        return plain(one)

    named = {field.name: value(getattr(chart, field.name)) for field in fields(chart)}
    return {"type": type(chart).__name__.lower(), **named}
