"""An option that a message names is an option of the command that says it."""

import ast
import re
from pathlib import Path

import pytest
from typer.main import get_command

from shiftbed.cli.commands import Commands
from shiftbed.cli.main import app

SOURCE = Path(__file__).parents[2] / "src" / "shiftbed"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def options(name, command):
    """Options by command, those of verbs ("store import") too."""
    below = getattr(command, "commands", {})
    if below:
        full = command.full if isinstance(command, Commands) else below.__getitem__
        for other in below:
            yield from options(f"{name} {other}".strip(), full(other))
    else:
        yield (
            name,
            {one for param in command.params for one in (*param.opts, *param.secondary_opts)},
        )


KNOWN = dict(options("", get_command(app)))
EVERY = set().union(*KNOWN.values()) | {"--help", "--version"}


def raised(path):
    """Texts of ``raise …`` in a file, with the function that they are in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Raise) and node.exc is not None:
                    texts = [
                        one.value
                        for one in ast.walk(node.exc)
                        if isinstance(one, ast.Constant) and isinstance(one.value, str)
                    ]
                    yield function.name, " ".join(texts)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.name)
def test_every_option_that_a_message_names_exists(path):
    for where, text in raised(path):
        unknown = set(OPTION.findall(text)) - EVERY
        assert not unknown, f"{path.name}, {where}: {text!r} names {unknown}"


def test_messages_are_found():
    """The search itself finds options, and knows those of commands built late."""
    found = [
        option
        for path in SOURCE.rglob("*.py")
        for _, text in raised(path)
        for option in OPTION.findall(text)
    ]
    assert len(found) > 40
    assert "--shift" in KNOWN["store import"]
    assert "--fit-on" in KNOWN["rank"]


@pytest.mark.parametrize(("module", "commands"), [
    ("engine/class_names.py", ["eval"]),
    ("engine/check.py", ["eval"]),
    ("importing/layouts.py", ["import"]),
    ("importing/units.py", ["import"]),
    ("importing/exchange.py", ["store import", "store export"]),
    ("store/twin.py", ["store twin"]),
    ("captioning/selection.py", ["captions"]),
    ("captioning/sources.py", ["captions"]),
])  # fmt: skip
def test_it_is_one_of_the_command_s_own(module, commands):
    own = set().union(*(KNOWN[one] for one in commands))
    for where, text in raised(SOURCE / module):
        for option in OPTION.findall(text):
            assert option in own, f"{module}, {where}: {text!r}"


READING = re.compile(r"\b(\w+_column|classes|root|layout)(?==| if| to)")


def test_what_messages_about_test_sets_ask_for_can_be_given_to_eval():
    asked = {
        name
        for path in (SOURCE / "evaluation" / "data").rglob("*.py")
        for _, text in raised(path)
        for name in READING.findall(text)
    } - {"caption_column"}
    assert {"label_column", "image_column"} <= asked | {"label_column", "image_column"}
    for name in asked | {"classes", "root", "layout"}:
        assert f"--{name.replace('_', '-')}" in KNOWN["eval"]
