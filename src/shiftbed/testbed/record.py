"""A testbed: models × settings, the shifts between settings, and what each model is."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from shiftbed.analysis.baseline import Baseline, Estimator, OnBoundary, fit_baseline
from shiftbed.analysis.difference import Difference
from shiftbed.analysis.intervals import check_fractions, clopper_pearson
from shiftbed.analysis.robustness import Robustness
from shiftbed.analysis.stacks import AT_ONCE, alike
from shiftbed.analysis.trust import Trust, trust_alike, trust_baseline
from shiftbed.catalogue import Identity
from shiftbed.errors import InputError, unknown
from shiftbed.records import ImageResults, Setting, Shift
from shiftbed.scales import LOGIT, Scale
from shiftbed.testbed.families import FamilyChoice, Related, related, runs
from shiftbed.testbed.families import families as families_of
from shiftbed.testbed.judging import difference_of, judge, robustness_table
from shiftbed.testbed.labels import called
from shiftbed.testbed.naming import axis_title, find_setting, known_test_sets, title_of
from shiftbed.testbed.select import Choice, choose

Floats = NDArray[np.float64]
PUBLISHED_KNEE = "published"


@dataclass(frozen=True, kw_only=True, eq=False)
class Testbed:
    """Accuracies of models in settings, immutable.

    ``models`` has a row per model with at least the columns model, kind, in_fit_set and parent;
    ``value`` and ``n`` are (models, settings), NaN and 0 where not evaluated or unknown.
    """

    __test__ = False  # not a test case, whatever its name

    name: str
    models: pl.DataFrame
    settings: tuple[str, ...]
    value: Floats
    n: NDArray[np.int64]
    shifts: tuple[Shift, ...] = ()
    derived: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Settings that are means of others, such as ``avg_corruptions``."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """What is measured, for settings whose value is not plain top-1 accuracy."""
    records: Mapping[str, Setting] = field(default_factory=dict)
    """What a setting is, by its id, where more is known than its name."""
    results: Mapping[str, ImageResults] = field(default_factory=dict)
    """Per-image results, by setting, where they exist."""
    title: str = ""
    line: str = "line"
    """What its baseline is called: a testbed of zero-shot models has a zero-shot line."""
    source: str = ""
    licence: str = ""
    citation: str = ""
    notes: tuple[str, ...] = ()
    """How imported files were understood; what disagreed when testbeds were joined."""

    # --- looking things up -------------------------------------------------------------------

    @cached_property
    def model_names(self) -> list[str]:
        return self.models["model"].to_list()

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.model_names)}

    @cached_property
    def called(self) -> dict[str, str]:
        """What people call models and runs whose names are hashes (``testbed/labels.py``)."""
        return called(self.models)

    @cached_property
    def _columns_of(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.settings)}

    def model_index(self, model: str) -> int:
        """Row of that model; what tables call it will do, or the start of one name before '@'."""
        names = self.model_names
        if model in self._rows:
            return self._rows[model]
        given = [self._rows[k] for k, v in self.called.items() if v == model and k in self._rows]
        if given:
            return given[0]
        longer = [i for i, name in enumerate(names) if name.startswith(model + "@")]
        if len(longer) == 1:
            return longer[0]
        if longer:
            options = ", ".join(names[i] for i in longer[:4])
            raise InputError(f"model {model!r} is ambiguous in {self.name}: {options}")
        raise unknown(f"model in {self.name}", model, names)

    def setting_index(self, setting: str) -> int:
        """Column of that setting; another name of the same test set will do.

        So will what was done to it (``avg_pgd`` for ``val+avg_pgd``) where only one has that.
        """
        if setting not in self._columns_of:
            found = find_setting(self.settings, setting)
            at = _place_of(setting, self.settings) if found is None else self._columns_of[found]
            if at is None:
                raise unknown(f"setting in {self.name}", setting, self.settings)
            return at
        return self._columns_of[setting]

    @cached_property
    def test_sets(self) -> dict[str, Identity]:
        """Settings that the catalogue knows, whatever they are called."""
        return known_test_sets(self)

    def title_of(self, setting: str) -> str:
        """What to call a setting in tables and charts: ``ImageNetV2``."""
        return title_of(self, self.settings[self.setting_index(setting)])

    def axis_title(self, setting: str) -> str:
        """The same with what is measured: ``ImageNet, top-1 %``."""
        return axis_title(self, self.settings[self.setting_index(setting)])

    def accuracy(self, setting: str) -> Floats:
        """(models,) values in that setting, NaN where missing."""
        return self.value[:, self.setting_index(setting)]

    def size(self, setting: str) -> NDArray[np.int64]:
        """(models,) test-set sizes, 0 where unknown."""
        return self.n[:, self.setting_index(setting)]

    def usual_size(self, setting: str) -> int:
        """The test-set size most models have in that setting, 0 if unknown."""
        sizes = self.size(setting)
        sizes = sizes[np.isfinite(self.accuracy(setting)) & (sizes > 0)]
        values, counts = np.unique(sizes, return_counts=True)
        return int(values[counts.argmax()]) if len(sizes) else 0

    def shift(self, name: str | Shift) -> Shift:
        if isinstance(name, Shift):
            for setting in (*name.source, name.target):
                self.setting_index(setting)
            return name
        names = [one.name for one in self.shifts]
        at = _place_of(name, names)
        if at is None:
            raise unknown(f"shift in {self.name}", name, names)
        return self.shifts[at]

    def scores(self, level: float = 0.95) -> pl.DataFrame:
        """Long table: model, setting, metric, value, low, high, n (Clopper–Pearson intervals)."""
        rows, columns = np.nonzero(np.isfinite(self.value))
        value, n = self.value[rows, columns], self.n[rows, columns]
        accuracy = np.array([s not in self.metrics for s in self.settings])[columns]
        bounds = np.full((2, len(value)), np.nan)
        bounds[:, accuracy] = clopper_pearson(value[accuracy], n[accuracy], level)
        names, settings = np.array(self.model_names), np.array(self.settings)
        return pl.DataFrame(
            {
                "model": names[rows],
                "setting": settings[columns],
                "metric": [self.metrics.get(str(s), "accuracy") for s in settings[columns]],
                "value": value,
                "low": bounds[0],
                "high": bounds[1],
                "n": n,
            },
            nan_to_null=True,
        )

    def fit_set(self, shift: str | Shift, models: Choice = None) -> NDArray[np.bool_]:
        """(models,): the fit set of a shift, or the ``models`` chosen instead."""
        rows = self._own_fit_set if models is None else choose(self.models, models)
        narrower = self.shift(shift).fit_on
        if narrower and (models is None or (isinstance(models, str) and models == "fit-set")):
            rows = rows & choose(self.models, narrower)
        return rows

    @cached_property
    def _own_fit_set(self) -> NDArray[np.bool_]:
        return choose(self.models)

    # --- fitting -----------------------------------------------------------------------------

    def fit(
        self,
        shift: str | Shift,
        *,
        scale: str | Scale = LOGIT,
        models: Choice = None,
        threshold: float | None = None,
        full_source: bool = False,
        knee: float | str | None = PUBLISHED_KNEE,
        weighted: bool = False,
        families: FamilyChoice = "known",
        estimator: Estimator = "least-squares",
        on_boundary: OnBoundary = "raise",
        bootstrap: int = 1000,
        seed: int = 0,
    ) -> Baseline:
        """The baseline of a shift through the fit set, or through the ``models`` chosen.

        ``threshold`` keeps models whose (first) ID accuracy is at least that; ``full_source``
        uses the whole ID set as x; ``knee`` breaks the line in two there (default: where the
        published one breaks; ``"none"`` or None: nowhere); ``weighted`` weighs models by
        1/(Σ 1/n) over the test sets. ``families="none"`` counts models of a family as
        independent; ``estimator`` fits by huber or theil-sen instead of least squares.
        """
        shift = self.shift(shift)
        shift = shift.on_full_source() if full_source else shift
        if threshold is not None and not 0.0 <= threshold <= 1.0:
            raise InputError(f"threshold must be a fraction in [0, 1], got {threshold:g}")
        columns = np.array([self.setting_index(s) for s in (*shift.source, shift.target)])
        for column in columns:
            check_fractions(self.value[:, column], f"accuracy in {self.settings[column]!r}")
        rows = self.fit_set(shift, models)
        if threshold is not None:
            with np.errstate(invalid="ignore"):
                rows = rows & (self.value[:, columns[0]] >= threshold)
        chosen = np.flatnonzero(rows)
        if not len(chosen):
            raise InputError(f"no model of {self.name} is left to fit {shift.name!r}")
        sizes = self.n[np.ix_(chosen, columns)]
        weights = None
        if weighted:
            there = np.isfinite(self.value[np.ix_(chosen, columns)])
            if (there & (sizes <= 0)).any():
                raise InputError(f"weighting needs test-set sizes; {shift.name!r} lacks some")
            weights = 1.0 / (1.0 / np.where(there, sizes, 1)).sum(axis=1)
        names, (kin, flags) = self.model_names, self.related(chosen, families)
        found = fit_baseline(
            self.value[np.ix_(chosen, columns[:-1])],
            self.value[chosen, columns[-1]],
            models=[names[i] for i in chosen],
            shift=shift.name,
            id_settings=shift.source,
            ood_setting=shift.target,
            scale=scale,
            knee=shift.knee if knee == PUBLISHED_KNEE else _knee(knee),
            sizes=sizes,
            weights=weights,
            families=kin,
            estimator=estimator,
            on_boundary=on_boundary,
            bootstrap=bootstrap,
            seed=seed,
        )
        return replace(found, flags=(*found.flags, *flags)) if flags else found

    def effective_robustness(
        self,
        shifts: str | Shift | Iterable[str | Shift] | None = None,
        *,
        level: float = 0.95,
        fdr: float = 0.05,
        bootstrap: int = 0,
        full_source: bool = False,
        models: Choice = None,
        own_images: Sequence[str] = (),
        **options: Any,
    ) -> pl.DataFrame:
        """ρ of every model on one, several or (default) all shifts, as a table.

        Further options go to ``fit``; of all shifts, ``full_source`` concerns those with a class
        twin. ``q_value`` controls the false discovery rate over all rows of the table;
        ``out_of_line`` is q ≤ fdr. ``interval`` says what low and high come from, ``families`` how
        many families the fitted models are, ``flags`` what weakens the statistics of a row, and
        ``trusted`` whether the line should be used at all (``trust``). ``own_images`` names
        models measured on other images than the fitted ones.
        """
        if shifts is None:
            wanted = [
                s.on_full_source() if full_source and s.full_source else s for s in self.shifts
            ]
        else:
            named = [shifts] if isinstance(shifts, str | Shift) else shifts
            wanted = [self.shift(shift) for shift in named]
            wanted = [shift.on_full_source() for shift in wanted] if full_source else wanted
        if not wanted:
            raise InputError(f"testbed {self.name} has no shifts; name an ID and an OOD setting")
        fitted = [self.fit(s, models=models, bootstrap=bootstrap, **options) for s in wanted]
        return self.robustness(fitted, level=level, fdr=fdr, own_images=own_images)

    def robustness(
        self,
        baselines: Sequence[Baseline],
        *,
        level: float = 0.95,
        fdr: float = 0.05,
        own_images: Sequence[str] = (),
    ) -> pl.DataFrame:
        """The table of ``effective_robustness`` against baselines that are fitted already."""
        return robustness_table(self, baselines, level=level, fdr=fdr, own_images=own_images)

    def judge(
        self, baseline: Baseline, *, level: float = 0.95, own_images: Sequence[str] = ()
    ) -> Robustness:
        """ρ of every model of this testbed against a baseline, in the order of the models.

        ``own_images`` are models measured on other images than the fitted ones; so is a model
        with another number of images.
        """
        return judge(self, baseline, level=level, own_images=own_images)

    def difference(
        self,
        baseline: Baseline,
        a: str,
        b: str,
        *,
        level: float = 0.95,
        own_images: Sequence[str] = (),
    ) -> Difference:
        """ρ(a) − ρ(b) against a baseline."""
        return difference_of(self, baseline, a, b, level=level, own_images=own_images)

    def trust(self, baseline: Baseline) -> Trust:
        """Whether a line through models of this testbed should be trusted, and why not."""
        return trust_baseline(baseline, edge=self._on_edge(baseline))

    def trust_all(self, baselines: Sequence[Baseline]) -> list[Trust]:
        """``trust`` of each of these, computed together."""
        found: dict[int, Trust] = {}
        for at in alike(baselines, AT_ONCE // len(self.models)):
            some = [baselines[i] for i in at]
            found |= zip(at, trust_alike(some, [self._on_edge(b) for b in some]), strict=True)
        return [found[i] for i in range(len(baselines))]

    def _on_edge(self, baseline: Baseline) -> int:
        """Models left out of a fit that have accuracies, one of them exactly 0 or 1."""
        if not baseline.left_out:
            return 0
        settings = (*baseline.id_settings, baseline.ood_setting)
        columns = [self.setting_index(setting) for setting in settings]
        rows = [self._rows[name] for name in baseline.left_out if name in self._rows]
        values = self.value[np.ix_(rows, columns)]
        edge = np.asarray((values <= 0) | (values >= 1)).any(axis=1)
        return int((edge & np.isfinite(values).all(axis=1)).sum())

    def rows_of(self, models: Iterable[str | None]) -> NDArray[np.int64]:
        """The row of each of these models, −1 where it is not here."""
        rows = [-1 if name is None else self._rows.get(name, -1) for name in models]
        return np.array(rows, dtype=np.int64)

    @cached_property
    def parent_rows(self) -> NDArray[np.int64]:
        """For each model the row of its parent, −1 if it has none here."""
        return self.rows_of(self.models["parent"].to_list())

    @cached_property
    def kinds(self) -> NDArray[np.object_]:
        """The kind of each model, empty where it has none."""
        return np.array([kind or "" for kind in self.models["kind"].to_list()], dtype=object)

    @cached_property
    def _families_and_runs(self) -> tuple[list[str | None], list[str | None]]:
        return families_of(self.models).to_list(), runs(self.models).to_list()

    def related(self, rows: NDArray[np.int64], families: FamilyChoice = "known") -> Related:
        """Which of these models err alike, and what to know of it (``families.related``)."""
        return related(*self._families_and_runs, rows, families)

    # --- adding a model ----------------------------------------------------------------------

    def with_model(
        self,
        name: str,
        accuracy: Mapping[str, float],
        *,
        n: Mapping[str, int] | None = None,
        right: Mapping[str, ArrayLike] | None = None,
        kind: str = "own",
        parent: str | None = None,
    ) -> "Testbed":
        """This testbed with one more model, outside the fit set.

        ``n`` defaults to the size other models have; ``right`` gives per-image results on the
        same images, in order, which makes its intervals paired.
        """
        if name in self.model_names:
            raise InputError(f"{self.name} already has a model {name!r}")
        value, sizes = np.full(len(self.settings), np.nan), np.zeros(len(self.settings), np.int64)
        for setting, one in accuracy.items():
            at = self.setting_index(setting)
            value[at] = check_fractions([one], f"accuracy in {setting!r}")[0]
            sizes[at] = (n or {}).get(setting, 0) or self.usual_size(setting)
        results = {
            setting: _one_more(one, None if right is None else right.get(setting), setting)
            for setting, one in self.results.items()
        }
        row: dict[str, Any] = dict.fromkeys(self.models.columns)
        row |= {"model": name, "kind": kind, "in_fit_set": False, "parent": parent}
        added = pl.DataFrame([row], schema=self.models.schema)
        return replace(
            self,
            models=pl.concat([self.models, added]),
            value=np.vstack([self.value, value]),
            n=np.vstack([self.n, sizes]),
            results=results,
        )

    def where(self, predicate: Callable[[pl.DataFrame], pl.Series] | Choice) -> "Testbed":
        """This testbed with only some of its models (see ``choose``)."""
        rows = choose(self.models, predicate)
        results = {
            s: replace(one, bits=one.bits.take(rows), known=one.known[rows])
            for s, one in self.results.items()
        }
        return replace(
            self,
            models=self.models.filter(pl.Series(rows)),
            value=self.value[rows],
            n=self.n[rows],
            results=results,
        )


def _place_of(name: str, names: Sequence[str]) -> int | None:
    """Where a name is, or the only one that ends with it after a plus; None if nowhere."""
    if name in names:
        return names.index(name)
    longer = [i for i, one in enumerate(names) if one.endswith(f"+{name}")]
    return longer[0] if len(longer) == 1 else None


def _knee(knee: float | str | None) -> float | None:
    if knee is None or knee == "none":
        return None
    try:
        at = float(knee)
    except ValueError:
        at = float("nan")
    if not 0.0 < at < 1.0:
        raise InputError(f"knee must be published, none or an ID accuracy in (0, 1), got {knee!r}")
    return at


def _one_more(results: ImageResults, right: ArrayLike | None, setting: str) -> ImageResults:
    images = results.bits.columns
    row = np.zeros(images, dtype=bool) if right is None else np.asarray(right, dtype=bool)
    if row.shape != (images,):
        raise InputError(f"{setting!r} has {images} images, got results for {row.size}")
    bits = results.bits.more(1)
    bits.put(-1, row)
    return replace(results, bits=bits, known=np.append(results.known, right is not None))
