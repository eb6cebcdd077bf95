"""Coverage of the intervals of studies: dependent units, R², few labels, peaks, plans.

    python -m benchmarks.coverage_studies [--quick] [--json]

Each case simulates data with a known truth, calls what a command calls, and counts how often the
interval holds the truth (for tests: how often a true null is not rejected at 5 %). ``flagged`` says
whether the tool says at that moment that the interval may be too narrow; the cases that take
dependent units as independent are such.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from benchmarks.common import SHARED, arguments, report
from shiftbed.analysis.dependence import clustered_pearson, task_mean
from shiftbed.analysis.effects import gap_of, matched_differences, signed_rank
from shiftbed.analysis.factors import factor_analysis
from shiftbed.analysis.few_labels import agreeing_share, guesses, labels_alone, prediction_powered
from shiftbed.analysis.label_free import shift_bias, widened
from shiftbed.analysis.pairs import NetworkTable, PairTable
from shiftbed.analysis.planning import QUESTIONS, Question, power_of
from shiftbed.analysis.predictors import fit_group, lead, predictor
from shiftbed.analysis.trajectory import held_out_peak
from shiftbed.results.plan import design, simulated_power

Case = dict[str, Any]
Ends = Iterator[tuple[float, float]]


def _case(name: str, ends: Ends, truth: float, *, flagged: bool = False) -> Case:
    """From one interval per simulation, minus the truth where that varies."""
    found = np.array(list(ends))
    inside = (found[:, 0] <= truth) & (truth <= found[:, 1])
    return _counted(name, inside, float(np.mean(found[:, 1] - found[:, 0])), flagged)


def _counted(name: str, inside: Any, width: float | None, flagged: bool) -> Case:
    share, n = float(np.mean(inside)), len(inside)
    return {
        "case": name,
        "coverage": share,
        "mc_error": float(np.sqrt(max(share * (1 - share), 1 / n) / n)),
        "width": width,
        "simulations": n,
        "flagged": flagged,
    }


def _pairs_mean(unit: str, shared: bool, simulations: int, seed: int) -> Ends:
    """Three tasks of 4 ID and 4 OOD sets, each set with an effect of its own."""
    rng = np.random.default_rng(seed)
    cells = [(i, j) for i in range(4) for j in range(4) if not (shared and i == j)]
    names = [f"d{i}" for i, _ in cells] * 3, [f"{'d' if shared else 'o'}{j}" for _, j in cells] * 3
    tasks = [str(t) for t in range(3) for _ in cells]
    given = {"units": names[0], "crossed": names[1]} if unit == "two-way" else {}
    for draw in range(simulations):
        values = []
        for _ in range(3):
            a, b = rng.normal(size=(2, 4))
            values += [a[i] + b[j] + 0.5 * rng.normal() for i, j in cells]
        found = task_mean(np.array(values)[:, None], tasks, bootstrap=500, seed=draw, **given)
        yield float(found.low[0]), float(found.high[0])


def case_predictiveness_two_way(simulations: int, seed: int) -> Case:
    ends = _pairs_mean("two-way", False, simulations, seed)
    return _case("predictiveness, two-way, ID and OOD sets apart", ends, 0.0)


def case_predictiveness_shared_sets(simulations: int, seed: int) -> Case:
    ends = _pairs_mean("two-way", True, simulations, seed)
    return _case("predictiveness, two-way, sets in both roles", ends, 0.0)


def case_predictiveness_by_pair(simulations: int, seed: int) -> Case:
    ends = _pairs_mean("pair", False, simulations, seed)
    return _case("predictiveness, pairs as if independent", ends, 0.0, flagged=True)


def _gap(unit: str, simulations: int, seed: int) -> Ends:
    """The normalised gap 1 − 0.5/0.8 of four sets in both roles, sets with effects."""
    rng = np.random.default_rng(seed)
    cells = [(i, j) for i in range(4) for j in range(4) if i != j]
    sources, targets = [f"d{i}" for i, _ in cells], [f"d{j}" for _, j in cells]
    given = {"units": sources, "crossed": targets} if unit == "two-way" else {}
    for draw in range(simulations):
        own, seen, met = rng.normal(scale=0.05, size=(3, 4))
        means = [(0.8 + own[i], 0.5 + seen[i] + met[j] + 0.03 * rng.normal()) for i, j in cells]
        found = gap_of(np.array(means), bootstrap=500, seed=draw, **given)
        yield found.low, found.high


def case_difficulty_two_way(simulations: int, seed: int) -> Case:
    ends = _gap("two-way", simulations, seed)
    return _case("difficulty, two-way, sets in both roles", ends, 1 - 0.5 / 0.8)


def case_difficulty_by_pair(simulations: int, seed: int) -> Case:
    ends = _gap("pair", simulations, seed)
    return _case("difficulty, pairs as if independent", ends, 1 - 0.5 / 0.8, flagged=True)


def _loading(unit: str, simulations: int, seed: int) -> Ends:
    """The first loading, 0.8, of four metrics of 25 models with five networks each."""
    rng = np.random.default_rng(seed)
    truth = np.array([0.8, 0.7, 0.6, 0.5])

    def shared(columns: int) -> Any:
        model, own = rng.normal(size=(25, 1, columns)), rng.normal(size=(25, 5, columns))
        return (np.sqrt(0.7) * model + np.sqrt(0.3) * own).reshape(125, columns)

    for _ in range(max(simulations // 3, 10)):  # the slowest of all
        table = NetworkTable(
            networks=tuple(f"n{i}" for i in range(125)),
            columns=tuple(f"id:m{j}" for j in range(4)),
            values=shared(1) * truth + shared(4) * np.sqrt(1 - truth**2),
            models=tuple(f"m{i // 5}" for i in range(125)),
            sources=tuple(f"s{i % 5}" for i in range(125)),
        )
        found = factor_analysis(table, factors=1, bootstrap=100, resample=unit, parallel_draws=1)
        yield float(found.low[0, 0]), float(found.high[0, 0])


def case_loadings_by_model(simulations: int, seed: int) -> Case:
    return _case("factor loadings, by model", _loading("model", simulations, seed), 0.8)


def case_loadings_by_network(simulations: int, seed: int) -> Case:
    ends = _loading("network", simulations, seed)
    return _case("factor loadings, networks as if independent", ends, 0.8, flagged=True)


def _null_effects(unit: str | None, simulations: int, seed: int) -> Iterator[bool]:
    rng = np.random.default_rng(seed)
    info = {"augmentation": ["none", "AugMix"]}
    metrics = ("id:error", "ood:error")
    for _ in range(simulations):
        pairs = []
        for task in range(9):
            shared = rng.normal(0, 0.02)
            for s in range(4):
                values = np.array([[0.2, 0.4], [0.2, 0.4 + shared + rng.normal(0, 0.01)]])
                named = {"task": f"t{task}", "source": f"s{s}", "target": "o"}
                pairs.append(
                    PairTable(**named, models=("a", "b"), metrics=metrics, values=values, info=info)
                )
        found = matched_differences(
            pairs, "ood:error", "augmentation", ["AugMix"], ["none"], unit=unit
        )
        yield signed_rank(found.differences).p_value > 0.05


def case_wilcoxon_by_task(simulations: int, seed: int) -> Case:
    kept = list(_null_effects(None, simulations, seed))
    return _counted("Wilcoxon by task, true null kept", kept, None, False)


def case_wilcoxon_by_id_set(simulations: int, seed: int) -> Case:
    kept = list(_null_effects("id-set", simulations, seed))
    return _counted("Wilcoxon by ID set as if independent, true null kept", kept, None, True)


def case_correlation_by_run(simulations: int, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    units = np.arange(12).repeat(8).astype(str)

    def ends() -> Ends:
        for _ in range(simulations):
            level = rng.normal(size=(2, 12, 1))
            x, y = (level + 0.3 * rng.normal(size=(2, 12, 8))).reshape(2, -1)
            yield clustered_pearson(x, y, units)[1:3]

    return _case("correlation over checkpoints, by run", ends(), 0.0)


def _mean_r2(truth: float, simulations: int, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    which = np.repeat(np.arange(3), 20)
    groups = [(str(g), which == g) for g in range(3)]

    said = []

    def ends() -> Ends:
        for draw in range(simulations):
            x, noise = rng.normal(size=(2, 60))
            y = np.sqrt(truth) * x + np.sqrt(1 - truth) * noise
            found = predictor(x, y, groups, bootstrap=400, seed=draw)
            said.append(found.small_groups)
            yield found.r2_low, found.r2_high

    case = _case(f"mean R² of 3 groups of 20 models, truth {truth:g}", ends(), truth)
    return case | {"flagged": all(said)}


def case_mean_r2_of_nothing(simulations: int, seed: int) -> Case:
    return _mean_r2(0.0, simulations, seed)


def case_mean_r2_of_little(simulations: int, seed: int) -> Case:
    return _mean_r2(0.09, simulations, seed)


def case_mean_r2_of_half(simulations: int, seed: int) -> Case:
    return _mean_r2(0.5, simulations, seed)


def case_best_of_equals(simulations: int, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    everyone = [("all", np.ones(40, dtype=bool))]
    kept = []
    for draw in range(simulations):
        y = rng.normal(size=40)
        x = 0.5 * y + rng.normal(size=(4, 40))
        order = np.argsort([-fit_group(one, y).r2 for one in x])
        found = lead(x[order[0]], x[order[1]], y, everyone, bootstrap=200, seed=draw)
        kept.append(found.p_value > 0.05)
    return _counted("best of four equal predictors, not called best", kept, None, False)


def case_bias_of_a_shift(simulations: int, seed: int) -> Case:
    """A shift off by N(0, 0.1) probits, of which four others tell."""
    rng = np.random.default_rng(seed)
    truth = ndtr(rng.normal(0.5, 0.3, 30))

    def ends() -> Ends:
        for _ in range(simulations):
            some = [ndtr(ndtri(truth) + one) for one in rng.normal(0, 0.1, 5)]
            bias = shift_bias(some[1:], [truth] * 4)
            yield widened(some[0][0], some[0][0], some[0][0], bias, 4)

    return _case("agreement-on-the-line with four labelled shifts", ends(), float(truth[0]))


def _labels(which: str, simulations: int, seed: int) -> Case:
    """300 labels of ImageNetV2 for one of 67 models at a time; simulated without the answers."""
    rng = np.random.default_rng(seed)
    folder = SHARED / "predictions"
    names = ("imagenet-validation-original", "imagenetv2-b-33")
    files = [folder / f"imagenetv2_67models_{name}.npz" for name in names]
    if all(file.exists() for file in files):
        arrays = [np.load(file, allow_pickle=False) for file in files]
        classes = [a["top1"] for a in arrays]
        right = [top == a["labels"] for top, a in zip(classes, arrays, strict=True)]
    else:
        hard = [rng.normal(0, 2, n) for n in (20_000, 10_000)]
        ability = rng.normal(1.5, 0.7, (20, 1))
        right = [ability - d > rng.logistic(size=(20, len(d))) for d in hard]
        classes = [np.where(r, 0, rng.integers(1, 50, r.shape)) for r in right]
    chosen = rng.integers(0, len(right[0]), 12)
    shares = {int(i): [agreeing_share(side, int(i)) for side in classes] for i in chosen}
    guessed = {i: guesses(right[0][i], s[:1], s[1:]) for i, s in shares.items()}

    def ends() -> Ends:
        for draw in range(simulations):
            i = int(chosen[draw % len(chosen)])
            order = rng.permutation(right[1].shape[1])
            some, rest = order[:300], order[300:]
            answers, f, truth = right[1][i], guessed[i], float(right[1][i].mean())
            found = (
                prediction_powered(answers[some], f[some], f[rest])
                if which == "PPI"
                else labels_alone(answers[some])
            )
            yield found.low - truth, found.high - truth

    words = {"PPI": "prediction-powered", "labels": "the labels alone"}
    return _case(f"OOD accuracy from 300 labels, {words[which]}", ends(), 0.0)


def case_few_labels(simulations: int, seed: int) -> Case:
    return _labels("PPI", simulations, seed)


def case_labels_alone(simulations: int, seed: int) -> Case:
    return _labels("labels", simulations, seed)


def _peak(across: str, simulations: int, seed: int) -> Ends:
    rng = np.random.default_rng(seed)
    for _ in range(simulations):
        rho = rng.normal(0, 0.01, (5 if across == "runs" else 2, 50))
        errors = None if across == "runs" else np.full(rho.shape, 0.01)
        found = held_out_peak(rho, across=across, errors=errors).peak
        yield found.low, found.high


def case_peak_over_runs(simulations: int, seed: int) -> Case:
    return _case("peak of a trajectory, 5 runs", _peak("runs", simulations, seed), 0.0)


def case_peak_over_images(simulations: int, seed: int) -> Case:
    ends = _peak("images", simulations, seed)
    return _case("peak of a trajectory, halves of the images", ends, 0.0)


def _plan(question: Question, simulations: int, seed: int, **changes: Any) -> Case:
    small = {"id_images": 3000, "ood_images": 2000, "models": 40}
    made = design(_published(), "imagenet-v2", **small)
    made = replace(made, **({"families": None, "correlation": 0.0} | changes))
    some = max(simulations // 3, 10)
    found = simulated_power(made, 0.02, simulations=some, seed=seed)[question]
    promised = power_of(made, 0.02, question)
    return {
        "case": f"plan, 1 − |promised {promised:.2f} − simulated {found:.2f}|, {question}"
        + (", families" if changes else ""),
        "coverage": 1.0 - abs(promised - found),
        "mc_error": float(np.sqrt(found * (1 - found) / some)),
        "width": None,
        "simulations": some,
        "flagged": False,
    }


def _published() -> Any:
    from shiftbed.testbed import published

    return published("imagenet-testbed-2020")


def case_plan_measured(simulations: int, seed: int) -> Case:
    return _plan(QUESTIONS[0], simulations, seed)


def case_plan_out_of_line(simulations: int, seed: int) -> Case:
    return _plan(QUESTIONS[1], simulations, seed)


def case_plan_with_families(simulations: int, seed: int) -> Case:
    return _plan(QUESTIONS[0], simulations, seed, families=20, correlation=0.3)


CASES: tuple[Callable[[int, int], Case], ...] = tuple(
    made for name, made in sorted(globals().items()) if name.startswith("case_")
)


def main() -> None:
    options = arguments(__doc__)
    simulations = 100 if options.quick else 1000
    report({"cases": [case(simulations, i) for i, case in enumerate(CASES)]}, options.json)


if __name__ == "__main__":
    main()
