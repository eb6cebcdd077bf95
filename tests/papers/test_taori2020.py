"""Tables 1 and 2 of taori2020 come out as printed; so does most of its text."""

import re
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbed.papers import Cell, reproduce
from shiftbed.papers.taori2020 import AVERAGE, correlation, percent, rho, tau, with_average_of_39
from shiftbed.testbed import published
from shiftbed.testbed.select import choose


@pytest.fixture(scope="module")
def cells() -> dict[tuple[str, str, str], Cell]:
    return {(cell.table, cell.row, cell.column): cell for cell in reproduce("taori2020").cells}


def test_every_legible_cell_of_table_1(cells: dict[tuple[str, str, str], Cell]) -> None:
    table = [cell for key, cell in cells.items() if key[0] == "Table 1"]
    assert Counter(cell.status for cell in table) == {
        "equal": 714,
        "not legible": 51,
        "not recomputable": 19,
    }
    assert len({cell.row for cell in table}) == 196
    assert all(abs(cell.difference) < 0.01 for cell in table if cell.difference is not None)
    beyond_rounding = [cell.row for cell in table if "within 0.01" in cell.why]
    assert beyond_rounding == ["dpn68b"]


def test_all_of_table_2(cells: dict[tuple[str, str, str], Cell]) -> None:
    table = [cell for key, cell in cells.items() if key[0] == "Table 2"]
    assert len(table) == 45 * 7
    assert all(cell.status == "equal" and not cell.why for cell in table)


def test_cut_off_digits_agree_as_far_as_they_go(
    cells: dict[tuple[str, str, str], Cell],
) -> None:
    cut = [cell for cell in cells.values() if "cuts off" in cell.why]
    assert len(cut) == 39
    for cell in cut:
        found = re.search(r"\(([\d.]+)\)$", cell.why)
        assert found is not None
        assert cell.recomputed is not None
        # 18.05 may stand for 18.0|45 or 18.0|55: try both sides of a tie
        either = {f"{cell.recomputed + nudge:.2f}" for nudge in (-1e-4, 0.0, 1e-4)}
        assert any(one.startswith(found[1]) for one in either), cell


def test_what_is_not_evaluated_is_not_recomputed(
    cells: dict[tuple[str, str, str], Cell],
) -> None:
    cell = cells["Table 1", "efficientnet-l2-noisystudent", "Avg. corr. accuracy"]
    assert cell.status == "not recomputable"
    assert "not evaluated" in cell.why


@pytest.mark.parametrize(
    ("section", "equal", "differs"),
    [
        ("Figure 1 / Section 2 (reference fit)", 1, 0),
        ("Section 1 (text)", 3, 0),
        ("Section 3.1.2 (text)", 1, 0),
        ("Section 3.2 (text)", 3, 0),
        ("Section 4.1 (text)", 18, 1),
        ("Section 4.2 (text)", 1, 1),
        ("Section 4.3 (text)", 2, 0),
        ("Section 5 (text)", 1, 0),
        ("Section 6 (text)", 5, 1),
        ("Appendix B.2 (text)", 5, 10),
        ("Appendix C (text)", 2, 6),
        ("Appendix K.1 (text)", 6, 2),
        ("Appendix K.2 (text)", 2, 4),
    ],
)
def test_text(
    cells: dict[tuple[str, str, str], Cell], section: str, equal: int, differs: int
) -> None:
    counts = Counter(cell.status for key, cell in cells.items() if key[0] == section)
    assert (counts["equal"], counts["differs"]) == (equal, differs)


def test_coefficients_that_the_paper_does_not_print_agree_with_a_reference(
    cells: dict[tuple[str, str, str], Cell],
) -> None:
    found = [cell for cell in cells.values() if cell.status == "not printed"]
    assert len(found) == 6
    assert all("agrees with the reference" in cell.why for cell in found)


def test_the_figures_everything_else_rests_on(
    cells: dict[tuple[str, str, str], Cell],
) -> None:
    def recomputed(*key: str) -> float | None:
        return cells[key[0], key[1], key[2]].recomputed

    fit = "Figure 1 / Section 2 (reference fit)"
    assert recomputed(fit, "ImageNetV2", "n") == 78
    assert recomputed(fit, "ImageNetV2", "slope") == pytest.approx(0.92170, abs=5e-6)
    assert recomputed(fit, "ImageNetV2", "intercept") == pytest.approx(-0.49467, abs=5e-6)
    largest = recomputed("Section 6 (text)", "largest of all models", "ρ, ImageNet-R")
    assert largest == pytest.approx(29.07, abs=0.01)


def test_a_wider_fit_set_gives_the_printed_rho_of_appendix_b2(
    cells: dict[tuple[str, str, str], Cell],
) -> None:
    column = "ρ, YTBB-Robust pm-0"
    eight = [c for key, c in cells.items() if key[0] == "Appendix B.2 (text)" and key[2] == column]
    assert len(eight) == 8
    for cell in eight:
        assert cell.printed is not None
        assert float(cell.why.split()[0]) == pytest.approx(cell.printed, abs=0.0501)


def test_the_tables_average_needs_stylized_imagenet() -> None:
    testbed = with_average_of_39(published("imagenet-testbed-2020"))
    resnet50 = testbed.model_index("resnet50")
    assert percent(testbed, AVERAGE)[resnet50] == pytest.approx(41.59, abs=0.005)
    assert percent(testbed, "avg_corruptions")[resnet50] == pytest.approx(42.14, abs=0.005)
    assert len(testbed.derived[AVERAGE]) == 39


def test_quantities_against_plain_numpy() -> None:
    testbed = published("imagenet-testbed-2020")

    def logit(p: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.log(p / (1 - p)))

    x = testbed.accuracy("val-on-objectnet-classes")
    y = testbed.accuracy("objectnet-1.0-beta")
    fitted = choose(testbed.models)
    line = np.polyfit(logit(x[fitted]), logit(y[fitted]), 1)
    expected = 100 * (y - 1 / (1 + np.exp(-np.polyval(line, logit(x)))))
    assert rho(testbed, "objectnet") == pytest.approx(expected, abs=1e-9, nan_ok=True)

    again = tau(testbed, "objectnet", "resnet50")
    assert again == pytest.approx(100 * (y - y[testbed.model_index("resnet50")]), nan_ok=True)

    a, b = rho(testbed, "pgd.linf.eps2"), rho(testbed, "objectnet")
    rows = ~choose(testbed.models, "kind=standard") & np.isfinite(a) & np.isfinite(b)
    r = np.corrcoef(a[rows], b[rows])[0, 1]
    assert correlation(testbed, a, b) == pytest.approx(r, abs=1e-12)
