"""Which findings of andreassen2021 hold here: ρ, dominance and triplets, with intervals."""

import datetime
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from examples.imagenet_cifar10.alike import similar
from examples.imagenet_cifar10.judged import Answers, figure, of_images, rho, row
from examples.imagenet_cifar10.published import Published, read_published
from shiftbed.analysis.trajectory import held_out_peak
from shiftbed.errors import InputError
from shiftbed.results.trajectories import Trajectories, trajectories
from shiftbed.testbed import Testbed, open_testbed

__all__ = ["findings"]

ID, CORRUPTED = "cifar10", "corrupted"
HOW = ("max", "mean", "sum")
NOT_RUN, BELOW = "not run", "not judged: too few checkpoints on the line"
Rows = list[dict[str, Any]]
Parts = dict[str, dict[str, list[int]]]
"""Kind of run → start, peak and final → a checkpoint of each run, as a row of the testbed."""


def findings(folder: Path, published: Path | None = None) -> dict[str, Any]:
    """Of every OOD set: the line, every kind of run, and the table of findings."""
    bed = open_testbed(str(folder / "store"))
    known = None if published is None else _published(folder, published)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "published": None if known is None else len(known.id),
        "shifts": {shift.name: _shift(folder, bed, shift.name, known) for shift in bed.shifts},
    }


def _published(folder: Path, path: Path) -> Published:
    known = read_published(path, np.load(folder / "rows.npy"))
    with np.load(folder / "cifar10.npz", allow_pickle=False) as file:
        if not np.array_equal(file["labels"], known.labels):
            raise InputError(f"{path}: its labels are not those of the study's test images")
    return known


def _shift(folder: Path, bed: Testbed, shift: str, known: Published | None) -> dict[str, Any]:
    found = judged(bed, shift)
    parts = _parts(bed, found)
    answers = _answers(bed, found, shift)
    table = _along(answers, parts, set(bed.models["grid"].drop_nulls())) + _zero_shot(
        folder, bed, found, shift
    )
    if shift == CORRUPTED:
        table += similar(answers, parts["head-lite0"], known) if "head-lite0" in parts else []
    if known is not None and shift in known.ood:
        table += _by_published(known.line_of(answers, shift), parts)
    value = bed.accuracy(ID)
    own = [float(value[bed.model_index(name)]) for name in found.line.models]
    line = found.line
    return {
        "line": {
            "networks": line.n, "slope": line.weights[0], "intercept": line.intercept,
            "r2": line.r2, "id": [min(own), max(own)],
        },
        "images": {name: bed.usual_size(name) for name in (ID, shift)},
        "kinds": _kinds(found, max(own)),
        "findings": table,
    }  # fmt: skip


def judged(bed: Testbed, shift: str) -> Trajectories:
    """Runs along training, without checkpoints below the least accurate network of the line.

    Near chance ρ is a matter of extrapolation, and a peak there would mean nothing. Runs that have
    not reached the last step of their kind are left out.
    """
    line = bed.fit(shift, bootstrap=0, on_boundary="clip")
    value = bed.accuracy(ID)
    lowest = min(float(value[bed.model_index(name)]) for name in line.models)
    with np.errstate(invalid="ignore"):
        inside = np.asarray(value >= lowest)
    last = pl.col("step").max()
    done = bed.models.select((last.over("run") == last.over("grid")).fill_null(False))
    inside &= done.to_series().to_numpy()
    return trajectories(bed, shift, by="grid", only=inside, on_boundary="clip")


def _parts(bed: Testbed, found: Trajectories) -> Parts:
    """Peaks where the other half of the runs have theirs, of two common checkpoints at least."""
    parts: Parts = {}
    for (kind,), own in found.checkpoints.group_by(["kind_of_run"], maintain_order=True):
        wide = own.pivot("run", index="step", values="effective").drop_nulls().sort("step")
        runs = [name for name in wide.columns if name != "step"]
        if len(runs) < 2:
            continue
        steps, chosen = wide["step"].to_numpy(), None
        if len(wide) > 1:
            chosen = held_out_peak(wide.drop("step").to_numpy().T, steps=steps).chosen
        for number, run in enumerate(runs):
            rows = own.filter(run=run)
            at = {"final": rows["step"].max()}
            if chosen is not None:
                at |= {"start": rows["step"].min(), "peak": chosen[number % 2]}
            for part, step in at.items():
                (model,) = rows.filter(step=step)["model"]
                parts.setdefault(str(kind), {}).setdefault(part, []).append(bed.model_index(model))
    return parts


def _answers(bed: Testbed, found: Trajectories, shift: str) -> Answers:
    right = {name: bed.results[name].right for name in (ID, shift)}
    line = [bed.model_index(name) for name in found.line.models]
    return Answers(
        id=right[ID], ood=right[shift], line_id=right[ID][line], line_ood=right[shift][line],
        paired=shift == CORRUPTED,
    )  # fmt: skip


def _along(answers: Answers, parts: Parts, ran: set[str]) -> Rows:
    rows: Rows = []

    def add(what: str, where: str, claim: str, *sides: tuple[str, str, str | None]) -> None:
        if not all(part in parts.get(kind, {}) for kind, part, _ in sides):
            there = all(kind in ran for kind, _, _ in sides)
            rows.append(row(what, where, claim, None) | {"verdict": BELOW if there else NOT_RUN})
            return
        own = row(what, where, claim, figure(_of(answers, parts, *sides), answers))
        beyond = any(_beyond(answers, parts[kind], *at) for kind, *at in sides)
        rows.append(own | {"beyond": beyond})

    head, whole, random = "head-lite0", "whole-pretrained", "whole-random"
    add("a head on ImageNet features: ρ peaks above 0", "5.1, C.6", "above", (head, "peak", None))
    add("… and is lost at the end (peak − final)", "5.1", "above", (head, "peak", "final"))
    add(
        "whole network from ImageNet weights: ρ peaks above 0",
        "5.1, Fig. 3a",
        "above",
        (whole, "peak", None),
    )
    add("… and is lost at the end (peak − final)", "5.1", "above", (whole, "peak", "final"))
    add(
        "whole network from random weights stays on the line",
        "5.1, C.1",
        "within",
        (random, "peak", None),
    )
    add(
        "small network from random weights stays on the line",
        "5.1, C.3",
        "within",
        ("small-random", "peak", None),
    )
    add(
        "ImageNet weights peak above random ones",
        "5.1",
        "above",
        (whole, "peak", None),
        (random, "peak", None),
    )
    add(
        "the last layer alone peaks as the whole network does",
        "C.6",
        "within",
        (head, "peak", None),
        (whole, "peak", None),
    )
    add(
        "squared error peaks as cross-entropy does",
        "C.4",
        "within",
        ("head-mse", "peak", None),
        (head, "peak", None),
    )
    for other in ("head-lite1", "head-lite2"):
        add(
            f"the larger network {other[5:]} peaks above lite0",
            "5.1, C.8",
            "above",
            (other, "peak", None),
            (head, "peak", None),
        )
    add(
        "hard examples peak above random ones",
        "5.3, C.9",
        "above",
        ("head-hardest", "peak", None),
        ("head-random", "peak", None),
    )
    add(
        "random examples peak above easy ones",
        "5.3, C.9",
        "above",
        ("head-random", "peak", None),
        ("head-easiest", "peak", None),
    )
    for kind, name, where, usual in (
        ("head-mapped", "a mapped head", "C.12", head),
        ("head-pull-small", "a mapped head with a weak pull", "C.12", head),
        ("head-pull-large", "a mapped head with a strong pull", "C.12", head),
        ("head-replay-1", "a mapped head with replay, ratio 1,", "C.12", head),
        ("head-replay-10", "a mapped head with replay, ratio 10,", "C.12", head),
        ("head-phase-out", "phase-out of easy examples", "C.9, Fig. 19", head),
        ("whole-replay", "the whole network with replay", "C.11", whole),
        ("whole-keep", "the whole network from a trained head that is kept", "", whole),
    ):  # fmt: skip
        what = f"{name} keeps no more ρ at the end than a new head"
        add(what, where, "no more", (kind, "final", None), (usual, "final", None))
    return rows


def _beyond(answers: Answers, parts: dict[str, list[int]], *at: str | None) -> bool:
    """Whether runs are on average more accurate there than the line's most accurate network."""
    top = answers.line_id.mean(axis=1).max()
    return any(answers.id[parts[one]].mean() > top for one in at if one is not None)


def _of(
    answers: Answers, parts: Parts, *sides: tuple[str, str, str | None]
) -> Callable[[Any], list[NDArray[np.float64]]]:
    """ρ of a kind's runs at a part of training, or what is lost from it to another part."""

    def values(counts: Any) -> list[NDArray[np.float64]]:
        each, found = rho(answers, counts), []
        for kind, part, less in sides:
            one = each[parts[kind][part]]
            found.append(one if less is None else one - each[parts[kind][less]])
        return found

    return values


def _zero_shot(folder: Path, bed: Testbed, found: Trajectories, shift: str) -> Rows:
    """Mapped ImageNet classes by max, mean and sum: no seed changes these models."""
    if shift != CORRUPTED:
        return []
    own = _answers(bed, found, shift)
    rows: Rows = []
    models: dict[str, Answers] = {}
    if not all((folder / f"zero-shot-{how}").exists() for how in HOW):
        what = "zero-shot through the class map has ρ above 0"
        return [row(what, "5.2, C.7", "above", None) | {"verdict": NOT_RUN}]
    for how in HOW:
        zero = open_testbed(str(folder / f"zero-shot-{how}"))
        sides = [_right_on(zero, name) for name in (ID, shift)]
        for at, name in enumerate(zero.model_names):
            right = [side[at : at + 1] for side in sides]
            models[name] = Answers(
                id=right[0], ood=right[1], line_id=own.line_id, line_ood=own.line_ood, paired=True
            )
    for net in sorted({name.rpartition("-")[0] for name in models}):
        best = models[f"{net}-max"]
        what = f"zero-shot {net} ({100 * best.id.mean():.1f} % by the largest score) has ρ above 0"
        rows.append(row(what, "5.2, C.7", "above", of_images(partial(_alone, best), best)))
        for how in HOW[1:]:
            other = models[f"{net}-{how}"]

            def both(counts: Any, one: Answers = other, two: Answers = best) -> Any:
                return [rho(one, counts), rho(two, counts)]

            what = f"zero-shot {net} by {how} ({100 * other.id.mean():.1f} %) has ρ as by max"
            rows.append(row(what, "C.7, Fig. 14", "within", of_images(both, best)))
    return rows


def _alone(answers: Answers, counts: Any) -> list[NDArray[np.float64]]:
    return [rho(answers, counts)]


def _right_on(zero: Testbed, test_set: str) -> NDArray[np.bool_]:
    (name,) = [one for one in zero.settings if one.partition("@")[0] == test_set]
    return zero.results[name].right


def _by_published(answers: Answers, parts: Parts) -> Rows:
    rows: Rows = []
    for kind in ("head-lite0", "whole-pretrained"):
        if kind in parts:
            found = figure(_of(answers, parts, (kind, "peak", None)), answers)
            what = f"by the line of {len(answers.line_id)} published networks {kind} peaks above 0"
            rows.append(row(what, "Fig. 3a", "above", found))
    return rows


def _kinds(found: Trajectories, top: float) -> Rows:
    """A row per kind of run, as ``shiftbed trajectories`` has it."""
    last = {
        str(kind): float(rows["final_source"].mean())
        for (kind,), rows in found.frame.group_by(["kind"])
    }
    kept = [
        f"{part}_{key}"
        for part in ("start", "peak", "final", "lost")
        for key in ("rho", "low", "high")
    ]
    return [
        {key: one[key] for key in ("kind", "runs", "step", *kept)}
        | {"final_id": last[one["kind"]], "beyond": last[one["kind"]] > top}
        for one in found.kinds.sort("kind").to_dicts()
    ]
