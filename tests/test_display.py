"""A result as text, where something other than a terminal shows it."""

import io

import pytest
import rich.console

import shiftbed as sb
from shiftbed.display import Table


def test_a_result_is_text_in_a_notebook_too(monkeypatch):
    """rich shows instead of writing when it finds Jupyter around it."""
    planned = sb.plan(0.05)
    said = str(planned)
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a kernel has it
    assert "\x1b" not in said
    assert said
    assert str(planned) == repr(planned) == said


def printed(result: sb.Result, width: int) -> str:
    text = io.StringIO()
    result.print(rich.console.Console(file=text, width=width, color_system=None))
    return text.getvalue()


@pytest.mark.parametrize("width", [80, 100])
def test_on_a_narrow_terminal_no_word_is_broken(width):
    """Every word that is printed is one of the wide table, whole or shortened in the middle."""
    found = sb.rank("imagenet-testbed-2020", "imagenet-v2")
    wide = set(printed(found, 400).split())
    said = printed(found, width)
    assert max(map(len, said.splitlines())) <= width
    own = {*"kind: for all. shift: A wider terminal also shows:".split()}  # noqa: SIM905
    own |= {"kind,", "τ,", "τ.", "p.", "interval,", "%"}
    for word in set(said.split()) - wide - own:
        head, dots, tail = word.partition("…")
        assert dots or set(word) <= set("─"), word
        assert any(w.startswith(head) and w.endswith(tail) for w in wide), word
    assert "+2.09   +1.06\u00a0…\u00a0+3.12" in said


def test_the_verdict_comes_first_and_in_colour():
    placed = sb.place("imagenet-testbed-2020", {"val": 0.7613}, {"imagenet-v2": 0.7})
    text = io.StringIO()
    placed.print(rich.console.Console(file=text, width=100, force_terminal=True))
    first = text.getvalue().splitlines()[0]
    assert first.startswith("\x1b[1mimagenet-v2: ")
    assert "\x1b[1;32mmore robust than its accuracy predicts\x1b[0m" in first


def test_what_tells_rows_apart_is_not_dropped_on_a_narrow_terminal():
    """A group without a name is an empty cell, which made its column the first to go."""
    columns = ("shift", "group", "kind", "mean", "± std", "95 % of the mean", "n", "families")
    first = ("rendered", "", "fitted", "+1.00", "1.20", "-9.46 … +1.07", "24", "9")
    second = ("rendered", "mnist", "own", "+2.00", "1.30", "-8.46 … +1.08", "25", "10")
    third = ("rendered", "digits", "own", "+3.00", "1.40", "-7.46 … +1.08", "26", "11")
    table = Table(columns=columns, rows=(first, second, third), left=3).fitted(48)
    assert "group" in table.columns
    assert "kind" not in table.columns
    assert "95 % of the mean" in table.columns


def test_an_interval_is_not_broken_where_other_columns_could_be_wider():
    heads = ("ood", "training_data", "fitted", "ID", "mean ρ", "95 % of the mean", "MAE", "n", "of")
    rows = tuple(
        ("rendered", data, "no", "mnist + digits", mean, "-18.51 … +20.74", mean, n, n)
        for data, mean, n in (("mnist", "+39.76", "3"), ("mnist+digits", "+9.7", "10"))
    )
    last = ("other", "mnist", "yes", "mnist", "+1.00", "+1.00 … +20.74", "1.00", "24", "10")
    text = io.StringIO()
    table = Table(columns=heads, rows=(*rows, last), left=4)
    table.print(rich.console.Console(file=text, width=92, color_system=None))
    assert text.getvalue().count("-18.51\u00a0…\u00a0+20.74") == 2


def test_a_star_stays_with_its_number():
    columns = ("OOD", "metric", "R²", "R² interval", "n")
    rows = tuple(("a" * 40, "b" * 30, f"{i / 1000:.3f} *", "0.680 … 0.923", "28") for i in range(9))
    text = io.StringIO()
    for width in range(40, 90):
        console = rich.console.Console(file=text, width=width, color_system=None)
        Table(columns=columns, rows=rows, left=2).print(console)
    lines = [line.strip() for line in text.getvalue().splitlines()]
    assert sum("0.008\u00a0*" in line for line in lines) == 50
    assert "*" not in lines
