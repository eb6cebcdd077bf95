"""What ``import shiftbed as sb`` gives: pinned, and the same whatever else was imported."""

import subprocess
import sys
from pathlib import Path

import shiftbed as sb

PROMISED = (
    "published open_testbed import_results model TestSet Setting Shift Corruption attacks evaluate "
    "score place fit rank compare groups correlate similarity estimate mix predictiveness "
    "predictors factors patterns effects plan probe train interpolate soup linear_probe difficulty "
    "consistency captions reproduce plot report card Monitor"
)
BESIDES = (
    "LINEAR LOGIT PROBIT Baseline InputError Perturbation PredictionStore Result Robustness "
    "Testbed check check_data clopper_pearson corrupt effective_robustness fit_baseline mce "
    "place_all "
    "read_testbed run serve shifts testbeds trajectories transfer write_testbed"
)


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_names():
    assert sorted(sb.__all__) == sorted(f"{PROMISED} {BESIDES}".split())
    assert set(sb.__all__) <= set(dir(sb))


def test_every_name_can_be_had_and_is_what_it_says():
    code = """
import shiftbed as sb, types
for name in sb.__all__:
    found = getattr(sb, name)
    assert name == "attacks" or not isinstance(found, types.ModuleType), name
    own = getattr(found, "__name__", name)
    assert own.rpartition(".")[2] == name, (name, own)
print("fine")
"""
    assert run(code) == "fine\n"


def test_no_name_is_a_subpackage():
    """Importing a subpackage sets an attribute of the package: it would replace the function."""
    folder = Path(sb.__file__).parent
    parts = {path.parent.name for path in folder.glob("*/*") if path.is_file()}
    parts |= {path.stem for path in folder.glob("*.py")}
    assert not parts & set(sb.__all__)


def test_names_stay_after_every_submodule_was_imported():
    code = """
import importlib, pkgutil, warnings
import shiftbed as sb
warnings.simplefilter("ignore")
before = {name: getattr(sb, name) for name in sb.__all__}
for found in pkgutil.walk_packages(sb.__path__, "shiftbed."):
    importlib.import_module(found.name)
for name, value in before.items():
    assert getattr(sb, name) is value, name
from shiftbed import *
assert evaluate is before["evaluate"]
print("fine")
"""
    assert run(code) == "fine\n"


def test_import_is_light():
    code = """
import sys, shiftbed
print(sorted({"torch", "matplotlib", "scipy.stats", "polars", "numpy"} & set(sys.modules)))
"""
    assert run(code) == "[]\n"
