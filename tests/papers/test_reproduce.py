"""What is shared by all papers: the printed figures, and when a figure counts as reproduced."""

import json
from dataclasses import asdict

import pytest

from shiftbed.errors import InputError
from shiftbed.papers import PAPERS, Printed, Recomputed, compare, printed, reproduce

STATUSES = {"equal", "follows from print", "differs"}
STATUSES |= {"not recomputable", "not legible", "not printed"}


def figure(text: str, decimals: int, note: str = "") -> Printed:
    return Printed(table="T", row="r", column="c", text=text, decimals=decimals, note=note)


@pytest.mark.parametrize(
    ("text", "decimals", "value", "status"),
    [
        ("0.9", 2, 0.9049, "equal"),
        ("0.9", 2, 0.905, "equal"),  # the tie itself may round either way
        ("0.9", 2, 0.9051, "differs"),
        ("0.9", 1, 0.9499, "equal"),
        ("-0.0", 2, -0.004, "equal"),
        ("78", 0, 78.0, "equal"),
        ("78", 0, 78.6, "differs"),
        ("1.0", 1, float("nan"), "not recomputable"),
        ("", 2, 1.0, "not legible"),
        ("", 2, float("nan"), "not recomputable"),
    ],
)
def test_status_follows_the_rounding_of_the_print(
    text: str, decimals: int, value: float, status: str
) -> None:
    assert compare(figure(text, decimals), Recomputed(value=value)).status == status


def test_arithmetic_on_the_print_is_not_called_equal() -> None:
    found = Recomputed(value=3.0, follows=True)
    assert compare(figure("3", 0), found).status == "follows from print"
    assert compare(figure("4", 0), found).status == "differs"


def test_what_is_not_printed_is_compared_with_nothing() -> None:
    drawn = Printed(table="T", row="r", column="c", text="0.92", decimals=2, drawn=True)
    cell = compare(drawn, Recomputed(value=0.917))
    assert (cell.status, cell.printed, cell.recomputed) == ("not printed", None, 0.917)
    assert cell.why == "agrees with the reference 0.92"


def test_a_figure_nobody_recomputes_keeps_its_note() -> None:
    cell = compare(figure("3", 0, note="needs the model"), None)
    assert (cell.status, cell.recomputed, cell.why) == ("not recomputable", None, "needs the model")


def test_within_is_said_aloud_and_is_strict() -> None:
    close = compare(figure("77.04", 2), Recomputed(value=77.034), within=0.01)
    assert close.status == "equal"
    assert "within 0.01" in close.why
    assert compare(figure("77.04", 2), Recomputed(value=77.0301), within=0.01).status == "equal"
    assert compare(figure("77.04", 2), Recomputed(value=77.0299), within=0.01).status == "differs"


def test_the_reason_for_a_difference_shows_only_where_there_is_one() -> None:
    found = Recomputed(value=1.0, why="how", if_differs="another fit set")
    assert compare(figure("1.0", 1), found).why == "how"
    assert compare(figure("2.0", 1), found).why == "another fit set; how"


@pytest.mark.parametrize("paper", PAPERS)
def test_printed_figures_are_numbers_or_explained(paper: str) -> None:
    figures = printed(paper)
    assert len({one.key for one in figures}) == len(figures)
    for one in figures:
        if one.text:
            float(one.text)
        else:
            assert one.note, one.key


def test_tables_share_their_decimals_and_text_does_not() -> None:
    figures = {one.key: one for one in printed("taori2020")}
    assert figures["Table 1", "FixPNASNet", "ImageNet accuracy"].text == "83.7"
    assert figures["Table 1", "FixPNASNet", "ImageNet accuracy"].decimals == 2
    assert figures["Section 4.1 (text)", "resnet50", "ImageNet accuracy"].decimals == 0


@pytest.mark.parametrize("paper", PAPERS)
def test_cells_are_plain_and_explained(paper: str) -> None:
    cells = reproduce(paper).cells
    assert json.loads(json.dumps([asdict(cell) for cell in cells], allow_nan=False))
    for cell in cells:
        assert cell.status in STATUSES
        assert cell.why or cell.status in ("equal", "differs"), cell
        assert (cell.difference is None) == (cell.printed is None or cell.recomputed is None)
        if cell.status != "not printed":
            assert (cell.recomputed is None) == (cell.status == "not recomputable"), cell


def test_unknown_papers_and_needless_predictions_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'taori2020'"):
        reproduce("taori2021")
    with pytest.raises(InputError, match="takes no predictions"):
        reproduce("taori2020", predictions=["some.npz"])


def test_only_one_status_is_kept_and_all_are_counted() -> None:
    whole, some = reproduce("shi2023"), reproduce("shi2023", only="follows from print")
    assert {cell.status for cell in some.cells} == {"follows from print"}
    assert some.notes == whole.notes
    assert len(some.frame) == len(some.cells) < len(whole.frame)
    assert json.loads(some.to_json())["cells"][0]["status"] == "follows from print"
    with pytest.raises(InputError, match="unknown status"):
        reproduce("shi2023", only="same")
