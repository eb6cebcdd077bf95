"""``shiftbed probe``: why a model is out of line, measured (fridovich2022)."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from shiftbed.cli.output import AsJson, Level, check_files, progress, show
from shiftbed.errors import InputError


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
    seed: Annotated[int, typer.Option(help="Seed of pairs, images and projections.", min=0)] = 0,
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
        list[str] | None, typer.Option(help="KEY=VALUE: change the model's own preprocessing.")
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
    from shiftbed.atomic import write_atomically
    from shiftbed.cli.running import values
    from shiftbed.engine.probe import probe as probe_
    from shiftbed.page import save

    if corruption and spectrum is None:
        raise InputError("--corruption is for --spectrum FILE")
    if strip is not None and strip.suffix.lower() != ".png":
        raise InputError(f"--strip: {strip} must end in .png")
    check_files(None, heatmap, spectrum)
    with progress(quiet=json) as report:
        found = probe_(
            model,
            test_set,
            probes=probes,
            pairs=pairs,
            store=store,
            name=name,
            window=window,
            step=step,
            projections=projections,
            variant=variant,
            seed=seed,
            strip=strip is not None,
            pair=pair,
            heatmap=heatmap is not None,
            norm=norm,
            most=most,
            spectrum=spectrum is not None,
            corruptions=corruption or (),
            images=images,
            weights=weights,
            preprocessing=values(preprocessing, "--preprocessing"),
            device=device,
            backend=backend,
            level=level,
            report=report,
        )
    for kind, path in (("heatmap", heatmap), ("spectrum", spectrum)):
        if path is not None:
            save(found.chart(kind), path)
    if strip is not None and (picture := found.each[0].strip) is not None:
        with write_atomically(strip) as file:
            picture.save(file, format="PNG")
    files = tuple(str(path) for path in (strip, heatmap, spectrum) if path is not None)
    wrote = tuple(f"wrote {path}" for path in files)
    show(replace(found, files=files, notes=found.notes + wrote), json)
