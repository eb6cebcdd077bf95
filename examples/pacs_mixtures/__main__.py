"""shi2023's question on real domains: photographs and art paintings as ID sets.

    python -m examples.pacs_mixtures PACS [FOLDER] [--figures FOLDER]

PACS is the authors' folder (photo/dog/…). 66 models are trained on photo, on art painting or on
mixes of both, supervised and image–text, at several sizes, from nothing and as heads on ImageNet
features; cartoon and sketch are OOD. Prints fits, groups, ranks and whether the paper's finding
holds. What is there already is used again.
"""

import argparse
import shutil
from pathlib import Path

import shiftbed as sb
from examples.pacs_mixtures import data
from examples.pacs_mixtures.analysis import FAMILIES, IDS, OOD, findings
from examples.tables import table
from shiftbed.display import interval, points
from shiftbed.testbed import open_testbed
from shiftbed.training.train import train as train_recipe

__all__ = ["main", "train"]

HERE = Path(__file__).parent


def train(pacs: Path, folder: Path, workers: int = 1) -> None:
    """What is missing; a run that was killed goes on."""
    data.make(pacs, folder)
    for name in ("recipe.toml", "net.py", "classes.txt"):
        shutil.copyfile(HERE / name, folder / name)
    runner = "processes" if workers > 1 else "local"
    summary = train_recipe(folder / "recipe.toml", allow_code=True, runner=runner, workers=workers)
    for run, why in summary.failed.items():
        raise SystemExit(f"{run}: {why}")


def show(folder: Path, figures: Path | None = None) -> None:
    """Tables of the study, and the plane with both projections as figures."""
    bed = open_testbed(folder / "store")
    for name, pattern in FAMILIES.items():
        some = bed.where(f"grid={pattern}")
        print(f"\n== {name}: {len(some.models)} models ==")
        own = dict(zip(IDS, IDS, strict=True))
        sb.groups(some, by="training_data", id=IDS, ood=OOD, own_id=own,
                  mixed="training_data=*+*", on_boundary="clip").print()  # fmt: skip
    rows = [
        (
            *(one.family, one.ood, one.id, points(one.single), points(one.multi)),
            *(points(one.shrinks), interval(one.low, one.high), one.n, one.models, one.verdict),
        )
        for one in findings(bed)
    ]
    head = ("family", "OOD", "single ID", "ρ by it", "ρ by both", "|ρ| shrinks by", "95 % interval")
    note = (
        "ρ (points) of models trained on the other ID domain alone. Intervals: 1,000 resamples of "
        "models, lines and planes fitted anew."
    )
    table("Does the gain shrink under the plane?", (*head, "n", "models", ""), rows,
          notes=[note], left=3)  # fmt: skip
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        for name, ids in {"plane": IDS, "by-photo": IDS[:1], "by-art-painting": IDS[1:]}.items():
            sb.plot(bed, id=ids, ood="cartoon", colour="training_data", on_boundary="clip",
                    label=0, output=figures / f"{name}.png", dpi=90)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pacs", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("demo/pacs_mixtures"))
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    train(given.pacs, given.folder, given.workers)
    show(given.folder, given.figures)


if __name__ == "__main__":
    main()
