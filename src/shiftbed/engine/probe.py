"""``probe``: how smooth and how steep models are around a test set's images (fridovich2022)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from shiftbed.analysis.intervals import check_level
from shiftbed.display import Cell, Row, Table, between, number, records
from shiftbed.engine.cell import open_model as open_listed
from shiftbed.engine.evaluate import set_name
from shiftbed.engine.plan import ModelSpec
from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.data import TestSet, open_test_set
from shiftbed.evaluation.data.authors import split_spec
from shiftbed.evaluation.memory import reused_memory
from shiftbed.evaluation.models import Model
from shiftbed.evaluation.models import model as open_model
from shiftbed.evaluation.models.registry import code_in, name_of
from shiftbed.evaluation.perturbations import spelled_out
from shiftbed.evaluation.probes import (
    Probe,
    Report,
    Spectrum,
    default_probe,
    heat_map,
    path_strip,
    probe_model,
    spectra_of,
)
from shiftbed.evaluation.probes.paths import VARIANTS
from shiftbed.evaluation.probes.probe import default_projections
from shiftbed.foreign_code import Origin, check_code
from shiftbed.reading.files import read_json
from shiftbed.reading.shapes import count, fitting
from shiftbed.results.charts import Charted
from shiftbed.results.scores import probe_rows
from shiftbed.store import PredictionStore
from shiftbed.store.probes import PROBE_METRICS, PROBES
from shiftbed.testbed.stored import called_by

if TYPE_CHECKING:
    from PIL.Image import Image

    from shiftbed.figures import Chart

FOURIER = ("amplitude", "phase")
PICTURES = ("heatmap", "spectrum")
_COLUMNS: dict[str, Any] = {
    **dict.fromkeys(("model", "setting", "metric"), pl.String),
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    **dict.fromkeys(("n", "unreadable"), pl.Int64),
    "note": pl.String,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelProbes:
    """What was measured of one model besides its scores."""

    model: str
    size: tuple[int, int]
    """Height and width of its images."""
    not_measured: Mapping[str, str]
    """Probes that cannot be measured, and why."""
    heatmap: pl.DataFrame | None
    """Errors per frequency: i, j, wrong, n."""
    spectra: tuple[Spectrum, ...]
    """Of the test set, then of corrupted minus clean images."""
    strip: "Image | None"
    """An amplitude and a phase path as pictures."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Probed(Charted):
    """Scores of probes, a row per model and metric, and the pictures asked for."""

    setting: str
    level: float
    each: tuple[ModelProbes, ...]
    """A record per model, in the order given."""
    files: tuple[str, ...] = ()
    """Pictures that were written."""

    def chart(self, kind: str | None = None, model: str | None = None) -> "Chart":
        """The ``heatmap`` or ``spectrum`` of a model; by default the first there is."""
        from shiftbed.results.charts.corruptions import error_map, spectrum_chart

        if kind is not None and kind not in PICTURES:
            raise unknown("kind of chart", kind, PICTURES)
        names = [one.model for one in self.each]
        if model is not None and model not in names:
            raise unknown("model", model, names)
        for one in self.each:
            if model is not None and one.model != model:
                continue
            if one.heatmap is not None and kind != "spectrum":
                return error_map(one.heatmap, one.size, title=f"{one.model} on {self.setting}")
            if one.spectra and kind != "heatmap":
                return spectrum_chart([vars(s) for s in one.spectra], level=self.level)
        wanted = f"{kind}=True" if kind else "heatmap=True or spectrum=True"
        raise InputError(f"there is no picture to draw: probe with {wanted}")

    def tables(self) -> Iterator[Table]:
        if len(self.frame):
            columns: dict[str, Cell] = {
                **({"model": "model"} if len(self.each) > 1 else {}),
                "probe": "metric",
                "value": ("value", number),
                f"{100 * self.level:g} % interval": lambda row: between(
                    row["low"], row["high"], number
                ),
                "n": "n",
                "note": _note,
            }
            who = self.each[0].model if len(self.each) == 1 else f"{len(self.each)} models"
            title = f"{who} on {self.setting}"
            yield Table.of(title, self.frame, columns, left=len(columns) - 4)
        yield Table(notes=self.notes)

    def to_dict(self) -> dict[str, Any]:
        """The one model's; of several models a list, ``models``."""
        found = [self._one(one) for one in self.each]
        whole = found[0] if len(found) == 1 else {"setting": self.setting, "models": found}
        return {**whole, "files": list(self.files)}

    def _one(self, one: ModelProbes) -> dict[str, Any]:
        rows = self.frame.filter(pl.col("model") == one.model).drop("model", "setting")
        found: dict[str, Any] = {
            "model": one.model,
            "setting": self.setting,
            "probes": records(rows),
            "not_measured": dict(one.not_measured),
        }
        if one.heatmap is not None:
            reading = self.chart("heatmap", one.model).reading
            rows = one.heatmap.drop("n")
            found["heatmap"] = {
                "n": int(one.heatmap["n"][0]),
                "reading": reading,
                "frequencies": records(rows),
            }
        if one.spectra:
            found["spectra"] = [
                {"name": s.name, "n": s.n}
                | {end: getattr(s, end).tolist() for end in ("mean", "low", "high")}
                for s in one.spectra
            ]
        return found


def _interval(row: Row) -> str:
    return between(row["low"], row["high"], number)


def _note(row: Row) -> str:
    return f"{row['note']}; {row['unreadable']} unreadable" if row["unreadable"] else row["note"]


@reused_memory()
def probe(
    models: Any,
    test_set: str | Path | TestSet,
    *,
    probes: str | Sequence[str] | None = None,
    pairs: int | None = None,
    store: str | Path | PredictionStore | None = None,
    name: str | None = None,
    window: float | None = None,
    step: float | None = None,
    projections: int | None = None,
    normalisation: str | None = None,
    variant: str = "paper",
    seed: int = 0,
    heatmap: bool = False,
    norm: float | None = None,
    most: int | None = None,
    spectrum: bool = False,
    corruptions: Sequence[str] = (),
    images: int = 256,
    strip: bool = False,
    pair: int = 0,
    weights: str | PathLike[str] | None = None,
    preprocessing: Mapping[str, Any] | None = None,
    device: str = "cpu",
    backend: str = "auto",
    level: float = 0.95,
    allow_code: bool = False,
    report: Report | None = None,
) -> Probed:
    """Probe models on a test set: smoothness along paths between images, the Jacobian, spectra.

    - ``models``: one, or a list of several, each a ``Model``, a line such as ``timm:resnet18``, or
      what ``shiftbed.model`` takes; a testbed.toml is all of its models, a folder of runs that
      ``train`` made every checkpoint whose weights are there. ``weights`` (a file),
      ``preprocessing`` (changed fields) and ``device`` are for what is no ``Model`` yet.
    - ``probes``: amplitude, phase, pixel_within, pixel_between, jacobian, or ``"all"``; by default
      amplitude and phase, and none where only pictures are asked for.
    - ``pairs``: paths per probe, images of the Jacobian; by default 5,000 paths of small images,
      7,000 of large ones, 200 pixel paths per class or pair of classes, 400 images.
    - ``window``: half width of the window of low frequencies, as a share of the side. ``step``: ℓ2
      step of pixel paths. ``projections``: of the Jacobian, 0 for exact. ``normalisation``: of the
      images that it is measured on, ``cifar-10`` (default for small ones) or ``imagenet``, which
      makes models comparable whatever they do themselves, or ``model``. ``variant``: the
      high-frequency fraction as in the paper, or as released.
    - ``heatmap``: errors per frequency of noise of ℓ2 length ``norm``, up to frequency ``most``.
      ``spectrum``: of the test set, and of corrupted minus clean images under ``corruptions``;
      both of ``images`` images. ``strip``: pictures along the paths of pair number ``pair``.
    - ``store``: results are kept there path by path and found again, so that a killed run
      continues; nothing is written without it. ``name`` is the model's name in it.
    - ``allow_code``: execute code that files name (``python:`` in a testbed.toml or a run's
      folder), which is refused otherwise.

    ``report`` hears what is measured, how much of it is done and how much there is.
    """
    check_level(level)
    if variant not in VARIANTS:
        raise InputError(f"variant must be paper or released, got {variant!r}")
    if corruptions and not spectrum:
        raise InputError("corruptions are for the spectrum: ask for it as well")
    wanted = _wanted(probes, pictures=heatmap or spectrum or strip)
    listed = list(models) if isinstance(models, list | tuple) else [models]
    given = [model for one in listed for model in _several(one, allow_code)]
    if not given:
        raise InputError("give at least one model")
    if name is not None and len(given) > 1:
        raise InputError(f"one name cannot be that of {len(given)} models")
    options = {"weights": weights, "preprocessing": preprocessing, "device": device}
    _check_code(given, allow_code)
    opened = dict(_opened(one, name, options, allow_code) for one in given)
    if len(opened) < len(given):
        raise InputError("two of the models have the same name")
    data = open_test_set(test_set)
    if isinstance(test_set, str | Path) and split_spec(str(test_set)) is None:
        data = replace(data, name=set_name(str(test_set)))  # as evaluate calls it
    where = _store(store, data)
    rows: list[dict[str, Any]] = []
    each = []
    for called, model in opened.items():
        drawn = (window, step, projections, normalisation, seed)
        asked = [_made(one, model, *drawn) for one in wanted]
        own: dict[str, Any] = {"name": called, "setting": data.name, "report": report}
        refused = probe_model(where, model, data, asked, pairs=pairs, backend=backend, **own)
        done = [one.name for one in asked if one.name not in refused]
        if asked and not done:
            raise InputError("; ".join(f"{what}: {why}" for what, why in refused.items()))
        rows += _scores(where, called, data.name, done, variant, level)
        spectra: list[Spectrum] = []
        if spectrum:
            how: dict[str, Any] = {"images": images, "seed": seed, "level": level}
            spectra = spectra_of(model, data, spelled_out(corruptions), **how)
        found = None
        if heatmap:
            noise: dict[str, Any] = {"norm": norm, "most": most, "images": images, "seed": seed}
            found = heat_map(where, model, data, **noise, **own)
        picture = None
        if strip:
            drawn = (window, None, None, normalisation, seed)
            shown = [_made(one, model, *drawn) for one in FOURIER]
            picture = path_strip(model, data, shown, pair=pair)
        each.append(
            ModelProbes(
                model=called,
                size=model.preprocessing.size,
                not_measured=refused,
                heatmap=found,
                spectra=tuple(spectra),
                strip=picture,
            )
        )
    frame = pl.DataFrame(rows, schema=_COLUMNS)
    notes = [f"{what}: {why}" for one in each for what, why in one.not_measured.items()]
    lines = [ModelSpec.of_line(one, name) for one in given if isinstance(one, str)]
    said = called_by({one.name: one.info for one in lines})
    result = Probed(frame=frame, setting=data.name, level=level, each=tuple(each), called=said)
    if heatmap:
        notes += [f"heat map: {result.chart('heatmap', one).reading}" for one in opened]
    return replace(result, notes=tuple(dict.fromkeys(notes)))


def _wanted(probes: str | Sequence[str] | None, *, pictures: bool) -> list[str]:
    listed = [probes] if isinstance(probes, str) else list(probes or ())
    if not listed:
        return [] if pictures else list(FOURIER)
    for one in listed:
        if one != "all" and one not in PROBES:
            raise unknown("probe", one, [*PROBES, "all"])
    return list(PROBES) if "all" in listed else list(dict.fromkeys(listed))


def _check_code(given: Sequence[Any], allow_code: bool) -> None:
    """Refuse code of all models at once, before any is opened."""
    lines = [one for one in given if isinstance(one, str)]
    named = [code for one in given if isinstance(one, ModelSpec) for code in one.code]
    check_code(named + [c for one in lines for c in code_in(one, Origin(allow_code=allow_code))])


def _several(given: Any, allow_code: bool) -> list[Any]:
    """The models of a testbed.toml, every checkpoint of a folder of runs, or the one given."""
    path = Path(given) if isinstance(given, str | PathLike) else None
    if path is not None and path.suffix == ".toml":
        from shiftbed.engine.testbed_file import read_testbed_toml

        return list(read_testbed_toml(path, allow_code=allow_code).models)
    if path is None or not path.is_dir():
        return [given]
    done = sorted(path.glob("*/done.json"))
    lines = []
    for file in done:
        for step in fitting(read_json(file), {"stops": [count]}, file)["stops"]:
            if (file.parent / f"step-{step:08d}.pt").is_file():
                lines.append(f"run:{file.parent}?step={step}")
    if not lines:
        raise InputError(f"{path}: no finished run of shiftbed train with weights is in it")
    return lines


def _opened(
    given: Any, name: str | None, options: dict[str, Any], allow_code: bool
) -> tuple[str, Model]:
    """The model and its name in the store: its line, unless that does not say which it is."""
    if isinstance(given, ModelSpec):
        if options["weights"] is not None or options["preprocessing"]:
            raise InputError("weights and preprocessing of a testbed's models are in its file")
        return given.name, open_listed(given, {"device": options["device"], "precision": "float32"})
    more: dict[str, Any] = {"allow_code": allow_code} if isinstance(given, str) else {}
    model = open_model(given, **options, **more)
    changed = options["weights"] is not None or options["preprocessing"]
    return name or (name_of(given) if isinstance(given, str) and not changed else model.id), model


def _store(store: str | Path | PredictionStore | None, data: TestSet) -> PredictionStore:
    """Where results go; a setting of that name must have the same examples."""
    found = store if isinstance(store, PredictionStore) else PredictionStore(store)
    there = found.test_set(data.name) if data.name in found.settings() else None
    if there is not None and there.fingerprint != data.fingerprint_without(there.unread):
        raise InputError(
            f"setting {data.name!r} is in the store with other examples; use another store"
        )
    return found


def _made(
    name: str,
    model: Model,
    window: float | None,
    step: float | None,
    projections: int | None,
    normalisation: str | None,
    seed: int,
) -> Probe:
    drawn = default_projections(model.classes) if projections is None else projections
    return default_probe(
        name,
        model.preprocessing.size,
        w=window if name in FOURIER else None,
        step=step if name.startswith("pixel") else None,
        projections=drawn if name == "jacobian" else None,
        normalisation=normalisation,
        seed=seed,
    )


def _scores(
    store: PredictionStore, model: str, setting: str, done: list[str], variant: str, level: float
) -> list[dict[str, Any]]:
    left_out = "_hff" if variant == "released" else "_hff_released"
    metrics = [m for m, (p, _) in PROBE_METRICS.items() if p in done and not m.endswith(left_out)]
    if not metrics:
        return []
    found = probe_rows(store, metrics, models=[model], settings=[setting], level=level)
    return [{key: row.get(key) for key in _COLUMNS} for row in found]
