"""What a backbone could do before: its accuracies in the shipped ``timm`` table as metrics."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shiftbed.analysis.pairs import PairTable
from shiftbed.errors import InputError, unknown
from shiftbed.testbed import Testbed, published

UPSTREAM = {
    "imagenet": "imagenet",
    "real": "imagenet_real",
    "v2": "imagenetv2_mf",
    "sketch": "imagenet_sketch",
    "a": "imagenet_a",
    "r": "imagenet_r",
}
"""Metric → setting of the timm testbed."""


def find_backbone(name: str, testbed: Testbed | None = None) -> int:
    """Row of a backbone in the timm table, by its full name with tag.

    ``vit_base_patch16_224.augreg_in21k_ft_in1k`` (``timm:`` in front and ``@SIZE-CROP`` behind will
    do). A bare name is taken only if one row has it; else it is refused with the candidates.

    >>> bed = published("timm")
    >>> bed.model_names[find_backbone("timm:resnet50.tv_in1k")]
    'resnet50.tv_in1k@224-0.875'
    """
    bed = testbed or published("timm")
    wanted = name.strip().removeprefix("timm:")
    columns = ("model", "name", "architecture")
    for column in columns:
        if column not in bed.models.columns:
            raise InputError(f"{bed.name} is not a table of backbones: it has no column {column!r}")
    for column in columns:
        rows = (bed.models[column] == wanted).arg_true().to_list()
        if len(rows) == 1:
            return int(rows[0])
        if rows:
            names = [bed.model_names[row] for row in rows]
            more = f" and {len(names) - 6} more" if len(names) > 6 else ""
            raise InputError(
                f"backbone {name!r} is ambiguous in {bed.name}; "
                f"say which: {', '.join(names[:6])}{more}"
            )
    raise unknown(f"backbone in {bed.name}", wanted, bed.models["name"].to_list())


def with_upstream(
    pairs: Sequence[PairTable], column: str | None = None, testbed: Testbed | None = None
) -> tuple[PairTable, ...]:
    """The pairs with ``upstream:imagenet``, ``:real``, ``:v2``, ``:sketch``, ``:a`` and ``:r``.

    ``column`` is the recipe column that holds the backbone's full name, None the models' own names;
    networks without one keep missing cells. Values are errors, 1 − accuracy, so that lower is
    better as everywhere (wenzel2022, Fig. S1: ImageNet columns).
    """
    bed = testbed or published("timm")
    errors = {f"upstream:{name}": 1.0 - bed.accuracy(of) for name, of in UPSTREAM.items()}
    rows: dict[str, int] = {}
    found = []
    for pair in pairs:
        names = pair.models if column is None else _backbones(pair, column)
        given = [None if n is None or n == "" else str(n) for n in names]
        for name in given:
            if name is not None and name not in rows:
                rows[name] = find_backbone(name, bed)
        at = [-1 if name is None else rows[name] for name in given]
        index = np.array(at, dtype=np.int64)
        added = {
            metric: np.where(index >= 0, values[index], np.nan)
            for metric, values in errors.items()
            if metric not in pair.metrics
        }
        found.append(
            replace(
                pair,
                metrics=(*pair.metrics, *added),
                values=np.column_stack([pair.values, *added.values()]),
            )
        )
    return tuple(found)


def _backbones(pair: PairTable, column: str) -> Sequence[str | float | None]:
    if column not in pair.info:
        raise unknown(f"recipe column of {pair.name}", column, pair.info)
    return pair.info[column]
