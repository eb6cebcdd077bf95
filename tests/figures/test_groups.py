"""Groups and what they look like."""

import numpy as np
import polars as pl

from shiftbed.figures.groups import grouped
from shiftbed.figures.palette import MOST, OTHER, styles, trend_colours


def _models(kinds: list[str], column: list[str | None]) -> pl.DataFrame:
    return pl.DataFrame({"kind": kinds, "c": column})


def test_known_kinds_come_first_and_small_groups_become_other() -> None:
    values: list[str | None] = [name for i in range(9) for name in [f"g{i}"] * (20 - i)]
    group, groups = grouped(
        _models(["standard"] * len(values), values), "c", np.ones(len(values), dtype=bool)
    )
    assert groups == (*(f"g{i}" for i in range(MOST)), OTHER)
    assert group.count(OTHER) == 14 + 13 + 12
    kinds = ["more-data", "own", "unheard-of", "standard", "unheard-of"]
    _, order = grouped(_models(kinds, [None] * 5), "kind", np.ones(5, dtype=bool))
    assert order == ("standard", "more-data", "unheard-of", "own")


def test_own_models_are_own_and_missing_values_are_said() -> None:
    models = _models(["own", "standard", "standard"], [None, None, ""])
    group, _ = grouped(models, "c", np.ones(3, dtype=bool))
    assert group == ("own", "not given", "not given")


def test_no_two_groups_look_alike() -> None:
    names = ["standard", "a", "lp-adversarial", "b", "c", "d", OTHER, "own"]
    looks = styles(names)
    assert len({style.colour for style in looks.values()}) == len(names)
    assert len({style.marker for style in looks.values()}) == len(names)
    assert looks["standard"] == styles(["standard"])["standard"]


def test_lines_of_another_column_have_colours_of_their_own() -> None:
    colours = trend_colours(["a line", "b line"], ["standard"])
    assert len(set(colours.values())) == 2
