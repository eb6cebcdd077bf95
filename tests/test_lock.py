"""The lock has what pyproject.toml asks for, each with hashes; floors are above known holes."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
HOLES = {"skops": "0.13", "pillow": "10.3", "transformers": "4.53", "ray": "2.52"}
"""The first releases without holes that are known."""


def locked():
    text = (ROOT / "requirements.lock").read_text()
    parts = re.findall(
        r"^([\w.-]+)==(\S+) ((?:\\\n    --hash=sha256:[0-9a-f]{64} ?)+)$", text, re.M
    )
    assert len(parts) == len(re.findall(r"^\w", text, re.M))
    return {canonicalize_name(name): Version(version) for name, version, _ in parts}


def asked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    every = [*project["dependencies"], *(text for extra in extras for text in extra)]
    return [one for text in every if (one := Requirement(text)).name != "shiftbed"]


def test_the_lock_satisfies_the_project():
    have = locked()
    for one in asked():
        if one.name != "torch":
            assert have[canonicalize_name(one.name)] in one.specifier, one


def test_the_lock_is_that_of_the_constraints():
    pinned = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            one = Requirement(line)
            pinned[canonicalize_name(one.name)] = one.specifier
    for name, version in locked().items():
        assert name in pinned, f"{name} is locked, not pinned"
        assert version in pinned[name], name


def test_floors_are_above_known_holes():
    floors = {one.name: one.specifier for one in asked()}
    for name, first in HOLES.items():
        lowest = [Version(s.version) for s in floors[name] if s.operator == ">="]
        assert lowest, name
        assert lowest[0] >= Version(first), name


def test_the_lock_names_no_place():
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "--index" not in text
