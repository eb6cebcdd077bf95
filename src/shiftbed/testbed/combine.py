"""Several testbeds as one, joined on what their test sets are."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shiftbed.catalogue import Identity
from shiftbed.errors import InputError
from shiftbed.records import Bits, ImageResults, Shift
from shiftbed.testbed import PUBLISHED
from shiftbed.testbed.families import families
from shiftbed.testbed.naming import (
    identity_of,
    meeting_points,
    not_recognised,
    sizes_by_name,
    title_of,
)
from shiftbed.testbed.record import Testbed

Floats = NDArray[np.float64]
SHARED = 3
"""Test sets that both must have been evaluated on."""
WITHIN = 0.002
"""Root mean square of the differences in accuracy that evaluating again makes at most."""
NAMED = 5
"""Settings without a match that are named; of more only the number is told."""


def combine(testbeds: Sequence[Testbed]) -> Testbed:
    """All models of the testbeds in all their settings; what is one test set is one setting.

    Settings are joined on what they are (``shiftbed.catalogue.canonical``): ``val``,
    ``ImageNet 1k`` and ``imagenet`` become the first testbed's ``val``. Settings that measure
    something else (recall per class, a worst group) are never joined. The first testbed says what
    the lines are: models of the others are judged by them and stay outside the fit set, unless no
    shift is shared. Models of published testbeds keep their kind; others become ``own``. The column
    ``testbed`` says where a model comes from, ``same_as`` which earlier model it is. Numbers of
    images known by name are filled in; what disagrees or was left out is in ``notes``.

    >>> from shiftbed.testbed import published
    >>> both = combine([published("imagenet-testbed-2020"), published("openclip")])
    >>> both.shift("imagenet-v2").source, int(np.isfinite(both.accuracy("ImageNet v2")).sum())
    (('val',), 322)
    """
    if not testbeds:
        raise InputError("no testbed to combine")
    if len(testbeds) == 1:
        return testbeds[0]
    first = testbeds[0]
    known = [bed.test_sets for bed in testbeds]
    names = _joined(testbeds, known)
    renamed = [_renamed(bed, new) for bed, new in zip(testbeds, names, strict=True)]
    settings = list(dict.fromkeys(s for bed in renamed for s in bed.settings))
    taken: set[str] = set()
    frames, values, sizes = [], [], []
    for bed, original, test_sets in zip(renamed, testbeds, known, strict=True):
        frame = _named_apart(bed, taken)
        taken |= set(frame["model"].to_list())
        if original is not first and any(_shares(one, bed) for one in renamed[0].shifts):
            frame = frame.with_columns(pl.lit(False).alias("in_fit_set"))
            if bed.name not in PUBLISHED:
                frame = frame.with_columns(pl.lit("own").alias("kind"))
        frames.append(frame.with_columns(pl.lit(bed.name).alias("testbed"), families(frame)))
        value = np.full((len(frame), len(settings)), np.nan)
        n = np.zeros(value.shape, dtype=np.int64)
        at = [settings.index(s) for s in bed.settings]
        value[:, at], n[:, at] = bed.value, sizes_by_name(original, test_sets)
        values.append(value)
        sizes.append(n)
    models = pl.concat(_same_types(frames), how="diagonal")
    whole = Testbed(
        name=" + ".join(bed.name for bed in testbeds),
        title=f"{len(models):,} models: {', '.join(bed.name for bed in testbeds)}",
        models=models.with_columns(_same_as(testbeds, frames, values, settings)),
        settings=tuple(settings),
        value=np.vstack(values),
        n=np.vstack(sizes),
        derived={k: v for bed in renamed for k, v in bed.derived.items()},
        metrics={k: v for bed in renamed for k, v in bed.metrics.items()},
        records={k: v for bed in reversed(renamed) for k, v in bed.records.items()},
        results=_results(renamed),
        line=first.line,
        source="; ".join(bed.source for bed in testbeds if bed.source),
        licence="; ".join(dict.fromkeys(bed.licence for bed in testbeds if bed.licence)),
        citation=" ".join(dict.fromkeys(bed.citation for bed in testbeds if bed.citation)),
    )
    shifts, left_out = _shifts(renamed, whole)
    notes = [note for bed in testbeds for note in bed.notes]
    notes += [*_matched(renamed), *_size_notes(renamed, settings, whole)]
    for bed in testbeds[1:]:
        own = {setting: bed.usual_size(setting) for setting in bed.settings}
        notes += [f"{bed.name}: {why}" for why in not_recognised(own)]
    notes += _left_out(left_out, first)
    return replace(whole, shifts=shifts, notes=tuple(notes))


def _joined(
    testbeds: Sequence[Testbed], known: Sequence[Mapping[str, Identity]]
) -> list[dict[str, str]]:
    """For each testbed, what its settings are called in the whole."""
    names: dict[tuple[str, str], str] = {}
    result: list[dict[str, str]] = []
    for bed, test_sets in zip(testbeds, known, strict=True):
        own: dict[str, str] = {}
        for setting in bed.settings:
            key = identity_of(bed, setting, test_sets)
            name = names.get(key)
            if name is None or name in own.values():
                free = setting not in names.values() and setting not in own.values()
                name = setting if free else f"{setting} ({bed.name})"
            names.setdefault(key, name)
            own[setting] = name
        if not result:
            names = {key: own[setting] for key, setting in meeting_points(bed).items()} | names
        result.append(own)
    return result


def _renamed(bed: Testbed, names: Mapping[str, str]) -> Testbed:
    """The testbed with its settings called otherwise."""
    return replace(
        bed,
        settings=tuple(names[s] for s in bed.settings),
        derived={names[k]: tuple(names[p] for p in v) for k, v in bed.derived.items()},
        metrics={names.get(k, k): v for k, v in bed.metrics.items()},
        records={names.get(k, k): v for k, v in bed.records.items()},
        results={names[k]: v for k, v in bed.results.items()},
        shifts=tuple(
            replace(
                shift,
                source=tuple(names[s] for s in shift.source),
                target=names[shift.target],
                full_source=names[shift.full_source] if shift.full_source else None,
            )
            for shift in bed.shifts
        ),
    )


def _results(renamed: Sequence[Testbed]) -> dict[str, ImageResults]:
    """Per-image results by setting, over the models of all: of those on the same images.

    Where testbeds have other images of one setting, the first one's count; the other models keep
    their accuracies.
    """
    starts = np.cumsum([0, *(len(bed.models) for bed in renamed)])
    found: dict[str, ImageResults] = {}
    for bed, start in zip(renamed, starts[:-1], strict=True):
        for setting, own in bed.results.items():
            if setting not in found:
                bits = Bits.nothing(starts[-1], own.bits.columns)
                known = np.zeros(starts[-1], dtype=bool)
                found[setting] = replace(own, bits=bits, known=known)
            whole = found[setting]
            if whole.images == own.images:
                rows = slice(start, start + len(bed.models))
                whole.bits.packed[rows], whole.known[rows] = own.bits.packed, own.known
    return found


def _shares(shift: Shift, bed: Testbed) -> bool:
    """Whether a shift can be judged in a testbed, on its ID setting or on the whole of it."""
    there = set(bed.settings)
    return shift.target in there and (
        set(shift.source) <= there or (shift.full_source is not None and shift.full_source in there)
    )


def _named_apart(bed: Testbed, taken: set[str]) -> pl.DataFrame:
    """The models, those whose name is taken with the testbed's name behind theirs."""

    def apart(name: str | None) -> str | None:
        return f"{name} ({bed.name})" if name in taken else name

    again = {name: apart(name) for name in bed.model_names}
    if len(set(again.values())) < len(again):
        raise InputError(f"two models of {bed.name} have the same name")
    parents = [again.get(p, p) for p in bed.models["parent"].to_list()]
    return bed.models.with_columns(
        pl.Series("model", list(again.values()), dtype=pl.String),
        pl.Series("parent", parents, dtype=pl.String),
    )


def _same_types(frames: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Columns of one name that differ in type become text."""
    types: dict[str, set[pl.DataType]] = {}
    for frame in frames:
        for name, kind in frame.schema.items():
            types.setdefault(name, set()).add(kind)
    mixed = [name for name, kinds in types.items() if len(kinds) > 1]
    return [
        frame.with_columns(pl.col(name).cast(pl.String) for name in mixed if name in frame.columns)
        for frame in frames
    ]


def _shifts(
    renamed: Sequence[Testbed], whole: Testbed
) -> tuple[tuple[Shift, ...], list[tuple[Shift, str]]]:
    """The shifts of all, each once, and those that no baseline model has both accuracies for.

    One from the whole ID set to where the first testbed has a class twin is a shift of its own.
    """
    found = {shift.name: shift for shift in renamed[0].shifts}
    baseline = whole.models["in_fit_set"].fill_null(False).to_numpy()
    left_out = []
    for bed in renamed[1:]:
        for shift in bed.shifts:
            pairs = {(one.source, one.target) for one in found.values()}
            if (shift.source, shift.target) in pairs:
                continue
            twin = found.get(shift.name)
            if twin is not None and shift.source == (twin.full_source,):
                title = f"{twin.title}, from the whole of {title_of(whole, shift.source[0])}"
                name = f"{shift.name} (whole ID set)"
                shift = replace(twin.on_full_source(), name=name, title=title)
            elif twin is not None:
                shift = replace(shift, name=f"{shift.name} ({bed.name})")
            columns = [whole.settings.index(s) for s in (*shift.source, shift.target)]
            both = np.isfinite(whole.value[:, columns]).all(axis=1) & baseline
            if both.sum() > len(columns):
                found[shift.name] = shift
            else:
                left_out.append((shift, bed.name))
    return tuple(found.values()), left_out


def _same_as(
    testbeds: Sequence[Testbed],
    frames: Sequence[pl.DataFrame],
    values: Sequence[NDArray[np.float64]],
    settings: Sequence[str],
) -> pl.Series:
    """For each model the earlier one that it is: by name, or among published testbeds by answers.

    Values of derived settings and of other metrics say nothing that their parts do not.
    """
    skip = {s for bed in testbeds for s in (*bed.derived, *bed.metrics)}
    plain = [i for i, setting in enumerate(settings) if setting not in skip]
    found: list[str | None] = []
    for at, (bed, frame) in enumerate(zip(testbeds, frames, strict=True)):
        names = frame["model"].to_list()
        before = {name for earlier in frames[:at] for name in earlier["model"]}
        same = [
            old if old != new and old in before else None
            for old, new in zip(bed.model_names, names, strict=True)
        ]
        for earlier, other, value in zip(testbeds[:at], frames[:at], values[:at], strict=True):
            if bed.name in PUBLISHED and earlier.name in PUBLISHED:
                rows = same_models(
                    value[:, plain],
                    other["family"].to_list(),
                    values[at][:, plain],
                    frame["family"].to_list(),
                )
                there = other["model"].to_list()
                same = [
                    one if one is not None or row is None else there[row]
                    for one, row in zip(same, rows, strict=True)
                ]
        found += same
    return pl.Series("same_as", found, dtype=pl.String)


def _matched(renamed: Sequence[Testbed]) -> Iterator[str]:
    """How many settings of each testbed the first one has as well, and which are left where few."""
    there = set(renamed[0].settings)
    for bed in renamed[1:]:
        left = [s for s in bed.settings if s not in there]
        named = f" ({', '.join(left)})" if 0 < len(left) <= NAMED else ""
        yield (
            f"{bed.name}: {len(bed.settings) - len(left)} of its {len(bed.settings)} settings are "
            f"also in {renamed[0].name}, {len(left)} not{named}"
        )


def _size_notes(
    renamed: Sequence[Testbed], settings: Sequence[str], whole: Testbed
) -> Iterator[str]:
    """Test sets that the testbeds give different numbers of images for."""
    for setting in settings:
        sizes = {b.name: b.usual_size(setting) for b in renamed if setting in b.settings}
        known = {name: n for name, n in sizes.items() if n}
        if len(set(known.values())) > 1:
            each = ", ".join(f"{n:,} in {name}" for name, n in known.items())
            yield f"{title_of(whole, setting)}: numbers of images disagree ({each})"


def _left_out(shifts: Sequence[tuple[Shift, str]], first: Testbed) -> Iterator[str]:
    for shift, name in shifts:
        yield (
            f"{shift.name} of {name} is left out: no baseline models of {first.name} were "
            "evaluated on it"
        )


def same_models(
    value: Floats, families: Sequence[str | None], other: Floats, others: Sequence[str | None]
) -> list[int | None]:
    """For each of the other models the one that it is, judged by what both answer.

    ``value`` (M, S) and ``other`` (N, S) are accuracies on the same test sets. Two models are the
    same if they are of one architecture family and their accuracies on at least three shared test
    sets differ by at most 0.2 points (root mean square): the same weights, evaluated by other
    people. The nearest one counts.

    >>> here, there = np.array([[0.7613, 0.632, 0.241]]), np.array([[0.7615, 0.632, 0.2405]])
    >>> same_models(here, ["ResNet"], there, ["ResNet"]), same_models(here, ["A"], there, ["B"])
    ([0], [None])
    """
    found: list[int | None] = []
    architecture = np.array([_architecture(one) for one in families])
    for row, family in zip(other, others, strict=True):
        rows = np.flatnonzero((architecture == _architecture(family)) & (family is not None))
        gap = value[rows] - row
        shared = np.isfinite(gap).sum(axis=1)
        near = np.sqrt(np.nansum(gap**2, axis=1) / np.maximum(shared, 1))
        near[shared < SHARED] = np.inf
        best = int(near.argmin()) if len(near) else -1
        found.append(int(rows[best]) if best >= 0 and near[best] <= WITHIN else None)
    return found


def _architecture(family: str | None) -> str:
    """A family without its training source."""
    return "" if family is None else family.partition(" (")[0]
