"""The torchvision shim, in processes of their own: imports cannot be undone."""

import subprocess
import sys


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_torchvision_works_afterwards_whatever_the_pair_of_packages():
    out = run("""
from shiftbed.evaluation.compat import ensure_torchvision
first, second = ensure_torchvision(), ensure_torchvision()
import torchvision, timm
from torchvision.transforms import v2
print(first == second, callable(torchvision.models.resnet18), v2.Resize(4).size)
""")
    assert out == "True True [4]"


def test_a_matching_pair_is_left_alone():
    out = run("""
import sys, types
sys.modules["torchvision"] = types.ModuleType("torchvision")  # imports without complaint
from shiftbed.evaluation import compat
print(compat.ensure_torchvision(), compat._kept)
""")
    assert out == "False []"


def test_other_failures_are_not_hidden():
    out = run("""
import sys
from shiftbed.errors import InputError
from shiftbed.evaluation.compat import ensure_torchvision
sys.modules["torchvision"] = None  # importing it raises ImportError
try: ensure_torchvision()
except InputError as error: print(error)
""")
    assert "pip install 'shiftbed[evaluate]'" in out


def test_a_missing_library_is_named():
    out = run("""
import sys
from shiftbed.evaluation.models import resolve
for name in ("open_clip", "transformers"): sys.modules[name] = None
for line in ("open_clip:ViT-B-32", "hf:owner/name"):
    try: resolve(line)
    except ValueError as error: print(error)
""")
    assert "open_clip:ViT-B-32 needs open_clip: pip install 'shiftbed[clip]'" in out


def test_nothing_heavy_is_imported_before_it_is_needed():
    out = run("""
import sys
import shiftbed.evaluation.models, shiftbed.evaluation.backends, shiftbed.evaluation.preprocessing
heavy = {"torch", "torchvision", "timm", "open_clip", "transformers", "onnxruntime", "sklearn"}
print(sorted(heavy & set(sys.modules)))
""")
    assert out == "[]"
