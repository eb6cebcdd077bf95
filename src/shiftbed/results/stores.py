"""Prediction stores: is one whole, what was cleaned up in it, class twins of its settings."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from shiftbed.analysis.intervals import check_level, clopper_pearson
from shiftbed.display import Result, Table, between, counted, percent, schema
from shiftbed.errors import InputError
from shiftbed.labels import LabelPolicy
from shiftbed.store import PredictionStore, Twin, common_classes, make_twin
from shiftbed.store.check import Verified, collect_garbage, scrub, verified
from shiftbed.store.check import seal as seal_store
from shiftbed.store.compact import compact
from shiftbed.testbed.stored import called_in

_TWIN = schema(
    "model setting: str; value at_least at_most low high: float; n undecided unreadable: int; "
    "computed_from label_policy note: str"
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StoreCheck(Result):
    """Every problem of a store: kind, where it is, what is wrong."""

    json_keys = "cells problems=frame unsealed sealed aside"
    store: str
    cells: int
    """How many (model, setting) cells the store has."""
    unsealed: int = 0
    """Records without checksums, as before there were any."""
    sealed: int = 0
    """Records that were given their checksums now."""
    aside: tuple[str, ...] = ()
    """Damaged files that were put aside, to be computed again."""

    @property
    def whole(self) -> bool:
        """Whether nothing is missing, duplicate or damaged."""
        return not len(self.frame)

    def answer(self) -> Iterator[str]:
        if self.whole:
            yield f"{self.store}: {self.cells} cells, nothing missing, duplicate or damaged."
        else:
            yield f"{self.store}: {counted(len(self.frame), 'problem')}"

    def tables(self) -> Iterator[Table]:
        if self.whole:
            yield Table(notes=tuple(self._said()))
        else:
            columns = {c: c for c in ("kind", "where", "what")}
            yield Table.of("", self.frame, columns, left=3, notes=tuple(self._said()))

    def _said(self) -> Iterator[str]:
        if self.sealed:
            yield f"{counted(self.sealed, 'record')} given checksums."
        if self.unsealed:
            yield (
                f"{counted(self.unsealed, 'record')} without checksums: damage there may go "
                "unseen; 'shiftbed store verify --seal' adds them."
            )
        if self.aside:
            yield (
                f"{counted(len(self.aside), 'damaged file')} moved to quarantine/; run the command "
                "that made them again."
            )


def verify_store(store: str | Path | PredictionStore, *, seal: bool = False) -> StoreCheck:
    """Missing, duplicate and damaged rows of a store (``shiftbed store verify``).

    ``seal`` adds checksums to records made before there were any, if nothing is wrong, and removes
    what killed writers left.
    """
    opened = PredictionStore.existing(store)
    found, sealed = verified(opened), 0
    if seal and all(one.kind == "leftover" for one in found.problems):
        sealed = seal_store(opened)
        left = [one for one in found.problems if opened.files.exists(one.where)]
        found = replace(found, problems=left, unsealed=0)
    return _checked(opened, found, sealed)


def scrub_store(store: str | Path | PredictionStore, *, rebuild: bool = False) -> StoreCheck:
    """Read everything again, and with ``rebuild`` put damaged files aside (``store scrub``).

    Their cells are open again, and the command that made them computes what is missing.
    """
    opened = PredictionStore.existing(store)
    return _checked(opened, scrub(opened, rebuild=rebuild))


def _checked(opened: PredictionStore, found: Verified, sealed: int = 0) -> StoreCheck:
    names = dict.fromkeys(("kind", "where", "what"), pl.String)
    return StoreCheck(
        frame=pl.DataFrame([asdict(one) for one in found.problems], schema=names),
        store=opened.files.root,
        cells=found.cells,
        unsealed=found.unsealed,
        sealed=sealed,
        aside=found.aside,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StoreCleaned(Result):
    """The files that were taken out of the store, a row each."""

    store: str
    dry_run: bool = False

    def tables(self) -> Iterator[Table]:
        files = counted(len(self.frame), "file")
        done = "would be moved" if self.dry_run else "moved"
        lines = [f"{self.store}: {files} {done} to quarantine/."]
        yield Table(notes=(*lines, *(self.frame["file"].to_list() if self.dry_run else ())))

    def to_dict(self) -> dict[str, Any]:
        return {"removed": self.frame["file"].to_list(), "dry_run": self.dry_run}


def clean_store(
    store: str | Path | PredictionStore, *, minimum_age: float = 60.0, dry_run: bool = False
) -> StoreCleaned:
    """Take leftovers, orphans and damaged parts out; a run computes them again (``store gc``).

    They go to the store's ``quarantine`` folder. What is younger than ``minimum_age`` minutes, or
    cannot be read, stays.
    """
    if not minimum_age >= 0:
        raise InputError(f"minimum_age must be 0 or more minutes, got {minimum_age:g}")
    opened = PredictionStore.existing(store)
    names = collect_garbage(opened, minimum_age=60.0 * minimum_age, dry_run=dry_run)
    removed = pl.DataFrame({"file": names}, schema={"file": pl.String})
    return StoreCleaned(frame=removed, store=opened.files.root, dry_run=dry_run)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StoreCompacted(Result):
    """The cells that could not be compacted, a row each; what was done to the others."""

    json_keys = "cells packed gathered files skipped=frame"
    store: str
    cells: int
    """Cells whose parts are one file now."""
    packed: int
    """Small cells that were put into files with others."""
    gathered: int
    """Records that were put into one file."""
    files: int
    """Files of the store afterwards."""

    def tables(self) -> Iterator[Table]:
        said = (
            f"{self.store}: {self.files:,} files. {counted(self.cells, 'cell')} put together, "
            f"{counted(self.packed, 'small cell')} packed, "
            f"{counted(self.gathered, 'record')} gathered."
        )
        yield Table(notes=(said, *(f"left as it is: {one}" for one in self.frame["cell"])))


def compact_store(store: str | Path | PredictionStore) -> StoreCompacted:
    """Put what is complete into few, large files; nothing changes but that (``store compact``)."""
    opened = PredictionStore.existing(store)
    done = compact(opened)
    folders = ("predictions", "packs", "cells", "test_sets", "probes")
    return StoreCompacted(
        frame=pl.DataFrame({"cell": list(done.skipped)}, schema={"cell": pl.String}),
        store=opened.files.root,
        cells=done.cells,
        packed=done.packed,
        gathered=done.gathered,
        files=sum(len(opened.files.below(folder)) for folder in folders),
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Twins(Result):
    """The twins of a setting under a label policy, a row per model."""

    setting: str
    policy: LabelPolicy
    level: float

    @property
    def decided(self) -> bool:
        """Whether every image of every model is decided by what is stored."""
        return not self.frame["value"].null_count()

    def tables(self) -> Iterator[Table]:
        yield Table.of(
            f"Twins of {self.setting}: {self.policy.describe()}",
            self.frame,
            {
                "model": "model",
                **({"setting": "setting"} if self.frame["setting"].n_unique() > 1 else {}),
                "accuracy": lambda r: (
                    percent(r["value"]) or between(r["at_least"], r["at_most"]).replace("…", "to")
                ),
                f"{100 * self.level:g} % interval": lambda r: between(r["low"], r["high"]),
                "n": lambda r: f"{r['n']:,}",
                "undecided": lambda r: f"{r['undecided']:,}",
                "from": "computed_from",
                "note": "note",
            },
        )

    def to_dict(self) -> dict[str, Any]:
        rows = list(self.frame.iter_rows(named=True))
        return {"setting": self.setting, "policy": self.policy.describe(), "twins": rows}


def twins(
    store: str | Path | PredictionStore,
    setting: str | Sequence[str],
    policy: LabelPolicy | None = None,
    *,
    name: str | None = None,
    models: Iterable[str] | None = None,
    level: float = 0.95,
) -> Twins:
    """Class twins of settings from stored predictions, written into the store; no model runs.

    Without a policy, of two or more settings: the classes that all of them have (shi2023).
    ``name``: what the twin is called, by default SETTING@CLASSES, or SETTING@common. Where images
    are undecided there is no ``value``: the accuracy lies between ``at_least`` (all of them wrong)
    and ``at_most`` (all of them right), and the Clopper–Pearson interval reaches from the lower end
    of the first to the upper end of the second.
    """
    check_level(level)
    opened = PredictionStore.existing(store)
    settings = [setting] if isinstance(setting, str) else list(setting)
    if name is not None and len(settings) != 1:
        raise InputError(f"one name for the twins of {len(settings)} settings: leave it out")
    wanted: Iterable[LabelPolicy] = [policy] * len(settings) if policy is not None else ()
    if policy is None:
        if len(settings) < 2:
            raise InputError("a twin needs a label policy, or several settings with common classes")
        wanted = common_classes([opened.test_set(one) for one in settings])
    chosen = None if models is None else list(models)
    made = [
        twin
        for one, own in zip(settings, wanted, strict=True)
        for twin in make_twin(
            opened, one, own, name=name or (None if policy else f"{one}@common"), models=chosen
        )
    ]
    rows = pl.DataFrame([_row(one, level) for one in made], schema=_TWIN, orient="row")
    first = next(iter(wanted))
    return Twins(
        frame=rows,
        setting=" and ".join(settings),
        policy=first,
        level=level,
        called=called_in(opened),
    )


def _row(twin: Twin, level: float) -> dict[str, Any]:
    row: dict[str, Any] = {name: vars(twin).get(name) for name in _TWIN}
    if not twin.written or not twin.n:
        return row | {"note": twin.note or "no example could be read"}
    least, most = twin.right / twin.n, (twin.right + twin.undecided) / twin.n
    low, high = clopper_pearson([least, most], twin.n, level)
    ends = {"at_least": least, "at_most": most, "low": float(low[0]), "high": float(high[1])}
    return row | ends | {"value": None if twin.undecided else least}
