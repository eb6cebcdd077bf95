"""Pages of the reference, made when the site is built: one per package, and one of all commands.

Packages are read, not imported; only the command line and the report are, which load no
deep-learning framework.
A package that has ``__all__`` is documented by it, any other by its modules.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

__all__ = ["on_files"]

SOURCE = Path(__file__).parents[2] / "src" / "shiftbed"
PACKAGES = (
    "analysis",
    "captioning",
    "catalogue",
    "evaluation",
    "figures",
    "importing",
    "page",
    "papers",
    "reading",
    "engine",
    "store",
    "results",
    "testbed",
    "training",
)
BASICS = ("display", "records", "scales", "labels", "errors", "atomic")
ALSO = {
    "page": ("card", "plot", "report", "serve"),
    "papers": ("taori2020", "andreassen2021", "shi2023", "fridovich2022", "wenzel2022"),
    "store": ("relabel", "probes", "twin"),
    "testbed": ("averages",),
    "training": (
        *("train", "objective", "select", "augment", "prune", "weights", "weight_space"),
        *("difficulty", "linear_probe", "contrastive"),
    ),
}
"""Modules beyond what a package's own ``__all__`` names."""


AFTER_THE_REST = "---\nsearch:\n  boost: 0.5\n---"
"""In a search, other pages come first."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Called by MkDocs: add the pages."""
    for name, text in _pages():
        files.append(File.generated(config, f"api/{name}.md", content=text))
    files.append(File.generated(config, "report.html", content=_report()))
    return files


def _report() -> str:
    """The live report of the first page."""
    import shiftbed

    return shiftbed.report("imagenet-testbed-2020").page


def _pages() -> Iterator[tuple[str, str]]:
    yield "index", _index()
    yield "commands", _commands()
    yield "shiftbed", _top()
    yield "records", _page("records, scales, labels", [f"shiftbed.{name}" for name in BASICS])
    for name in PACKAGES:
        yield name, _page(f"shiftbed.{name}", list(_contents(SOURCE / name)))


def _page(title: str, names: list[str]) -> str:
    parts = [AFTER_THE_REST, f"# {title}", *(f"::: {name}" for name in names)]
    return "\n\n".join(parts) + "\n"


def _contents(package: Path) -> Iterator[str]:
    """Dotted names to document: the package itself, or its modules and packages.

    A function that shares its name with its module is documented there.
    """
    own = _dotted(package)
    names = _exported(package / "__init__.py")
    if names:
        yield own
        hidden = [name for name in names if (package / f"{name}.py").is_file()]
        yield from (
            f"{own}.{name}" for name in dict.fromkeys([*hidden, *ALSO.get(package.name, ())])
        )
        return
    for path in sorted(package.iterdir()):
        if (path / "__init__.py").is_file():
            yield from _contents(path)
        elif path.suffix == ".py" and path.stem != "__init__":
            yield f"{own}.{path.stem}"


def _dotted(path: Path) -> str:
    return ".".join(["shiftbed", *path.relative_to(SOURCE).parts])


def _exported(file: Path) -> list[str]:
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def _summary(file: Path) -> str:
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n\n")[0]


def _index() -> str:
    rows = [
        f"| [`shiftbed.{name}`]({name}.md) | {_one_line(_summary(SOURCE / name / '__init__.py'))} |"
        for name in PACKAGES
    ]
    basics = ", ".join(f"`{name}`" for name in BASICS)
    return "\n".join(
        [
            "# Reference",
            "",
            "What `import shiftbed as sb` gives is on [one page](shiftbed.md); the command line is",
            "on [another](commands.md). The rest by package; which may import which says",
            "[the architecture](../architecture.md).",
            "",
            "| package | what |",
            "|---|---|",
            *rows,
            f"| [{basics}](records.md) | What passes between the parts |",
            "",
        ]
    )


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _top() -> str:
    """The names of ``shiftbed`` itself, as links to where they are explained."""
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    doc = ast.get_docstring(tree) or ""
    first, _, example = doc.partition("\n\n")
    stub = ast.parse((SOURCE / "__init__.pyi").read_text(encoding="utf-8"))
    rows = []
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            rows += [f"| [`{n}`][{_home(str(node.module), n)}] | `{node.module}` |" for n in names]
    rows.sort(key=str.lower)
    head = ["# shiftbed", "", first, "", "```pycon", example, "```", ""]
    return "\n".join([*head, "| name | from |", "|---|---|", *rows, ""])


def _home(module: str, name: str) -> str:
    """Where a name is explained; a function may share its name with its module."""
    folder = SOURCE.joinpath(*module.split(".")[1:])
    return f"{module}.{name}.{name}" if (folder / f"{name}.py").is_file() else f"{module}.{name}"


def _commands() -> str:
    from typer.main import get_command

    from shiftbed.cli import app

    root: Any = get_command(app)
    parts = ["# Commands", "", "Exit codes: 0 done, 1 done with failures, 2 bad input.", ""]
    for name in sorted(root.commands):
        command = root.full(name)
        parts += _command(f"shiftbed {name}", command)
        for sub, inner in sorted(getattr(command, "commands", {}).items()):
            parts += _command(f"shiftbed {name} {sub}", inner, level=3)
    return "\n".join(parts)


def _command(title: str, command: Any, level: int = 2) -> list[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name != "argument" and p.name != "help"]
    lines = [f"{'#' * level} {title}", "", (command.help or "").strip(), ""]
    rows = [f"| `{p.name.upper()}` | {_help(p)} |" for p in arguments]
    rows += [f"| `{', '.join([*p.opts, *p.secondary_opts])}` | {_help(p)} |" for p in options]
    return [*lines, *(["| option | what |", "|---|---|", *rows, ""] if rows else [])]


def _help(parameter: Any) -> str:
    said = _one_line(parameter.help or "").replace("[", "\\[").replace("<", "&lt;")
    value = parameter.default
    if value in (None, (), [], False) or callable(value):
        return said
    return f"{said} Default: `{value}`."
