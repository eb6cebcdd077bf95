"""The architecture's four walks name the files that the commands really go through."""

import re
from pathlib import Path

import pytest

from tests.walks import COMMANDS, walks

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def walk_of(command: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"- \*\*`shiftbed {command}`\*\*: (.*?)\n(?=- |\n)", text, re.S)
    return re.findall(r"`([^`]+\.py)`", found[1])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_file_of_a_walk_is_there_and_named_once(command):
    files = walk_of(command)
    source = PAGE.parents[1] / "src" / "shiftbed"
    assert len(files) > 10
    assert len(set(files)) == len(files)
    assert [name for name in files if not (source / name).is_file()] == []


@pytest.mark.slow
def test_the_walks_are_what_the_commands_do():
    pytest.importorskip("torch")
    for command, files in walks().items():
        assert walk_of(command) == files, command
