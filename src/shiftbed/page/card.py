"""A model card's section: accuracies, ρ with intervals, label policies, caveats, citations.

Markdown for a model repository, and the same as a piece of HTML. Text from data is escaped in both.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl

from shiftbed import __version__
from shiftbed.analysis.baseline import OnBoundary
from shiftbed.analysis.intervals import clopper_pearson
from shiftbed.atomic import write_atomically
from shiftbed.display import SAID, Cell, Result, Table, interval, p_value, percent, points, readable
from shiftbed.errors import InputError, plain
from shiftbed.figures.palette import LINE
from shiftbed.page.findings import findings
from shiftbed.results.caveats import badges, caveat_notes, doubts, in_words
from shiftbed.results.lines import interval_notes
from shiftbed.results.plot import open_source
from shiftbed.results.sources import Results, joined
from shiftbed.store import PredictionStore
from shiftbed.testbed.record import Testbed

_STYLE = "font:15px/1.5 system-ui,sans-serif;max-width:56rem"
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Card(Result):
    """What a card says; ``frame`` has the model's rows of ``Testbed.effective_robustness``."""

    json_keys = "model opening sentences rows=frame caveats citations"
    model: str
    opening: str
    sentences: tuple[str, ...]
    """What ``place`` says of the shifts that are furthest from ordinary."""
    accuracies: Table
    robustness: Table
    caveats: tuple[str, ...]
    citations: tuple[str, ...]
    output: Path | None = None
    """Where it was written."""

    def answer(self) -> Iterable[str]:
        return [self.opening, *self.sentences]

    def tables(self) -> Iterable[Table]:
        return [self.accuracies, self.robustness, Table(notes=self.caveats)]

    def to_svg(self) -> str:
        """ρ of every shift as a dot on its interval, with 0, the line, in the middle of them."""
        return forest(self.frame.to_dicts())

    def to_markdown(self, picture: str = "") -> str:
        """A section of Markdown, tables in the common pipe form; ``picture`` is a file to show."""

        def cells(row: Sequence[str]) -> str:
            return "| " + " | ".join(_markdown(one) for one in row) + " |"

        name, opening = (
            _markdown(readable(one, self.called)) for one in (self.model, self.opening)
        )
        parts = [f"## Robustness of {name}", "", opening, ""]
        parts += [f"- {_markdown(one)}" for one in self.sentences]
        parts += ["", f"![ρ by shift, with intervals]({quote(picture)})"] if picture else []
        for table in (self.accuracies, self.robustness):
            parts += ["", f"### {table.title}", "", cells(table.columns)]
            parts += ["|" + " --- |" * len(table.columns), *map(cells, table.rows)]
        if self.caveats:
            parts += ["", "### Caveats", "", *(f"- {_markdown(one)}" for one in self.caveats)]
        parts += ["", "### Sources", "", *(f"- {_markdown(one)}" for one in self.citations)]
        return "\n".join(parts) + "\n"

    def to_html(self) -> str:
        """A section element with its picture, without script or style sheet."""

        def listed(items: Sequence[str]) -> str:
            return "<ul>" + "".join(f"<li>{_escaped(one)}</li>" for one in items) + "</ul>"

        name, opening = (_escaped(readable(one, self.called)) for one in (self.model, self.opening))
        tables = "".join(
            f"<h3>{_escaped(t.title)}</h3>\n{replace(t, title='').html()}\n"
            for t in (self.accuracies, self.robustness)
        )
        caveats = f"<h3>Caveats</h3>{listed(self.caveats)}\n" if self.caveats else ""
        return (
            f'<section>\n<div style="{_STYLE}">\n<h2>Robustness of {name}</h2>\n'
            f"<p>{opening}</p>\n{listed(self.sentences)}\n{self.to_svg()}\n"
            f"{tables}{caveats}"
            f"<h3>Sources</h3>{listed(self.citations)}\n</div>\n</section>\n"
        )

    def _repr_html_(self) -> str:
        return self.to_html()


def forest(rows: Sequence[Mapping[str, Any]], wide: int = 640) -> str:
    """A forest plot as SVG: a row per shift, its interval, ρ in points; out of line is filled."""
    label, right, high = 0.36 * wide, 0.12 * wide, 24
    ends = [v for r in rows for v in (r["effective"], r["low"], r["high"]) if v is not None]
    low, top = min(0.0, *ends), max(0.0, *ends)
    scale = (wide - label - right - 16) / ((top - low) or 1.0)

    def at(value: float) -> str:
        return f"{label + 8 + scale * (value - low):.1f}"

    parts = [f'<line x1="{at(0)}" x2="{at(0)}" y1="4" y2="{high * len(rows) + 4}" stroke="#888"/>']
    for i, row in enumerate(rows):
        y, out = high * (i + 0.5) + 4, row["out_of_line"]
        colour = LINE if out else "#555555"
        parts.append(
            f'<text x="{label}" y="{y + 4:.0f}" text-anchor="end">{_escaped(row["shift"])}</text>'
        )
        if row["low"] is not None and row["high"] is not None:
            parts.append(
                f'<line x1="{at(row["low"])}" x2="{at(row["high"])}" y1="{y}" y2="{y}" '
                f'stroke="{colour}" stroke-width="2"/>'
            )
        parts.append(
            f'<circle cx="{at(row["effective"])}" cy="{y}" r="4.5" stroke="{colour}" '
            f'stroke-width="1.5" fill="{colour if out else "#ffffff"}"/>'
        )
        parts.append(
            f'<text x="{wide - 4}" y="{y + 4:.0f}" text-anchor="end">{points(row["effective"])}'
            "</text>"
        )
    tall = high * len(rows) + 28
    caption = "effective robustness ρ in points; 0 is the line through the baseline models"
    under = f'<text x="{wide - 4}" y="{tall - 6}" text-anchor="end" font-size="10">{caption}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" width="{wide}" '
        'role="img" aria-label="Effective robustness by shift" font-family="sans-serif" '
        f'font-size="12" fill="#333333">{"".join(parts)}{under}</svg>'
    )


def card(
    model: str,
    testbed: str | Path | Testbed | PredictionStore = "imagenet-testbed-2020",
    *,
    output: str | Path | None = None,
    shifts: Sequence[str] | None = None,
    others: Sequence[Results] = (),
    on_boundary: OnBoundary = "raise",
    level: float = 0.95,
    fdr: float = 0.05,
) -> Card:
    """A section for a model card: accuracies, ρ with intervals, label policies, caveats.

    ``output`` is a .md (with its picture beside it, as .svg) or .html file to write it to;
    ``others`` are as for ``rank``.
    """
    suffix = None if output is None else Path(output).suffix.lower()
    if suffix not in (None, ".md", ".html"):
        raise InputError(f"{output}: a card is written to .md or .html, not {suffix!r}")
    source = open_source(joined(testbed, others) if others else testbed)
    bed = source.testbed
    row = bed.model_index(model)
    name = bed.model_names[row]
    found = findings(source, shifts, fdr=fdr, level=level, on_boundary=on_boundary)
    mine = found.robustness.filter(pl.col("model") == name)
    if not len(mine):
        raise InputError(f"{name!r} was evaluated on no shift of {bed.name} that has a line")
    met = [bed.shift(shift) for shift in mine["shift"]]
    used = dict.fromkeys(s for shift in met for s in (*shift.source, shift.target))
    lines = {r["shift"]: r for r in found.lines.to_dicts()}
    made = Card(
        frame=mine,
        citation=bed.citation,
        called=bed.called,
        model=name,
        opening=_opening(bed, name, mine, fdr),
        sentences=_sentences(mine, level),
        accuracies=_accuracies(bed, row, list(used), source.policies, level),
        robustness=_robustness(mine, lines, level),
        caveats=tuple(_caveats(mine, found.not_computed)),
        citations=tuple(c for c in (bed.citation, f"Computed by shiftbed {__version__}.") if c),
        output=None if output is None else Path(output),
    )
    if output is not None:
        beside = Path(output).with_suffix(".svg")
        text = made.to_markdown(beside.name) if suffix == ".md" else made.to_html()
        if suffix == ".md":
            with write_atomically(beside) as file:
                file.write(made.to_svg().encode())
        with write_atomically(output) as file:
            file.write(text.encode())
    return made


def _opening(testbed: Testbed, name: str, mine: pl.DataFrame, fdr: float) -> str:
    out = mine.filter("out_of_line").sort("p_value")
    baseline = f"baseline models of {testbed.name}"
    if not len(out):
        return (
            f"{name} is not out of line among the {baseline} on "
            f"{mine['shift'][0] if len(mine) == 1 else f'any of {len(mine)} distribution shifts'} "
            f"(false discovery rate {fdr:g})."
        )
    parts = []
    for row in out.head(SAID).to_dicts():
        said = "; ".join([f"{points(row['effective'], 1)} points", *doubts(row)])
        parts.append(f"{row['shift']} ({said})")
    more = f" and {len(out) - SAID} more" if len(out) > SAID else ""
    return (
        f"{name} is out of line among the {baseline} on {len(out)} of {len(mine)} distribution "
        f"shifts (false discovery rate {fdr:g}): {', '.join(parts)}{more}."
    )


def _sentences(mine: pl.DataFrame, level: float) -> tuple[str, ...]:
    """Those out of line first, then by how unusual ρ is."""
    unusual = mine.sort("out_of_line", "p_value", descending=[True, False], nulls_last=True)
    return tuple(in_words(row, level) for row in unusual.head(SAID).to_dicts())


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
        title = testbed.title_of(setting)
        rows.append((title, f"{100 * value:.2f}", around, str(n) if n else "–", policy))
    columns = ("Setting", "Accuracy (%)", f"{100 * level:g} % interval", "n", "Label policy")
    return Table(title="Accuracy", columns=columns, rows=tuple(rows))


def _robustness(mine: pl.DataFrame, lines: dict[str, Any], level: float) -> Table:
    rows = [
        {**r, **{f"line_{key}": lines[r["shift"]][key] for key in ("n", "r2", "reason")}}
        for r in mine.to_dicts()
    ]
    columns: dict[str, Cell] = {
        "Shift": "shift",
        "Predicted (%)": ("predicted", percent),
        "Accuracy (%)": ("target", percent),
        "ρ (points)": ("effective", points),
        f"{100 * level:g} % interval": lambda r: interval(r["low"], r["high"]) or "–",
        "τ (points)": lambda r: points(r["relative"]) or "–",
        "q": ("q_value", p_value),
        "Verdict": badges,
        "Line to be trusted": lambda r: (
            (f"no: {r['line_reason']}" if r["line_reason"] else "yes")
            + f" (n = {r['line_n']}, R² {r['line_r2']:.3f})"
        ),
    }
    return Table.of("Effective robustness ρ", rows, columns)


def _caveats(mine: pl.DataFrame, failed: Sequence[tuple[str, str]]) -> list[str]:
    said = [*interval_notes(mine), *caveat_notes(mine, most=len(mine) * 10)]
    if mine["fitted"].any():
        said.append("The model is itself one of those the lines go through.")
    return said + [f"Not computed: {name} ({why})." for name, why in failed]


def _escaped(text: str) -> str:
    return escape(plain(text))


def _markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(plain(text).split()))
