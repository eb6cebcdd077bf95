"""Every option of a command is a parameter of the public function that the command calls."""

import inspect

import pytest
from typer.testing import CliRunner

import shiftbed as sb
from shiftbed.cli.main import app

COMMANDS = {
    "place": "place --id val=0.7 --ood imagenet-v2=0.6",
    "fit": "fit",
    "rank": "rank",
    "compare": "compare a b",
    "groups": "groups --own-id a=b",
    "correlate": "correlate",
    "plan": "plan --delta 0.1",
    "similarity": "similarity a.npz",
    "estimate": "estimate a b",
    "mix": "mix a b",
    "consistency": "consistency store --metadata a.json",
    "predictiveness": "predictiveness a",
    "predictors": "predictors --lines a.png",
    "factors": "factors a",
    "patterns": "patterns a --classes 10 --figure a.png --draw counts",
    "effects": "effects a",
    "plot": "plot -o a.png",
    "report": "report",
    "serve": "serve",
    "card": "card a",
    "reproduce": "reproduce taori2020",
    "import_results": "import a.csv -o a.parquet --n a=5 --unit percent",
    "captions": "captions a.csv --classes a.txt -o a",
    "score": "score store",
    "mce": "mce",
    "train": "train a.toml",
    "difficulty": "difficulty a.toml a --model nets:a -o a.csv",
    "interpolate": "interpolate a b c",
    "soup": "soup a b -o a.pt",
    "linear_probe": "linear a b --train c --validation d",
    "probe": "probe a b --spectrum a.png --corruption fog:1",
    "run": "run a.toml",
    "evaluate": "eval timm:a b --corruption fog:1",
    "check": "eval timm:a b --check",
    "corrupt": "corrupt a b --as-is",
}


class Called(Exception):
    pass


@pytest.mark.parametrize("name", COMMANDS)
def test_the_function_takes_what_the_command_gives(monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    try:
        takes = inspect.signature(getattr(sb, name))
    except ImportError:
        pytest.skip("needs torch")

    def function(*given, **options):
        takes.bind(*given, **options)
        raise Called

    function.__signature__ = takes
    monkeypatch.setattr(sb, name, function)
    done = CliRunner().invoke(app, COMMANDS[name].split())
    assert isinstance(done.exception, Called), done.exception or done.output
