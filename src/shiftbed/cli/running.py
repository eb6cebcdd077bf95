"""``shiftbed run``, ``eval`` and ``score``: models on test sets, into a store, and out of it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from shiftbed.cli.imports import class_indices
from shiftbed.cli.output import AsJson, Level, pairs, show
from shiftbed.errors import InputError

Runner = Annotated[str, typer.Option(help="local, processes or ray.")]
Workers = Annotated[int, typer.Option(help="Worker processes, or Ray workers.", min=1)]
Address = Annotated[
    str | None, typer.Option(help="Ray cluster to use (auto for a running one); default: local.")
]
BatchSize = Annotated[int | None, typer.Option(help="Images per batch.", min=1)]
Backend = Annotated[
    str | None, typer.Option(help="auto, torch, compile or onnxruntime (default auto).")
]
Unreadable = Annotated[
    str | None, typer.Option("--on-unreadable", help="skip (listed by name) or stop.")
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        help="top1, top5, nll, brier, ece, worst_class, worst_group, disparity (default top1); of "
        "probes amplitude_hff, phase_cd, pixel_within_hff, jacobian_norm, …",
    ),
]

Policy = Annotated[
    str | None,
    typer.Option(
        help="Of NAME@DIR: its label policy as the catalogue has it, or 'full': all classes."
    ),
]
Through = Annotated[
    str | None,
    typer.Option(
        help="Classes of the model (imagenet) that are mapped to NAME@DIR's (cifar-10, …) by --how."
    ),
]
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
Seed = Annotated[int, typer.Option(help="Seed of corruptions, attacks and the share.", min=0)]
Frost = Annotated[
    Path | None, typer.Option(help="A folder of frost pictures (default: synthesized).")
]


def run(
    testbed: Annotated[Path, typer.Argument(help="A testbed.toml.")],
    runner: Runner = "local",
    workers: Workers = 2,
    address: Address = None,
    batch_size: BatchSize = None,
    backend: Backend = None,
    on_unreadable: Unreadable = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what is left to do, and an estimate.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Run a testbed: every model in every setting. The same command again continues."""
    from shiftbed.cli.progress import Progress
    from shiftbed.engine.evaluate import left_to_do
    from shiftbed.engine.evaluate import run as run_it

    if dry_run:
        show(left_to_do(testbed), json)
        return
    with Progress(quiet=json) as progress:
        done = run_it(
            testbed,
            runner=runner,
            workers=workers,
            address=address,
            report=progress.part,
            announce=progress.cells,
            **_given(batch_size=batch_size, backend=backend, on_unreadable=on_unreadable),
        )
    show(done, json)
    if done.failed:
        raise typer.Exit(1)


def eval_(
    model: Annotated[str, typer.Argument(help="A model, such as timm:resnet18 or onnx:FILE.")],
    test_sets: Annotated[
        list[str], typer.Argument(help="Folders, .npz, .csv, .tar …, or NAME@DIR.")
    ],
    store: Annotated[
        Path, typer.Option(help="Where predictions are kept (and found again).")
    ] = Path("store"),
    name: Annotated[str | None, typer.Option(help="The model's name in the store.")] = None,
    weights: Annotated[Path | None, typer.Option(help="A local file of weights.")] = None,
    batch_size: BatchSize = None,
    backend: Backend = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
    precision: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    on_unreadable: Unreadable = None,
    preprocessing: Annotated[
        list[str] | None,
        typer.Option(help="KEY=VALUE: change the model's own, such as interpolation=bicubic."),
    ] = None,
    subset: Annotated[
        str | None,
        typer.Option(help="Only these classes of the model: 1,5,7 or a file of indices."),
    ] = None,
    class_map: Annotated[
        Path | None,
        typer.Option(help="JSON file {target: [classes of the model, …]}: many classes to one."),
    ] = None,
    how: Annotated[
        str | None,
        typer.Option(help="Combine mapped classes by max (default), mean, sum or max-logit."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="The images' labels are the 'model' 's classes, or the 'target' ones (default)."
        ),
    ] = None,
    policy: Policy = None,
    through: Through = None,
    corruption: Corruptions = None,
    attack: Attacks = None,
    attack_option: AttackOptions = None,
    share: Share = None,
    seed: Seed = 0,
    frost: Frost = None,
    keep_logits: Annotated[
        bool, typer.Option("--keep-logits", help="Keep all logits, not the best classes only.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Compare with the published accuracy, and try the causes."),
    ] = False,
    published: Annotated[
        float | None,
        typer.Option(help="That accuracy, a fraction (default: the shipped timm table's)."),
    ] = None,
    images: Annotated[int, typer.Option(help="Images to check on.", min=10)] = 2000,
    metric: Metrics = None,
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Evaluate one model on test sets; predictions are kept, and found again the next time."""
    from shiftbed.cli.progress import Progress
    from shiftbed.engine.evaluate import evaluate
    from shiftbed.engine.plan import ModelSpec
    from shiftbed.evaluation.models.registry import name_of

    opening: dict[str, Any] = _given(weights=None if weights is None else str(weights))
    opening |= _given(preprocessing=values(preprocessing, "--preprocessing") or None)
    if check:
        from shiftbed.engine.check import check as check_it

        if len(test_sets) != 1:
            raise InputError("--check takes one test set: the ID set of the published accuracy")
        opening |= {"device": device, "precision": precision}
        found = check_it(
            model, test_sets[0], published=published, images=images, level=level, **opening
        )
        show(found, json)
        return
    with Progress(quiet=json) as progress:
        done = evaluate(
            [ModelSpec(source=model, name=name or name_of(model), options=opening)],
            test_sets,
            corruptions=corruption or (),
            attacks=attack or (),
            attack_options=values(attack_option, "--attack-option"),
            frost=frost,
            share=share,
            seed=seed,
            labels=_labels(subset, class_map, how, labels, policy, through),
            shifts=(),
            store=store,
            metrics=metric or ("top1",),
            level=level,
            report=progress.part,
            announce=progress.cells,
            device=device,
            precision=precision,
            keep_logits=keep_logits,
            **_given(batch_size=batch_size, backend=backend, on_unreadable=on_unreadable),
        )
    show(done, json)
    if done.failed:
        raise typer.Exit(1)


def score(
    store: Annotated[str, typer.Argument(help="A prediction store.")],
    metric: Metrics = None,
    model: Annotated[list[str] | None, typer.Option(help="Only these models.")] = None,
    setting: Annotated[list[str] | None, typer.Option(help="Only these settings.")] = None,
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Score a store: any metric of any cell, from the predictions kept."""
    from shiftbed.results.scores import score as scored

    asked = metric or ["top1"]
    show(scored(store, metrics=asked, models=model, settings=setting, level=level), json)


def _given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {key: value for key, value in options.items() if value is not None}


def values(texts: list[str] | None, option: str) -> dict[str, Any]:
    """KEY=VALUE pairs, values as JSON where they are, as text otherwise."""
    from json import JSONDecodeError, loads

    found: dict[str, Any] = {}
    for key, value in pairs(texts or [], option, "KEY=VALUE").items():
        try:
            found[key] = loads(value)
        except JSONDecodeError:
            found[key] = value
    return found


def _labels(
    subset: str | None,
    class_map: Path | None,
    how: str | None,
    labels: str | None,
    policy: str | None,
    through: str | None,
) -> dict[str, Any]:
    """How the model's classes and the labels meet, as a setting of testbed.toml says it."""
    if sum(one is not None for one in (subset, class_map, through)) > 1:
        raise InputError("give one of --subset, --class-map and --through")
    if how is not None and class_map is None and through is None:
        raise InputError("--how goes with --class-map or --through")
    if labels is not None and subset is None and class_map is None:
        raise InputError("--labels goes with --subset or --class-map")
    found: dict[str, Any] = _given(policy=policy, through=through)
    if subset is not None:
        found["subset"] = class_indices(subset)
    if class_map is not None:
        found["map"] = class_map
    if subset is not None or class_map is not None:
        found["labels"] = labels or "target"
    return found | _given(how=how)
