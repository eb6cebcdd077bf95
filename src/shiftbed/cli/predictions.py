"""``shiftbed similarity``, ``estimate``, ``mix`` and ``consistency``: answers per image."""

from pathlib import Path

from typer import Argument, Option

import shiftbed as sb
from shiftbed.cli import options as opt
from shiftbed.cli.output import call, show, study
from shiftbed.cli.output import pairs as named
from shiftbed.errors import InputError


def similarity(
    source: str = Argument(help="A .npz file of predictions, a prediction store or testbed file."),
    setting: str | None = Option(None, help="Which setting, if there are several."),
    model: opt.ModelsShort = None,
    pairs: bool = Option(False, "--pairs", help="Every pair, with McNemar's exact test."),
    unsolved: bool = Option(
        False, "--unsolved", help="Examples no baseline model gets right, and who does."
    ),
    baseline: list[str] | None = Option(
        None, help="Baseline models by name or pattern, for --unsolved (default: all)."
    ),
    difficulty: bool = Option(
        False, "--difficulty", help="Do groups of models find the same examples hard?"
    ),
    group: list[str] | None = Option(
        None, help="NAME=PATTERN of a group, for --difficulty (default: by accuracy)."
    ),
    triplets: str | None = Option(
        None, help="OOD file, store or setting: triplet probabilities ID against OOD."
    ),
    cone: float | None = Option(
        None, help="Factor c of the cone p/c ≤ q ≤ c·p, for --triplets (default: 2)."
    ),
    most: opt.Most = 20,
    level: opt.Level = 0.95,
    output: opt.Output = None,
    figure: opt.Figure = None,
    json: opt.AsJson = False,
) -> None:
    """Dominance, agreement and error consistency of every two models on the same examples.

    Agreement is the share of examples with the same predicted class; on correctness, the share
    that both get right or both wrong, which κ corrects for chance. -o writes the table of pairs.
    """
    study(sb.similarity, locals(), group=named(group, "--group", "NAME=PATTERN"))


def estimate(
    source: opt.Answers,
    target: opt.OodAnswers = None,
    id: opt.IdSetting = None,
    ood: opt.OodSetting = None,
    model: opt.ModelsShort = None,
    labels: int | None = Option(
        None, help="Use the labels of so many OOD images, drawn at random: prediction-powered."
    ),
    labelled: list[str] | None = Option(
        None,
        help="Another shift with labels (a setting where there is one file, else a file); two or "
        "more give agreement-on-the-line its interval.",
    ),
    seed: int = Option(0, help="Seed of the draw of --labels."),
    most: opt.Most = 20,
    level: opt.Level = 0.95,
    output: opt.Output = None,
    figure: opt.Figure = None,
    json: opt.AsJson = False,
) -> None:
    """OOD accuracy without OOD labels: agreement-on-the-line, thresholded confidence and others.

    If OOD labels are there they only serve to say how far off each method is, except for --labels.
    """
    study(sb.estimate, locals())


def mix(
    source: opt.Answers,
    target: opt.OodAnswers = None,
    id: opt.IdSetting = None,
    ood: opt.OodSetting = None,
    model: list[str] | None = Option(
        None, "--model", "-m", help="Two models: the mixed classifiers between them."
    ),
    scale: opt.ScaleName = "logit",
    fit_on: opt.FitOn = None,
    level: opt.Level = 0.95,
    output: opt.Output = None,
    figure: opt.Figure = None,
    json: opt.AsJson = False,
) -> None:
    """Classifiers made of stored predictions: mixed ones on the chord, majority votes; their ρ.

    With two --model: their chord. Without: ensembles of the best 3, 5, 10 and all models, by vote
    and, where a store kept the logits, by mean probability.
    """
    study(sb.mix, locals())


def consistency(
    store: opt.Store,
    metadata: list[Path] = Option(
        help="The authors' files, such as pmsets.json and labels.json (repeat)."
    ),
    setting: str | None = Option(
        None, help="The setting of frames (default: the one that has them)."
    ),
    rule: str | None = Option(
        None, help="frame: judged by its own labels; anchor: by its anchor's."
    ),
    k: str = Option("0,10", "--k", help="Frames to each side: 0,10 or 0-10."),
    class_map: opt.ClassMap = None,
    model: opt.Models = None,
    write: bool = Option(
        False, "--write", help="Keep pm-k in the store as settings, and pm-0 to pm-k as a shift."
    ),
    level: opt.Level = 0.95,
    json: opt.AsJson = False,
) -> None:
    """pm-k: right on an anchor frame and on every reviewed frame within ±k of it."""
    show(call(sb.consistency, locals(), k=_numbers(k)), json)


def _numbers(text: str) -> list[int]:
    """Such as 0,1,10 or 0-10."""
    found: list[int] = []
    for piece in text.split(","):
        low, dash, high = piece.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()) or int(high or low) > 10_000:
            raise InputError(f"--k: expected numbers of frames such as 0,10 or 0-10, got {text!r}")
        found += range(int(low), int(high or low) + 1)
    return found
