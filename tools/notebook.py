"""``examples/notebook.py`` as a notebook with its outputs, and as a page of the documentation.

python -m tools.notebook        write docs/notebook.ipynb, docs/notebook.md and their picture
"""

import base64
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.preprocessors import ExecutePreprocessor

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "examples" / "notebook.py"
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
PAGE = ROOT / "docs" / "notebook.md"
PICTURE = ROOT / "docs" / "images" / "notebook.png"
TITLE = "A study in a notebook"
SECTIONS = {
    "import matplotlib": "",
    "digits = ": "Two networks, trained in plain torch. `sb.model` copies a module as it is and "
    "needs to know which pixels it was trained on.",
    "val = ": "Test sets, from arrays and from a loader.",
    "shifts = ": "Both networks on both test sets: clean, corrupted and attacked. Predictions per "
    "image are kept, so any metric is computed from them later.",
    "narrow = ": "A model placed on the line of a published testbed, and two published models "
    "compared.",
    "print(sb.probe": "How smooth is a network? Norms of its Jacobian.",
    "figure, ": "Results draw themselves, into axes of yours if you like.",
    "print(sb.report": "Everything on one offline page.",
}
"""How a cell's first line starts → what is said above it."""
MOST = 300_000
"""Bytes of the notebook, pictures included."""


def sections(code: str) -> list[tuple[str, str]]:
    """(text above, code) of each cell; the cells' code makes up the script.

    >>> [len(code.splitlines()) > 0 for _, code in sections(SCRIPT.read_text())].count(True)
    8
    """
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in code.splitlines():
        start = next((start for start in SECTIONS if line.startswith(start)), None)
        if start is not None and (found[-1][1] and start != next(iter(SECTIONS))):
            found.append((SECTIONS[start], []))
        found[-1][1].append(line)
    return [(text, "\n".join(lines).strip("\n")) for text, lines in found]


def notebook() -> Any:
    """The script as cells, run in a temporary directory."""
    made = nbformat.v4.new_notebook(metadata={"kernelspec": _KERNEL})
    made.cells.append(nbformat.v4.new_markdown_cell(f"# {TITLE}"))
    for text, code in sections(SCRIPT.read_text(encoding="utf-8")):
        if text:
            made.cells.append(nbformat.v4.new_markdown_cell(text))
        made.cells.append(nbformat.v4.new_code_cell(code))
    for at, cell in enumerate(made.cells):
        cell["id"] = f"cell-{at}"
    with tempfile.TemporaryDirectory() as folder:
        run = ExecutePreprocessor(timeout=600, kernel_name="python3", record_timing=False)
        run.preprocess(made, {"metadata": {"path": folder}})
        said = nbformat.writes(made)
        for private in (folder, str(ROOT), str(Path.home())):
            if private in said:
                raise SystemExit(f"an output names {private}")
    if len(said.encode()) > MOST:
        raise SystemExit(f"the notebook has {len(said.encode()):,} bytes, at most {MOST:,} wanted")
    return made


_KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def page(made: Any) -> str:
    """The notebook as Markdown; its picture is a file."""
    parts = [f"# {TITLE}", f"The same [as a notebook]({NOTEBOOK.name}) with its outputs."]
    for cell in made.cells[1:]:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        printed = "".join(o["text"] for o in cell.outputs if o.output_type == "stream")
        if printed:
            parts.append("```output\n" + "\n".join(_lines(printed)) + "\n```")
        if any("image/png" in o.get("data", {}) for o in cell.outputs):
            parts.append(f"![What the cell draws](images/{PICTURE.name})")
    return "\n\n".join(parts) + "\n"


def _lines(text: str) -> Iterator[str]:
    return (line.rstrip() for line in text.strip("\n").splitlines())


def main() -> None:
    made = notebook()
    nbformat.write(made, NOTEBOOK)
    for cell in made.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                PICTURE.write_bytes(base64.b64decode(output["data"]["image/png"]))
    PAGE.write_text(page(made), encoding="utf-8")


if __name__ == "__main__":
    main()
