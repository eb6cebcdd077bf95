"""Metrics added to pairs: held-out OOD, and what a backbone could do before (upstream)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shiftbed.analysis.pairs import PairTable, metric_name
from shiftbed.catalogue import tasks
from shiftbed.errors import InputError, unknown
from shiftbed.records import KINDS
from shiftbed.testbed import published

Floats = NDArray[np.float64]


def held_out(
    pairs: Sequence[PairTable], groups: Sequence[str] | None = None
) -> tuple[PairTable, ...]:
    """The pairs with each ``ood:`` metric's mean over the task's *other* OOD sets (Section 3).

    The other sets are the targets of the pairs of the same task and the same ID set (or the same
    of ``groups``, one per pair). Where a network lacks one of them the mean is missing; where there
    is none at all, the pair has no held-out metric. Held-out metrics already there are kept.

    >>> one = {"task": "t", "source": "a", "models": ("m",), "metrics": ("ood:error",)}
    >>> pairs = [PairTable(target=t, values=np.array([[v]]), **one)
    ...          for t, v in (("b", 0.1), ("c", 0.2), ("d", 0.4))]
    >>> round(float(held_out(pairs)[0].column("held-out:error")[0]), 3)
    0.3
    """
    family = [p.source for p in pairs] if groups is None else list(groups)
    found = []
    for i, pair in enumerate(pairs):
        others = [
            other
            for j, other in enumerate(pairs)
            if (other.task, family[j]) == (pair.task, family[i]) and other.target != pair.target
        ]
        others = list({other.target: other for other in others}.values())
        added: dict[str, Floats] = {}
        for name in pair.metrics:
            place, _, metric = name.partition(":")
            new = metric_name("held-out", metric)
            known = [other for other in others if name in other.metrics]
            if place == "ood" and new not in pair.metrics and known:
                mean = np.mean([_aligned(other, name, pair.models) for other in known], axis=0)
                if np.isfinite(mean).any():
                    added[new] = mean
        found.append(_with_columns(pair, added))
    return tuple(found)


def _aligned(pair: PairTable, metric: str, models: tuple[str, ...]) -> Floats:
    """A metric of another pair in the order of these models."""
    column = pair.column(metric)
    if pair.models == models:
        return column
    at = {name: i for i, name in enumerate(pair.models)}
    return np.array([column[at[name]] if name in at else np.nan for name in models])


def _with_columns(pair: PairTable, added: Mapping[str, Floats]) -> PairTable:
    if not added:
        return pair
    values = np.column_stack([pair.values, *added.values()])
    return replace(pair, metrics=(*pair.metrics, *added), values=values)


ATTACKS = ("mean", "apart", "both")


def attacks_as(pairs: Sequence[PairTable], how: str) -> tuple[PairTable, ...]:
    """The pairs with the mean error under attacks, with each attack's of its own, or with both.

    ``id:adversarial`` is a mean, ``id:adversarial@apgd-l2:0.02`` one attack: wenzel2022 reports the
    mean everywhere (Appendix G) but in its factor analysis (Appendix B).
    """
    if how not in ATTACKS:
        raise unknown("attacks", how, ATTACKS)
    return tuple(pair if how == "both" else _some_attacks(pair, how) for pair in pairs)


def _some_attacks(pair: PairTable, how: str) -> PairTable:
    places = {name.partition(":")[0] for name in pair.metrics if ":adversarial@" in name}
    means = {metric_name(place, "adversarial") for place in places}
    there = [
        i
        for i, name in enumerate(pair.metrics)
        if (":adversarial@" not in name if how == "mean" else name not in means)
    ]
    if len(there) == len(pair.metrics):
        return pair
    names = tuple(pair.metrics[i] for i in there)
    return replace(pair, metrics=names, values=pair.values[:, there])


def with_shift_types(pairs: Sequence[PairTable]) -> tuple[PairTable, ...]:
    """The pairs with their type of shift, ``artificial → real``, from the catalogue's domains.

    wenzel2022, Table S1 and Appendix A.4. A file's own ``kind`` is its type where it is no kind of
    shift that the package knows; a pair of other test sets has none.

    >>> one = {"models": (), "metrics": (), "values": np.empty((0, 0))}
    >>> pairs = [PairTable(task="pacs", source="pacs/sketch/held-out", target="photo", **one)]
    >>> with_shift_types(pairs)[0].shift_type
    'artificial → real'
    """
    found = []
    for pair in pairs:
        ends = [_domain_type(pair.task, name) for name in (pair.source, pair.target)]
        own = "" if pair.kind in KINDS else pair.kind
        found.append(replace(pair, shift_type=" → ".join(ends) if all(ends) else own))
    return tuple(found)


def _domain_type(task: str, name: str) -> str:
    """Of ``DOMAIN`` of a task, or ``TASK/DOMAIN`` or ``TASK/DOMAIN/PART``; "" if unknown."""
    for one in tasks():
        for known in filter(None, (one.name, one.paper)):
            head = name.removeprefix(f"{known}/")
            if head != name or task == known:
                for domain in one.domains:
                    if head == domain.name or head.startswith(f"{domain.name}/"):
                        return domain.type
    return ""


UPSTREAM = {
    "imagenet": "imagenet",
    "real": "imagenet_real",
    "v2": "imagenetv2_mf",
    "sketch": "imagenet_sketch",
    "a": "imagenet_a",
    "r": "imagenet_r",
}
"""Metric → setting of the timm testbed."""


def find_backbone(name: str) -> int:
    """Row of a backbone in the timm table, by its full name with tag.

    ``vit_base_patch16_224.augreg_in21k_ft_in1k`` (``timm:`` in front and ``@SIZE-CROP`` behind will
    do). Weights that the table has at several sizes are meant at their own, the smallest (timm's
    ``input_size``; the others are larger test sizes). A bare name is taken only if there are no
    other weights of that name; else it is refused with the candidates.

    >>> bed = published("timm")
    >>> bed.model_names[find_backbone("timm:resnet50d.ra2_in1k")]
    'resnet50d.ra2_in1k@224-0.875'
    """
    bed = published("timm")
    wanted = name.strip().removeprefix("timm:")
    for column in ("model", "name", "architecture"):
        rows = (bed.models[column] == wanted).arg_true().to_list()
        if len(set(bed.models["name"].gather(rows))) == 1:
            sizes = bed.models["img_size"].gather(rows)
            return int(rows[int(sizes.arg_min() or 0)])
        if rows:
            names = [bed.model_names[row] for row in rows]
            more = f" and {len(names) - 6} more" if len(names) > 6 else ""
            raise InputError(
                f"backbone {name!r} is ambiguous in {bed.name}; "
                f"say which: {', '.join(names[:6])}{more}"
            )
    raise unknown(f"backbone in {bed.name}", wanted, bed.models["name"].to_list())


def with_upstream(pairs: Sequence[PairTable], column: str | None = None) -> tuple[PairTable, ...]:
    """The pairs with ``upstream:imagenet``, ``:real``, ``:v2``, ``:sketch``, ``:a`` and ``:r``.

    ``column`` is the recipe column that holds the backbone's full name, None the models' own names;
    networks without one keep missing cells. Values are errors, 1 − accuracy, so that lower is
    better as everywhere (wenzel2022, Fig. S1: ImageNet columns).
    """
    bed = published("timm")
    errors = {f"upstream:{name}": 1.0 - bed.accuracy(of) for name, of in UPSTREAM.items()}
    rows: dict[str, int] = {}
    found = []
    for pair in pairs:
        names = pair.models if column is None else _backbones(pair, column)
        given = [None if n is None or n == "" else str(n) for n in names]
        for name in given:
            if name is not None and name not in rows:
                rows[name] = find_backbone(name)
        at = [-1 if name is None else rows[name] for name in given]
        index = np.array(at, dtype=np.int64)
        added = {
            metric: np.where(index >= 0, values[index], np.nan)
            for metric, values in errors.items()
            if metric not in pair.metrics
        }
        found.append(_with_columns(pair, added))
    return tuple(found)


def _backbones(pair: PairTable, column: str) -> Sequence[str | float | None]:
    if column not in pair.info:
        raise unknown(f"recipe column of {pair.name}", column, pair.info)
    return pair.info[column]
