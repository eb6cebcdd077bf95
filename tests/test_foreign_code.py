"""Code that a file names is executed only when that was asked for; ``--dry-run`` executes nothing.

Every hostile file here leaves a mark when it is executed.
"""

import json
import os
import pty
import subprocess
import sys

import numpy as np
import pytest
import torch

import shiftbed as sb
from shiftbed.cli.main import app
from shiftbed.engine.plan import ModelSpec, RunSpec
from shiftbed.engine.run import run_spec
from shiftbed.engine.testbed_file import read_testbed_toml
from shiftbed.errors import InputError
from shiftbed.evaluation.models import resolve
from shiftbed.foreign_code import CodeRefused, Origin
from shiftbed.training.recipe import Job, read_recipe

EVIL = """
import pathlib
pathlib.Path(__file__).with_name("executed").touch()
from torch import nn

def net():
    made = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    made.preprocessing = {"size": (8, 8), "mode": "L", "crop": "none"}
    return made

def stripes(x, ids, severity, seed):
    return x * x.dtype.type(0.5)
"""
RECIPE = """
[data.digits]
path = "val.npz"
[[test_sets]]
name = "val"
path = "val.npz"
SETTINGS
[[grid]]
model = "MODEL"
data = "digits"
optimiser = {name = "SGD", lr = 0.1}
steps = 2
batch_size = 8
"""
TESTBED = """
[[models]]
id = "MODEL"
name = "one"
[[test_sets]]
name = "val"
path = "val.npz"
SETTINGS
"""
CORRUPTED = """
[[settings]]
test_set = "val"
corruptions = ["python:evil.py:stripes:1"]
"""
MINE = "nets:conv8?num_classes=2"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A stranger's folder: test set, code, a finished run, recipes and testbeds."""
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "val.npz", images=pixels, labels=np.arange(20) % 2)
    (tmp_path / "evil.py").write_text(f"{EVIL}# {tmp_path}\n")  # opened models are kept by content
    for name, text in (("recipe", RECIPE), ("testbed", TESTBED)):
        own = text.replace("MODEL", "python:evil.py:net()").replace("SETTINGS", "")
        (tmp_path / f"{name}.toml").write_text(own)
        known = text.replace("MODEL", "nets:conv8").replace("SETTINGS", CORRUPTED)
        (tmp_path / f"corrupted-{name}.toml").write_text(known)
    job = next(iter(read_recipe(tmp_path / "recipe.toml").jobs()))
    write_run(tmp_path, job.arguments)
    return tmp_path


def write_run(folder, arguments):
    """A run as ``train`` leaves it; its name is the hash of its arguments."""
    job = Job(arguments=arguments)
    place = folder / "given" / job.id
    place.mkdir(parents=True)
    (place / "job.json").write_text(json.dumps({"id": job.id, "base": "../..", **arguments}))
    done = {"stops": [2], "outputs": 2, "steps": 2, "classes": 2}
    (place / "done.json").write_text(json.dumps(done))
    state = {"1.weight": torch.zeros(2, 64), "1.bias": torch.zeros(2)}
    torch.save(state, place / "step-00000002.pt")


def run_of(folder):
    (place,) = (folder / "given").iterdir()
    return f"run:given/{place.name}"


def executed(folder):
    return (folder / "executed").exists()


def commands(run):
    """What a user may type who was given the folder."""
    test_set = "val.npz"
    return {
        "eval": ["eval", run, test_set],
        "check": ["eval", run, test_set, "--check", "--published", "0.5", "--images", "10"],
        "probe": ["probe", run, test_set, "--pairs", "2"],
        "probe a folder": ["probe", "given", test_set, "--pairs", "2"],
        "probe a testbed": ["probe", "testbed.toml", test_set, "--pairs", "2"],
        "run": ["run", "testbed.toml"],
        "run in processes": ["run", "testbed.toml", "--runner", "processes"],
        "run corrupted": ["run", "corrupted-testbed.toml"],
        "train": ["train", "recipe.toml"],
        "train in processes": ["train", "recipe.toml", "--runner", "processes"],
        "train, evaluate corrupted": ["train", "corrupted-recipe.toml"],
    }


@pytest.mark.parametrize("which", commands(""))
def test_every_command_refuses_in_one_line_and_writes_nothing(folder, which):
    command = commands(run_of(folder))[which]
    before = sorted(folder.rglob("*"))
    with pytest.raises(CodeRefused) as refused:
        app(command, standalone_mode=False)
    assert not executed(folder)
    said = str(refused.value)
    assert "\n" not in said
    assert ".toml" in said or "job.json" in said
    assert "python:" in said
    assert "evil.py" in said
    assert "--allow-code" in said
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("which", ["eval", "probe", "run", "run corrupted", "train"])
def test_what_is_allowed_is_executed(folder, which, capsys):
    app([*commands(run_of(folder))[which], "--allow-code"], standalone_mode=False)
    assert executed(folder)


@pytest.mark.parametrize(
    "which", ["run in processes", "train in processes", "train, evaluate corrupted"]
)
@pytest.mark.slow
def test_the_permission_travels_to_workers(folder, which, capsys):
    app([*commands("run:x")[which], "--allow-code"], standalone_mode=False)
    assert executed(folder)


@pytest.mark.slow
def test_the_permission_travels_to_ray(folder):
    pytest.importorskip("ray")
    done = sb.run("testbed.toml", runner="ray", allow_code=True)
    assert not done.failed
    assert executed(folder)


@pytest.mark.parametrize("command", [
    ["run", "testbed.toml"], ["run", "corrupted-testbed.toml"],
    ["train", "recipe.toml"], ["train", "corrupted-recipe.toml"],
])  # fmt: skip
@pytest.mark.parametrize("allowed", [[], ["--allow-code"]])
def test_a_dry_run_executes_nothing_and_writes_nothing(folder, command, allowed, capsys):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    app([*command, "--dry-run", "--json", *allowed], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["jobs"]
    assert not executed(folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_functions_refuse_alike(folder):
    run = run_of(folder)
    data = sb.TestSet.open("val.npz")
    calls = [
        lambda: sb.model(run),
        lambda: sb.evaluate(run, data),
        lambda: sb.check(run, data, published=0.5),
        lambda: sb.probe(run, data, pairs=2),
        lambda: sb.run("testbed.toml"),
        lambda: sb.train("recipe.toml"),
        lambda: sb.train(read_recipe("recipe.toml")),
        lambda: run_spec(read_testbed_toml("testbed.toml")),
        lambda: sb.soup([torch.nn.Linear(1, 1).state_dict()], how="uniform", network=run),
        lambda: sb.interpolate({}, {}, data, network=run),
    ]
    for call in calls:
        with pytest.raises(CodeRefused, match="evil"):
            call()
    assert not executed(folder)
    assert sb.model(run, allow_code=True).classes == 2
    assert executed(folder)


def test_linear_probes_and_mixes_take_no_runs(folder):
    for call in (
        lambda: sb.linear_probe(run_of(folder), "val.npz", train="val.npz", validation="val.npz"),
        lambda: sb.interpolate(run_of(folder), run_of(folder), "val.npz"),
        lambda: sb.soup([run_of(folder)], how="uniform"),
    ):
        with pytest.raises(InputError):
            call()
    assert not executed(folder)


def test_what_the_user_writes_is_executed(folder, capsys):
    app(["eval", "python:evil.py:net()", "val.npz"], standalone_mode=False)
    assert executed(folder)


def test_the_users_own_corruption_is_executed(folder):
    sb.evaluate(MINE, "val.npz", corruptions=["python:evil.py:stripes:1"])
    assert executed(folder)


def test_a_file_cannot_allow_itself(folder):
    for key in ("allow_code", "origin"):
        text = (folder / "testbed.toml").read_text()
        (folder / "sly.toml").write_text(
            text.replace('name = "one"', f'name = "one"\n{key} = true')
        )
        with pytest.raises(InputError, match=f"unknown key .*{key}"):
            sb.run("sly.toml")
        for where in ("recipe", "testbed"):
            (folder / "sly.toml").write_text(
                f"{key} = true\n" + (folder / f"{where}.toml").read_text()
            )
            with pytest.raises(InputError, match=f"unknown key .*{key}"):
                sb.run("sly.toml") if where == "testbed" else sb.train("sly.toml")
    with pytest.raises(InputError, match="allow_code"):
        sb.model(f"{run_of(folder)}?allow_code=true")
    (job,) = read_recipe("recipe.toml").jobs()
    for path in (folder / "given").glob("*/*"):
        path.unlink()
    for path in (folder / "given").iterdir():
        path.rmdir()
    write_run(folder, {**job.arguments, "allow_code": True})
    with pytest.raises(CodeRefused):
        sb.model(run_of(folder))
    assert not executed(folder)


def test_types_that_a_file_declares_trusted_are_code(folder):
    (folder / "typed.toml").write_text(
        TESTBED.replace("MODEL", "sklearn:m.skops")
        .replace('name = "one"', 'name = "one"\ntrusted = ["os.system"]')
        .replace("SETTINGS", "")
    )
    with pytest.raises(CodeRefused, match=r"os\.system"):
        sb.run("typed.toml")


def test_architectures_are_code_too(folder):
    text = TESTBED.replace("MODEL", "torch:w.pt?arch=python:evil.py:net").replace("SETTINGS", "")
    (folder / "arch.toml").write_text(text)
    with pytest.raises(CodeRefused, match="evil"):
        sb.run("arch.toml")
    assert not executed(folder)


def test_a_run_named_by_a_testbed(folder):
    (folder / "of-runs.toml").write_text(
        TESTBED.replace("MODEL", run_of(folder)).replace("SETTINGS", "")
    )
    with pytest.raises(CodeRefused, match=r"job\.json"):
        sb.run("of-runs.toml")
    assert not executed(folder)


def test_the_last_barrier_is_where_code_is_imported(folder):
    """Whoever forgets to ask first is refused there."""
    stranger = Origin(file="somewhere.json")
    spec = ModelSpec(source="python:evil.py:net()", name="x", origin=stranger)
    with pytest.raises(CodeRefused):
        run_spec(RunSpec(name="x", models=[spec], settings=[], store="store"))
    with pytest.raises(CodeRefused):
        resolve("python:evil.py:net()", origin=stranger)
    from shiftbed.evaluation.models.from_python import find

    with pytest.raises(CodeRefused):
        find("evil.py:net", stranger)
    assert not executed(folder)


def on_terminal(folder, command, answer):
    """The command on a pseudo-terminal, with an answer typed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", "from shiftbed.cli import main; main()", *command],
        cwd=folder, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs, close_fds=True,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while b"[y/N]" not in said:
        said += os.read(ours, 1024)
    os.write(ours, answer.encode() + b"\n")
    try:
        while chunk := os.read(ours, 1024):
            said += chunk
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    return process.wait(timeout=120), said.decode()


@pytest.mark.parametrize(("answer", "code"), [("n", 2), ("", 2), ("y", 0)])
def test_a_terminal_is_asked(folder, answer, code):
    found, said = on_terminal(folder, ["eval", run_of(folder), "val.npz"], answer)
    assert found == code, said
    assert "job.json would execute python:" in said
    assert executed(folder) == (code == 0)
