"""``shiftbed probe``: why a model is out of line, measured (fridovich2022)."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from shiftbed.cli.output import AsJson, Level, as_json, number, records, table
from shiftbed.errors import InputError

__all__ = ["probe"]

FOURIER = ("amplitude", "phase")


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
    from shiftbed.cli.setting_options import preprocessing_of
    from shiftbed.evaluate.data import open_test_set
    from shiftbed.evaluate.models import resolve
    from shiftbed.evaluate.probes.smoothness import VARIANTS

    check_level(level)
    if variant not in VARIANTS:
        raise InputError(f"--variant must be paper or released, got {variant!r}")
    if corruption and spectrum is None:
        raise InputError("--corruption is for --spectrum FILE")
    drawn = [path for path in (strip, heatmap, spectrum) if path is not None]
    wanted = _wanted(probes, pictures=bool(drawn))
    options: dict[str, Any] = {"device": device}
    options |= {"weights": str(weights)} if weights else {}
    changes = preprocessing_of(preprocessing or [])
    opened = (
        resolve(model, preprocessing=changes, **options) if changes else resolve(model, **options)
    )
    images_in = open_test_set(test_set)
    where = _Where(opened, images_in, store, name or model, _setting(test_set, images_in.name))
    found: dict[str, Any] = {"model": where.name, "setting": where.setting}
    with _progress(quiet=json) as report:
        found |= where.measured(
            wanted, pairs, window, step, projections, seed, variant, backend, level, report
        )
        if heatmap is not None:
            found["heatmap"] = where.heatmap(heatmap, norm, most, images, seed, report)
    if spectrum is not None:
        found["spectra"] = where.spectra(spectrum, corruption or [], images, seed, level)
    if strip is not None:
        where.strip(strip, pair, window, seed)
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


def _setting(path: str, own: str) -> str:
    """The setting's name, as ``shiftbed eval`` gives it."""
    from shiftbed.cli.setting_options import set_name
    from shiftbed.evaluate.data.authors import split_spec

    return own if split_spec(path) is not None else set_name(path)


class _Where:
    """A model, a test set and a store, and what is measured there."""

    def __init__(self, model: Any, test_set: Any, store: Path, name: str, setting: str) -> None:
        from shiftbed.store import PredictionStore

        self.model, self.test_set, self.name, self.setting = model, test_set, name, setting
        self.store = PredictionStore(store)
        if setting in self.store.settings():
            there = self.store.test_set(setting).fingerprint
            if there != test_set.fingerprint:
                raise InputError(
                    f"setting {setting!r} is in the store with other examples or labels; "
                    "use another --store"
                )

    def measured(
        self,
        wanted: list[str],
        pairs: int | None,
        window: float | None,
        step: float | None,
        projections: int | None,
        seed: int,
        variant: str,
        backend: str,
        level: float,
        report: "Callable[[str, int, int], None]",
    ) -> dict[str, Any]:
        """Scores of the probes asked for, and why some cannot be had."""
        from shiftbed.evaluate.probes import default_probe, probe_model
        from shiftbed.evaluate.probes.settings import default_projections
        from shiftbed.store.probes import PROBE_METRICS
        from shiftbed.tables.scores import score

        count = default_projections(self.model.classes) if projections is None else projections
        size = self.model.preprocessing.size
        chosen = [
            default_probe(
                one,
                size,
                w=window if one in FOURIER else None,
                step=step if one.startswith("pixel") else None,
                projections=count if one == "jacobian" else None,
                seed=seed,
            )
            for one in wanted
        ]
        refused = probe_model(
            self.store,
            self.model,
            self.test_set,
            chosen,
            name=self.name,
            setting=self.setting,
            pairs=pairs,
            backend=backend,
            report=report,
        )
        done = [one for one in wanted if one not in refused]
        if wanted and not done:
            raise InputError("; ".join(f"{name}: {why}" for name, why in refused.items()))
        left_out = "_hff" if variant == "released" else "_hff_released"
        metrics = [
            m for m, (p, _) in PROBE_METRICS.items() if p in done and not m.endswith(left_out)
        ]
        rows: list[dict[str, Any]] = []
        if metrics:
            found = score(
                self.store,
                metrics=metrics,
                models=[self.name],
                settings=[self.setting],
                level=level,
            )
            rows = records(found.drop("model", "setting", "label_policy"))
        return {"probes": rows, "not_measured": refused}

    def heatmap(
        self,
        path: Path,
        norm: float | None,
        most: int | None,
        images: int,
        seed: int,
        report: "Callable[[str, int, int], None]",
    ) -> dict[str, Any]:
        from shiftbed.evaluate.probes import heat_map
        from shiftbed.figures import save
        from shiftbed.figures.spectra import error_map

        frame = heat_map(
            self.store,
            self.model,
            self.test_set,
            name=self.name,
            setting=self.setting,
            norm=norm,
            most=most,
            images=images,
            seed=seed,
            report=report,
        )
        made = error_map(
            frame, self.model.preprocessing.size, title=f"{self.name} on {self.setting}"
        )
        save(made, path)
        n = int(frame["n"].max())  # type: ignore[arg-type]
        return {"n": n, "reading": made.reading, "frequencies": records(frame.drop("n"))}

    def spectra(
        self, path: Path, corruptions: list[str], images: int, seed: int, level: float
    ) -> list[dict[str, Any]]:
        from shiftbed.evaluate.perturbations import spelled_out
        from shiftbed.evaluate.probes import spectra_of
        from shiftbed.figures import save
        from shiftbed.figures.spectra import spectrum_chart

        found = spectra_of(
            self.model,
            self.test_set,
            spelled_out(corruptions),
            images=images,
            seed=seed,
            level=level,
        )
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

    def strip(self, path: Path, pair: int, window: float | None, seed: int) -> None:
        from shiftbed.atomic import write_atomically
        from shiftbed.evaluate.probes import default_probe, path_strip

        if path.suffix.lower() != ".png":
            raise InputError(f"--strip: {path} must end in .png")
        size = self.model.preprocessing.size
        both = [default_probe(one, size, w=window, seed=seed) for one in FOURIER]
        picture = path_strip(self.model, self.test_set, both, pair=pair)
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
def _progress(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
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
