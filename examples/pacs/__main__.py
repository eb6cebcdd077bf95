"""wenzel2022 on real PACS: hundreds of networks, twelve pairs, every analysis, one report.

    python -m examples.pacs FOLDER [--profile quick|full] [--data DIR] [--only-tables]

``--data`` (or the environment variable DATA) is PACS in its authors' folders. Without it
``../shared/images/PACS`` is looked for; where there is none, nothing is done. The same command
again continues. ``--only-tables`` trains nothing.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import torch

from examples.pacs.findings import METRICS, findings
from examples.pacs.recipes import FULL, QUICK, TINY, Profile
from examples.pacs.study import networks, prepare
from examples.tables import table
from shiftbed.display import Result
from shiftbed.page.report import report
from shiftbed.results.effects import effects
from shiftbed.results.factors import factors
from shiftbed.results.pairs import open_pairs
from shiftbed.results.patterns import patterns
from shiftbed.results.predictiveness import predictiveness

__all__ = ["PROFILES", "data_folder", "main", "show"]

PROFILES: dict[str, Profile] = {"quick": QUICK, "full": FULL, "tiny": TINY}
NEARBY = Path(__file__).parents[2] / "../shared/images/PACS"


def data_folder(given: Path | None) -> Path | None:
    """PACS where it was said to be, or beside the project; None if it is not there."""
    for place in (given, os.environ.get("DATA"), NEARBY):
        if place is not None:
            return Path(place) if Path(place).is_dir() else None
    return None


def show(store: str, *, seed: int = 0, bootstrap: int = 1000) -> None:
    """All tables of a store, by the package's own functions, then the findings."""
    given: dict[str, Any] = {"seed": seed, "bootstrap": bootstrap}
    few = given | {"bootstrap": min(bootstrap, 200)}
    names = [f"{place}:{one}" for place in ("id", "corrupted", "ood") for one in METRICS]
    pairs = open_pairs(store)  # read once for all
    found: list[Result] = [
        predictiveness(pairs, **given),
        patterns(pairs, classes=7, **few),
        factors(pairs, metric=names, factors=4, **few),
        effects(pairs, show="architectures", select="id-validation"),
        effects(pairs, show="difficulty", **few),
    ]
    for one in found:
        print(one, flush=True)
    rows = [(one.verdict, one.claim, one.evidence, one.n) for one in findings(pairs, **given)]
    table("wenzel2022 on PACS", ("verdict", "claim", "evidence", "networks"), rows, left=4)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.pacs", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/pacs"))
    parser.add_argument("--profile", choices=PROFILES, default="quick")
    parser.add_argument("--data", type=Path, help="PACS: DOMAIN/CLASS/*.jpg")
    parser.add_argument("--seed", type=int, default=0, help="of resampling")
    parser.add_argument("--bootstrap", type=int, default=1000)
    parser.add_argument("--only-tables", action="store_true", help="train nothing")
    options = parser.parse_args(arguments)
    data = data_folder(options.data)
    if data is None:
        print("PACS is not there: give its folder by --data or DATA. Nothing was done.")
        return
    torch.set_num_threads(1)
    profile = PROFILES[options.profile]
    if options.only_tables:
        prepare(options.folder, profile, data)
    else:
        networks(options.folder, profile, data)
    store = str(options.folder / "store")
    show(store, seed=options.seed, bootstrap=options.bootstrap)
    report(store, options.folder / "report.html")
    print(f"The report is {options.folder / 'report.html'}.")


if __name__ == "__main__":
    main()
