"""Every command on a terminal of 80 columns: no longer line, no broken word, names one can read."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer

from shiftbed.cli.main import app
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits
from tests.cli.in_process import shiftbed
from tests.training.places import GRID
from tests.training.places import place as recipe

BED = "imagenet-testbed-2020"
N, CLASSES = 200, 4
ANSI = re.compile(r"\x1b\[[0-9;]*m")
SETTINGS = ("photo", "sketch", *(f"photo+fog:{i}" for i in range(1, 6)))
NETS = [(net, seed) for net in ("wide", "narrow") for seed in range(6)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store such as training leaves: twelve runs of three steps, named by hashes."""
    place = tmp_path_factory.mktemp("terminal")
    store, rng = PredictionStore(place / "store"), np.random.default_rng(0)
    for harder, setting in enumerate(SETTINGS):
        labels = rng.integers(0, CLASSES, N)
        store.add_test_set(
            StoredTestSet(
                setting=setting,
                examples=tuple(map(str, range(N))),
                labels=labels,
                fingerprint=setting,
                classes=CLASSES,
            )
        )
        for i, (net, seed) in enumerate(NETS):
            run = f"{net}-{i:012x}"
            for step in (50, 100, 150):
                logits = rng.normal(0, 1, (N, CLASSES))
                logits[np.arange(N), labels] += 0.4 + step / 150 + 0.15 * seed - 0.1 * harder
                info = {"run": run, "step": step, "seed": seed, "architecture": net}
                info |= {"training_data": "mnist", "data_size": "fraction-0.1"}
                store.write_part(f"{run}@{step}", setting, 0, part_from_logits(logits, labels))
                cell = {"status": "complete", "info": info}
                store.write_cell(f"{run}@{step}", setting, cell)
    shift = {"name": "sketch", "kind": "natural-dataset", "source": ["photo"], "target": "sketch"}
    store.write_about({"name": "mine", "shifts": [shift]})
    (place / "own.csv").write_text(
        "model,val,imagenet-v2\na-model-with-quite-a-long-name-of-its-own,0.7613,0.6321\n"
    )
    (place / "recipes").mkdir()
    recipe(place / "recipes", GRID + "seed = [0, 1]\n")
    return place


OURS = f"wide-{0:012x}@150"
HUMAN = "wide · MNIST 10 % · seed 0 · step 150"
OTHER = HUMAN.replace("wide", "narrow")
COMMANDS: dict[str, list[str]] = {
    "place": ["place", "--id", "val=0.7613", "--ood", "imagenet-v2=0.6321", "--sensitivity"],
    "place --model": ["place", "--testbed", BED, "--model", "efficientnet-l2-noisystudent"],
    "place --from": ["place", "--from", "own.csv"],
    "fit": ["fit", "--shift", "imagenet-v2"],
    "rank": ["rank", "--shift", "imagenet-v2"],
    "rank, all": ["rank"],
    "rank, store": ["rank", "--testbed", "store"],
    "compare": ["compare", "resnet50", "efficientnet-l2-noisystudent"],
    "compare, store": ["compare", OURS, OTHER, "--testbed", "store"],
    "groups": ["groups", "--shift", "imagenet-v2"],
    "correlate": ["correlate"],
    "similarity": ["similarity", "store", "--setting", "photo"],
    "estimate": ["estimate", "store", "--id", "photo", "--ood", "sketch"],
    "mix": ["mix", "store", "--id", "photo", "--ood", "sketch", "-m", OURS, "-m", OTHER],
    "predictiveness": ["predictiveness", "robustnets-2022", "--bootstrap", "100"],
    "predictors": ["predictors", "robustnets-2022", "--bootstrap", "40"],
    "factors": ["factors", "robustnets-2022", "--also", "jacobian_norm", "--bootstrap", "40"],
    "patterns": ["patterns", "robustnets-2022", "--bootstrap", "40"],
    "effects": ["effects", "store", "--show", "architectures"],
    "plan": ["plan", "--delta", "0.01"],
    "plot": ["plot", "--shift", "imagenet-v2", "-o", "v2.svg"],
    "report": ["report", "openclip", "-o", "r.html"],
    "card": ["card", "efficientnet-l2-noisystudent", "--shift", "imagenet-v2", "-o", "card.md"],
    "import": ["import", "own.csv", "-o", "own.parquet", "--shift", "mine=val:imagenet-v2"],
    "reproduce": ["reproduce", "andreassen2021"],
    "score": ["score", "store", "--metric", "top1", "--metric", "ece"],
    "train": ["train", "recipes/recipe.toml", "--dry-run"],
    "trajectories": ["trajectories", "store"],
    "mce": ["mce", BED, "--where", "disk", "--most", "3"],
    "testbeds": ["testbeds"],
    "testbeds show": ["testbeds", "show", BED, "--settings"],
    "store verify": ["store", "verify", "store"],
    "store gc": ["store", "gc", "store"],
    "shifts": ["shifts"],
    "shifts show": ["shifts", "show", "imagenet-a"],
    "data check": ["data", "check", "recipes"],
}
ELSEWHERE = {
    "serve": "runs until it is stopped",
    **dict.fromkeys(("eval", "run", "linear", "interpolate", "soup", "probe"), "runs networks"),
    **dict.fromkeys(("difficulty", "transfer"), "trains networks"),
    **dict.fromkeys(("captions", "corrupt", "consistency"), "makes test sets"),
    **dict.fromkeys(
        ("store scrub", "store compact", "store export", "store import", "store twin"), "one line"
    ),
}
"""Commands that no list of cheap ones has; what they print goes through the same tables."""
FIRST = {
    "place": "no more than baseline models vary",
    "rank": "Largest: ",
    "place --from": "out of line",
}
"""What stands above the first table."""


def on_terminal(run: Callable[[], str], width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(width))
    return run()


@pytest.mark.parametrize("name", COMMANDS)
def test_eighty_columns_do(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> str:
        done = shiftbed(*COMMANDS[name], cwd=folder)
        assert done.returncode in (0, 1), done.stderr
        return str(done.stdout)

    narrow, wide = (ANSI.sub("", on_terminal(run, w, monkeypatch)) for w in (80, 4000))
    assert narrow.strip()
    assert max(map(len, narrow.splitlines())) <= 80
    said = r"A wider terminal also shows: .*|\S.*: .* for all\."
    flat = " ".join(narrow.split())
    there = set(wide.split())
    broken = [
        word
        for word in flat.split()
        if word not in there and "…" not in word and set(word) - set("─━")
    ]
    notes = " ".join(re.findall(said, flat))
    assert [word for word in broken if word not in notes] == []
    if "store" in COMMANDS[name] and name not in ("store verify", "store gc"):
        assert not re.search(r"-[0-9a-f]{12}", wide)


def test_the_verdict_comes_first_and_in_colour(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, words in FIRST.items():
        text = on_terminal(lambda: shiftbed(*COMMANDS[name], cwd=folder).stdout, 80, monkeypatch)  # noqa: B023
        head = text.split("───")[0]
        assert re.search(words, ANSI.sub("", head)), name
        assert "\x1b[1" in head, name


def test_models_of_a_recipe_are_named_by_what_differs(folder: Path) -> None:
    table = shiftbed("rank", "--testbed", "store", "--most", "40", cwd=folder).stdout
    assert HUMAN in table
    assert OURS in shiftbed("rank", "--testbed", "store", "--json", cwd=folder).stdout
    same = [
        shiftbed("place", "--testbed", "store", "--model", name, "--json", cwd=folder).stdout
        for name in (OURS, HUMAN)
    ]
    assert same[0] == same[1]


def test_every_command_is_here_or_said_why_not() -> None:
    def names(command: typer.core.TyperGroup, before: str = "") -> set[str]:
        found = set()
        for name, one in command.commands.items():
            within = isinstance(one, typer.core.TyperGroup)
            found |= names(one, f"{before}{name} ") if within else {f"{before}{name}"}
        return found

    whole = typer.main.get_command(app)
    assert isinstance(whole, typer.core.TyperGroup)
    assert names(whole) <= {*COMMANDS, *ELSEWHERE}
