"""``shiftbed consistency``: pm-k of models on video frames."""

from pathlib import Path
from typing import Annotated

import typer

from shiftbed.cli.imports import ClassMapFile
from shiftbed.cli.output import AsJson, Level, as_json, percent, records, table
from shiftbed.errors import InputError


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
    from shiftbed.results.consistency import consistency_table
    from shiftbed.results.frames import read_frame_files
    from shiftbed.store import PredictionStore

    policy = None
    if class_map is not None:
        from shiftbed.labels import read_class_map

        policy = read_class_map(class_map, "max-logit")
    found = consistency_table(
        PredictionStore.existing(store),
        read_frame_files(metadata),
        setting=setting,
        models=model,
        k=_numbers(k),
        rule=rule,
        policy=policy,
        level=level,
    )
    if json:
        as_json(
            {
                "rule": found.rule,
                "anchors": found.anchors,
                "frames": found.frames,
                "frames_reviewed": found.reviewed,
                "anchors_without_labels": list(found.unlabelled),
                "consistency": records(found.table),
                "missing_frames": {name: list(own) for name, own in found.missing.items()},
            }
        )
        return
    rows = [
        (
            r["model"],
            f"pm-{r['k']}",
            percent(r["value"]),
            f"{percent(r['low'])} … {percent(r['high'])}" if r["low"] is not None else "",
            f"{r['n']:,}",
            r["note"],
        )
        for r in found.table.iter_rows(named=True)
    ]
    judged = {"frame": "frames judged by their own labels", "anchor": "by their anchor's labels"}
    notes = [
        f"{found.table['label_policy'][0]}; {judged[found.rule]}; {found.anchors:,} anchors, "
        f"{found.frames:,} frames."
    ]
    if not found.reviewed:
        notes.append("No list of reviewed frames was given: all frames of a video within ±k count.")
    if found.unlabelled:
        notes.append(
            f"{len(found.unlabelled):,} anchors have no label in the metadata and are left out."
        )
    for name, own in found.missing.items():
        if own:
            more = f" and {len(own) - 5:,} more (--json lists all)" if len(own) > 5 else ""
            notes.append(f"{name}: no prediction for {', '.join(own[:5])}{more}")
    header = ["model", "", "accuracy", f"{100 * level:g} % interval", "n", "note"]
    table(f"Consistency on {found.table['setting'][0]}", header, rows, left=2, notes=notes)


def _numbers(text: str) -> list[int]:
    """Such as 0,1,10 or 0-10."""
    found: list[int] = []
    for piece in text.split(","):
        low, dash, high = piece.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()) or int(high or low) > 10_000:
            raise InputError(f"--k: expected numbers of frames such as 0,10 or 0-10, got {text!r}")
        found += range(int(low), int(high or low) + 1)
    return found
