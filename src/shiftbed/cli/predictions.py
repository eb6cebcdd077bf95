"""``shiftbed similarity``, ``estimate``, ``mix`` and ``consistency``: answers per image."""

from pathlib import Path
from typing import Annotated

import typer

from shiftbed.cli.imports import ClassMapFile
from shiftbed.cli.lines import ScaleName
from shiftbed.cli.output import (
    AsJson,
    Figure,
    Level,
    Output,
    call,
    show,
)
from shiftbed.cli.output import pairs as named
from shiftbed.errors import InputError

OnlyModels = Annotated[list[str] | None, typer.Option("--model", "-m", help="Only these models.")]
Most = Annotated[int, typer.Option("--most", "-n", help="How many rows to print.", min=1)]
Source = Annotated[
    str, typer.Argument(help="ID predictions: a .npz file, or a store or file with --id and --ood.")
]
Target = Annotated[str | None, typer.Argument(help="OOD predictions; labels are not needed.")]
IdSetting = Annotated[str | None, typer.Option("--id", help="ID setting.")]
OodSetting = Annotated[str | None, typer.Option("--ood", help="OOD setting.")]


def similarity(
    source: Annotated[
        str, typer.Argument(help="A .npz file of predictions, a prediction store or testbed file.")
    ],
    setting: Annotated[
        str | None, typer.Option(help="Which setting, if there are several.")
    ] = None,
    model: OnlyModels = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Every pair, with McNemar's exact test.")
    ] = False,
    unsolved: Annotated[
        bool,
        typer.Option("--unsolved", help="Examples no baseline model gets right, and who does."),
    ] = False,
    baseline: Annotated[
        list[str] | None,
        typer.Option(help="Baseline models by name or pattern, for --unsolved (default: all)."),
    ] = None,
    difficulty: Annotated[
        bool, typer.Option("--difficulty", help="Do groups of models find the same examples hard?")
    ] = False,
    group: Annotated[
        list[str] | None,
        typer.Option(help="NAME=PATTERN of a group, for --difficulty (default: by accuracy)."),
    ] = None,
    triplets: Annotated[
        str | None,
        typer.Option(help="OOD file, store or setting: triplet probabilities ID against OOD."),
    ] = None,
    cone: Annotated[
        float | None,
        typer.Option(help="Factor c of the cone p/c ≤ q ≤ c·p, for --triplets (default: 2)."),
    ] = None,
    most: Most = 20,
    level: Level = 0.95,
    output: Output = None,
    figure: Figure = None,
    json: AsJson = False,
) -> None:
    """Dominance, agreement and error consistency of every two models on the same examples.

    Agreement is the share of examples with the same predicted class; on correctness, the share
    that both get right or both wrong, which κ corrects for chance. -o writes the table of pairs.
    """
    given = locals()
    from shiftbed.results.similarity import similarity as measure

    call(measure, {**given, "group": named(group or [], "--group", "NAME=PATTERN")})


def estimate(
    source: Source,
    target: Target = None,
    id: IdSetting = None,
    ood: OodSetting = None,
    model: OnlyModels = None,
    most: Most = 20,
    level: Level = 0.95,
    output: Output = None,
    figure: Figure = None,
    json: AsJson = False,
) -> None:
    """OOD accuracy without OOD labels: agreement-on-the-line, thresholded confidence and others.

    If OOD labels are there they only serve to say how far off each method is.
    """
    given = locals()
    from shiftbed.results.estimate import estimate as measure

    call(measure, given)


def mix(
    source: Source,
    target: Target = None,
    id: IdSetting = None,
    ood: OodSetting = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="Two models: the mixed classifiers between them."),
    ] = None,
    scale: ScaleName = "logit",
    level: Level = 0.95,
    output: Output = None,
    figure: Figure = None,
    json: AsJson = False,
) -> None:
    """Classifiers made of stored predictions: mixed ones on the chord, majority votes; their ρ.

    With two --model: their chord. Without: ensembles of the best 3, 5, 10 and all models, by vote
    and, where a store kept the logits, by mean probability.
    """
    given = locals()
    from shiftbed.results.mix import mix as make

    call(make, given)


def consistency(
    store: Annotated[str, typer.Argument(help="A prediction store.")],
    metadata: Annotated[
        list[Path],
        typer.Option(help="The authors' files, such as pmsets.json and labels.json (repeat)."),
    ],
    setting: Annotated[
        str | None, typer.Option(help="The setting of frames (default: the one that has them).")
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(help="frame: judged by its own labels; anchor: by its anchor's."),
    ] = None,
    k: Annotated[str, typer.Option("--k", help="Frames to each side: 0,10 or 0-10.")] = "0,10",
    class_map: ClassMapFile = None,
    model: Annotated[list[str] | None, typer.Option(help="Only these models.")] = None,
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """pm-k: right on an anchor frame and on every reviewed frame within ±k of it."""
    from shiftbed.results.consistency import consistency as measure

    found = measure(
        store,
        metadata,
        setting=setting,
        rule=rule,
        k=_numbers(k),
        class_map=class_map,
        model=model,
        level=level,
    )
    show(found, json)


def _numbers(text: str) -> list[int]:
    """Such as 0,1,10 or 0-10."""
    found: list[int] = []
    for piece in text.split(","):
        low, dash, high = piece.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()) or int(high or low) > 10_000:
            raise InputError(f"--k: expected numbers of frames such as 0,10 or 0-10, got {text!r}")
        found += range(int(low), int(high or low) + 1)
    return found
