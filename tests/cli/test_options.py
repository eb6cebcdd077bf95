"""Options with values that cannot be meant are refused, whichever command takes them."""

import pytest
from typer.main import get_command

from shiftbed.cli.commands import Commands
from shiftbed.cli.main import app
from tests.cli.in_process import shiftbed

WORKING = {
    "place": "place --id val=0.7613 --ood imagenet-v2=0.6321",
    "fit": "fit --shift imagenet-v2",
    "rank": "rank --shift imagenet-v2",
    "compare": "compare resnet50 resnet152 --shift imagenet-v2",
    "groups": "groups --shift imagenet-v2",
    "correlate": "correlate",
    "plan": "plan --delta 0.01",
    "predictiveness": "predictiveness imagenet-testbed-2020",
    "predictors": "predictors robustnets-2022",
    "factors": "factors imagenet-testbed-2020",
    "patterns": "patterns imagenet-testbed-2020",
    "effects": "effects imagenet-testbed-2020 --column kind --of standard --against more-data",
    "plot": "plot --shift imagenet-v2 -o chart.svg",
    "report": "report imagenet-testbed-2020",
    "card": "card resnet50",
}
SHARES, COUNTS = ("-0.5", "0", "1", "5", "nan"), ("-3", "0.5", "many")
COUNTED = {"seed": COUNTS, "bootstrap": (*COUNTS, "7"), "most": COUNTS}
WRONG = {"level": SHARES, "fdr": SHARES, **COUNTED}


def options(command):
    group = get_command(app)
    assert isinstance(group, Commands)
    return [option for option in group.full(command).params if option.opts[0].startswith("-")]


def refused(done, folder):
    assert done.returncode == 2, done.stdout
    assert not list(folder.iterdir())


@pytest.mark.parametrize("command", WORKING)
def test_numbers_that_cannot_be_meant_are_refused(command, tmp_path):
    for option in options(command):
        for value in WRONG.get(option.name, ()):
            given = (*WORKING[command].split(), option.opts[0], value)
            refused(shiftbed(*given, cwd=tmp_path), tmp_path)


@pytest.mark.parametrize("command", WORKING)
def test_an_option_without_a_value_is_not_one_that_was_left_out(command, tmp_path):
    given = WORKING[command].split()
    for option in options(command):
        if not option.is_flag:
            name = max(option.opts, key=len)
            for empty in ((name, ""), (f"{name}=",)):
                done = shiftbed(*given, *empty, cwd=tmp_path)
                refused(done, tmp_path)
                assert name in done.stderr
    refused(shiftbed(*given, "", cwd=tmp_path), tmp_path)
