"""Table 1 of fridovich2022, group by group; the lost Table 2 has recomputed values."""

from collections import Counter

import numpy as np
import pytest
from scipy.special import ndtri

from shiftbed.papers import Cell, reproduce
from shiftbed.results.predictors import groups_by
from shiftbed.testbed import published
from shiftbed.testbed.select import choose


@pytest.fixture(scope="module")
def cells() -> tuple[Cell, ...]:
    return reproduce("fridovich2022").cells


@pytest.mark.parametrize(
    ("group", "counts"),
    [
        ("Rewinding LT", {"equal": 112}),
        ("Initialization LT", {"equal": 106, "not legible": 6}),
        ("Traditional", {"equal": 14, "differs": 98}),
    ],
)
def test_table_1(cells: tuple[Cell, ...], group: str, counts: dict[str, int]) -> None:
    table = [c for c in cells if c.table == "Table 1" and c.column.startswith(group)]
    assert Counter(cell.status for cell in table) == counts


def test_what_is_known_of_the_traditional_column(cells: tuple[Cell, ...]) -> None:
    differing = [cell for cell in cells if cell.status == "differs"]
    assert {cell.column for cell in differing} == {"Traditional m", "Traditional R²"}
    assert all("VGG16_clean_FT_globally_0.95" in cell.why for cell in differing)


def test_lost_cells_still_have_a_recomputed_value(cells: tuple[Cell, ...]) -> None:
    lost = [cell for cell in cells if cell.status == "not legible"]
    assert Counter(cell.table for cell in lost) == {"Table 1": 6, "Table 2": 336}
    assert all(cell.recomputed is not None and "text copy lost" in cell.why for cell in lost)


def test_every_legible_rewinding_and_initialization_cell_is_equal(cells: tuple[Cell, ...]) -> None:
    some = [c for c in cells if c.table == "Table 1" and not c.column.startswith("Traditional")]
    legible = [cell for cell in some if cell.printed is not None]
    assert len(legible) == 218
    assert all(cell.status == "equal" for cell in legible)
    assert all("n = " in cell.why for cell in legible)


def test_tables_3_and_4_are_out_of_reach(cells: tuple[Cell, ...]) -> None:
    for table in ("Table 3", "Table 4"):
        rest = [cell for cell in cells if cell.table == table]
        assert len(rest) == 8 * 8 * 6
        assert {cell.status for cell in rest} == {"not recomputable"}
        assert all(cell.printed is not None and "models measured" in cell.why for cell in rest)
    last = next(c for c in cells if c.row == "ObjectNet: Amp - CD" and c.column == "All R²")
    assert last.printed == 0.97


def test_one_cell_against_plain_numpy(cells: tuple[Cell, ...]) -> None:
    testbed = published("robustnets-2022")
    rows = choose(testbed.models, "augmentation=augmix")
    assert rows.sum() == 149
    slopes, shares = [], []
    for _, group in groups_by(testbed, "architecture", rows):
        x = testbed.accuracy("jacobian_norm")[group]
        y = ndtri(testbed.accuracy("contrast")[group])
        slopes.append(np.polyfit(x, y, 1)[0])
        shares.append(np.corrcoef(x, y)[0, 1] ** 2)
    assert len(slopes) == 3
    found = {c.column: c.recomputed for c in cells if c.row == "Contrast: Jacobian"}
    assert found["AugMix m"] == pytest.approx(np.mean(slopes))
    assert found["AugMix R²"] == pytest.approx(np.mean(shares))
