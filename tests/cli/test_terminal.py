"""Every command on a terminal of 80 columns: no longer line, no broken word, names one can read."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from PIL import Image

import shiftbed as sb
from shiftbed.cli.main import app
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits, part_from_top
from shiftbed.training import read_recipe
from tests.cli.in_process import shiftbed
from tests.training.places import GRID, HEAD
from tests.training.places import place as recipe

BED = "imagenet-testbed-2020"
N, CLASSES = 200, 4
ANSI = re.compile(r"\x1b\[[0-9;]*m")
NUMBER = re.compile(r"\d(?:[\d,]*\d)?")
SETTINGS = ("photo", "sketch", *(f"photo+fog:{i}" for i in range(1, 6)))
HASH = re.compile(r"-[0-9a-f]{12}")
CORRUPTED = '[[settings]]\ntest_set = "test"\ncorruptions = ["contrast:2-3"]\n'
CORRUPTED += '[[settings]]\ntest_set = "faint"\n'
AUGMENTED = 'augmentation = ["none", {name = "corruption", names = "contrast", severities = 2}]\n'
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
CODE = ["--allow-code"]
FIT = ["--train", "digits.npz:train", "--validation", "digits.npz:other", "--start", "random"]
ENDS = [f"torch:{name}.pt?arch=python:net.py:build" for name in ("first", "second")]
ALPHAS = ["--alphas", "0,0.5,1"]
SMALL = ["--model", "nets:resnet8?size=8&mode=L", "--epochs", "1"]
FRAMES = ["--metadata", "frames.json", "--metadata", "labels.json"]
SHIFT = ["--shift", "s=test:faint"]
NAMES = ["--classes", "classes.txt", "-o", "captioned"]
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
    "mce, store": ["mce", "store"],
    "predictors, store": ["predictors", "store", "--bootstrap", "40"],
    "card, store": ["card", OURS, "--testbed", "store", "-o", "own.md"],
    "fit, store": ["fit", "--testbed", "store", "--shift", "sketch"],
    "groups, store": ["groups", "--testbed", "store"],
    "mce": ["mce", BED, "--where", "disk", "--most", "3"],
    "testbeds": ["testbeds"],
    "testbeds show": ["testbeds", "show", BED, "--settings"],
    "store verify": ["store", "verify", "store"],
    "store gc": ["store", "gc", "store"],
    "shifts": ["shifts"],
    "shifts show": ["shifts", "show", "imagenet-a"],
    "data check": ["data", "check", "recipes"],
}
MAKING: dict[str, list[str]] = {
    "train, run": ["train", "recipe.toml", "--allow-code", "--grid", "all"],
    "train, failed": ["train", "failing.toml", "--allow-code", "--store", "other"],
    "eval": ["eval", "{run}", "digits.npz:test", "digits.npz:faint", *CODE, "--store", "other"],
    "run": ["run", "testbed.toml", "--allow-code"],
    "run --dry-run": ["run", "testbed.toml", "--dry-run"],
    "linear": ["linear", "nets:resnet8?size=8&mode=L", "digits.npz:test", *FIT],
    "interpolate": ["interpolate", *ENDS, "digits.npz:test", "digits.npz:faint", *ALPHAS],
    "soup": ["soup", *ENDS, "-o", "soup.pt", "--held-out", "digits.npz:other"],
    "probe": ["probe", "runs", "digits.npz:test", "--pairs", "4", "--allow-code"],
    "difficulty": ["difficulty", "digits.npz:other", *SMALL, "--repeats", "1", "-o", "hard.csv"],
    "transfer": ["transfer", "store"],
    "captions": ["captions", "pairs.csv", *NAMES, "--min-matches", "20", "--per-class", "5"],
    "corrupt": ["corrupt", "val", "val-c", "--corruption", "brightness", "--size", "40"],
    "consistency": ["consistency", "frames", *FRAMES],
    "store scrub": ["store", "scrub", "store"],
    "store compact": ["store", "compact", "store"],
    "store export": ["store", "export", "store", "--setting", "test", "-o", "out.npz"],
    "store import": ["store", "import", "imported", "test.npz", "faint.npz", *SHIFT],
    "store twin": ["store", "twin", "store", "--setting", "test", "--subset", "1,5,7"],
}
"""Commands that compute or write; each begins in a fresh copy of what a recipe trained."""
ELSEWHERE = {"serve": "runs until it is stopped"}
VERDICTS = {
    "place": r"imagenet-v2: 0\.8 points below the line; ordinary: 95 in 100 baseline models",
    "place --model": r"imagenet-v2: more robust than its accuracy predicts",
    "place --from": r"1 model of own on 1 shift of imagenet-testbed-2020: 0 of 1 verdict out of",
    "fit": r"The line of imagenet-v2 is trusted: R² 0\.997 through 78 models",
    "rank": r"Largest: \S+ on imagenet-v2: more robust than its accuracy predicts",
    "rank, store": r"No model is out of line on a line that is trusted",
    "compare": r"imagenet-v2: efficientnet-l2-noisystudent is more robust",
    "groups": r"No kind is significantly off the line",
    "correlate": r"Robustness to a synthetic shift goes with that to a natural one in \d+ of 675",
    "similarity": r"The less accurate of two models is right where the other is wrong",
    "estimate": r"Closest to the labels: \S+, off by",
    "mix": r"Most robust of 11: .*(above|not significantly off) the line",
    "predictiveness": r"id:error predicts ood:error best: r 0\.98",
    "predictors": r"cifar10\.1_acc: cifar10_acc predicts best",
    "predictors, store": r"sketch: photo predicts it",
    "factors": r"1 factor of 4 metrics over 447 networks",
    "patterns": r"Of 1 pair: 1 increasing; the line is trusted in 1",
    "effects": r"Lowest OOD error: ",
    "plan": r"To measure it: enough as it is \(power 0\.9",
    "card": r"efficientnet-l2-noisystudent is out of line among the baseline models",
    "reproduce": r"andreassen2021: \d+ equal",
    "trajectories": r"narrow: ρ is .* (no significant loss|robustness is lost)",
    "mce": r"Lowest mCE: efficientnet-b8-advprop-autoaug, 44\.51",
    "mce, store": r"No model was evaluated under every corruption",
    "data check": r"recipes: 0 of 2 test sets of the catalogue complete",
    "store verify": r"store: 252 cells, nothing missing, duplicate or damaged",
    "linear": r"Best on validation: λ = ",
    "interpolate": r"Best on faint: α = ",
    "soup": r"Greedy soup of 1: soup\.pt",
    "transfer": r"(No training helps significantly anywhere|Training on \S+ helps most on)",
    "consistency": r"perfect-but-with-a-long-name-of-its-own: 100\.00 % right at pm-0",
    "store scrub": r"store: 16 cells, nothing missing, duplicate or damaged",
}
"""What the first line of a command says that reaches a verdict."""
NO_VERDICT = {
    "say what they wrote, or where they listen": "plot, report, serve",
    "say first how much was done": "import, corrupt, captions, train, run, store compact, "
    "store export, store import, store twin, store gc",
    "measure: one number is as much an answer as another": "score, eval, probe, difficulty",
    "list what there is": "testbeds show, shifts show",
}


def on_terminal(run: Callable[[], Any], width: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(width))
    return run()


def check(narrow: str, wide: str) -> None:
    """No line above 80 characters, and no word that a wider terminal does not have, too."""
    assert narrow.strip()
    assert max(map(len, narrow.splitlines())) <= 80
    said = r"A wider terminal also shows: .*|\S.*: .* for all\."
    flat = " ".join(narrow.split())
    there = set(NUMBER.sub("0", wide).split())
    broken = [
        word
        for word in flat.split()
        if NUMBER.sub("0", word) not in there and "…" not in word and set(word) - set("─━")
    ]
    notes = " ".join(re.findall(said, flat))
    assert [word for word in broken if word not in notes] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_eighty_columns_do(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> str:
        done = shiftbed(*COMMANDS[name], cwd=folder)
        assert done.returncode in (0, 1), done.stderr
        return str(done.stdout)

    narrow, wide = (ANSI.sub("", on_terminal(run, w, monkeypatch)) for w in (80, 4000))
    check(narrow, wide)
    if "store" in COMMANDS[name] and name not in ("store verify", "store gc"):
        assert not HASH.search(wide)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small recipe, trained, with what the commands that make something need beside it."""
    place = tmp_path_factory.mktemp("trained")
    path = recipe(place, GRID + AUGMENTED + "seed = [0, 1]\n", HEAD + CORRUPTED)
    assert not sb.train(read_recipe(path, allow_code=True)).failed
    (place / "failing.toml").write_text(HEAD + GRID + 'start = "file:none.pt"\n')
    bed = '[[models]]\nid = "python:net.py:build()"\nname = "net"\n'
    one = '[[test_sets]]\nname = "{0}"\npath = "digits.npz:{0}"\n'
    sets = [one.format(name) for name in ("test", "faint")]
    (place / "testbed.toml").write_text('store = "bed"\n' + bed + "".join(sets))
    weights = sorted(place.glob("runs/*/step-*.pt"))
    for name, one in zip(("first", "second"), weights, strict=False):
        shutil.copy(one, place / f"{name}.pt")
    _further(place)
    return place


def _further(place: Path) -> None:
    """Captions, pictures, frames of videos, predictions of somebody else."""
    (place / "classes.txt").write_text("dog, hound\nfox\nowl\n")
    texts = ["a dog", "Hounds", "two foxes", "dog and fox", "a tree", "nothing"]
    rows = [f"{i},http://x/{i}.jpg,{texts[i % 6]}" for i in range(120)]
    (place / "pairs.csv").write_text("\n".join(["id,url,caption", *rows]) + "\n")
    (place / "val" / "a").mkdir(parents=True)
    Image.effect_noise((50, 60), 90).convert("RGB").save(place / "val" / "a" / "0.jpg")
    names = [f"v{video}/{frame:03d}.jpg" for video in range(4) for frame in range(5)]
    labels = np.repeat(np.arange(4), 5)
    store = PredictionStore(place / "frames")
    kept = StoredTestSet(
        setting="frames", examples=tuple(names), labels=labels, fingerprint="f", classes=4
    )
    store.add_test_set(kept)
    store.write_part("perfect-but-with-a-long-name-of-its-own", "frames", 0, part_from_top(labels))
    store.write_cell("perfect-but-with-a-long-name-of-its-own", "frames", {"status": "complete"})
    anchors = {names[5 * video + 2]: names[5 * video : 5 * video + 5] for video in range(4)}
    (place / "frames.json").write_text(json.dumps(anchors))
    named = {name: [int(label)] for name, label in zip(names, labels, strict=True)}
    (place / "labels.json").write_text(json.dumps(named))
    given = {"models": np.array(["own"]), "top1": labels[None], "labels": labels}
    for name in ("test", "faint"):
        np.savez(place / f"{name}.npz", **given)


@pytest.mark.parametrize("name", MAKING)
def test_eighty_columns_do_for_what_computes(
    name: str, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for width in (80, 4000):
        place = shutil.copytree(trained, tmp_path / str(width) / "here")
        run = next((place / "runs").iterdir())
        words = [word.format(run=f"run:runs/{run.name}") for word in MAKING[name]]
        done = on_terminal(lambda: shiftbed(*words, cwd=place), width, monkeypatch)  # noqa: B023
        assert not done.stderr
        found.append(ANSI.sub("", done.output))
    check(*found)
    assert not HASH.search(found[1])


@pytest.mark.parametrize("name", VERDICTS)
def test_the_verdict_comes_first_and_stands_out(
    name: str, folder: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder if name in COMMANDS else shutil.copytree(trained, tmp_path / "here")
    words = COMMANDS.get(name) or MAKING[name]
    text = on_terminal(lambda: shiftbed(*words, cwd=place).stdout, 4000, monkeypatch)
    first = text.splitlines()[0]
    assert re.match(VERDICTS[name], ANSI.sub("", first))
    assert "\x1b[1" in first


def test_every_command_has_a_verdict_or_is_said_to_have_none() -> None:
    without = {one for names in NO_VERDICT.values() for one in names.split(", ")}
    told = {name.split(",")[0].split(" --")[0] for name in VERDICTS}
    assert told | without == every_command()
    assert not told & without


def test_models_of_a_recipe_are_named_by_what_differs(folder: Path) -> None:
    card = shiftbed("card", OURS, "--testbed", "store", cwd=folder).stdout
    assert card.startswith(f"## Robustness of {HUMAN}\n\n{HUMAN} is ")
    table = shiftbed("rank", "--testbed", "store", "--most", "40", cwd=folder).stdout
    assert HUMAN in table
    assert OURS in shiftbed("rank", "--testbed", "store", "--json", cwd=folder).stdout
    same = [
        shiftbed("place", "--testbed", "store", "--model", name, "--json", cwd=folder).stdout
        for name in (OURS, HUMAN)
    ]
    assert same[0] == same[1]


def every_command() -> set[str]:
    def names(command: typer.core.TyperGroup, before: str = "") -> set[str]:
        found = set()
        for name, one in command.commands.items():
            within = isinstance(one, typer.core.TyperGroup)
            found |= names(one, f"{before}{name} ") if within else {f"{before}{name}"}
        return found

    whole = typer.main.get_command(app)
    assert isinstance(whole, typer.core.TyperGroup)
    return names(whole)


def test_every_command_is_here_or_said_why_not() -> None:
    assert every_command() <= {*COMMANDS, *MAKING, *ELSEWHERE}
