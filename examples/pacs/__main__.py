"""wenzel2022 on real PACS: hundreds of networks, twelve pairs, every analysis, one report.

    python -m examples.pacs FOLDER [--profile quick|full] [--data DIR] [--only-tables]

``--data`` (or the environment variable DATA) is PACS in its authors' folders. Without it
``../shared/images/PACS`` is looked for; where there is none, nothing is done. The same command
again continues. ``--only-tables`` trains nothing. Profiles are in folders of their own and share
``FOLDER/features``.
"""

import argparse
import os
import shlex
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from examples.inputs import inputs_hash
from examples.pacs.findings import (
    AUGMENTED,
    COLUMNS,
    METRICS,
    PLAIN,
    attack_study,
    factor_study,
    findings,
)
from examples.pacs.recipes import FULL, QUICK, TINY, Profile
from examples.pacs.study import networks, prepare
from shiftbed.atomic import write_atomically
from shiftbed.display import Result
from shiftbed.page.report import report
from shiftbed.results.effects import effects
from shiftbed.results.pairs import open_pairs
from shiftbed.results.pairs.added import UPSTREAM, with_upstream
from shiftbed.results.patterns import patterns
from shiftbed.results.predictiveness import MetricPredictiveness, predictiveness

__all__ = ["PROFILES", "data_folder", "main", "show"]

PROFILES: dict[str, Profile] = {"quick": QUICK, "full": FULL, "tiny": TINY}
NEARBY = Path(__file__).parents[2] / "../shared/images/PACS"


def data_folder(given: Path | None) -> Path | None:
    """PACS where it was said to be, or beside the project; None if it is not there."""
    for place in (given, os.environ.get("DATA"), NEARBY):
        if place is not None:
            return Path(place) if Path(place).is_dir() else None
    return None


def show(store: str, *, seed: int = 0, bootstrap: int = 1000) -> str:
    """All tables of a store, by the package's own functions, then the findings."""
    given: dict[str, Any] = {"seed": seed, "bootstrap": bootstrap}
    few = given | {"bootstrap": min(bootstrap, 200)}
    pairs = open_pairs(store, attacks="both")  # read once for all
    if all("backbone" in pair.info for pair in pairs):
        pairs = with_upstream(pairs, "backbone")
    found: list[Result] = [
        _main_metrics(predictiveness(pairs, **given)),
        _main_metrics(predictiveness(pairs, by="shift-type", **few)),
        _main_metrics(predictiveness(pairs, by="data_size", **few)),
        _main_metrics(predictiveness(pairs, show="transfer", **given)),
        patterns(pairs, **few),
        factor_study(pairs, **given),
        attack_study(pairs, **given),
        effects(pairs, column="augmentation", of=AUGMENTED, against=PLAIN),
        effects(pairs, show="architectures", select="id-validation"),
        effects(pairs, show="architectures", select="id-test"),
        effects(pairs, show="difficulty", **few),
        findings(pairs, **given),
    ]
    return "\n".join(map(str, found)) + "\n"


def _main_metrics(found: MetricPredictiveness) -> Result:
    """The rows of the paper's metrics."""
    shown = [*COLUMNS[: 2 * len(METRICS)], "id:adversarial", "held-out:error"]
    shown += [*(f"upstream:{name}" for name in UPSTREAM), *METRICS, "adversarial"]
    return replace(found, frame=found.frame.filter(pl.col("metric").is_in(shown)))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.pacs", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/pacs"))
    parser.add_argument("--profile", choices=PROFILES, default="quick")
    parser.add_argument("--data", type=Path, help="PACS: DOMAIN/CLASS/*.jpg")
    parser.add_argument("--seed", type=int, default=0, help="of resampling")
    parser.add_argument("--bootstrap", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only-tables", action="store_true", help="train nothing")
    options = parser.parse_args(arguments)
    data = data_folder(options.data)
    if data is None:
        print("PACS is not there: give its folder by --data or DATA. Nothing was done.")
        return
    folder, profile = options.folder / options.profile, PROFILES[options.profile]
    given = (folder, profile, data, options.folder / "features")
    if options.only_tables:
        prepare(*given)
    else:
        networks(*given, workers=options.workers)
    store = str(folder / "store")
    said = show(store, seed=options.seed, bootstrap=options.bootstrap)
    print(said)
    command = shlex.join(["python", "-m", "examples.pacs", *(arguments or sys.argv[1:])])
    top = f"{datetime.now(UTC):%Y-%m-%d}, {command}\nInputs: {inputs_hash('pacs')}\n\n"
    with write_atomically(folder / "tables.txt") as file:
        file.write((top + said).encode())
    report(store, folder / "report.html")
    print(f"The tables are {folder / 'tables.txt'}, the report is {folder / 'report.html'}.")


if __name__ == "__main__":
    main()
