"""Do the intervals of ρ cover, and is 'out of line' said too often?

    python -m benchmarks.coverage [--quick] [--json]

Each simulation makes a testbed like the real ones: 78 baseline models and 10 others whose answers
per image are real ones (67 models on ImageNet and ImageNetV2; 88 are drawn from them with
replacement). On the OOD side random answers of each model are flipped until its accuracy on all
images is where the line, plus scatter as large as the real models' own, puts it; the 10 others
are put 3 points off the line. That is the truth. Then the images are resampled, jointly for all
models, and the testbed is analysed as any other. Two regimes: 50,000 ID and 10,000 OOD images,
and 1,109 ID images, where noise in x flattens the line.

Then the ``cases`` (``benchmarks.coverage_cases`` and ``benchmarks.coverage_studies``): families of
models, heavy tails, skew, uneven spread, curvature, few images, groups, comparisons, own images,
models unlike the fit set, bands, dependent units, planning, few labels. Each has its coverage with
Monte-Carlo error, the mean width in points, and whether the output carries a caveat in at least
nine of ten simulations (``flagged``). ``failed`` lists the cases below 93 % that are not flagged,
and the exit code of a full run is 1 if there are any.

Without the public predictions beside the checkout, answers per image are simulated from a model
with an ability per model and a difficulty per image, and the output says so.
"""

import sys
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, logit

from benchmarks import coverage_cases, coverage_studies
from benchmarks.common import SHARED, arguments, report
from shiftbed.analysis.baseline import fit_baseline
from shiftbed.analysis.noise import image_covariance
from shiftbed.records import Bits, ImageResults, Shift
from shiftbed.testbed import Testbed

BASELINE, OTHERS, OFFSET, FDR, LEVEL = 78, 10, 0.03, 0.05, 0.95
LEAST = 0.93
"""A case that covers less must be flagged by the tool's own output."""
REGIMES = {"50,000 ID / 10,000 OOD": (50_000, 10_000), "1,109 ID / 10,000 OOD": (1_109, 10_000)}
SHIFT = Shift(name="v2", kind="natural-dataset", source=("id",), target="ood")
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Population:
    """All images: who is right where, the line, and the models' own scatter about it."""

    source: str
    right_id: Bools
    right_ood: Bools
    weight: float
    intercept: float
    scatter: float


def population() -> Population:
    folder = SHARED / "predictions"
    files = [
        folder / f"imagenetv2_67models_{name}.npz"
        for name in ("imagenet-validation-original", "imagenetv2-b-33")
    ]
    if all(file.exists() for file in files):
        arrays = [np.load(file, allow_pickle=False) for file in files]
        right_id, right_ood = (a["top1"] == a["labels"] for a in arrays)
        source = "67 real models"
    else:
        rng = np.random.default_rng(1)
        ability = rng.normal(1.2, 0.5, 67)[:, None]
        right_id = rng.random((67, 50_000)) < expit(ability * 3 - rng.normal(0, 2, 50_000))
        right_ood = rng.random((67, 10_000)) < expit(ability * 3 - rng.normal(1, 2, 10_000))
        source = "simulated answers (the public predictions are not at hand)"
    x, y = right_id.mean(axis=1), right_ood.mean(axis=1)
    line = fit_baseline(x, y, bootstrap=0)
    # The scatter of the models themselves: what of the residual variance is not image noise.
    slope = [1 / (p * (1 - p)) for p in (x, y)]
    noise = image_covariance([right_id, right_ood], ["id", "ood"])
    m = len(x)
    of_residual = np.diag(slope[1]) @ noise[m:, m:] @ np.diag(slope[1]) + line.weights[
        0
    ] ** 2 * np.diag(slope[0]) @ noise[:m, :m] @ np.diag(slope[0])
    a = line.lines[0].design
    maker = np.eye(m) - a @ line.lines[0].gram_inverse @ a.T
    image = float(np.sum(maker * of_residual)) / line.lines[0].dof
    scatter = float(np.sqrt(max(line.lines[0].sigma ** 2 - image, 0.0)))
    return Population(source, right_id, right_ood, line.weights[0], line.intercept, scatter)


def simulate(
    world: Population, n_id: int, n_ood: int, rng: np.random.Generator
) -> tuple[Testbed, NDArray[np.float64]]:
    """A testbed on resampled images, and the true ρ of its models."""
    m = BASELINE + OTHERS
    drawn = rng.integers(0, len(world.right_id), m)
    x = world.right_id.mean(axis=1)[drawn]
    old = world.right_ood.mean(axis=1)[drawn]
    on_line = world.weight * logit(x) + world.intercept
    new = expit(on_line + rng.normal(0, world.scatter, m))
    new[BASELINE:] += OFFSET * rng.choice([-1, 1], OTHERS)
    right = world.right_ood[drawn]
    chance = rng.random(right.shape, dtype=np.float32)
    gain = np.where(new > old, (new - old) / (1 - old), 0.0)[:, None]
    loss = np.where(new > old, 0.0, (old - new) / old)[:, None]
    flipped = np.where(right, chance >= loss, chance < gain)
    truth = flipped.mean(axis=1) - expit(on_line)
    some_id = rng.integers(0, world.right_id.shape[1], n_id)
    some_ood = rng.integers(0, flipped.shape[1], n_ood)
    seen = {"id": world.right_id[:, some_id][drawn], "ood": flipped[:, some_ood]}
    known = np.ones(m, dtype=bool)
    models = pl.DataFrame(
        {
            "model": [f"m{i}" for i in range(m)],
            "kind": ["standard"] * BASELINE + ["other"] * OTHERS,
            "in_fit_set": [True] * BASELINE + [False] * OTHERS,
            "parent": pl.Series([None] * m, dtype=pl.String),
        }
    )
    testbed = Testbed(
        name="simulated",
        models=models,
        settings=("id", "ood"),
        value=np.column_stack([r.mean(axis=1) for r in seen.values()]),
        n=np.tile([n_id, n_ood], (m, 1)),
        shifts=(SHIFT,),
        results={s: ImageResults(images=s, bits=Bits.of(r), known=known) for s, r in seen.items()},
    )
    return testbed, truth


def measure(world: Population, n_id: int, n_ood: int, simulations: int, seed: int) -> dict:
    rng = np.random.default_rng(seed)
    names = ("coverage", "conservative", "false", "found", "uncorrected")
    kept: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(simulations):
        testbed, truth = simulate(world, n_id, n_ood, rng)
        table = testbed.effective_robustness("v2", level=LEVEL, fdr=FDR)
        low, high = table["low"].to_numpy(), table["high"].to_numpy()
        rho = table["effective"].to_numpy()
        called = table["out_of_line"].to_numpy()
        kept["coverage"].append(float(((low <= truth) & (truth <= high)).mean()))
        half = (high - low) / 2
        kept["uncorrected"].append(float((np.abs(rho - truth) <= half).mean()))
        kept["false"].append(called[:BASELINE].sum() / max(called.sum(), 1))
        kept["found"].append(float(called[BASELINE:].mean()))
        bare = replace(testbed, results={}).effective_robustness("v2")
        inside = (bare["low"].to_numpy() <= truth) & (truth <= bare["high"].to_numpy())
        kept["conservative"].append(float(inside.mean()))
    mean = {name: float(np.mean(values)) for name, values in kept.items()}
    return {
        "coverage": mean["coverage"],
        "coverage_se": float(np.std(kept["coverage"]) / np.sqrt(simulations)),
        "coverage_without_attenuation_correction": mean["uncorrected"],
        "coverage_from_accuracies_alone": mean["conservative"],
        "false_discovery_rate": mean["false"],
        "false_discovery_rate_se": float(np.std(kept["false"]) / np.sqrt(simulations)),
        "power": mean["found"],
        "simulations": simulations,
    }


def measured_cases(simulations: int, seed: int = 0) -> list[dict]:
    """Every case with that many simulations, one line each on stderr while it goes."""
    found = []
    ours = [
        partial(case, rng=np.random.default_rng([seed, i]))
        for i, case in enumerate(coverage_cases.cases())
    ]
    studies = [partial(case, seed=seed) for case in coverage_studies.CASES]
    for case in (*ours, *studies):
        one = case(simulations)
        found.append(one)
        covered = "-" if one["coverage"] is None else f"{100 * one['coverage']:.1f} %"
        flag = "  flagged" if one["flagged"] else ""
        print(f"{one['case']:<48}{covered:>9}{flag}", file=sys.stderr)
    return found


def main() -> None:
    options = arguments(__doc__)
    simulations = 60 if options.quick else 1500
    world = population()
    regimes = {}
    for seed, (name, (n_id, n_ood)) in enumerate(REGIMES.items()):
        regimes[name] = measure(world, n_id, n_ood, simulations, seed)
        if not options.json:
            print(name, regimes[name], file=sys.stderr)
    cases = measured_cases(12 if options.quick else 600)
    failed = [
        one["case"]
        for one in cases
        if one["coverage"] is not None
        and not one["flagged"]
        and one["coverage"] + 2 * one["mc_error"] < LEAST
    ]
    result = {
        "coverage": float(np.mean([r["coverage"] for r in regimes.values()])),
        "false_discovery_rate": max(r["false_discovery_rate"] for r in regimes.values()),
        "stated_fdr": FDR,
        "simulations": simulations * len(regimes),
        "level": LEVEL,
        "answers": world.source,
        "regimes": regimes,
        "cases": cases,
        "failed": failed,
    }
    report(result, options.json)
    if failed and not options.quick:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
