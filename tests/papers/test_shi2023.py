"""shi2023: the Average rows follow from their columns; nothing else can be had."""

from collections import Counter

from shiftbed.papers import reproduce

CELLS = reproduce("shi2023").cells


def test_every_average_row_follows_from_its_columns() -> None:
    rows = [c for c in CELLS if c.row.endswith(": Average") and "±" not in c.column]
    assert len(rows) == 6 + 2 * 6 + 8 * 4
    assert {c.status for c in rows} == {"follows from print"}
    assert max(abs(c.difference or 0.0) for c in rows) <= 0.0101


def test_counts_are_sums_of_their_parts() -> None:
    counts = {c.row: c for c in CELLS if c.column in ("models", "examples")}
    assert counts["YFCC test set"].recomputed == 22550
    assert {c.status for c in counts.values()} == {"follows from print"}


def test_the_rest_says_why_not() -> None:
    count = Counter(c.status for c in CELLS)
    assert count == {"follows from print": 55, "not recomputable": 440}
    assert all(c.why for c in CELLS)
