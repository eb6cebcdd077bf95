"""``shiftbed shifts`` and ``data``: the catalogue of natural shifts, and what you have of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbed.cli.output import AsJson, as_json, table
from shiftbed.errors import InputError

if TYPE_CHECKING:
    from shiftbed.catalogue import KnownShift, Task, TestSetEntry
    from shiftbed.store import PredictionStore


shifts = typer.Typer(help="Which natural shifts there are, and what each of them is.")
data = typer.Typer(help="Test sets on this machine.", no_args_is_help=True)

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


def policy_table(policy: str | None, through: str | None, how: str) -> dict[str, Any]:
    """What ``--policy`` and ``--through`` say of a setting, as testbed.toml has it."""
    found = {"policy": policy} if policy is not None else {}
    return found if through is None else found | {"through": through, "how": how}


def notes_of(store: "PredictionStore", setting: str) -> list[str]:
    """What was noted when a setting's test set was opened: other counts than published, …"""
    return list((store.test_set(setting).details or {}).get("notes", []))


@shifts.callback(invoke_without_command=True)
def list_(
    context: typer.Context,
    task: Annotated[str | None, typer.Option(help="Only the pairs of this task.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only shifts of this kind.")] = None,
    json: AsJson = False,
) -> None:
    """List all shifts: ImageNet's, CIFAR-10's, and the (ID, OOD) pairs of tasks of domains."""
    if context.invoked_subcommand is not None:
        if task is not None or kind is not None or json:
            raise InputError("options of the list come without 'show'; give --json after the name")
        return
    from shiftbed.catalogue import count_of_pairs, find_task, tasks
    from shiftbed.catalogue import shifts as known
    from shiftbed.errors import unknown
    from shiftbed.records import KINDS

    if kind is not None and kind not in KINDS:
        raise unknown("kind of shift", kind, KINDS)
    only = None if task is None else find_task(task).name
    found = [
        one
        for one in known()
        if (only is None or one.family == only) and (kind is None or one.kind == kind)
    ]
    if json:
        as_json({"shifts": [_row(one) for one in found], "pairs": count_of_pairs()})
        return
    families = {one.name: one for one in tasks()}
    single = [one for one in found if only is not None or one.family not in families]
    table(
        f"{len(found)} shifts",
        ["shift", "kind", "ID setting", "OOD setting", "classes", "images"],
        [
            (one.name, one.kind, one.source, one.target, f"{one.classes:,}", _count(one.images))
            for one in single
        ],
        left=4,
    )
    if only is None and kind in (None, "natural-dataset"):
        table(
            "Tasks of domains",
            ["task", "domains (* artificial)", "classes", "pairs", "held-out OOD"],
            [_task_row(one) for one in families.values()],
            left=2,
            notes=[
                count_of_pairs(),
                "shiftbed shifts --task NAME lists a task's pairs, shiftbed shifts show NAME "
                "explains a test set, a task or a shift.",
            ],
        )


def _row(one: "KnownShift") -> dict[str, Any]:
    return {
        "name": one.name,
        "kind": one.kind,
        "task": one.task,
        "family": one.family,
        "source": one.source,
        "target": one.target,
        "classes": one.classes,
        "images": one.images,
        "types": None if one.types is None else list(one.types),
        "held_out": list(one.held_out),
        "published": list(one.published),
    }


def _count(images: int | None) -> str:
    return "not known" if images is None else f"{images:,}"


def _task_row(task: "Task") -> tuple[Any, ...]:
    domains = [d.name + ("*" if d.type == "artificial" else "") for d in task.domains]
    held = sum(bool(task.held_out(*pair)) for pair in task.pairs)
    return task.name, ", ".join(domains), f"{task.classes:,}", len(task.pairs), held


@shifts.command()
def show(
    name: Annotated[str, typer.Argument(help="A test set, a task of domains, or a shift.")],
    json: AsJson = False,
) -> None:
    """Explain one: what it is, its ID twin, label policy, layout on disk, licence, citation."""
    from shiftbed.catalogue import KnownShift, Task, find, look_up

    found = look_up(name)
    if isinstance(found, Task):
        facts = _task(found)
    elif isinstance(found, KnownShift):
        target = found.target.partition("@")[0]
        facts = _row(found) | {"layout": find(target).tree, "citation": find(target).citation}
        facts |= {"published": [_line(one) for one in found.published]}
    else:
        facts = _test_set(found)
    if json:
        as_json(facts)
        return
    table(found.title, ["", ""], [(key, _words(value)) for key, value in facts.items()], left=2)


def _test_set(entry: "TestSetEntry") -> dict[str, Any]:
    policy = entry.policy
    own = f"all {entry.classes:,} classes of its own"
    return {
        "name": entry.name,
        "what": entry.about,
        "kind": entry.kind or "ID set",
        "classes": entry.classes,
        "images": entry.images,
        "id_twin": entry.twin,
        "label_policy": own if policy is None else policy.describe(),
        "layout": entry.tree,
        "parts": list(entry.parts),
        "licence": entry.licence,
        "citation": entry.citation,
        "published": [_line(one) for one in entry.published],
        "checked_against": _checks(entry),
    }


def _line(name: str) -> dict[str, Any]:
    """A published line as the shipped testbed gives it; ``shiftbed fit`` has its intervals."""
    from shiftbed.testbed import published

    bed, _, shift = name.partition(":")
    fitted = published(bed).fit(shift)
    return {
        "line": name,
        "models": fitted.n,
        "scale": fitted.scale.name,
        "r2": fitted.r2,
        "pieces": [
            {"slope": piece.weights[0], "intercept": piece.intercept} for piece in fitted.lines
        ],
        "command": f"shiftbed fit --testbed {bed} --shift {shift}",
    }


def _checks(entry: "TestSetEntry") -> list[str]:
    """What the set on disk is compared with when it is opened."""
    checks = [f"{one:,} images" for one in (entry.images, *entry.also) if one is not None]
    checks += [f"{entry.per_class:,} of each class"] if entry.per_class else []
    return checks + ([f"labels' fingerprint {entry.digest}"] if entry.digest else [])


def _task(task: "Task") -> dict[str, Any]:
    return {
        "name": task.name,
        "what": f"task of {len(task.domains)} domains over {task.classes:,} classes",
        "paper": f"wenzel2022, Table S1: {task.paper}" if task.paper else None,
        "kind": "natural-dataset",
        "classes": task.classes,
        "domains": [
            {"name": f"{task.name}/{d.name}", "type": d.type, "images": d.images}
            for d in task.domains
        ],
        "splits": list(task.splits),
        "pairs": len(task.pairs),
        "pairs_with_held_out": sum(bool(task.held_out(*pair)) for pair in task.pairs),
        "label_policy": f"all {task.classes:,} classes of its own",
        "layout": task.tree,
        "licence": task.licence,
        "citation": task.citation,
    }


def _words(value: Any) -> str:
    """A fact in a cell."""
    if value is None:
        return "none"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        some = [_item(one) if isinstance(one, dict) else str(one) for one in value]
        more = f" and {len(some) - 10} more" if len(some) > 10 else ""
        return (", ".join(some[:10]) + more) or "none"
    return str(value)


def _item(one: dict[str, Any]) -> str:
    """A domain, or a published line."""
    if "type" in one:
        return f"{one['name']} ({one['type']}, {_count(one['images'])} images)"
    form = " and ".join(f"{p['slope']:.3f}·x {p['intercept']:+.3f}" for p in one["pieces"])
    return f"{one['line']} ({form} on {one['scale']}, R² {one['r2']:.3f}, {one['models']} models)"


@data.command()
def check(
    directory: Annotated[Path, typer.Argument(help="Where test sets lie, at any depth to four.")],
    json: AsJson = False,
) -> None:
    """Recognise test sets of the catalogue: what is complete, what is missing, how to lay it out.

    Exit code 1 if something is recognised but incomplete.
    """
    from shiftbed.catalogue import find
    from shiftbed.evaluation.data.authors.recognise import gaps, recognise

    found = recognise(directory)
    absent = gaps(found)
    if json:
        as_json(
            {
                "directory": str(directory),
                "found": [
                    {
                        "name": one.name,
                        "spec": one.spec,
                        "complete": one.complete,
                        "images": one.images,
                        "expected": one.expected,
                        "missing": list(one.missing),
                        "layout": find(one.name).tree,
                    }
                    for one in found
                ],
                "gaps": absent,
            }
        )
    elif found:
        rows = [
            (
                one.spec,
                "complete" if one.complete else "incomplete",
                f"{one.images:,}",
                _count(one.expected),
                "; ".join(one.missing),
            )
            for one in found
        ]
        notes = [f"{one.name}: expected {find(one.name).tree}" for one in found if one.missing]
        table(
            f"{directory}: {len(found)} test sets of the catalogue",
            ["test set", "state", "images", "published", "missing or different"],
            rows,
            left=2,
            notes=[*absent, *notes],
        )
    else:
        print(
            f"{directory}: no test set of the catalogue is recognised in it; "
            "shiftbed shifts show NAME says how each lies on disk."
        )
    if any(not one.complete for one in found):
        raise typer.Exit(1)
