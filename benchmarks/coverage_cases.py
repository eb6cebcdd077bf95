"""Cases of ``benchmarks.coverage``: worlds whose truth is known, analysed as any testbed is.

Images are infinitely many. Model i is right on image n if √c·Dₙ + √(1−c)·Eᵢₙ < probit(pᵢ), with an
image's difficulty Dₙ shared by all models, so pᵢ is its true accuracy and errors are correlated as
those of real models are (tetrachoric correlation c). True OOD accuracies lie at
expit(w·logit(x) + b + e); a case chooses how e is scattered, how models come in families, how many
models and images there are, and what is asked.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

from benchmarks.common import SHARED
from shiftbed.analysis.baseline import fit_baseline
from shiftbed.records import Bits, ImageResults, Shift
from shiftbed.testbed import Testbed, published

Floats = NDArray[np.float64]
Rng = np.random.Generator
SHIFT = Shift(name="shift", kind="natural-dataset", source=("id",), target="ood")
WEIGHT, INTERCEPT, OTHERS = 0.92, -0.49, 10
MANY = 10_000
"""Above so many images, accuracies that nobody asks answers of are drawn as normal."""


def normal(rng: Rng, x: Floats) -> Floats:
    return rng.standard_normal(len(x))


def student(nu: int) -> Callable[[Rng, Floats], Floats]:
    """t with ν degrees of freedom, standard deviation 1."""
    return lambda rng, x: rng.standard_t(nu, len(x)) / np.sqrt(nu / (nu - 2))


def skewed(rng: Rng, x: Floats) -> Floats:
    """A centred χ² with 3 degrees of freedom: skewness 1.6."""
    return (rng.chisquare(3, len(x)) - 3) / np.sqrt(6)


def uneven(rng: Rng, x: Floats) -> Floats:
    """A spread that grows sixfold along the line."""
    place = (logit(x) - logit(x).min()) / np.ptp(logit(x))
    spread = 1 + 5 * place
    return rng.standard_normal(len(x)) * spread / np.sqrt(np.mean(spread**2))


def curved(rng: Rng, x: Floats) -> Floats:
    """A bow of two standard deviations besides the scatter, whose line is not a line."""
    z = (logit(x) - logit(x).mean()) / logit(x).std()
    return rng.standard_normal(len(x)) + 2 * (z**2 - 1) / np.sqrt(2)


@dataclass(frozen=True, kw_only=True)
class World:
    """What a simulated testbed is drawn from."""

    models: int = 40
    families: int | None = None
    """Families of the fitted models, of sizes 1, 2, 3, 4, 1, …; None: every model by itself."""
    shared: float = 0.6
    """Share of the scatter's variance that a family has in common."""
    spread: float = 0.06
    """Standard deviation of the scatter, on the logit scale."""
    draw: Callable[[Rng, Floats], Floats] = normal
    low: float = 0.55
    high: float = 0.88
    n_id: int = 10_000
    n_ood: int = 10_000
    per_image: bool = True
    """Whether the analysis sees answers per image, or accuracies only."""
    own_images: bool = False
    """Whether the other models answered images of their own."""
    unlike: bool = False
    """Whether the other models' errors are independent of the fitted models'."""
    correlation: float = 0.85
    offset: float = 0.0
    """How far the other models are from the line, on the logit scale, in spreads."""
    other_spread: float = 0.0
    """Standard deviation of the other models about that, in spreads."""
    null: bool = False
    """Whether the other models are baseline models too."""


def true_line(x: Floats) -> Floats:
    return np.asarray(expit(WEIGHT * logit(x) + INTERCEPT))


def family_sizes(models: int, families: int) -> list[int]:
    """Unequal sizes, in the proportions 1 : 2 : 3 : 4, that add up to the models."""
    weights = np.array([1 + i % 4 for i in range(families)], dtype=float)
    sizes = np.maximum(1, np.floor(weights / weights.sum() * models)).astype(int)
    for i in range(models - sizes.sum()):
        sizes[-1 - i % families] += 1
    return [int(s) for s in sizes]


def answers(p: Floats, n: int, correlation: float, rng: Rng, alone: slice | None = None) -> Any:
    """(M, n): who is right where; rows ``alone`` meet difficulties of their own."""
    shared = rng.standard_normal(n, dtype=np.float32)
    own = rng.standard_normal((len(p), n), dtype=np.float32)
    hard = np.broadcast_to(shared, own.shape)
    if alone is not None:
        hard = hard.copy()
        hard[alone] = rng.standard_normal(hard[alone].shape, dtype=np.float32)
    latent = np.sqrt(correlation, dtype=np.float32) * hard
    latent = latent + np.sqrt(1 - correlation, dtype=np.float32) * own
    return latent < ndtri(p)[:, None].astype(np.float32)


def simulate(world: World, rng: Rng) -> tuple[Testbed, Floats]:
    """A testbed drawn from that world, and the true ρ of its models, fitted ones first."""
    m = world.models
    sizes = [1] * m if world.families is None else family_sizes(m, world.families)
    family = np.repeat(np.arange(len(sizes)), sizes)
    centre = rng.uniform(logit(world.low), logit(world.high), len(sizes))
    within = 0.25 * (logit(world.high) - logit(world.low)) if world.families else 0.0
    x = expit(np.clip(centre[family] + rng.uniform(-1, 1, m) * within, -6, 6))
    x = np.clip(x, world.low, world.high)
    e = world.draw(rng, x)
    if world.families is not None:
        together = rng.standard_normal(len(sizes))[family]
        e = np.sqrt(world.shared) * together + np.sqrt(1 - world.shared) * e
    other_x = expit(rng.uniform(logit(world.low), logit(world.high), OTHERS))
    if world.null:
        other_e = world.draw(rng, other_x)
    else:
        other_e = world.offset + world.other_spread * rng.standard_normal(OTHERS)
    points = np.concatenate([x, other_x])
    true_y = expit(logit(true_line(points)) + world.spread * np.concatenate([e, other_e]))
    alone = slice(m, None) if world.own_images or world.unlike else None
    sides = {"id": (points, world.n_id), "ood": (true_y, world.n_ood)}
    results, columns = {}, []
    known = np.ones(m + OTHERS, dtype=bool)
    known[m:] = not world.own_images
    for setting, (p, n) in sides.items():
        if n > MANY and not world.per_image and alone is None:
            columns.append(noisy(p, n, rng))
            continue
        right = answers(p, n, world.correlation, rng, alone)
        results[setting] = ImageResults(images=setting, bits=Bits.of(right), known=known)
        columns.append(right.mean(axis=1))
    names = [f"m{i}" for i in range(m + OTHERS)]
    models = pl.DataFrame(
        {
            "model": names,
            "kind": ["standard"] * m + ["other"] * OTHERS,
            "in_fit_set": [True] * m + [False] * OTHERS,
            "parent": pl.Series([None] * (m + OTHERS), dtype=pl.String),
        }
    )
    if world.families is not None:
        labels = [f"family {i}" for i in family] + [f"other {i}" for i in range(OTHERS)]
        models = models.with_columns(pl.Series("family", labels))
    testbed = Testbed(
        name="simulated",
        models=models,
        settings=("id", "ood"),
        value=np.column_stack(columns),
        n=np.tile([world.n_id, world.n_ood], (m + OTHERS, 1)),
        shifts=(SHIFT,),
        results=results if world.per_image else {},
    )
    return testbed, true_y - true_line(points)


@dataclass
class Tally:
    """What a case found, simulation by simulation."""

    case: str
    stated: float = 0.95
    covered: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    flags: list[float] = field(default_factory=list)
    """Share of what was reported with a caveat that applies here."""

    def add(self, covered: Any, width: Any, flagged: Any) -> None:
        self.covered.append(float(np.mean(covered)))
        self.widths.append(float(np.nanmean(width)) if np.isfinite(width).any() else np.nan)
        self.flags.append(float(np.mean(flagged)))

    def record(self) -> dict[str, Any]:
        n = len(self.covered)
        widths = np.array(self.widths)
        return {
            "case": self.case,
            "coverage": float(np.mean(self.covered)),
            "mc_error": float(np.std(self.covered) / np.sqrt(n)),
            "width": float(np.nanmean(widths)) if np.isfinite(widths).any() else None,
            "stated": self.stated,
            "simulations": n,
            "flagged": bool(np.mean(self.flags) >= 0.9),
        }


def flagged(table: pl.DataFrame) -> NDArray[np.bool_]:
    """Rows that come with a caveat about the statistics, or whose line is not trusted."""
    said = np.zeros(len(table), dtype=bool)
    if "trusted" in table.columns:
        said |= ~table["trusted"].to_numpy().astype(bool)
    if "flags" in table.columns:
        said |= table["flags"].list.len().to_numpy() > 0
    return said


def inside(table: pl.DataFrame, truth: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Whether each interval holds the truth (one that is withheld does), and its width."""
    low, high = (table[c].to_numpy().astype(float) for c in ("low", "high"))
    withheld = ~(np.isfinite(low) & np.isfinite(high))
    with np.errstate(invalid="ignore"):
        return withheld | ((low <= truth) & (truth <= high)), 100 * (high - low)


def robustness(case: str, world: World, which: str = "all") -> Callable[..., Any]:
    """Coverage of ρ's interval, over all models, the fitted ones or the others."""

    def run(simulations: int, rng: Rng) -> dict[str, Any]:
        tally = Tally(case)
        rows = {"all": slice(None), "fitted": slice(world.models), "others": slice(-OTHERS, None)}
        for _ in range(simulations):
            testbed, truth = simulate(world, rng)
            table = judged(testbed, world)
            covered, width = inside(table, truth)
            at = rows[which]
            tally.add(covered[at], width[at], flagged(table)[at])
        return tally.record()

    return run


def judged(testbed: Testbed, world: World) -> pl.DataFrame:
    """ρ of all models, saying which of them were measured on images of their own."""
    others = testbed.model_names[-OTHERS:] if world.own_images else []
    return testbed.effective_robustness("shift", own_images=others)


def no_false_call(case: str, world: World) -> Callable[..., Any]:
    """How often no model at all is called out of line where every one is a baseline model."""

    def run(simulations: int, rng: Rng) -> dict[str, Any]:
        tally = Tally(case)
        for _ in range(simulations):
            testbed, _ = simulate(replace(world, null=True), rng)
            table = testbed.effective_robustness("shift")
            trusted = ~flagged(table)
            tally.add(not table["out_of_line"].any(), np.nan, not trusted.any())
        return tally.record()

    return run


def ordinary_p(case: str, world: World) -> Callable[..., Any]:
    """How often p ≥ 0.05 for a model that is like the baseline models but not among them."""

    def run(simulations: int, rng: Rng) -> dict[str, Any]:
        tally = Tally(case)
        for _ in range(simulations):
            testbed, _ = simulate(replace(world, null=True), rng)
            table = judged(testbed, world).tail(OTHERS)
            tally.add(table["p_value"].to_numpy() >= 0.05, np.nan, flagged(table))
        return tally.record()

    return run


def comparison(case: str, world: World) -> Callable[..., Any]:
    """Coverage of ρ(A) − ρ(B) for two models outside the fit."""

    def run(simulations: int, rng: Rng) -> dict[str, Any]:
        tally = Tally(case)
        for _ in range(simulations):
            testbed, truth = simulate(world, rng)
            baseline = testbed.fit("shift", bootstrap=0)
            for a, b in ((-1, -2), (-3, -4), (-5, -6)):
                names = testbed.model_names[a], testbed.model_names[b]
                found = testbed.difference(baseline, *names)
                wanted = truth[a] - truth[b]
                held = not np.isfinite(found.low) or found.low <= wanted <= found.high
                tally.add(held, 100 * (found.high - found.low), bool(getattr(found, "flags", ())))
        return tally.record()

    return run


def group_mean(case: str, world: World) -> Callable[..., Any]:
    """Coverage of the mean ρ of the models outside the fit, as a group.

    The truth is the mean over all models of their kind, of which the ten are a sample.
    """
    from shiftbed.results.groups import group_table

    many = np.random.default_rng(0)
    x = expit(many.uniform(logit(world.low), logit(world.high), 200_000))
    e = world.offset + world.other_spread * many.standard_normal(len(x))
    wanted = float((expit(logit(true_line(x)) + world.spread * e) - true_line(x)).mean())

    def run(simulations: int, rng: Rng) -> dict[str, Any]:
        tally = Tally(case)
        for _ in range(simulations):
            testbed, _ = simulate(world, rng)
            table = group_table(testbed, ["shift"], by="kind").filter(pl.col("group") == "other")
            row = table.row(0, named=True)
            held = row["low"] is None or row["low"] <= wanted <= row["high"]
            width = np.nan if row["low"] is None else 100 * (row["high"] - row["low"])
            tally.add(held, width, bool(row.get("flags")))
        return tally.record()

    return run


def band(case: str, world: World, kind: str | None = None) -> Callable[..., Any]:
    """Coverage of the line's band at the middle and both ends of the fitted models.

    The band says which other line other models would have had. What images do to the line, they do
    to all models alike; ρ has that in its own interval, so here accuracies are exact.
    """

    def run(simulations: int, rng: Rng) -> dict[str, Any]:
        tally = Tally(case)
        at = expit(np.quantile([logit(world.low), logit(world.high)], [0.1, 0.5, 0.9]))
        for _ in range(simulations):
            testbed, _ = simulate(world, rng)
            baseline = testbed.fit("shift", bootstrap=1000)
            low, high = baseline.band(at) if kind is None else baseline.band(at, kind=kind)  # type: ignore[arg-type]
            truth = true_line(at)
            tally.add((low <= truth) & (truth <= high), 100 * (high - low), False)
        return tally.record()

    return run


def real_families(case: str, shift: str) -> Callable[..., Any]:
    """ρ on a published shift whose models' residuals are drawn again family by family.

    The fitted models, their ID accuracies and families are the published ones. Each family takes
    the mean residual of a family drawn at random, and each model the deviation from its family's
    mean of a model drawn at random, so families keep what their members have in common. Ten models
    outside the fit have their published ρ. Image noise is drawn with the correlations of real
    models' errors.
    """

    def run(simulations: int, rng: Rng) -> dict[str, Any]:
        bed = published("imagenet-testbed-2020")
        baseline = bed.fit(shift, bootstrap=0, knee=None, on_boundary="drop")
        line = baseline.lines[0]
        rows = np.array([bed.model_index(name) for name in baseline.models])
        if "family" not in bed.models.columns:
            return {"case": case, "coverage": None, "flagged": False, "simulations": 0}
        family = np.array(bed.models["family"].to_list(), dtype=object)[rows]
        names, member = np.unique(family.astype(str), return_inverse=True)
        mean = np.array([line.residuals[member == g].mean() for g in range(len(names))])
        several = np.array([(member == g).sum() > 1 for g in range(len(names))])[member]
        size = np.bincount(member)[member]
        own = (line.residuals - mean[member]) * np.sqrt(size / np.maximum(size - 1, 1))
        own = own[several]
        x_all = bed.value[:, bed.setting_index(baseline.id_settings[0])]
        y_all = bed.value[:, bed.setting_index(baseline.ood_setting)]
        outside = np.flatnonzero(np.isfinite(x_all) & np.isfinite(y_all))
        outside = np.setdiff1d(outside, rows)
        outside = outside[(y_all[outside] > 0.01) & (x_all[outside] < 0.999)]
        tally = Tally(case)
        sizes = [bed.usual_size(s) for s in (baseline.id_settings[0], baseline.ood_setting)]
        for _ in range(simulations):
            chosen = rng.choice(outside, min(OTHERS, len(outside)), replace=False)
            effect = (mean - mean.mean())[rng.integers(0, len(names), len(names))]
            # A family of one carries both parts in its mean already.
            deviation = np.where(several, rng.choice(own, len(rows)), 0.0)
            fitted = line.design @ line.coefficients
            y = expit(fitted + effect[member] + deviation)
            everyone = np.concatenate([rows, chosen])
            true_x = x_all[everyone]
            true_y = np.concatenate([y, y_all[chosen]])
            truth = true_y - baseline.predict(true_x)
            seen = np.column_stack(
                [noisy(p, n, rng) for p, n in zip((true_x, true_y), sizes, strict=True)]
            )
            about = bed.models[everyone.tolist()].with_columns(
                pl.Series("in_fit_set", [True] * len(rows) + [False] * len(chosen))
            )
            testbed = Testbed(
                name="drawn again",
                models=about,
                settings=("id", "ood"),
                value=seen,
                n=np.tile(sizes, (len(everyone), 1)),
                shifts=(SHIFT,),
            )
            table = testbed.effective_robustness("shift", knee=None)
            covered, width = inside(table, truth)
            tally.add(covered, width, flagged(table))
        return tally.record()

    return run


def noisy(p: Floats, n: int, rng: Rng, correlation: float = 0.7) -> Floats:
    """Accuracies on n images with errors of models correlated alike; normal, as n is large."""
    if not n:
        return p
    shared = rng.standard_normal()
    own = rng.standard_normal(len(p))
    z = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own
    return np.asarray(np.clip(p + np.sqrt(p * (1 - p) / n) * z, 1e-4, 1 - 1e-4))


def other_answers(case: str, file: str, n: int) -> Callable[..., Any]:
    """The modelled interval on real answers that its parameters were not estimated on.

    ``file`` has the answers of many models on two test sets; images are resampled, and the models'
    accuracies on all images are the truth. The analysis sees accuracies only.
    """

    def run(simulations: int, rng: Rng) -> dict[str, Any]:
        path = SHARED / "predictions" / file
        if not path.exists():
            return {"case": case, "coverage": None, "flagged": False, "simulations": 0}
        data = np.load(path, allow_pickle=False)
        right = [data[part] == data[f"labels_{part}"] for part in ("original", "v6")]
        true = [r.mean(axis=1) for r in right]
        line = fit_baseline(true[0], true[1], bootstrap=0)
        truth = true[1] - line.predict(true[0])
        m = len(truth)
        models = pl.DataFrame(
            {
                "model": [f"m{i}" for i in range(m)],
                "kind": ["standard"] * m,
                "in_fit_set": [True] * m,
                "parent": pl.Series([None] * m, dtype=pl.String),
            }
        )
        tally = Tally(case)
        for _ in range(simulations):
            some = [rng.integers(0, r.shape[1], n) for r in right]
            value = np.column_stack(
                [r[:, s].mean(axis=1) for r, s in zip(right, some, strict=True)]
            )
            testbed = Testbed(
                name="drawn again",
                models=models,
                settings=("id", "ood"),
                value=value,
                n=np.full((m, 2), n),
                shifts=(SHIFT,),
            )
            table = testbed.effective_robustness("shift")
            covered, width = inside(table, truth)
            tally.add(covered, width, flagged(table))
        return tally.record()

    return run


FAMILIES = World(models=60, families=15, n_id=50_000, per_image=False)
IMAGE_FREE = World(models=78, n_id=50_000, n_ood=10_000, per_image=False)


def cases() -> Iterable[Callable[..., Any]]:
    """Every case; each is called with a number of simulations and a random generator."""
    for m in (6, 10, 20, 78):
        yield robustness(f"paired, {m} baseline models", World(models=m, n_id=5_000, n_ood=2_000))
    yield robustness("modelled, 40 models", World(per_image=False))
    yield robustness("modelled, 12 models", World(models=12, per_image=False))
    few = World(n_id=1_000, n_ood=1_000)
    yield robustness("paired, 1,000 images", few)
    yield robustness("modelled, 1,000 images", replace(few, per_image=False))
    yield robustness("own images", replace(few, own_images=True), "others")
    yield ordinary_p("own images, p ≥ 0.05", replace(few, own_images=True))
    yield robustness("errors unlike the fit set's, paired", replace(few, unlike=True), "others")
    for families in (6, 10, 15, 30):
        world = replace(FAMILIES, families=families)
        yield robustness(f"{families} families of 60 models, others", world, "others")
    yield robustness("15 families of 60 models, members", FAMILIES, "fitted")
    yield no_false_call("no false call, 15 families", FAMILIES)
    for shift in ("imagenet-v2", "objectnet", "imagenet-sketch", "imagenet-r", "imagenet-vid",
                  "ytbb", "greyscale"):  # fmt: skip
        yield real_families(f"real families, {shift}", shift)
    scatters = {"normal": normal, "t₃": student(3), "t₈": student(8), "skewed": skewed,
                "uneven": uneven, "curved": curved}  # fmt: skip
    for name, draw in scatters.items():
        world = replace(IMAGE_FREE, draw=draw)
        yield no_false_call(f"no false call, {name} scatter", world)
        yield robustness(f"{name} scatter", world)
    small = World(low=0.985, high=0.996, n_id=2_000, n_ood=2_000)
    yield robustness("ID at 98.5–99.6 %, 2,000 images, paired", small)
    yield robustness("ID at 98.5–99.6 %, 2,000 images, accuracies", replace(small, per_image=False))
    yield robustness("300 images a side", World(n_id=300, n_ood=300))
    for n in (500, 1_109, 10_000):
        yield comparison(f"compare, {n:,} ID images", World(n_id=n, n_ood=2_000))
    yield comparison("compare, accuracies, 1,109 ID images", World(n_id=1_109, per_image=False))
    yield comparison("compare, 15 families", FAMILIES)
    yield group_mean(
        "mean ρ of a group, paired", World(n_id=2_000, n_ood=2_000, offset=1.0, other_spread=0.7)
    )
    yield group_mean(
        "mean ρ of a group, 15 families", replace(FAMILIES, offset=1.0, other_spread=0.7)
    )
    yield group_mean(
        "mean ρ of a group, 10 models", World(models=10, per_image=False, other_spread=0.7)
    )
    for m in (6, 10, 20, 78):
        yield band(
            f"band of the line, {m} models",
            World(models=m, n_id=10**9, n_ood=10**9, per_image=False),
        )
    yield other_answers("CIFAR-10 answers, modelled, 2,000 images",
                        "cifar10_predictions_30models.npz", 2_000)  # fmt: skip
