"""What the package may import, and how little it needs."""

import ast
import subprocess
import sys
from pathlib import Path

import shiftbed

BLOCK = """
import sys
for name in ("torch", "torchvision", "timm", "open_clip", "onnxruntime", "ray"):
    sys.modules[name] = None  # importing it raises ImportError
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_analysis_half_imports_without_torch():
    walk = """
import pkgutil, importlib, shiftbed
half = {"evaluation", "engine", "training"}
names = [m.name for p in pkgutil.iter_modules(shiftbed.__path__) if p.name not in half
         for m in [p, *pkgutil.walk_packages([f"{shiftbed.__path__[0]}/{p.name}"], f"{p.name}.")]]
names = [f"shiftbed.{name}" for name in names]
for name in names: importlib.import_module(name)
print(len(names))
"""
    assert int(run(BLOCK + walk)) > 20


def test_the_command_line_runs_without_torch():
    out = run(BLOCK + "from shiftbed.cli import main; main()", "testbeds")
    assert "imagenet-testbed-2020" in out


def test_place_imports_nothing_heavy():
    code = """
import sys
from shiftbed.cli import app
try: app()
except SystemExit: pass
heavy = {"torch", "matplotlib", "pandas", "scipy.stats"} & set(sys.modules)
print("heavy:", sorted(heavy))
"""
    out = run(code, "place", "--id", "val=0.7613", "--ood", "imagenet-v2=0.6321")
    assert out.splitlines()[-1] == "heavy: []"


def test_a_class_name_has_one_meaning():
    """Public classes of the package: no two of one name."""
    source = Path(shiftbed.__file__).parent
    found: dict[str, list[str]] = {}
    for path in source.rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(path.relative_to(source).as_posix())
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}
