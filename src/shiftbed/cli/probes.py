"""``shiftbed probe``: why a model is out of line, measured (fridovich2022)."""

from dataclasses import replace
from pathlib import Path

from typer import Argument, Option

import shiftbed as sb
from shiftbed.cli import options as opt
from shiftbed.cli.output import call, check_files, show, values
from shiftbed.cli.progress import progress
from shiftbed.errors import InputError
from shiftbed.places import shown_place


def probe(
    models: str = Argument(
        metavar="MODEL",
        help="A model such as timm:resnet18; a testbed.toml (all of its models); or a folder of "
        "runs that train made (every checkpoint whose weights are there).",
    ),
    test_set: str = Argument(help="The ID test set: a folder, .npz, …, NAME@DIR."),
    probes: list[str] | None = Option(
        None,
        "--probe",
        help="amplitude, phase, pixel_within, pixel_between, jacobian or all (default "
        "amplitude and phase; none if only pictures are asked for).",
    ),
    pairs: int | None = Option(
        None,
        help="Paths per probe, images of the Jacobian (default: 5,000 paths of small images, "
        "7,000 of large ones, 200 pixel paths per class or pair of classes, 400 images).",
        min=1,
    ),
    store: Path = Option(
        Path("store"), help="Where results are kept, path by path (and found again)."
    ),
    name: opt.NameInStore = None,
    window: float | None = Option(
        None, help="Half width of the window of low frequencies, as a share of the side."
    ),
    step: float | None = Option(None, help="ℓ2 step of pixel paths, normalised (default 1)."),
    projections: int | None = Option(
        None,
        help="Random projections of the Jacobian; 0: exact (default: exact up to 50 classes, "
        "else 10).",
        min=0,
    ),
    normalisation: str | None = Option(
        None,
        help="Of the images it measures on: cifar-10 (small images), imagenet, or model (its own).",
    ),
    variant: str = Option("paper", help="High-frequency fraction as in the paper, or as released."),
    seed: int = Option(0, help="Seed of pairs, images and projections.", min=0),
    strip: Path | None = Option(None, help="Draw an amplitude and a phase path: a .png file."),
    pair: int = Option(0, help="Which pair the strip shows.", min=0),
    heatmap: Path | None = Option(
        None, help="Draw errors per frequency: .png, .svg, .pdf or .html."
    ),
    norm: float | None = Option(
        None, help="ℓ2 norm of the heat map's perturbations (4 at 32 px, 15.7 at 224)."
    ),
    most: int | None = Option(
        None, help="Highest frequency per axis of the heat map (15 of large images)."
    ),
    spectrum: Path | None = Option(
        None, help="Draw the test set's spectrum: .png, .svg, .pdf or .html."
    ),
    corruptions: list[str] | None = Option(
        None,
        "--corruption",
        help="NAME:SEVERITY: also the spectrum of corrupted minus clean images.",
    ),
    images: int = Option(256, help="Images of the heat map and of spectra.", min=2),
    weights: opt.Weights = None,
    preprocessing: list[str] | None = Option(
        None, help="KEY=VALUE: change the model's own preprocessing."
    ),
    device: opt.Device = "cpu",
    backend: str = Option("auto", help="auto, torch, compile or onnxruntime, for paths."),
    level: opt.Level = 0.95,
    allow_code: opt.AllowCode = False,
    json: opt.AsJson = False,
) -> None:
    """Probe a model: Fourier, pixel and Jacobian smoothness, heat map, spectra, a strip of a path.

    The same command again continues where it was killed.
    """
    given = locals()
    from shiftbed.atomic import write_atomically
    from shiftbed.page import save

    if corruptions and spectrum is None:
        raise InputError("--corruption is for --spectrum FILE")
    if strip is not None and strip.suffix.lower() != ".png":
        raise InputError(f"--strip: {strip} must end in .png")
    check_files(None, heatmap, spectrum)
    with progress(quiet=json) as report:
        found = call(
            sb.probe,
            given,
            strip=strip is not None,
            heatmap=heatmap is not None,
            spectrum=spectrum is not None,
            preprocessing=values(preprocessing, "--preprocessing"),
            report=report,
        )
    for kind, path in (("heatmap", heatmap), ("spectrum", spectrum)):
        if path is not None:
            save(found.chart(kind), path)
    if strip is not None and (picture := found.each[0].strip) is not None:
        with write_atomically(strip) as file:
            picture.save(file, format="PNG")
    files = tuple(str(path) for path in (strip, heatmap, spectrum) if path is not None)
    wrote = tuple(f"wrote {shown_place(path)}" for path in files)
    show(replace(found, files=files, notes=found.notes + wrote), json)
