"""``shiftbed probe``: why a model is out of line, measured (fridovich2022)."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbed.cli.output import AsJson, Level, as_json, number, records, table
from shiftbed.errors import InputError

if TYPE_CHECKING:
    from shiftbed.evaluation.data import TestSet
    from shiftbed.evaluation.models import Model
    from shiftbed.evaluation.probes import Probe
    from shiftbed.store import PredictionStore


FOURIER = ("amplitude", "phase")
Report = Callable[[str, int, int], None]
"""What is measured, how much of it is done, and how much there is."""


def probe(
    model: Annotated[str, typer.Argument(help="A model, such as timm:resnet18 or onnx:FILE.")],
    test_set: Annotated[str, typer.Argument(help="The ID test set: a folder, .npz, …, NAME@DIR.")],
    probes: Annotated[
        list[str] | None,
        typer.Option(
            "--probe",
            help="amplitude, phase, pixel_within, pixel_between, jacobian or all (default "
            "amplitude and phase; none if only pictures are asked for).",
        ),
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            help="Paths per probe, images of the Jacobian (default: 5,000 paths of small images, "
            "7,000 of large ones, 200 pixel paths per class or pair of classes, 400 images).",
            min=1,
        ),
    ] = None,
    store: Annotated[
        Path, typer.Option(help="Where results are kept, path by path (and found again).")
    ] = Path("store"),
    name: Annotated[str | None, typer.Option(help="The model's name in the store.")] = None,
    window: Annotated[
        float | None,
        typer.Option(help="Half width of the window of low frequencies, as a share of the side."),
    ] = None,
    step: Annotated[
        float | None, typer.Option(help="ℓ2 step of pixel paths, normalised (default 1).")
    ] = None,
    projections: Annotated[
        int | None,
        typer.Option(
            help="Random projections of the Jacobian; 0: exact (default: exact up to 50 classes, "
            "else 10).",
            min=0,
        ),
    ] = None,
    variant: Annotated[
        str, typer.Option(help="High-frequency fraction as in the paper, or as released.")
    ] = "paper",
    seed: Annotated[int, typer.Option(help="Of pairs, images and projections.", min=0)] = 0,
    strip: Annotated[
        Path | None, typer.Option(help="Draw an amplitude and a phase path: a .png file.")
    ] = None,
    pair: Annotated[int, typer.Option(help="Which pair the strip shows.", min=0)] = 0,
    heatmap: Annotated[
        Path | None, typer.Option(help="Draw errors per frequency: .png, .svg, .pdf or .html.")
    ] = None,
    norm: Annotated[
        float | None,
        typer.Option(help="ℓ2 norm of the heat map's perturbations (4 at 32 px, 15.7 at 224)."),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(help="Highest frequency per axis of the heat map (15 of large images)."),
    ] = None,
    spectrum: Annotated[
        Path | None, typer.Option(help="Draw the test set's spectrum: .png, .svg, .pdf or .html.")
    ] = None,
    corruption: Annotated[
        list[str] | None,
        typer.Option(help="NAME:SEVERITY: also the spectrum of corrupted minus clean images."),
    ] = None,
    images: Annotated[
        int, typer.Option(help="Images of the heat map and of spectra.", min=2)
    ] = 256,
    weights: Annotated[Path | None, typer.Option(help="A local file of weights.")] = None,
    preprocessing: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE: change the model's own.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
    backend: Annotated[
        str, typer.Option(help="auto, torch, compile or onnxruntime, for paths.")
    ] = "auto",
    level: Level = 0.95,
    json: AsJson = False,
) -> None:
    """Probe a model: Fourier, pixel and Jacobian smoothness, heat map, spectra, a strip of a path.

    The same command again continues where it was killed.
    """
    from shiftbed.analysis.intervals import check_level
    from shiftbed.cli.running import values
    from shiftbed.evaluation.data import open_test_set
    from shiftbed.evaluation.models import resolve
    from shiftbed.evaluation.models.registry import name_of
    from shiftbed.evaluation.probes.smoothness import VARIANTS

    check_level(level)
    if variant not in VARIANTS:
        raise InputError(f"--variant must be paper or released, got {variant!r}")
    if corruption and spectrum is None:
        raise InputError("--corruption is for --spectrum FILE")
    if strip is not None and strip.suffix.lower() != ".png":
        raise InputError(f"--strip: {strip} must end in .png")
    drawn = [path for path in (strip, heatmap, spectrum) if path is not None]
    wanted = _wanted(probes, pictures=bool(drawn))
    options: dict[str, Any] = {"device": device}
    options |= {"weights": str(weights)} if weights else {}
    changes = values(preprocessing, "--preprocessing")
    opened = (
        resolve(model, preprocessing=changes, **options) if changes else resolve(model, **options)
    )
    given = _given(opened, open_test_set(test_set), test_set, store, name or name_of(model))
    found: dict[str, Any] = {"model": given.name, "setting": given.setting}
    with _progress(quiet=json) as report:
        chosen = _probes(wanted, given, window, step, projections, seed)
        found |= _measured(given, chosen, pairs, backend, variant, level, report)
        if heatmap is not None:
            found["heatmap"] = _heatmap(given, heatmap, norm, most, images, seed, report)
    if spectrum is not None:
        found["spectra"] = _spectra(given, spectrum, corruption or [], images, seed, level)
    if strip is not None:
        _strip(given, strip, _probes(list(FOURIER), given, window, None, None, seed), pair)
    found["files"] = [str(path) for path in drawn]
    if json:
        as_json(found)
    else:
        _show(found, level)


def _wanted(probes: list[str] | None, *, pictures: bool) -> list[str]:
    from shiftbed.errors import unknown
    from shiftbed.store.probes import PROBES

    if not probes:
        return [] if pictures else list(FOURIER)
    for one in probes:
        if one != "all" and one not in PROBES:
            raise unknown("probe", one, [*PROBES, "all"])
    return list(PROBES) if "all" in probes else list(dict.fromkeys(probes))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Given:
    """What is probed, on what, and where results go."""

    model: "Model"
    test_set: "TestSet"
    store: "PredictionStore"
    name: str
    setting: str


def _given(model: "Model", test_set: "TestSet", path: str, store: Path, name: str) -> _Given:
    """The setting is called as ``shiftbed eval`` calls it, and must hold the same examples."""
    from shiftbed.engine.evaluate import set_name
    from shiftbed.evaluation.data.authors import split_spec
    from shiftbed.store import PredictionStore

    setting = test_set.name if split_spec(path) is not None else set_name(path)
    opened = PredictionStore(store)
    there = opened.test_set(setting) if setting in opened.settings() else None
    if there is not None and there.fingerprint != test_set.fingerprint:
        raise InputError(
            f"setting {setting!r} is in the store with other examples; use another --store"
        )
    return _Given(model=model, test_set=test_set, store=opened, name=name, setting=setting)


def _probes(
    wanted: list[str],
    given: _Given,
    window: float | None,
    step: float | None,
    projections: int | None,
    seed: int,
) -> "list[Probe]":
    from shiftbed.evaluation.probes import default_probe
    from shiftbed.evaluation.probes.settings import default_projections

    if projections is None:
        projections = default_projections(given.model.classes)
    return [
        default_probe(
            one,
            given.model.preprocessing.size,
            w=window if one in FOURIER else None,
            step=step if one.startswith("pixel") else None,
            projections=projections if one == "jacobian" else None,
            seed=seed,
        )
        for one in wanted
    ]


def _measured(
    given: _Given,
    probes: "list[Probe]",
    pairs: int | None,
    backend: str,
    variant: str,
    level: float,
    report: Report,
) -> dict[str, Any]:
    """Scores of the probes asked for, and why some cannot be had."""
    from shiftbed.evaluation.probes import probe_model
    from shiftbed.results.scores import scores
    from shiftbed.store.probes import PROBE_METRICS

    refused = probe_model(
        given.store,
        given.model,
        given.test_set,
        probes,
        name=given.name,
        setting=given.setting,
        pairs=pairs,
        backend=backend,
        report=report,
    )
    done = [one.name for one in probes if one.name not in refused]
    if probes and not done:
        raise InputError("; ".join(f"{name}: {why}" for name, why in refused.items()))
    left_out = "_hff" if variant == "released" else "_hff_released"
    metrics = [m for m, (p, _) in PROBE_METRICS.items() if p in done and not m.endswith(left_out)]
    rows: list[dict[str, Any]] = []
    if metrics:
        only: dict[str, Any] = {"models": [given.name], "settings": [given.setting]}
        found = scores(given.store, metrics=metrics, level=level, **only)
        rows = records(found.drop("model", "setting", "label_policy"))
    return {"probes": rows, "not_measured": refused}


def _heatmap(
    given: _Given,
    path: Path,
    norm: float | None,
    most: int | None,
    images: int,
    seed: int,
    report: Report,
) -> dict[str, Any]:
    from shiftbed.evaluation.probes import heat_map
    from shiftbed.page import save
    from shiftbed.results.charts.corruptions import error_map

    frame = heat_map(
        given.store,
        given.model,
        given.test_set,
        name=given.name,
        setting=given.setting,
        norm=norm,
        most=most,
        images=images,
        seed=seed,
        report=report,
    )
    size = given.model.preprocessing.size
    made = error_map(frame, size, title=f"{given.name} on {given.setting}")
    save(made, path)
    return {
        "n": int(frame["n"][0]),
        "reading": made.reading,
        "frequencies": records(frame.drop("n")),
    }


def _spectra(
    given: _Given, path: Path, corruptions: list[str], images: int, seed: int, level: float
) -> list[dict[str, Any]]:
    from shiftbed.evaluation.perturbations import spelled_out
    from shiftbed.evaluation.probes import spectra_of
    from shiftbed.page import save
    from shiftbed.results.charts.corruptions import spectrum_chart

    names = spelled_out(corruptions)
    found = spectra_of(given.model, given.test_set, names, images=images, seed=seed, level=level)
    rows = [
        {
            "name": one.name,
            "n": one.n,
            "mean": one.mean.tolist(),
            "low": one.low.tolist(),
            "high": one.high.tolist(),
        }
        for one in found
    ]
    save(spectrum_chart(rows, level=level), path)
    return rows


def _strip(given: _Given, path: Path, probes: "list[Probe]", pair: int) -> None:
    from shiftbed.atomic import write_atomically
    from shiftbed.evaluation.probes import path_strip

    picture = path_strip(given.model, given.test_set, probes, pair=pair)
    with write_atomically(path) as file:
        picture.save(file, format="PNG")


def _show(found: dict[str, Any], level: float) -> None:
    notes = [f"{name}: {why}" for name, why in found["not_measured"].items()]
    if found["probes"]:
        table(
            f"{found['model']} on {found['setting']}",
            ["probe", "value", f"{100 * level:g} % interval", "n", "note"],
            [
                (
                    r["metric"],
                    number(r["value"]),
                    "" if r["low"] is None else f"{number(r['low'])} … {number(r['high'])}",
                    r["n"],
                    r["note"] + (f"; {r['unreadable']} unreadable" if r["unreadable"] else ""),
                )
                for r in found["probes"]
            ],
        )
    if "heatmap" in found:
        notes.append(f"heat map: {found['heatmap']['reading']}")
    notes += [f"wrote {path}" for path in found["files"]]
    for note in notes:
        print(note)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Report]:
    """A bar per probe on a terminal; silent elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        yield report
