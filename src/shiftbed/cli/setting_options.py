"""Options of ``shiftbed eval`` that make settings: label policies, perturbations, preprocessing."""

from pathlib import Path
from typing import Annotated, Any

import typer

from shiftbed.cli.output import pairs
from shiftbed.errors import InputError

Corruptions = Annotated[
    list[str] | None,
    typer.Option(
        "--corruption",
        help="NAME[:SEVERITIES] in memory, such as fog:1-5, all:3 or python:module:function:2.",
    ),
]
Attacks = Annotated[
    list[str] | None,
    typer.Option("--attack", help="Such as pgd-linf:2/255; taori2020 for its four."),
]
AttackOptions = Annotated[
    list[str] | None, typer.Option("--attack-option", help="KEY=VALUE, such as steps=20.")
]
Share = Annotated[float | None, typer.Option(help="Only this share of every class, such as 0.1.")]
Seed = Annotated[int, typer.Option(help="Of corruptions, attacks and the share.", min=0)]
Frost = Annotated[
    Path | None, typer.Option(help="A folder of frost pictures (default: synthesized).")
]


def model_name(model: str) -> str:
    """What a model is called in the store: its line, or RUN@STEP where the line names a run."""
    if not model.startswith("run:"):
        return model
    from shiftbed.training.runs import name_of

    return name_of(model)


def perturbations_of(
    corruptions: list[str] | None,
    attacks: list[str] | None,
    attack_options: list[str] | None,
    frost: Path | None,
) -> dict[str, Any]:
    """What testbed.toml says of a setting's perturbations."""
    found: dict[str, Any] = {}
    if corruptions:
        found["corruptions"] = corruptions
    if attacks:
        found["attacks"] = attacks
    if frost is not None:
        found["frost"] = str(frost)
    if attack_options:
        found["attack_options"] = _values(attack_options, "--attack-option")
    return found


def _values(texts: list[str], option: str) -> dict[str, Any]:
    """KEY=VALUE pairs, values as JSON where they are, as text otherwise."""
    from json import JSONDecodeError, loads

    found: dict[str, Any] = {}
    for key, value in pairs(texts, option, "KEY=VALUE").items():
        try:
            found[key] = loads(value)
        except JSONDecodeError:
            found[key] = value
    return found


def policy_of(subset: str | None, class_map: Path | None, how: str, labels: str) -> dict[str, Any]:
    """A setting's table, as testbed.toml has it."""
    if subset is not None and class_map is not None:
        raise InputError("give --subset or --class-map, not both")
    if subset is not None:
        return {"subset": _indices(subset), "labels": labels}
    if class_map is not None:
        from json import JSONDecodeError, loads

        try:
            groups = loads(class_map.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, JSONDecodeError) as error:
            raise InputError(f"{class_map}: cannot be read as a class map: {error}") from None
        if not isinstance(groups, dict) or not all(isinstance(v, list) for v in groups.values()):
            raise InputError(f"{class_map}: expected {{target: [classes, …]}}")
        return {"map": groups, "how": how, "labels": labels}
    return {}


def _indices(text: str) -> list[int]:
    path = Path(text)
    source = path.read_text(encoding="utf-8") if path.is_file() else text
    words = source.replace(",", " ").split()
    if not words or not all(word.isdigit() for word in words):
        raise InputError(f"--subset: expected class indices such as 1,5,7 or a file, got {text!r}")
    return [int(word) for word in words]


def preprocessing_of(texts: list[str]) -> dict[str, Any]:
    """Changes of the model's own preprocessing."""
    return _values(texts, "--preprocessing")


def set_name(path: str) -> str:
    plain = path.rstrip("/")
    if ".npz:" in plain:
        return plain.rpartition(":")[2]
    return Path(plain).stem if Path(plain).suffix else Path(plain).name
