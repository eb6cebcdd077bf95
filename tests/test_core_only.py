"""With only the core installed, every command works or says in one line which extra it needs."""

import json
import subprocess
import sys

import numpy as np
import pytest

from shiftbed.errors import EXTRAS

RUN = """
import contextlib, io, json, sys
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None  # importing it raises ImportError
from shiftbed.cli import main
answers = []
for arguments in json.loads(sys.argv[2]):
    sys.argv = ["shiftbed", *arguments]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as left:
            code = left.code or 0
        except BaseException as error:
            code, _ = 99, err.write(repr(error))
    answers.append([code, out.getvalue()[-400:], err.getvalue()])
print(json.dumps(answers))
"""
BED = "imagenet-testbed-2020"
CORE = [
    ["place", "--id", "val=0.7613", "--ood", "imagenet-v2=0.6321"],
    ["fit", "--shift", "imagenet-v2"],
    ["rank", "--shift", "imagenet-v2"],
    ["compare", "resnet50", "resnet18", "--shift", "imagenet-v2"],
    ["groups", "--shift", "imagenet-v2"],
    ["correlate"],
    ["plan", "--delta", "0.01"],
    ["predictiveness", "robustnets-2022"],
    ["predictors", "robustnets-2022"],
    ["factors", "robustnets-2022", "--also", "jacobian_norm"],
    ["patterns", "robustnets-2022"],
    ["mce", BED, "--where", "disk", "--most", "3"],
    ["reproduce", "andreassen2021"],
    ["testbeds"],
    ["testbeds", "show", BED],
    ["shifts"],
    ["shifts", "show", "imagenet-a"],
    ["report", BED, "-o", "r.html"],
    ["card", "resnet50", "--shift", "imagenet-v2"],
    ["import", "table.csv", "-o", "own.parquet", "--shift", "mine=val:new"],
]
"""Commands that need nothing else."""
EXTRA = {
    "evaluate": [
        ["eval", "timm:resnet18", "digits.npz"],
        ["eval", "sklearn:model.skops", "digits.npz"],
        ["eval", "python:mine:net", "digits.npz", "--corruption", "fog:3"],
        ["run", "testbed.toml"],
        ["train", "recipe.toml"],
        ["interpolate", "torch:a.pt?arch=timm:resnet18", "torch:b.pt?arch=timm:resnet18", "d.npz"],
        ["soup", "torch:a.pt?arch=timm:resnet18", "torch:b.pt?arch=timm:resnet18", "-o", "s.pt"],
        ["linear", "timm:resnet18", "digits.npz", "--train", "a.npz", "--validation", "b.npz"],
        ["probe", "timm:resnet18", "digits.npz"],
        ["corrupt", "digits.npz", "corrupted", "--corruption", "fog:3"],
        ["data", "check", "."],
    ],
    "report": [["plot", "--shift", "imagenet-v2", "-o", "v2.png"]],
}
"""Commands that need an extra, by its name."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("core")
    np.savez(folder / "digits.npz", images=np.zeros((4, 8, 8), np.uint8), labels=[0, 1, 0, 1])
    (folder / "table.csv").write_text(
        "model,val,new\n" + "".join(f"m{i},0.{50 + i},0.{40 + i}\n" for i in range(9))
    )
    (folder / "testbed.toml").write_text(
        '[[models]]\nid = "timm:resnet18"\n[[test_sets]]\nname = "d"\npath = "digits.npz"\n'
    )
    (folder / "recipe.toml").write_text(
        '[data.d]\npath = "digits.npz"\n[[test_sets]]\nname = "d"\npath = "digits.npz"\n'
        '[[grid]]\nmodel = "timm:resnet18"\ndata = "d"\nepochs = 1\n'
    )
    commands = [*CORE, *(command for some in EXTRA.values() for command in some)]
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps([*EXTRAS, "plotly"]), json.dumps(commands)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return {" ".join(command): one for command, one in zip(commands, found, strict=True)}


@pytest.mark.parametrize("command", CORE, ids=" ".join)
def test_the_core_is_enough(answers, command):
    code, _, err = answers[" ".join(command)]
    assert code == 0, err


@pytest.mark.parametrize(
    ("command", "extra"),
    [(command, extra) for extra, some in EXTRA.items() for command in some],
    ids=lambda one: one if isinstance(one, str) else " ".join(one),
)
def test_what_to_install_is_one_line(answers, command, extra):
    code, _, err = answers[" ".join(command)]
    assert code == 2, err
    assert len(err.splitlines()) == 1
    assert f"pip install 'shiftbed[{extra}]'" in err
