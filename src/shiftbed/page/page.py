"""The page: one HTML file with its data, its style and its script inside, and nothing else.

The Content-Security-Policy names the script and the style by their SHA-256, so that nothing else in
the page can run, whatever a model or a setting is called; there is no ``unsafe-inline`` and no
``unsafe-eval``, and nothing may be loaded from anywhere.
"""

import base64
import hashlib
import html
from collections.abc import Sequence
from importlib import resources
from typing import Any

from shiftbed.figures.interactive import script_json

SCRIPTS = (
    "core.js",
    "statistics.js",
    "plot.js",
    "scatter.js",
    "plane.js",
    "grid.js",
    "robustness.js",
    "multiples.js",
    "charts.js",
    "main.js",
)
"""In the order they are put together: main.js, last, starts the page."""


def page(data: dict[str, Any], *, refresh: bool = False) -> str:
    """The whole page as text; with ``refresh`` it looks for newer data while it is open."""
    title = html.escape(str(data["title"]))
    body = f"""<a class="skip" href="#view">Skip to the view</a>
<header>
<h1>{title}</h1>
<nav aria-label="Views"><ul id="views"></ul></nav>
</header>
<main id="view" tabindex="-1"></main>
<footer><p class="small">Everything is in this file: it loads nothing, sends nothing, and its
address after # is a link to what it shows.</p></footer>
<noscript><p>The charts need JavaScript; the numbers are in the data block of this file.</p>
</noscript>
<script type="application/json" id="data">{script_json(data)}</script>"""
    return _document(title, body, (*SCRIPTS, *(["refresh.js"] if refresh else [])), refresh)


def waiting_page(reason: str) -> str:
    """A page that says why there is nothing to show yet, and looks again by itself."""
    body = f"""<header><h1>Nothing to show yet</h1></header>
<main><p>{html.escape(reason)}</p>
<p class="small">This page looks again every few seconds.</p></main>"""
    return _document("Waiting", body, ("refresh.js",), True)


def _document(title: str, body: str, scripts: Sequence[str], connect: bool) -> str:
    """The whole file; ``connect`` lets its script ask the server that it came from."""
    script = '"use strict";\n(() => {\n' + "\n".join(map(_web, scripts)) + "})();\n"
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
