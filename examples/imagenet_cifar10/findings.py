"""Which findings of andreassen2021 hold here: differences of ρ with intervals over seeds."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtrit

from examples.imagenet_cifar10.data import CORRUPTIONS
from shiftbed.analysis.similarity import similarity
from shiftbed.display import points
from shiftbed.results.trajectories import Trajectories, trajectories
from shiftbed.testbed import Testbed, open_testbed

__all__ = ["findings", "markdown", "verdict"]

SHIFT = "corrupted"
_ABOUT = ("kind", "runs", "step", "final_id")
Rows = list[dict[str, Any]]


def findings(folder: Path) -> dict[str, Any]:
    """The line, every kind of run, and the table of findings, as plain values."""
    bed = open_testbed(str(folder / "store"))
    found = trajectories(bed, SHIFT, by="grid", on_boundary="clip")
    line, kinds = found.line, found.kinds.drop("rule").to_dicts()
    kept = [
        f"{part}_{key}"
        for part in ("start", "peak", "final", "lost")
        for key in ("rho", "low", "high", "share")
    ]
    ids = {str(kind): float(rows["final_source"].mean()) for (kind,), rows in _by_kind(found)}
    for one in kinds:
        one["final_id"] = ids[one["kind"]]
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "line": {
            "networks": line.n, "slope": line.weights[0], "intercept": line.intercept,
            "r2": line.r2, "id": _range(bed, line.models),
        },
        "images": {s: bed.usual_size(s) for s in ("cifar10", SHIFT)},
        "kinds": [{key: one.get(key) for key in (*_ABOUT, *kept)} for one in kinds],
        "findings": _table(found) + _similar(bed, found),
    }  # fmt: skip


def _by_kind(found: Trajectories) -> Any:
    return found.frame.group_by(["kind"], maintain_order=True)


def _range(bed: Testbed, models: tuple[str, ...]) -> list[float]:
    values = [bed.accuracy("cifar10")[bed.model_index(name)] for name in models]
    return [float(min(values)), float(max(values))]


def _table(found: Trajectories) -> Rows:
    """One row per finding: what, the difference in points, its interval, the verdict."""
    runs = {str(kind): rows for (kind,), rows in found.frame.group_by(["kind"])}

    def of(kind: str, part: str) -> np.ndarray:
        return 100 * runs[kind][f"{part}_rho"].to_numpy() if kind in runs else np.zeros(0)

    head, rows = "head-lite0", []

    def add(what: str, one: np.ndarray, two: np.ndarray | None = None, *, sign: int = 1) -> None:
        rows.append(verdict(what, one, two, sign=sign))

    add("ρ of a head on ImageNet features peaks above 0", of(head, "peak"))
    add("it is lost at the end (peak − final)", of(head, "peak") - of(head, "final"))
    add("whole network from ImageNet weights: peak above 0", of("whole-pretrained", "peak"))
    random = of("whole-random", "peak")
    add("whole network from random weights: peak above 0 (the paper: no)", random, sign=0)
    add("ImageNet weights peak above random ones", of("whole-pretrained", "peak"), random)
    add("MSE peaks as cross-entropy does", of("head-mse", "peak"), of(head, "peak"), sign=0)
    easy, usual, hard = (of(f"head-{keep}", "peak") for keep in ("easiest", "random", "hardest"))
    add("hard examples peak above random ones", hard, usual)
    add("random examples peak above easy ones", usual, easy)
    for kind, name in (
        ("head-mapped", "a mapped head"), ("head-pull-small", "a weak pull"),
        ("head-pull-large", "a strong pull"), ("head-phase-out", "phase-out"),
    ):  # fmt: skip
        what = f"{name} keeps no more ρ at the end than a new head"
        add(what, of(kind, "final"), of(head, "final"), sign=0)
    rows.append(_zero_shot(runs.get("head-mapped")))
    for other in ("head-lite1", "head-lite2"):
        if other in runs:
            add(f"{other} peaks above {head}", of(other, "peak"), of(head, "peak"))
    return rows


def _zero_shot(rows: pl.DataFrame | None) -> dict[str, Any]:
    """The mapped head before training: one model whatever the seed; its interval is of images."""
    what = "zero-shot (mapped head before training) has ρ above 0 (interval over images)"
    found: dict[str, Any] = {"finding": what, "n": [1], "value": None, "low": None, "high": None}
    if rows is None:
        return found | {"verdict": "not run"}
    value, low, high = (100 * float(rows[f"start_{key}"][0]) for key in ("rho", "low", "high"))
    said = "holds" if low > 0 else "does not hold" if high < 0 else "inconclusive"
    return found | {"value": value, "low": low, "high": high, "verdict": said}


def verdict(
    what: str, one: np.ndarray, two: np.ndarray | None = None, *, sign: int = 1
) -> dict[str, Any]:
    """A mean, or a difference of means, over seeds with its 95 % t interval (Welch for two).

    ``sign`` 1: the claim is that it is above 0; 0: that it is 0, which an interval that holds 0
    does not contradict. One run gives no interval, so nothing is decided.

    >>> verdict("up", np.array([1.0, 1.1, 0.9]))["verdict"]
    'holds'
    """
    sides = [one] if two is None else [one, two]
    n = [len(side) for side in sides]
    row: dict[str, Any] = {"finding": what, "n": n, "value": None, "low": None, "high": None}
    if min(n) < 1:
        return row | {"verdict": "not run"}
    value = float(one.mean() - (0.0 if two is None else two.mean()))
    if min(n) < 2:
        return row | {"value": value, "verdict": "inconclusive (one run)"}
    parts = [float(side.var(ddof=1)) / len(side) for side in sides]
    error = sum(parts) ** 0.5
    each = [part**2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True)]
    dof = sum(parts) ** 2 / sum(each) if sum(each) > 0 else min(n) - 1
    half = float(stdtrit(dof, 0.975)) * error
    low, high = value - half, value + half
    if sign:
        said = "holds" if low > 0 else "does not hold" if high < 0 else "inconclusive"
    else:
        said = "not contradicted" if low <= 0 <= high else "contradicted"
    return row | {"value": value, "low": low, "high": high, "verdict": said}


def _similar(bed: Testbed, found: Trajectories) -> Rows:
    """Dominance over the line's networks, at the peak and at the end of heads (Section 5.4)."""
    results = bed.results.get("cifar10")
    steps = found.checkpoints.filter(pl.col("kind_of_run") == "head-lite0")
    if results is None or not len(steps):
        return []
    peak = float(found.kinds.filter(kind="head-lite0")["step"][0])
    last = steps["step"].max()
    line = [bed.model_index(name) for name in found.line.models]
    shares: dict[str, np.ndarray] = {}
    for name, step in (("peak", peak), ("end", last)):
        own = steps.filter(pl.col("step") == step)["model"].to_list()
        each = []
        for model in own:
            right = results.right[[*line, bed.model_index(model)]]
            each.append(100 * float(similarity(right).dominance[-1, :-1].mean()))
        shares[name] = np.array(each)
    among = similarity(results.right[line]).dominance
    usual = 100 * float(among[np.triu_indices(len(line), 1)].mean())
    return [
        verdict(
            f"dominance over the line's networks (they have {usual:.1f} % among themselves) is "
            "larger at the peak than at the end",
            shares["peak"],
            shares["end"],
        )
    ]


def markdown(found: dict[str, Any]) -> str:
    """The tables as text."""
    if not found:
        return ""
    line, images = found["line"], found["images"]
    text = [
        f"{found['date']}, {found.get('seconds', 0)} s. Line: {line['networks']} networks from "
        f"scratch, {100 * line['id'][0]:.0f}–{100 * line['id'][1]:.0f} % on CIFAR-10, slope "
        f"{line['slope']:.2f}, R² {line['r2']:.3f} (logit). {images['cifar10']:,} test images; "
        f"OOD: the same under {len(CORRUPTIONS)} corruptions at severity 3.",
        "",
        "| finding | points | 95 % | runs | verdict |",
        "|---|---|---|---|---|",
    ]
    for row in found["findings"]:
        value = "" if row["value"] is None else f"{row['value']:+.2f}"
        ends = "" if row["low"] is None else f"{row['low']:+.2f} … {row['high']:+.2f}"
        n = " / ".join(map(str, row["n"]))
        text.append(f"| {row['finding']} | {value} | {ends} | {n} | {row['verdict']} |")
    title = (
        "| kind of run | runs | ρ at start | peak | at step | end | ID at the end, % | "
        "gap covered, peak → end |"
    )
    text += ["", title, "|---|---|---|---|---|---|---|---|"]
    for one in found["kinds"]:
        rho = [points(one[f"{part}_rho"]) for part in ("start", "peak", "final")]
        gap = " → ".join(
            "" if one[f"{part}_share"] is None else f"{100 * one[f'{part}_share']:.0f} %"
            for part in ("peak", "final")
        )
        step = "" if one["step"] is None else f"{one['step']:g}"
        beyond = " *" if one["final_id"] > line["id"][1] else ""
        end = f"{100 * one['final_id']:.1f}{beyond}"
        cells = (one["kind"], one["runs"], rho[0], rho[1], step, rho[2], end, gap)
        text.append("| " + " | ".join(map(str, cells)) + " |")
    text += ["", "\\* beyond the most accurate network of the line: ρ there is extrapolated."]
    return "\n".join(text) + "\n"
