"""``shiftbed run``, ``eval`` and ``score``: models on test sets, into a store, and out of it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from shiftbed.cli.catalogue import Policy, Through, notes_of, policy_table
from shiftbed.cli.output import (
    AsJson,
    Level,
    as_json,
    interval,
    number,
    percent,
    points,
    records,
    table,
)
from shiftbed.cli.setting_options import (
    AttackOptions,
    Attacks,
    Corruptions,
    Frost,
    Seed,
    Share,
    model_name,
    perturbations_of,
    policy_of,
    preprocessing_of,
    set_name,
)
from shiftbed.errors import InputError

WARNED = ": warning: "
"""In notes that say why a number is not to be trusted."""
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
    from shiftbed.engine import read_spec

    spec = read_spec(testbed)
    options = _options(batch_size, backend, on_unreadable)
    if dry_run:
        _dry_run(spec, json)
        return
    summary = _with_progress(
        spec, quiet=json, runner=runner, workers=workers, address=address, **options
    )
    if json:
        as_json(_summary(spec, summary))
    else:
        _say(spec, summary)
    if summary.failed:
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
        str, typer.Option(help="Combine mapped classes by max, mean, sum or max-logit.")
    ] = "max",
    labels: Annotated[
        str,
        typer.Option(help="The images' labels are the 'model' 's classes, or the 'target' ones."),
    ] = "target",
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
    from shiftbed.engine import ModelSpec, RunSpec, TestSetSpec
    from shiftbed.engine.known import known_test_set
    from shiftbed.engine.perturbed import expand, with_automatic
    from shiftbed.engine.spec import setting
    from shiftbed.results.scores import score as scores_of
    from shiftbed.store import PredictionStore

    changes = preprocessing_of(preprocessing or [])
    if check:
        options: dict[str, Any] = {"device": device, "precision": precision}
        options |= {"weights": str(weights)} if weights else {}
        _check(model, test_sets, options, changes, published, images, level, json)
        return
    table = policy_of(subset, class_map, how, labels) | {"seed": seed}
    table |= {} if share is None else {"share": share}
    wanted = perturbations_of(corruption, attack, attack_option, frost)
    table |= policy_table(policy, through, how)
    sets: list[TestSetSpec] = []
    for path in test_sets:
        known = known_test_set(path, None, others=sets)
        sets.append(known or TestSetSpec(name=set_name(path), path=path))
    if len({s.name for s in sets}) < len(sets):
        raise InputError("two test sets have the same name; evaluate them into two stores")
    settings = tuple(one for s in sets for one in expand(setting(s, dict(table)), wanted))
    spec = RunSpec(
        name="eval",
        store=str(store),
        models=(
            ModelSpec(
                spec=model,
                name=name or model_name(model),
                options=({"weights": str(weights)} if weights else {})
                | ({"preprocessing": changes} if changes else {}),
            ),
        ),
        settings=settings,
        shifts=with_automatic((), settings),
        options={"device": device, "precision": precision, "keep_logits": keep_logits},
    )
    given = _options(batch_size, backend, on_unreadable)
    summary = _with_progress(spec, quiet=json, runner="local", workers=1, address=None, **given)
    failed = {key[1]: why for key, why in summary.failed.items()}
    ready = [s.id for s in settings if s.id not in failed]
    if not ready:
        raise InputError("; ".join(f"{model} on {name}: {why}" for name, why in failed.items()))
    opened = PredictionStore(store)
    found = scores_of(
        opened,
        metrics=metric or ["top1"],
        models=[spec.models[0].name],
        settings=ready,
        level=level,
    )
    record = opened.cell(spec.models[0].name, ready[0]) or {}
    said = {s: notes for s in ready if (notes := notes_of(opened, s))}
    if json:
        as_json(
            {
                "model": spec.models[0].name,
                "settings": records(found.drop("model")),
                "backend": record.get("backend"),
                "images_per_second": summary.images_per_second,
                "preprocessing": record.get("preprocessing"),
                "unreadable": sorted(set(record.get("unreadable", []))),
                "warnings": sorted({n for n in summary.notes if WARNED in n}),
                "notes": said,
                "failed": failed,
            }
        )
    else:
        _show_scores(f"{spec.models[0].name} ({record.get('backend')})", found, level)
        for note in sorted(set(summary.notes)):
            print(note)
        for setting_id, notes in said.items():
            print(*(f"{setting_id}: {note}" for note in notes), sep="\n")
        for name, why in failed.items():
            print(f"failed: {model} on {name}: {why}")
    if failed:
        raise typer.Exit(1)


def _check(
    model: str,
    test_sets: list[str],
    options: dict[str, Any],
    own: dict[str, Any],
    published: float | None,
    images: int,
    level: float,
    json: bool,
) -> None:
    from dataclasses import asdict

    from shiftbed.analysis.intervals import check_fractions
    from shiftbed.evaluation.data import open_test_set
    from shiftbed.evaluation.models import resolve
    from shiftbed.evaluation.pipeline import check_pipeline

    if len(test_sets) != 1:
        raise InputError("--check takes one test set: the ID set of the published accuracy")
    figure = _published(model) if published is None else published
    check_fractions([figure], "--published")
    found = check_pipeline(
        lambda changes: resolve(model, preprocessing=own | changes, **options),
        open_test_set(test_sets[0]),
        figure,
        images=images,
        level=level,
    )
    if json:
        rest = {"not_interpretable_below": found.not_interpretable_below, "agrees": found.agrees}
        as_json(asdict(found) | rest)
        return
    table(
        f"{found.model}: {percent(found.measured)} % measured on {found.n:,} images, "
        f"{percent(found.published)} % published",
        ["change", "accuracy", "gain", f"{100 * level:g} % interval"],
        [
            (c.change, percent(c.accuracy), points(c.gain), interval(c.low, c.high))
            for c in found.causes
        ],
        notes=[
            f"Discrepancy {points(found.discrepancy)} points "
            f"({interval(found.low, found.high)}). Likely cause: {found.likely}.",
            f"Effective robustness below {percent(found.not_interpretable_below)} points is not "
            "interpretable with this pipeline.",
        ],
    )


def _published(model: str) -> float:
    """The model's ImageNet accuracy in the shipped timm table."""
    from shiftbed.testbed import published

    prefix, _, name = model.partition(":")
    if prefix != "timm":
        raise InputError(f"give --published: the shipped table has timm's models, not {model!r}")
    bed = published("timm")
    return float(bed.accuracy("imagenet")[bed.model_index(name.partition("?")[0])])


def score(
    store: Annotated[str, typer.Argument(help="A prediction store.")],
    metric: Metrics = None,
    model: Annotated[list[str] | None, typer.Option(help="Only these models.")] = None,
    setting: Annotated[list[str] | None, typer.Option(help="Only these settings.")] = None,
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Score a store: any metric of any cell, from the predictions kept."""
    from shiftbed.results.scores import score as scores_of
    from shiftbed.store import PredictionStore

    opened = PredictionStore.existing(store)
    found = scores_of(
        opened, metrics=metric or ["top1"], models=model, settings=setting, level=level
    )
    failed = [
        r
        for r in opened.cells()
        if r.get("status") == "failed"
        and (model is None or r["model"] in model)
        and (setting is None or r["setting"] in setting)
    ]
    if json:
        as_json(
            {
                "settings": records(found),
                "failed": [
                    {"model": r["model"], "setting": r["setting"], "error": r.get("error")}
                    for r in failed
                ],
            }
        )
        return
    _show_scores(str(store), found, level)
    cannot = [r for r in failed if str(r.get("error", "")).startswith("not applicable")]
    for record in failed:
        if record not in cannot:
            print(f"failed: {record['model']} on {record['setting']}: {record.get('error')}")
    if cannot:
        models, settings = ({r[key] for r in cannot} for key in ("model", "setting"))
        print(
            f"not applicable: {len(settings)} settings to {len(models)} models, such as "
            f"{cannot[0]['model']} on {cannot[0]['setting']}; --json has the reasons"
        )


def _options(
    batch_size: int | None, backend: str | None, on_unreadable: str | None
) -> dict[str, Any]:
    if on_unreadable not in (None, "skip", "stop"):
        raise InputError(f"--on-unreadable must be skip or stop, got {on_unreadable!r}")
    if backend not in (None, "auto", "torch", "compile", "onnxruntime"):
        raise InputError(f"--backend must be auto, torch, compile or onnxruntime, got {backend!r}")
    given = {"batch_size": batch_size, "backend": backend, "on_unreadable": on_unreadable}
    return {key: value for key, value in given.items() if value is not None}


def _with_progress(spec: Any, *, quiet: bool, **options: Any) -> Any:
    from shiftbed.cli.progress import Progress
    from shiftbed.engine import run as run_it

    with Progress(quiet=quiet) as progress:
        return run_it(spec, report=progress.part, announce=progress.cells, **options)


def _dry_run(spec: Any, json: bool) -> None:
    from shiftbed.engine import plan
    from shiftbed.store import PredictionStore

    store = PredictionStore(spec.store)
    cells, broken = plan(spec, store)
    speed = _speeds(store)
    jobs: list[dict[str, Any]] = [
        {
            "model": cell.key[0],
            "setting": cell.key[1],
            "images": cell.images,
            "parts": len(cell.missing),
            "seconds": cell.images / speed[cell.key[0]] if cell.key[0] in speed else None,
        }
        for cell in cells
        if cell.missing
    ]
    if json:
        as_json({"jobs": jobs, "broken": broken, "done": len(cells) - len(jobs)})
        return
    table(
        f"{spec.name}: {len(jobs)} cells to run, {len(cells) - len(jobs)} done",
        ["model", "setting", "images", "parts", "estimate (s)"],
        [
            (j["model"], j["setting"], j["images"], j["parts"], number(j["seconds"], 0) or "?")
            for j in jobs
        ],
        left=2,
        notes=[f"cannot be opened: {name}: {why}" for name, why in broken.items()],
    )


def _speeds(store: Any) -> dict[str, float]:
    """Images per second of models, from cells of theirs that are complete."""
    speeds = {}
    for record in store.cells():
        if record.get("status") == "complete" and record.get("wall_seconds"):
            speeds[record["model"]] = record["n"] / record["wall_seconds"]
    return speeds


def _summary(spec: Any, summary: Any) -> dict[str, Any]:
    return {
        "testbed": spec.name,
        "store": spec.store,
        "complete": len(summary.complete),
        "failed": [
            {"model": model, "setting": setting, "error": why}
            for (model, setting), why in summary.failed.items()
        ],
        "images": summary.images,
        "seconds": summary.seconds,
        "images_per_second": summary.images_per_second,
        "unreadable": sorted({n for n in summary.notes if WARNED not in n}),
        "warnings": sorted({n for n in summary.notes if WARNED in n}),
    }


def _say(spec: Any, summary: Any) -> None:
    speed = summary.images_per_second
    rate = f", {speed:,.0f} images/s" if speed else ""
    print(f"{spec.name}: {len(summary.complete)} cells complete, {summary.images:,} images{rate}.")
    for note in sorted(set(summary.notes)):
        print(note)
    for (model, setting), why in summary.failed.items():
        print(f"failed: {model} on {setting}: {why}")
    print(f"Scores: shiftbed score {spec.store}")


def _show_scores(title: str, found: Any, level: float) -> None:
    rows = []
    for row in found.iter_rows(named=True):
        fraction = row["metric"] in ("top1", "top5", "worst_class", "worst_group")
        show = percent if fraction else number
        ends = f"{show(row['low'])} … {show(row['high'])}" if row["low"] is not None else ""
        left = f", {row['unreadable']} unreadable" if row["unreadable"] else ""
        rows.append(
            (
                row["model"],
                row["setting"],
                row["metric"],
                show(row["value"]),
                ends,
                f"{row['n']:,}{left}",
                "; ".join(t for t in (row["label_policy"], row["note"]) if t),
            )
        )
    header = ["model", "setting", "metric", "value", f"{100 * level:g} % interval", "n", "policy"]
    table(title, header, rows, left=3)
