"""Every command and every piece of code in the README runs."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.blocks import blocks

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def code(kind: str) -> list[str]:
    return [block.code for block in blocks(README) if block.kind == kind]


def commands() -> list[list[str]]:
    lines = [line for block in code("console") for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


RESULTS = "model,val,sketch\n" + "".join(
    f"model{i},{0.5 + i * 0.02:.2f},{0.1 + i * 0.015 + (i % 3) * 0.004:.4f}\n" for i in range(15)
)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """One directory for all commands, as a reader would have."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "results.csv").write_text(RESULTS)
    _digits(folder)
    return folder


TESTBED = """
name = "mine"
store = "kept"
[defaults]
preprocessing = {size = [8, 8], mode = "L", mean = [0.0], std = [1.0]}
[[test_sets]]
name = "digits"
path = "digits.npz"
[[test_sets]]
name = "faint"
path = "faint.npz"
"""


def _digits(folder: Path) -> None:
    """A reader's own model, test sets and testbed.toml."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from skops.io import dump

    x, y = load_digits(return_X_y=True)
    images = (x.reshape(-1, 8, 8) * 255 / 16).round().astype(np.uint8)
    np.savez(folder / "digits.npz", images=images[900:], labels=y[900:])
    np.savez(folder / "faint.npz", images=images[900:] // 3, labels=y[900:])
    models = ""
    for n in (20, 40, 80, 200, 900):
        name = "model" if n == 900 else f"model{n}"
        fitted = LogisticRegression(max_iter=200).fit(images[:n].reshape(n, -1) / 255, y[:n])
        dump(fitted, folder / f"{name}.skops")
        models += f'[[models]]\nid = "sklearn:{name}.skops"\nname = "{name}"\n'
    (folder / "testbed.toml").write_text(TESTBED + models)
    side = {"size": [8, 8], "mode": "L", "mean": [0.0], "std": [1.0]}
    (folder / "model.preprocessing.json").write_text(json.dumps(side))


@pytest.mark.xdist_group("readme")
class TestReadme:
    def test_shiftbed_commands_run_in_order(self, place):
        wanted = [words[1:] for words in commands() if words[0] == "shiftbed"]
        assert len(wanted) > 12
        for words in wanted:
            done = subprocess.run(
                [sys.executable, "-c", "from shiftbed.cli import main; main()", *words],
                cwd=place,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, (words, done.stderr)
            assert done.stdout
        for name in ("imagenet-v2.svg", "report.html", "own.parquet", "kept/testbed.json"):
            assert (place / name).stat().st_size > 100

    def test_python_runs(self, place):
        for block in code("python"):
            done = subprocess.run(
                [sys.executable, "-W", "error", "-c", block],
                cwd=place,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr
            assert "-0.77" in done.stdout  # ρ of ResNet-50
            assert "val+contrast:3" in done.stdout
            assert (place / "placed.png").stat().st_size > 1000

    def test_make_targets_exist(self):
        targets = [words[1] for words in commands() if words[0] == "make"]
        assert targets == ["demo", "test"]
        for target in targets:
            subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)

    def test_every_command_is_of_a_known_kind(self):
        assert {words[0] for words in commands()} == {"make", "pip", "shiftbed"}

    def test_the_command_table_is_complete(self):
        page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
        listed = set(re.findall(r"^\| `(\w+)` \|", page, re.M))
        from shiftbed.cli import app

        known = {command.name for command in app.registered_commands}
        known |= {group.name for group in app.registered_groups}
        assert listed == known

    def test_the_demo_is_the_digits_study(self):
        """``tests/examples/test_digits.py`` runs it, and kills it."""
        said = subprocess.run(
            ["make", "-n", "demo"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        assert "-m examples.digits" in said.stdout
        from examples.digits.__main__ import FOLDERS

        assert f"{FOLDERS['quick']}/report.html" in README.read_text()
