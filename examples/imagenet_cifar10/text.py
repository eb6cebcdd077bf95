"""The study's tables as text."""

from typing import Any

from examples.imagenet_cifar10.data import CORRUPTIONS, SEVERITY
from shiftbed.display import points

__all__ = ["markdown"]


def markdown(found: dict[str, Any]) -> str:
    """Of every OOD set: its line, the table of findings and the table of kinds of runs."""
    text = [f"{found['date']}, profile {found['profile']}, {found['seconds']:,} s in this call."]
    for name, one in found["shifts"].items():
        line, images = one["line"], one["images"]
        text += [
            "",
            f"## {name}",
            "",
            f"Line: {line['networks']} networks from scratch, {100 * line['id'][0]:.0f}–"
            f"{100 * line['id'][1]:.0f} % on CIFAR-10, slope {line['slope']:.2f}, R² "
            f"{line['r2']:.3f} (logit). {images['cifar10']:,} ID and {images[name]:,} OOD images"
            + (
                f": the same under {len(CORRUPTIONS)} corruptions at severity {SEVERITY}."
                if name == "corrupted"
                else "."
            ),
            "",
            *_findings(one["findings"]),
            "",
            *_kinds(one["kinds"]),
            "",
            "\\* beyond the most accurate network of the line: ρ there is extrapolated.",
        ]
    return "\n".join(text) + "\n"


def _findings(rows: list[dict[str, Any]]) -> list[str]:
    text = [
        "| finding | paper | claim | points | 95 % | runs | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        value = "" if one["value"] is None else f"{one['value']:+.2f}"
        ends = "" if one["low"] is None else f"{one['low']:+.2f} … {one['high']:+.2f}"
        n = " / ".join(map(str, one["n"]))
        verdict = one["verdict"] + (" *" if one.get("beyond") else "")
        cells = (one["finding"], one["paper"], one["claim"], value, ends, n, verdict)
        text.append("| " + " | ".join(cells) + " |")
    return text


def _kinds(rows: list[dict[str, Any]]) -> list[str]:
    text = [
        "| kind of run | runs | ρ at start | peak | at step | end | ID at the end, % |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        rho = [points(one[f"{part}_rho"]) for part in ("start", "peak", "final")]
        step = "" if one["step"] is None else f"{one['step']:g}"
        end = f"{100 * one['final_id']:.1f}" + (" *" if one["beyond"] else "")
        cells = (one["kind"], one["runs"], rho[0], rho[1], step, rho[2], end)
        text.append("| " + " | ".join(map(str, cells)) + " |")
    return text
