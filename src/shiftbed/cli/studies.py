"""Studies of many networks, of runs and of answers per image, each with its chart.

predictiveness, predictors, factors, patterns, effects; trajectories, transfer, mce; similarity,
estimate, mix, consistency.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from shiftbed.cli import options as opt
from shiftbed.cli.commands import Command, Default, Read, Study, named, study
from shiftbed.cli.output import call, check_files, show, whole_number, whole_numbers
from shiftbed.errors import InputError, unknown
from shiftbed.places import shown_place

predictiveness = Study(
    "Which metric predicts OOD error? Averaged correlations over (ID, OOD) pairs.",
    source=opt.Pairs,
    show="What to print, write and draw: scores, matrix or transfer.",
    method="spearman or pearson.",
    target="What is to be predicted.",
    given="What it is adjusted for.",
    by="One table per task, kind of shift, shift-type, or value of a recipe column such as "
    "data_size.",
    upstream="Recipe column with the backbone's timm name and tag ('model': the models' own "
    "names): its ImageNet, ReaL, V2, Sketch, A and R errors become metrics.",
    unit="What intervals resample: two-way (ID sets and OOD sets), id-set, or pair (as if pairs "
    "were independent).",
)


def _predictors(function: Callable[..., Any], given: dict[str, Any]) -> None:
    from shiftbed.page import save

    drawn = {name: path for name in ("lines", "best") if (path := given.pop(name)) is not None}
    check_files(None, *drawn.values())
    found = call(function, given)
    for name, path in drawn.items():
        save(found.chart(name), path)
    found = replace(found, files=tuple(map(str, drawn.values())))
    show(found, given["json"])
    for file in () if given["json"] else found.files:
        print(f"wrote {shown_place(file)}")


predictors = Command(
    "For every metric and OOD set: slope and R² of probit OOD accuracy, per group and averaged.",
    _predictors,
    source=Argument(help="A published testbed's name, a testbed file or a store."),
    by="Column of models: fit each of its values, and average over them.",
    models=Option(help="Only models with COLUMN=PATTERN or COLUMN!=PATTERN (default all)."),
    metric="Settings to predict from (default: ID accuracy and all probes).",
    ood="Shifts or OOD settings (default: all shifts).",
    groups="Also print every group's own fit.",
    bootstrap=Option(help="Draws for the interval of an average R²; 0: none.", min=0),
    seed=Option(help="Seed of these draws.", min=0),
    lines=Annotated[
        Path, Option(help="Draw OOD over ID accuracy, a line per group, as opaque as its R².")
    ],
    best=Annotated[Path, Option(help="Draw OOD accuracy over the metric that predicts it best.")],
)
factors = Study(
    "What do many metrics measure? Factor analysis over networks, with intervals.",
    source=opt.Pairs,
    metric="Only these metrics, such as ood:error (default: ID, corrupted, OOD).",
    columns="metrics: OOD metrics averaged over a network's OOD sets; settings: each metric on "
    "each test set is a column.",
    factors="How many factors (default: --choose-by).",
    choose_by="How many: eigenvalue (at least 1, default) or parallel (above chance).",
    extraction="minimum-residual, principal-axis or components.",
    rotation="equamax, varimax, quartimax or none.",
    kaiser="Give all metrics equal weight in the rotation.",
    resample="What intervals resample: model (with all its rows, default), source (ID sets) or "
    "network (rows, as if independent).",
)


def _classes(texts: list[str], option: str) -> dict[str, int]:
    """``10`` for all tasks, ``PACS=7`` for one."""
    plain = [text for text in texts if "=" not in text]
    if len(plain) > 1:
        raise InputError("--classes: one number for all tasks, or TASK=N for each")
    given = whole_numbers([text for text in texts if "=" in text], option, "N or TASK=N")
    return given | ({"": whole_number(plain[0], option)} if plain else {})


def _patterns(function: Callable[..., Any], given: dict[str, Any]) -> None:
    from shiftbed.results.patterns import DRAWN

    draw = given.pop("draw")
    if draw is not None and given["figure"] is None:
        raise InputError("--draw goes with --figure")
    if draw is not None and draw not in DRAWN:
        raise unknown("figure", draw, DRAWN)
    study(function, given, {"draw": draw or "scatters"})


patterns = Study(
    "Which shape has OOD over ID accuracy: line, vertical, horizontal, decreasing, none?",
    _patterns,
    source=opt.Pairs,
    classes=Read("Number of classes, for all tasks or as TASK=N: chance is 1/N.", _classes),
    images=Read(
        "SETTING=N: size of a test set, where the source does not know it.",
        lambda texts, option: whole_numbers(texts, option, "SETTING=N"),
    ),
    groups="Recipe column whose values could have lines of their own.",
    draw="What --figure shows: scatters (default) or counts.",
)
effects = Study(
    "What does a recipe do? Paired differences, architectures, normalised gaps, difficulty.",
    source=opt.Pairs,
    show="differences, architectures, difficulty, head or means.",
    column="Recipe column that differs, such as augmentation.",
    of="Its values on one side, averaged if several.",
    against="Its values on the other side, averaged if several.",
    metric="Only these, such as ood:error.",
    alternative="less (default): --of is lower (better); greater: higher (worse).",
    match="Columns in which compared networks must agree.",
    unit="One difference per task (default where there are two), per id-set, or per network (the "
    "latter two as if independent). With difficulty, what intervals resample: two-way (default: "
    "ID sets and OOD sets), id-set or pair.",
    select="Metric that chooses networks, with architectures.",
    over="Average architectures over pairs (Table 2, default) or tasks.",
    bootstrap=Option(help="Resamples for intervals (default: 1000).", min=0),
    seed=Option(help="Seed of the resampling (default: 0).", min=0),
)


def _trajectories(function: Callable[..., Any], given: dict[str, Any]) -> None:
    colour, highlight = given.pop("colour"), given.pop("highlight")
    if given["figure"] is None and (colour or highlight):
        raise InputError("--colour and --highlight go with --figure")
    study(function, given, {"colour": colour, "highlight": highlight or ()})


trajectories = Study(
    """ρ along training: start, peak and end of each kind of run and of each run.

    The peak is taken at a step that other runs (or half of the images) choose, so that its own
    noise does not raise it. -o writes the table of runs.
    """,
    _trajectories,
    source=Argument(help="A store with runs, a testbed file or a published testbed."),
    by="Columns that make a kind of run (default: all arguments but the seed).",
    only="Only runs of these models: COLUMN=PATTERN.",
    run="Only this run; repeatable.",
    bins=Option(help="Bins of ID accuracy (default: 100, or as many as a run has steps).", min=1),
    over="Column to list the maximum ρ by, such as data_size or parameters.",
    draw="What --figure shows: rho, share (of the gap) or largest.",
    colour="Column that colours the curves of --figure.",
    highlight=Annotated[list[str], Option(help="Kinds, runs or models to set apart in --figure.")],
)


def _transfer(function: Callable[..., Any], given: dict[str, Any]) -> None:
    from shiftbed.page import save
    from shiftbed.store import PredictionStore

    output, value = given.pop("output"), given.pop("value")
    if value is not None and output is None:
        raise InputError("--value goes with --output")
    found = call(function, given, store=PredictionStore.existing(given["store"]))
    if output is not None:
        save(found.chart(value or "accuracy"), output)
    show(found, given["json"])


transfer = Command(
    "Trained on × tested on: what does training on one corruption do for the others?",
    _transfer,
    store=Argument(help="A store that trained models were evaluated into."),
    by="Column of models that says what they saw.",
    without="Its value for models to compare with.",
    clean="The test set that was corrupted, where there are several.",
    where="Corruptions in memory or on disk.",
    output=Annotated[Path, Option("--output", "-o", help="A heat map: .png, .svg, .pdf or .html.")],
    value="What the heat map shows: accuracy (default) or gain.",
)
mce = Command(
    "Mean corruption error and relative mCE of models (100 = the reference).",
    testbed=Argument(help="A prediction store, a testbed file or a published testbed."),
    where="memory or disk; needed where the testbed has both.",
    clean="The ID setting the corrupted ones were made of.",
    reference="alexnet-2019 (published errors), or a model of the testbed.",
    corruptions=Option("--corruption", help="Only these (default: the benchmark's fifteen)."),
    most=Option(help="Models to print.", min=1),
)

_ANSWERS: dict[str, Any] = {
    "source": Argument(help="ID predictions: a .npz file, or a store or file with --id and --ood."),
    "target": Argument(help="OOD predictions; labels are not needed."),
    "id": "ID setting.",
    "ood": "OOD setting.",
}
similarity = Study(
    """Dominance, agreement and error consistency of every two models on the same examples.

    Agreement is the share of examples with the same predicted class; on correctness, the share
    that both get right or both wrong, which κ corrects for chance. -o writes the table of pairs.
    """,
    source=Argument(help="A .npz file of predictions, a prediction store or testbed file."),
    setting="Which setting, if there are several.",
    model=opt.ModelsShort,
    pairs="Every pair, with McNemar's exact test.",
    unsolved="Examples no baseline model gets right, and who does.",
    baseline="Baseline models by name or pattern, for --unsolved (default: all).",
    difficulty="Do groups of models find the same examples hard?",
    group=named(
        "NAME=PATTERN", "NAME=PATTERN of a group, for --difficulty (default: by accuracy)."
    ),
    triplets="OOD file, store or setting: triplet probabilities ID against OOD.",
    cone="Factor c of the cone p/c ≤ q ≤ c·p, for --triplets (default: 2).",
)
estimate = Study(
    """OOD accuracy without OOD labels: agreement-on-the-line, thresholded confidence and others.

    If OOD labels are there they only serve to say how far off each method is, except for --labels.
    """,
    **_ANSWERS,
    model=opt.ModelsShort,
    labels=Annotated[
        int,
        Option(help="Use the labels of so many OOD images, drawn at random: prediction-powered."),
    ],
    labelled="Another shift with labels (a setting where there is one file, else a file); two or "
    "more give agreement-on-the-line its interval.",
    seed=Option(help="Seed of the draw of --labels.", min=0),
)
mix = Study(
    """Classifiers made of stored predictions: mixed ones on the chord, majority votes; their ρ.

    With two --model: their chord. Without: ensembles of the best 3, 5, 10 and all models, by vote
    and, where a store kept the logits, by mean probability.
    """,
    **_ANSWERS,
    model=Option("--model", "-m", help="Two models: the mixed classifiers between them."),
)


def _windows(text: str, option: str) -> list[int]:
    """Such as 0,1,10 or 0-10."""
    found: list[int] = []
    for piece in text.split(","):
        low, dash, high = piece.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()) or int(high or low) > 10_000:
            raise InputError(f"--k: expected numbers of frames such as 0,10 or 0-10, got {text!r}")
        found += range(int(low), int(high or low) + 1)
    return found


consistency = Command(
    "pm-k: right on an anchor frame and on every reviewed frame within ±k of it.",
    metadata=Annotated[
        list[Path], Option(help="The authors' files, such as pmsets.json and labels.json (repeat).")
    ],
    setting="The setting of frames (default: the one that has them).",
    rule="frame: judged by its own labels; anchor: by its anchor's.",
    k=Read(
        Default(Annotated[str, Option(help="Frames to each side: 0,10 or 0-10.")], "0,10"),
        _windows,
    ),
    class_map=opt.ClassMap,
    model=opt.Models,
    write="Keep pm-k in the store as settings, and pm-0 to pm-k as a shift.",
)
