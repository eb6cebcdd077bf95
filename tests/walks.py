"""Which files of the package a command goes through: functions called, imports not counted.

python -m tests.walks        # prints the walks that docs/architecture.md shows
"""

import subprocess
import sys
import tempfile
from pathlib import Path

TRACE = """
import sys, threading
from pathlib import Path
seen = {}
root = None
def look(frame, event, arg):
    code = frame.f_code
    if event != "call" or code.co_filename in seen or not code.co_flags & 1:  # a class or module
        return
    if root not in code.co_filename:
        return
    outer = frame.f_back
    while outer is not None:
        if outer.f_code.co_name == "<module>" and root in outer.f_code.co_filename:
            return  # something done at import
        outer = outer.f_back
    seen[code.co_filename] = None
import shiftbed
root = str(Path(shiftbed.__file__).parent)
from shiftbed.cli import main
sys.argv = ["shiftbed", *sys.argv[1:]]
sys.setprofile(look)
threading.setprofile(look)
try:
    main()
except SystemExit:
    pass
sys.setprofile(None)
names = [Path(name).relative_to(root).as_posix() for name in seen]
print("WALK", *names)
"""
SETUP = """
import numpy as np
rng = np.random.default_rng(0)
images = rng.integers(0, 255, (40, 8, 8), dtype=np.uint8)
np.savez("digits.npz", images=images, labels=np.arange(40) % 4)
open("net.py", "w").write(
    "import torch\\n"
    "def net():\\n"
    "    torch.manual_seed(0)\\n"
    "    made = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))\\n"
    "    made.preprocessing = {'size': (8, 8), 'mode': 'L', 'mean': (0.0,), 'std': (1.0,)}\\n"
    "    return made\\n"
)
open("recipe.toml", "w").write('''
[data.digits]
path = "digits.npz"
[[test_sets]]
name = "digits"
path = "digits.npz"
[[grid]]
model = "python:net.py:net()"
data = "digits"
epochs = 1
batch_size = 20
optimiser = {name = "AdamW", lr = 0.01}
''')
"""
COMMANDS = {
    "place": ["place", "--id", "val=0.7613", "--ood", "imagenet-v2=0.6321"],
    "eval": [
        *("eval", "python:net.py:net()", "digits.npz", "--backend", "torch"),
    ],
    "train": ["train", "recipe.toml", "--allow-code"],
    "report": ["report", "imagenet-testbed-2020", "-o", "report.html"],
}


def walks() -> dict[str, list[str]]:
    """Command → the files it goes through, in the order of their first call."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", SETUP], cwd=folder, check=True)
        for name, arguments in COMMANDS.items():
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", TRACE, *arguments],
                cwd=folder,
                capture_output=True,
                text=True,
                check=True,
                timeout=900,
            )
            last = [line for line in done.stdout.splitlines() if line.startswith("WALK")]
            assert last, done.stderr
            found[name] = last[0].split()[1:]
    return found


def shown(files: list[str]) -> str:
    """The walk as the page shows it."""
    return " → ".join(f"`{name}`" for name in files)


if __name__ == "__main__":
    for command, files in walks().items():
        print(f"- **`shiftbed {command}`**: {shown(files)}\n")
    assert Path(__file__).exists()
