"""Every command and every piece of code in the README runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.S | re.M)


def blocks(kind: str) -> list[str]:
    return [
        code for found, code in BLOCK.findall((ROOT / "README.md").read_text()) if found == kind
    ]


def commands() -> list[list[str]]:
    lines = [line for code in blocks("console") for line in code.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


RESULTS = "model,val,sketch\n" + "".join(
    f"model{i},{0.5 + i * 0.02:.2f},{0.1 + i * 0.015 + (i % 3) * 0.004:.4f}\n" for i in range(15)
)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """One directory for all commands, as a reader would have."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "results.csv").write_text(RESULTS)
    return folder


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
        for name in ("imagenet-v2.svg", "report.html", "own.parquet"):
            assert (place / name).stat().st_size > 1000

    def test_python_runs(self, place):
        for code in blocks("python"):
            done = subprocess.run(
                [sys.executable, "-W", "error", "-c", code],
                cwd=place,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, done.stderr
            assert "0.9216" in done.stdout

    def test_make_targets_exist(self):
        targets = [words[1] for words in commands() if words[0] == "make"]
        assert targets == ["demo", "test"]
        for target in targets:
            subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)

    def test_every_command_is_of_a_known_kind(self):
        assert {words[0] for words in commands()} == {"make", "shiftbed"}

    def test_the_command_table_is_complete(self):
        listed = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text(), re.M))
        from shiftbed.cli import app

        known = {command.name for command in app.registered_commands}
        known |= {group.name for group in app.registered_groups}
        assert listed == known

    def test_the_demo_runs(self, tmp_path):
        done = subprocess.run(
            [sys.executable, "-m", "examples.demo"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert "Open demo/report.html" in done.stdout
        assert (tmp_path / "demo" / "report.html").stat().st_size > 10**6
