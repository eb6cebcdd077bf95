"""A model card's section: accuracies, ρ with intervals, label policies, caveats, citations.

Markdown for a model repository, and the same as a piece of HTML. Text from data is escaped in both.
"""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from shiftbed import __version__
from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.errors import InputError
from shiftbed.page.findings import findings
from shiftbed.testbed.record import Testbed

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A heading, column names and rows of text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a card says, before it is Markdown or HTML."""

    model: str
    opening: str
    tables: tuple[Table, ...]
    caveats: tuple[str, ...]
    citations: tuple[str, ...]


def card(
    testbed: Testbed,
    model: str,
    *,
    shifts: Sequence[str] | None = None,
    policies: Mapping[str, str] | None = None,
    level: float = 0.95,
    fdr: float = 0.05,
) -> Card:
    """The card of one model of a testbed; ``policies`` are label policies by setting."""
    row = testbed.model_index(model)
    name = testbed.model_names[row]
    found = findings(testbed, shifts, fdr=fdr)
    mine = found.robustness.filter(pl.col("model") == name)
    if not len(mine):
        raise InputError(f"{name!r} was evaluated on no shift of {testbed.name} that has a line")
    used = dict.fromkeys(
        s for n in mine["shift"] for s in (*testbed.shift(n).source, testbed.shift(n).target)
    )
    lines = {r["shift"]: r for r in found.lines.to_dicts()}
    return Card(
        model=name,
        opening=_opening(testbed, name, mine, fdr),
        tables=(
            _accuracies(testbed, row, list(used), policies or {}, level),
            _robustness(mine, lines, level),
        ),
        caveats=tuple(_caveats(mine, lines, found.not_computed)),
        citations=tuple(c for c in (testbed.citation, f"Computed by shiftbed {__version__}.") if c),
    )


def _opening(testbed: Testbed, name: str, mine: pl.DataFrame, fdr: float) -> str:
    out = mine.filter("out_of_line").sort("p_value")
    baseline = f"baseline models of {testbed.name}"
    if not len(out):
        return (
            f"On {len(mine)} distribution shifts, {name} is as accurate as its ordinary accuracy "
            f"predicts: it is not out of line among the {baseline} (false discovery rate {fdr:g})."
        )
    parts = [f"{r['shift']} ({100 * r['effective']:+.1f} points)" for r in out.head(5).to_dicts()]
    more = f" and {len(out) - 5} more" if len(out) > 5 else ""
    return (
        f"{name} is out of line among the {baseline} on {len(out)} of {len(mine)} distribution "
        f"shifts (false discovery rate {fdr:g}): {', '.join(parts)}{more}."
    )


def _accuracies(
    testbed: Testbed, row: int, settings: list[str], policies: Mapping[str, str], level: float
) -> Table:
    rows = []
    for setting in settings:
        value, n = float(testbed.accuracy(setting)[row]), int(testbed.size(setting)[row])
        if not np.isfinite(value):
            continue
        low, high = clopper_pearson(value, n, level) if n else (np.nan, np.nan)
        around = f"{100 * float(low):.2f} – {100 * float(high):.2f}" if n else "size unknown"
        policy = policies.get(setting, "as published" if testbed.source else "not recorded")
        rows.append((setting, f"{100 * value:.2f}", around, str(n) if n else "–", policy))
    columns = ("Setting", "Accuracy (%)", f"{100 * level:g} % interval", "n", "Label policy")
    return Table(title="Accuracy", columns=columns, rows=tuple(rows))


def _robustness(mine: pl.DataFrame, lines: dict[str, Any], level: float) -> Table:
    rows = []
    for r in mine.to_dicts():
        line = lines[r["shift"]]
        around = "–" if r["low"] is None else f"{100 * r['low']:+.2f} … {100 * r['high']:+.2f}"
        verdict = "out of line" if r["out_of_line"] else "on the line"
        trust = f"no: {line['reason']}" if line["reason"] else "yes"
        relative = "–" if r["relative"] is None else f"{100 * r['relative']:+.2f}"
        rows.append(
            (
                r["shift"],
                f"{100 * r['predicted']:.2f}",
                f"{100 * r['target']:.2f}",
                f"{100 * r['effective']:+.2f}",
                around,
                relative,
                f"{r['q_value']:.4f}" if r["q_value"] >= 1e-4 else "<0.0001",
                verdict,
                f"{trust} (n = {line['n']}, R² {line['r2']:.3f})",
            )
        )
    columns = (
        *("Shift", "Predicted (%)", "Accuracy (%)", "ρ (points)", f"{100 * level:g} % interval"),
        *("τ (points)", "q", "Verdict", "Line to be trusted"),
    )
    return Table(title="Effective robustness ρ", columns=columns, rows=tuple(rows))


def _caveats(
    mine: pl.DataFrame, lines: dict[str, Any], failed: Sequence[tuple[str, str]]
) -> list[str]:
    said = []
    if not mine["paired"].all():
        said.append(
            "Intervals of ρ are conservative: only accuracies are known, so images that models "
            "share count as independent."
        )
    weak = [name for name in mine["shift"] if lines[name]["reason"]]
    if weak:
        said.append(f"The line is not to be trusted on {', '.join(weak)}.")
    beyond = mine.filter("extrapolated")["shift"].to_list()
    if beyond:
        said.append(f"The line is extrapolated to this model on {', '.join(beyond)}.")
    if mine["fitted"].any():
        said.append("The model is itself one of those the lines go through.")
    said += [f"Not computed: {name} ({why})." for name, why in failed]
    return said


def to_markdown(card: Card) -> str:
    """A section of Markdown, tables in the common pipe form."""

    def cells(row: Sequence[str]) -> str:
        return "| " + " | ".join(_markdown(one) for one in row) + " |"

    parts = [f"## Robustness of {_markdown(card.model)}", "", _markdown(card.opening)]
    for table in card.tables:
        parts += ["", f"### {table.title}", "", cells(table.columns)]
        parts += ["|" + " --- |" * len(table.columns), *map(cells, table.rows)]
    if card.caveats:
        parts += ["", "### Caveats", "", *(f"- {_markdown(one)}" for one in card.caveats)]
    parts += ["", "### Sources", "", *(f"- {_markdown(one)}" for one in card.citations)]
    return "\n".join(parts) + "\n"


def to_html(card: Card) -> str:
    """A section element, without style or script."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    def listed(items: Sequence[str]) -> str:
        return "<ul>" + "".join(f"<li>{html.escape(one)}</li>" for one in items) + "</ul>"

    tables = "".join(
        f"<h3>{html.escape(t.title)}</h3>\n<table><thead>{row(t.columns, 'th')}</thead>\n"
        f"<tbody>{''.join(row(r, 'td') for r in t.rows)}</tbody></table>\n"
        for t in card.tables
    )
    caveats = f"<h3>Caveats</h3>{listed(card.caveats)}\n" if card.caveats else ""
    return (
        f"<section>\n<h2>Robustness of {html.escape(card.model)}</h2>\n"
        f"<p>{html.escape(card.opening)}</p>\n{tables}{caveats}"
        f"<h3>Sources</h3>{listed(card.citations)}\n</section>\n"
    )


def _markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
